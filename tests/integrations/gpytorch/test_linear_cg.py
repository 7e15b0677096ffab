"""Our conjugate gradients where linear_operator's is called."""

from __future__ import annotations

import linear_operator
import pytest
import torch
from linear_operator import settings
from linear_operator.utils.warnings import NumericalWarning

from halfgp.integrations.gpytorch import linear_cg


def matrix(*batch, n=40):
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(*batch, n, n, generator=generator, dtype=torch.float64)
    return a @ a.mT / n + torch.eye(n, dtype=torch.float64)


def test_a_vector_a_matrix_and_a_batch():
    for a, b in (
        (matrix(), torch.ones(40, dtype=torch.float64)),
        (matrix(), torch.eye(40, dtype=torch.float64)[:, :3]),
        (matrix(5), torch.ones(5, 40, 2, dtype=torch.float64)),
        (matrix(2, 3), torch.ones(2, 3, 40, 2, dtype=torch.float64)),
    ):
        found = linear_cg(a.matmul, b, tolerance=1e-8)
        solved = torch.linalg.solve(a, b)
        assert found.shape == b.shape
        torch.testing.assert_close(found, solved, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(linear_cg(a, b, tolerance=1e-8), found)


def test_a_start_a_preconditioner_and_single():
    a = matrix()
    b = torch.ones(40, 2, dtype=torch.float64)
    solved = torch.linalg.solve(a, b)
    inverse = torch.linalg.inv(a)
    torch.testing.assert_close(
        linear_cg(a, b, tolerance=1e-9, max_iter=2, preconditioner=lambda v: inverse @ v),
        solved,
        rtol=1e-6,
        atol=1e-6,
    )
    torch.testing.assert_close(linear_cg(a, b, tolerance=1e-6, max_iter=0, initial_guess=solved), solved)
    single = linear_cg(a.float(), b.float(), tolerance=1e-3)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single, solved.float(), rtol=1e-2, atol=1e-2)


def test_its_settings_and_its_warning():
    a, b = matrix(), torch.ones(40, dtype=torch.float64)
    tight = settings.max_cg_iterations(1), settings.cg_tolerance(1e-10)
    with tight[0], tight[1], pytest.warns(NumericalWarning, match="CG terminated in 1 iterations"):
        linear_cg(a, b)
    with settings.cg_tolerance(0.5):
        loose = linear_cg(a, b)
    assert float((a @ loose - b).norm() / b.norm()) <= 0.5


def test_zero_gives_zero_and_what_cannot_be_is_refused():
    a = matrix()
    assert not bool(linear_cg(a, torch.zeros(40, dtype=torch.float64)).any())
    with pytest.raises(RuntimeError, match="matmul_closure"):
        linear_cg(3, torch.ones(40))
    with pytest.raises(RuntimeError, match="tridiagonalization"):
        linear_cg(a, torch.ones(40, dtype=torch.float64), n_tridiag=1, max_iter=5, max_tridiag_iter=6)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("guess", [False, True])
def test_tridiagonal_matrices_are_those_of_linear_operator(batch, preconditioned, guess):
    a = matrix(*batch)
    b = torch.randn(*batch, 40, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    scales = torch.linspace(1.0, 3.0, 40, dtype=torch.float64)[:, None]
    options = {
        "n_tridiag": 3,
        "tolerance": 1e-4,
        "max_tridiag_iter": 8,
        "preconditioner": (lambda v: v / scales) if preconditioned else None,
        "initial_guess": torch.ones_like(b) if guess else None,
    }
    solution, found = linear_cg(a.matmul, b, **options)
    theirs, expected = linear_operator.utils.linear_cg(a.matmul, b, **options)
    assert found.shape == expected.shape == (3, *batch, 8, 8)
    # Eight steps on a matrix of condition 5: both recurrences are exact to a few hundred roundings.
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    # A is above the identity, so that errors are below residuals: of relative size 1e-4 each.
    assert float((solution - theirs).norm(dim=-2).max()) < 2e-4 * float(b.norm(dim=-2).max())


def test_a_tridiagonal_matrix_ends_where_its_space_does():
    a = torch.diag(torch.tensor([1.0, 1.0, 2.0, 2.0], dtype=torch.float64))
    b = torch.eye(4, dtype=torch.float64)[:, [0, 2]] + torch.tensor([[0.0, 1.0]] + [[0.0, 0.0]] * 3)
    _, found = linear_cg(a, b.double(), n_tridiag=2, tolerance=1e-10, max_iter=10, max_tridiag_iter=4)
    # An eigenvector has a space of one, and the sum of two of two; what is beyond is the identity.
    assert found.shape == (2, 2, 2)
    torch.testing.assert_close(found[0], torch.eye(2, dtype=torch.float64))
    torch.testing.assert_close(torch.linalg.eigvalsh(found[1]), torch.tensor([1.0, 2.0]).double())

"""Rows given their neighbours: the torch reference against dense algebra, the engine against that."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from halfgp.backends.conditionals import Neighbourhoods
from halfgp.backends.reference import BACKEND as REFERENCE
from halfgp.kernels import RBF, Constant, Linear, Matern, Periodic, RationalQuadratic, White
from halfgp.precision import Precision

cpu = pytest.importorskip("halfgp.backends.cpu")

N, D, K, Q = 80, 3, 7, 2
DOUBLE, SINGLE = Precision.resolve("double"), Precision.resolve("single")
KERNELS = {
    "rbf": RBF(lengthscale=1.3),
    "matern12, ard": 0.7 * Matern(0.5, lengthscale=[1.0, 2.0, 3.0]),
    "matern32, ard": 2.0 * Matern(1.5, lengthscale=[1.0, 0.6, 1.5]),
    "matern52": Matern(2.5, lengthscale=0.8),
    "rational quadratic": RationalQuadratic(alpha=0.7, lengthscale=[1.0, 2.0, 0.5]),
    "periodic times rbf": 1.5 * Periodic(period=2.0, active_dims=[0]) * RBF(),
    "sum with linear and white": Matern(1.5) + 0.5 * RBF(lengthscale=2.0) * Linear() + White(0.3),
    "constant": Constant(2.0) + RBF(),
    "linear, ard": Linear(variance=[1.0, 0.5, 2.0]),
}
NOISE = 0.1


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def neighbourhoods(kernel, rows=37, k=K):
    """Random members, some of them absent; more rows than a vector has lanes, and not a multiple of them."""
    x = torch.randn(N, D, generator=generator(), dtype=torch.float64)
    y = torch.randn(N, Q, generator=generator(1), dtype=torch.float64)
    which = torch.arange(N - rows, N)
    members = torch.stack(
        [torch.randperm(N - rows, generator=generator(int(r)))[:k] for r in which]
    ).contiguous()
    members[:5, -2:] = -1
    members[5] = -1
    return Neighbourhoods(x, which, members, kernel.diagonal(x).detach() + NOISE, y)


@pytest.fixture(params=list(KERNELS), ids=str)
def kernel(request):
    return KERNELS[request.param].detached()


def dense(kernel, of):
    """K + noise of all points."""
    matrix = kernel(of.x, of.x).detach()
    matrix.diagonal().copy_(of.diagonal)
    return matrix


@pytest.mark.parametrize("landmarks", [1, 8, 21])
@pytest.mark.parametrize("instruction_set", [None, *cpu.instruction_sets()])
def test_landmarks_first_are_a_schur_complement(kernel, landmarks, instruction_set):
    """Points given landmarks have the covariances of the Schur complement: dense algebra of that."""
    of = neighbourhoods(kernel)
    matrix = dense(kernel, of)
    z = torch.randn(landmarks, D, generator=generator(5), dtype=torch.float64)
    inner = kernel(z, z).detach() + NOISE * torch.eye(landmarks, dtype=torch.float64)
    explained = torch.linalg.solve_triangular(
        torch.linalg.cholesky(inner), kernel(z, of.x).detach(), upper=False
    ).T
    given = replace(of, explained=explained.contiguous())
    backend = REFERENCE if instruction_set is None else cpu.CpuBackend(instruction_set)
    found = backend.conditionals(kernel, given, precision=DOUBLE, threads=2)
    schur = matrix - explained @ explained.T
    for i in range(len(of.rows)):
        group = torch.cat([of.members[i][of.members[i] >= 0], of.rows[i : i + 1]])
        g = torch.linalg.inv(torch.linalg.cholesky(schur[group][:, group]))[-1]
        deviation = 1.0 / float(g[-1])
        assert float(found.deviations[i]) == pytest.approx(deviation, rel=1e-9)
        torch.testing.assert_close(found.residuals[i], g @ of.targets[group], rtol=1e-7, atol=1e-8)
        present = torch.cat([of.members[i] >= 0, torch.tensor([True])])
        torch.testing.assert_close(found.factor[i][present], g, rtol=1e-7, atol=1e-8 / deviation)


def test_the_reference_is_dense_algebra(kernel):
    of = neighbourhoods(kernel)
    found = REFERENCE.conditionals(kernel, of, precision=DOUBLE, threads=None)
    matrix = dense(kernel, of)
    for i, row in enumerate(of.rows.tolist()):
        members = of.members[i][of.members[i] >= 0]
        inverse = torch.linalg.inv(matrix[members][:, members])
        weights = matrix[row, members] @ inverse
        variance = matrix[row, row] - weights @ matrix[members, row]
        residual = of.targets[row] - weights @ of.targets[members]
        torch.testing.assert_close(found.deviations[i], variance.sqrt())
        torch.testing.assert_close(found.residuals[i], residual / variance.sqrt())
        torch.testing.assert_close(found.factor[i, -1], 1.0 / variance.sqrt())
        torch.testing.assert_close(found.factor[i, :-1][of.members[i] >= 0], -weights / variance.sqrt())
        assert bool((found.factor[i, :-1][of.members[i] < 0] == 0).all())


def test_all_earlier_rows_make_the_exact_likelihood_and_inverse():
    kernel = KERNELS["matern32, ard"].detached()
    x = torch.randn(30, D, generator=generator(), dtype=torch.float64)
    y = torch.randn(30, Q, generator=generator(1), dtype=torch.float64)
    earlier = torch.arange(29).expand(30, 29)
    members = torch.where(earlier < torch.arange(30)[:, None], earlier, -1).contiguous()
    of = Neighbourhoods(x, torch.arange(30), members, kernel.diagonal(x).detach() + NOISE, y)
    found = cpu.BACKEND.conditionals(kernel, of, precision=DOUBLE, threads=1)
    matrix = dense(kernel, of)
    whole = torch.distributions.MultivariateNormal(torch.zeros(30, dtype=torch.float64), matrix)
    loss = 0.5 * found.residuals.square().sum() + Q * (
        found.deviations.log().sum() + 15 * math.log(2 * math.pi)
    )
    torch.testing.assert_close(-loss, whole.log_prob(y.T).sum())
    factor = torch.zeros(30, 30, dtype=torch.float64)
    factor.scatter_add_(1, members.clamp_min(0), found.factor[:, :-1])
    factor.diagonal().copy_(found.factor[:, -1])
    torch.testing.assert_close(factor.T @ factor, torch.linalg.inv(matrix))


@pytest.mark.parametrize("instruction_set", cpu.instruction_sets())
@pytest.mark.parametrize("precision", [DOUBLE, SINGLE], ids=["double", "single"])
def test_the_engine_agrees_with_the_reference(kernel, instruction_set, precision):
    of = neighbourhoods(kernel)
    wanted = REFERENCE.conditionals(kernel, of, precision=DOUBLE, threads=None, gradient=True)
    found = cpu.CpuBackend(instruction_set).conditionals(
        kernel, of, precision=precision, threads=2, gradient=True
    )
    # A factor of k + 1 rows of condition c errs by a small multiple of (k + 1) c eps; c is at most the trace
    # over the noise.
    condition = (K + 1) * float(of.diagonal.max()) / NOISE
    bound = 8.0 * (K + 1) * condition * precision.vectors.eps
    for name in ("residuals", "deviations", "factor", "by_diagonal"):
        torch.testing.assert_close(
            getattr(found, name), getattr(wanted, name), rtol=0.0,
            atol=bound * float(getattr(wanted, name).abs().max()),
        )  # fmt: skip
    # Every parameter's gradient is a sum over pairs of about the weights of the diagonal's.
    size = float(wanted.by_diagonal.abs().sum()) * float(of.diagonal.max())
    for name, gradient in wanted.gradient.items():
        torch.testing.assert_close(found.gradient[name], gradient, rtol=0.0, atol=bound * size)


def test_the_gradient_is_that_of_the_loss(kernel):
    of = neighbourhoods(kernel)
    found = cpu.BACKEND.conditionals(kernel, of, precision=DOUBLE, threads=1, gradient=True)

    def loss(changed):
        diagonal = changed.diagonal(of.x).detach() + NOISE
        moved = Neighbourhoods(of.x, of.rows, of.members, diagonal, of.targets)
        got = cpu.BACKEND.conditionals(changed, moved, precision=DOUBLE, threads=1)
        return 0.5 * got.residuals.square().sum() + Q * got.deviations.log().sum()

    for name, parameter in kernel.named_parameters():
        step = 1e-5
        for index in range(parameter.value.numel()):
            ends = []
            for sign in (1, -1):
                value = parameter.value.detach().clone()
                value.reshape(-1)[index] += sign * step
                named = dict(kernel.named_parameters())
                named[name] = parameter.with_value(value)
                ends.append(loss(kernel.with_parameters(named)))
            # Central differences err by step² of a third derivative and by eps / step of the loss.
            slope = (ends[0] - ends[1]) / (2 * step)
            assert float(found.gradient[name].reshape(-1)[index]) == pytest.approx(
                float(slope), rel=1e-5, abs=1e-6
            )


def test_results_do_not_depend_on_the_number_of_threads(kernel):
    of = neighbourhoods(kernel)
    first, second = (
        cpu.BACKEND.conditionals(kernel, of, precision=DOUBLE, threads=threads, gradient=True)
        for threads in (1, 3)
    )
    assert torch.equal(first.residuals, second.residuals)
    assert torch.equal(first.by_diagonal, second.by_diagonal)
    assert all(torch.equal(g, second.gradient[name]) for name, g in first.gradient.items())


@pytest.mark.parametrize("backend", [REFERENCE, cpu.BACKEND], ids=["reference", "cpu"])
def test_a_neighbourhood_that_is_not_positive_definite_is_not_a_number(backend):
    kernel = RBF().detached()
    x = torch.zeros(3, 1, dtype=torch.float64)
    of = Neighbourhoods(
        x,
        torch.tensor([2]),
        torch.tensor([[0, 1]]),
        torch.full((3,), 0.5, dtype=torch.float64),  # below the covariances of equal points
        torch.ones(3, 1, dtype=torch.float64),
    )
    assert bool(backend.conditionals(kernel, of, precision=DOUBLE, threads=1).deviations.isnan().all())


def test_no_rows_and_no_members():
    kernel = RBF().detached()
    x = torch.randn(4, 2, generator=generator(), dtype=torch.float64)
    diagonal, y = torch.full((4,), 1.5, dtype=torch.float64), torch.ones(4, 1, dtype=torch.float64)
    none = Neighbourhoods(x, torch.arange(0), torch.empty(0, 2, dtype=torch.long), diagonal, y)
    assert len(cpu.BACKEND.conditionals(kernel, none, precision=DOUBLE, threads=2).deviations) == 0
    alone = Neighbourhoods(x, torch.arange(4), torch.empty(4, 0, dtype=torch.long), diagonal, y)
    found = cpu.BACKEND.conditionals(kernel, alone, precision=DOUBLE, threads=1, gradient=True)
    torch.testing.assert_close(found.deviations, diagonal.sqrt())


@pytest.mark.parametrize("backend", [REFERENCE, cpu.BACKEND], ids=["reference", "cpu"])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
def test_points_in_single_are_computed_with_in_double(kernel, backend):
    of = neighbourhoods(kernel)
    narrow, wide = (replace(of, x=x) for x in (of.x.float(), of.x.float().double()))
    found = [
        backend.conditionals(kernel, rows, precision=DOUBLE, threads=1, gradient=True)
        for rows in (narrow, wide)
    ]
    for name in ("residuals", "deviations", "factor"):
        assert torch.equal(*(getattr(one, name) for one in found))
    for name, gradient in found[0].gradient.items():
        assert torch.equal(gradient, found[1].gradient[name])

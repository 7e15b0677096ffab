"""SciPy's solvers on our operators, and our solver in SciPy's place."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse.linalg

from halfgp import RBF, KernelOperator, PivotedCholesky
from halfgp.errors import InputError
from halfgp.integrations.scipy import cg


def system(n=80):
    x = np.random.default_rng(0).standard_normal((n, 3))
    return KernelOperator(RBF(), x, noise=0.1, precision="double"), np.sin(x).sum(axis=1)


def test_an_operator_is_one_of_scipys():
    op, b = system()
    linear = op.aslinearoperator()
    dense = op.to_dense()
    np.testing.assert_allclose(linear @ b, dense @ b, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(linear.T @ np.eye(80)[:, :3], dense.T[:, :3], rtol=1e-10, atol=1e-12)
    found, info = scipy.sparse.linalg.cg(linear, b, rtol=1e-8)
    assert info == 0
    np.testing.assert_allclose(found, np.linalg.solve(dense, b), rtol=1e-5, atol=1e-6)


def test_a_rectangular_one_has_its_transposed():
    rng = np.random.default_rng(0)
    op = KernelOperator(RBF(), rng.standard_normal((5, 2)), rng.standard_normal((7, 2)), precision="double")
    linear = op.aslinearoperator()
    assert linear.shape == (5, 7)
    np.testing.assert_allclose(linear.rmatvec(np.ones(5)), op.to_dense().sum(axis=0), rtol=1e-10)


@pytest.mark.parametrize("kind", ["array", "sparse", "linear operator", "ours"])
def test_cg_is_scipys(kind):
    op, b = system()
    dense = op.to_dense()
    matrix = {
        "array": dense,
        "sparse": scipy.sparse.csr_array(dense),
        "linear operator": op.aslinearoperator(),
        "ours": op,
    }
    found, info = cg(matrix[kind], b, rtol=1e-7)
    assert info == 0
    assert found.shape == b.shape
    assert np.linalg.norm(dense @ found - b) <= 1.01e-7 * np.linalg.norm(b)


def test_tolerances_starts_and_preconditioners_are_scipys():
    op, b = system()
    dense = op.to_dense()
    inverse = np.linalg.inv(dense)
    found, info = cg(dense, b, inverse @ b + 1e-3, atol=1e-9, rtol=0.0, M=inverse)
    assert info == 0
    assert np.linalg.norm(dense @ found - b) <= 1.01e-9
    assert cg(op, b, M=PivotedCholesky(rank=20))[1] == 0
    assert cg(op, np.zeros(80))[1] == 0


def test_what_is_not_reached_is_told():
    op, b = system()
    _, info = cg(op, b, rtol=1e-12, maxiter=2)
    assert info == 2


def test_what_cannot_be_is_refused():
    op, b = system()
    with pytest.raises(InputError, match="callback"):
        cg(op, b, callback=print)
    with pytest.raises(InputError, match="shape"):
        cg(op, np.ones((80, 2)))
    with pytest.raises(InputError, match="positive"):
        cg(op, b, rtol=0.0)
    with pytest.raises(InputError, match="`b` must be real"):
        cg(op, 1j * b)
    with pytest.raises(InputError, match="`A` must be real"):
        cg(op.to_dense() + 0j, b)

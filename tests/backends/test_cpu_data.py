"""The compiled engine on real and on awkward data: outliers, offsets, duplicates, extreme scales."""

from __future__ import annotations

import functools
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from contracts.backends import CPU
from torch import Tensor

from halfgp import RBF, KernelOperator, Matern, RationalQuadratic
from halfgp.kernels import Kernel
from halfgp.selftest.checks import assert_product_is_right, bind, definition, random
from halfgp.selftest.contestant import Contestant

pytest.importorskip("halfgp.backends.cpu", reason="halfgp._cpu was not built")
each_instruction_set = pytest.mark.parametrize("contestant", CPU)
KERNELS = {
    "rbf": RBF,
    "matern12": functools.partial(Matern, 0.5),
    "matern32": functools.partial(Matern, 1.5),
    "rational_quadratic": functools.partial(RationalQuadratic, 50.0),
}
ERRORS = {"double": 1e-12, "single": 1e-5, "half": 1e-3}


@functools.cache
def standardised(name: str, rows: int) -> Tensor:
    """Rows of a real data set, the most extreme ones among them; the last column, the target, is left out."""
    directory = os.environ.get("HALFGP_DATA")
    path = Path(directory or "", "uci", name, "data.csv.gz")
    if directory is None or not path.exists():
        pytest.skip(f"HALFGP_DATA has no uci/{name}")
    x = torch.from_numpy(np.loadtxt(path, delimiter=",", dtype=np.float64))[:, :-1]
    x = x[:, x.std(dim=0) > 0]
    z = (x - x.mean(dim=0)) / x.std(dim=0)
    extreme = z.abs().amax(dim=1).argsort(descending=True)
    others = extreme[100:][torch.randperm(len(z) - 100, generator=torch.Generator().manual_seed(0))]
    return z[torch.cat([extreme[:100], others[: rows - 100]])]


def relative_error(found: Tensor, wanted: Tensor) -> float:
    return ((found.double() - wanted).norm() / wanted.norm()).item()


each_data_set = pytest.mark.parametrize("name", ["elevators", "keggdirected"])
each_kernel = pytest.mark.parametrize("kernel", KERNELS)
each_lengthscale = pytest.mark.parametrize("unit", [True, False], ids=["lengthscale 1", "lengthscale sqrt d"])


@pytest.mark.data
@each_data_set
@each_kernel
@each_lengthscale
def test_products_on_real_data_are_as_accurate_as_the_benchmark_demands(
    name: str, kernel: str, unit: bool
) -> None:
    x, v = standardised(name, 1500), random(1500, 11)
    assert x.abs().max() > 100  # real outliers
    covariance = KERNELS[kernel](lengthscale=1.0 if unit else math.sqrt(x.shape[1]))
    wanted = definition(covariance, x, None) @ v
    for precision, limit in ERRORS.items():
        found = KernelOperator(covariance, x, precision=precision, backend="cpu") @ v
        assert relative_error(found, wanted) <= limit, precision
        # Far points too: a norm over all rows would not see that they are wrong.
        assert relative_error(found[:100], wanted[:100]) <= 3 * limit, precision


@pytest.mark.data
@each_data_set
@each_kernel
@each_lengthscale
def test_gradients_on_real_data_in_single_are_good_to_four_digits(name: str, kernel: str, unit: bool) -> None:
    x = standardised(name, 1000)
    u, v = random(1000, 11), random(1000, 11, seed=1)
    lengthscale = [1.0 if unit else math.sqrt(x.shape[1])] * x.shape[1]
    covariance = 2.0 * KERNELS[kernel](lengthscale=lengthscale)
    exact = KernelOperator(covariance, x, precision="double", backend="reference")
    # Terms of either sign leave a thousandth of their sizes, more or less: an error beside it may be chance.
    wanted, sizes = exact.bilinear_gradient(u, v), exact.bilinear_gradient(u.abs(), v.abs())
    found = KernelOperator(covariance, x, precision="single", backend="cpu").bilinear_gradient(u, v)
    for key in wanted:
        assert (found[key] - wanted[key]).norm() <= 1e-7 * sizes[key].norm(), key


AWKWARD: dict[str, tuple[Kernel, Tensor]] = {
    "large offsets": (RBF(0.5), 2.0**20 + (random(300, 3) * 2.0**10).round() / 2.0**10),
    "repeated rows": (Matern(0.5), random(40, 3).repeat(8, 1)),
    "repeated rows of many features": (Matern(0.5, 4.0), random(40, 20).repeat(8, 1)),
    "all rows the same": (RBF(), torch.full((300, 3), 7.25, dtype=torch.float64)),
    "all rows the same, many features": (RBF(), torch.full((300, 20), 7.25, dtype=torch.float64)),
    "constant columns": (Matern(1.5), torch.cat([random(300, 2), torch.full((300, 18), 1e3).double()], 1)),
    "a huge lengthscale": (RBF(1e6), random(300, 4)),
    "a huge lengthscale for many features": (Matern(2.5, 1e6), random(300, 20)),
    "a tiny lengthscale": (Matern(1.5, 1e-3), random(300, 4)),
    "mixed lengthscales": (RBF([1e-3, 1e3, 1.0, 1.0]), random(300, 4)),
    "only outliers": (RBF(), 300.0 * random(300, 3)),
    "only outliers of many features": (RBF(), 300.0 * random(300, 20)),
    "one row far out": (RBF(), torch.cat([random(299, 20), torch.full((1, 20), 1e3).double()])),
    "two clusters": (RBF(), torch.cat([random(150, 20) - 1e3, random(150, 20, seed=1) + 1e3])),
    "one row": (RBF(), random(1, 20)),
    "no rows": (RBF(), random(0, 20)),
}


@each_instruction_set
@pytest.mark.parametrize(("kernel", "x"), AWKWARD.values(), ids=AWKWARD.keys())
@pytest.mark.parametrize("name", ["double", "single", "half", "bfloat16"])
def test_awkward_points_stay_within_the_bound(
    contestant: Contestant, kernel: Kernel, x: Tensor, name: str
) -> None:
    for store in (False, True):
        square = bind(contestant, kernel, x, None, name, store)
        assert_product_is_right(contestant, square, kernel, x, None, random(len(x), 5, seed=2))
    x1 = x[: len(x) // 3]
    rectangular = bind(contestant, kernel, x1, x, name)
    assert_product_is_right(contestant, rectangular, kernel, x1, x, random(len(x), 5, seed=2))


@each_instruction_set
@pytest.mark.parametrize("name", ["double", "single", "half"])
@pytest.mark.parametrize("d", [1, 3, 20])
@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_points_that_coincide_have_finite_gradients(
    contestant: Contestant, name: str, d: int, nu: float
) -> None:
    x, u = random(40, d).repeat(8, 1), random(320, 2, seed=1)
    found, in_x, _ = bind(contestant, Matern(nu, 2.0), x, None, name).bilinear_gradient(u, u, True)
    assert in_x is not None
    assert bool(in_x.isfinite().all())
    assert bool(found["lengthscale"].isfinite())


@each_instruction_set
@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize(
    "kernel", [RBF(), Matern(0.5), Matern(1.5), Matern(2.5), RationalQuadratic()], ids=repr
)
def test_the_farthest_points_that_are_accepted_have_finite_covariances(
    contestant: Contestant, precision: str, kernel: Kernel
) -> None:
    largest = torch.finfo(torch.float32 if precision == "single" else torch.float64).max
    x = torch.tensor([[0.0], [0.999 / 32.0 * math.sqrt(largest)]], dtype=torch.float64)
    dense = KernelOperator(kernel, x, precision=precision, backend=contestant.backend).to_dense()
    assert torch.isfinite(torch.as_tensor(dense)).all()
    assert dense[0, 1] <= 1e-30

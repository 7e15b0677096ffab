from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from contracts.textbook import KERNELS, Textbook, at, points, targets

from halfgp.kernels import RBF, Linear, Matern
from halfgp.neighbours import LocalPosterior, Shrinkage
from halfgp.problem import Problem

N = 150
NEW = points(40, seed=7)
# Cholesky in double of matrices with a condition of at most n / noise.
ROUND_OFF = 1e-11


def local(hyperparameters, neighbours, x=None, fixed=None):
    x = points(N) if x is None else x
    return LocalPosterior.build(Problem(x, targets(x), fixed), hyperparameters, neighbours)


@pytest.mark.parametrize("name", KERNELS)
def test_all_rows_as_neighbours_give_the_exact_variance(name):
    hyperparameters = at(KERNELS[name], noise=0.1)
    exact = Textbook(hyperparameters, points(N), targets(points(N))).covariance(NEW).diagonal()
    found, _ = local(hyperparameters, N)(NEW)
    torch.testing.assert_close(found, exact, rtol=0, atol=ROUND_OFF)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("neighbours", [1, 7, 30])
def test_fewer_rows_never_give_less_than_the_exact_variance_nor_more_than_the_prior(name, neighbours):
    hyperparameters = at(KERNELS[name], noise=0.1)
    exact = Textbook(hyperparameters, points(N), targets(points(N))).covariance(NEW).diagonal()
    found, gap = local(hyperparameters, neighbours)(NEW)
    prior = hyperparameters.kernel.diagonal(NEW, white=False).detach()
    assert bool((found >= exact - ROUND_OFF).all())
    assert bool((found <= prior + ROUND_OFF).all())
    assert bool((found >= 0).all())
    assert bool((gap >= 0).all())


def test_more_rows_come_closer():
    hyperparameters = at(Matern(1.5, lengthscale=0.7), noise=0.05)
    errors = [local(hyperparameters, k)(NEW)[0] - local(hyperparameters, N)(NEW)[0] for k in (2, 8, 32, 100)]
    means = [float(error.mean()) for error in errors]
    assert means == sorted(means, reverse=True)
    assert means[0] > 3 * means[2]


def test_at_the_rows_themselves_with_next_to_no_noise_it_is_not_negative():
    x = points(N)
    found, _ = local(at(RBF(2.0), noise=1e-10, floor=0.0), 60)(x)
    assert bool((found >= 0).all())
    assert float(found.max()) < 1e-8


@pytest.mark.parametrize("d", [2, 6])
def test_leaving_a_row_out_is_to_condition_on_the_others(d):
    x = points(60, d)
    fixed = torch.linspace(0.05, 0.5, 60, dtype=torch.float64)
    hyperparameters = at(Matern(2.5, lengthscale=1.1), noise=None)
    found, _ = local(hyperparameters, 60, x, fixed)(x, leave_out=torch.arange(60))
    for i in (0, 17, 59):
        rest = torch.arange(60) != i
        book = Textbook(hyperparameters, x[rest], targets(x)[rest], fixed[rest])
        assert float(found[i]) == pytest.approx(float(book.covariance(x[i : i + 1])), abs=ROUND_OFF)


def test_a_row_that_is_there_twice_sees_its_twin():
    x = points(50).repeat(2, 1)
    hyperparameters = at(RBF(0.2), noise=0.1)
    found, _ = local(hyperparameters, 1, x)(x, leave_out=torch.arange(100))
    # Given one measurement of itself: 1 - 1 / (1 + noise), and landmarks, which are not near most rows.
    assert bool((found <= 0.1 / 1.1 + ROUND_OFF).all())
    book = Textbook(hyperparameters, x, targets(x))
    exact = 1.0 / torch.linalg.inv(book.matrix).diagonal() - 0.1
    assert bool((found >= exact - ROUND_OFF).all())


def test_landmarks_that_are_left_out_do_not_see_themselves():
    x = points(N)
    hyperparameters = at(Matern(1.5, lengthscale=0.7), noise=0.05)
    posterior = local(hyperparameters, 4, x)
    exact = 1.0 / torch.linalg.inv(Textbook(hyperparameters, x, targets(x)).matrix).diagonal() - 0.05
    found, _ = posterior(x[posterior.landmarks], leave_out=posterior.landmarks)
    assert len(found) > 10
    assert bool((found >= exact[posterior.landmarks] - ROUND_OFF).all())


def test_one_row_has_no_others():
    found, gap = local(at(RBF(), noise=0.1), 5, points(1))(
        points(1), leave_out=torch.zeros(1, dtype=torch.long)
    )
    assert found.tolist() == [1.0]
    assert gap.tolist() == [1.0]


def test_chunks_do_not_change_it(monkeypatch):
    hyperparameters = at(KERNELS["sum"], noise=0.1)
    whole = local(hyperparameters, 10)(NEW)[0]
    monkeypatch.setattr("halfgp.neighbours.LOCAL_BYTES", 16 * 11 * 40 * 3)
    torch.testing.assert_close(local(hyperparameters, 10)(NEW)[0], whole, rtol=0, atol=ROUND_OFF)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("fixed", [False, True])
def test_leave_one_out_from_all_other_rows_is_the_textbooks(name, fixed):
    x, rows = points(N), torch.tensor([3, 77, 149])
    y, noise = targets(x, q=2), torch.linspace(0.1, 0.3, N, dtype=torch.float64) if fixed else None
    hyperparameters = at(KERNELS[name], noise=None if fixed else 0.1, mean=[0.2, -0.1])
    inverse = torch.linalg.inv(Textbook(hyperparameters, x, y, noise).matrix)
    variance = 1.0 / inverse.diagonal()
    residual = (inverse @ hyperparameters.centred(y)) * variance[:, None]
    residuals, variances = LocalPosterior.build(Problem(x, y, noise), hyperparameters, N).leave_one_out(rows)
    torch.testing.assert_close(residuals, residual[rows], rtol=0, atol=1e3 * ROUND_OFF)
    torch.testing.assert_close(variances, variance[rows], rtol=0, atol=1e3 * ROUND_OFF)


def test_far_from_all_rows_the_variance_is_the_prior_whatever_the_scale():
    """One factor for all of them made intervals a third of what nobody knows."""
    x = points(400, 2)
    hyperparameters = at(2.0 * RBF(1.0), noise=1e-3)
    scaled = replace(local(hyperparameters, 30, x), shrinkage=Shrinkage(0.05))
    far, _ = scaled(torch.full((1, 2), 1e3, dtype=torch.float64))
    assert float(far[0]) == pytest.approx(2.0)
    near, gap = scaled(x[:50] + 0.01)
    plain, _ = replace(scaled, shrinkage=Shrinkage())(x[:50] + 0.01)
    assert bool((near < 0.2 * plain).all())
    assert bool((gap >= plain - near - 1e-12).all())


LINEAR = {
    "sum": lambda d: 1.0 * Linear() + 1.0 * RBF(d**0.5),
    "rough": lambda d: 1.0 * Linear() + 1.0 * Matern(1.5, d**0.5),
    "product": lambda d: Linear() * RBF(d**0.5),
}


@pytest.mark.parametrize("d", [2, 4, 8])
@pytest.mark.parametrize("noise", [1e-3, 1e-1])
@pytest.mark.parametrize("name", LINEAR)
def test_kernels_with_a_linear_part_look_at_near_rows(name, noise, d):
    """The rows of largest covariance are those far out: deviations were 170 times the exact ones."""
    x, new = points(800, d), torch.cat([points(60, d, seed=5), 3 * points(40, d, seed=6)])
    hyperparameters = at(LINEAR[name](d), noise=noise)
    book = Textbook(hyperparameters, x, targets(x))
    exact = book.covariance(new).diagonal()
    found, _ = local(hyperparameters, None, x)(new)
    ratio = ((found + noise) / (exact + noise)).sqrt()
    assert float(ratio.min()) > 1.0 - ROUND_OFF
    assert float(ratio.quantile(0.9)) < 2.1
    assert float(ratio.median()) < 1.35


@pytest.mark.parametrize("noise", [0.1, 1.0])
@pytest.mark.parametrize("kernel", [RBF(1.0), Matern(2.5, lengthscale=1.0)], ids=["rbf", "matern52"])
def test_where_rows_are_sparse_beside_dense_ones_no_deviation_is_too_small(kernel, noise):
    """One factor for all rows, which the dense ones asked for, made these half of the truth."""
    rng = torch.Generator().manual_seed(0)
    dense, sparse = (torch.rand(n, 1, generator=rng, dtype=torch.float64) for n in (850, 150))
    x, new = torch.cat([dense, 1.0 + 40.0 * sparse]), 1.0 + 40.0 * points(100, 1, seed=4).abs()
    hyperparameters = at(kernel, noise=noise)
    exact = Textbook(hyperparameters, x, targets(x)).covariance(new).diagonal()
    found, _ = local(hyperparameters, None, x)(new)
    assert bool((found >= exact - ROUND_OFF).all())


@pytest.mark.parametrize("fixed", [False, True])
def test_variances_given_as_many_rows_as_there_are_are_exact(fixed, monkeypatch):
    """Copies among them; and given fewer they are larger."""
    x = torch.cat([points(N), points(30)])
    noise = torch.linspace(0.1, 0.3, len(x), dtype=torch.float64) if fixed else None
    hyperparameters, rows = (
        at(KERNELS["sum"], noise=None if fixed else 0.1),
        torch.tensor([3, 77, len(x) - 1]),
    )
    book = Textbook(hyperparameters, x, targets(x), noise)
    found = LocalPosterior.build(Problem(x, targets(x), noise), hyperparameters, 8)
    exact = 1.0 / torch.linalg.inv(book.matrix).diagonal()[rows]
    torch.testing.assert_close(found.given_many(rows), exact, rtol=0, atol=1e3 * ROUND_OFF)
    monkeypatch.setattr("halfgp.neighbours.MANY", 4)
    few = replace(found, landmarks=found.landmarks[:2])
    assert bool((few.given_many(rows) > exact).all())


def test_a_variance_whose_factor_cannot_be_had_is_not_a_number_to_rely_on():
    x = torch.zeros(40, 1, dtype=torch.float64)
    x[:3, 0] = torch.tensor([0.0, 1.0, 2.0])
    found = local(at(RBF(1.0), noise=1e-3), 5, x)
    nothing = replace(found.sites, of_rows=torch.zeros(40, dtype=torch.float64))
    assert float(replace(found, sites=nothing).given_many(torch.tensor([1]))) == torch.inf


def test_one_search_serves_many_chunks(monkeypatch):
    """It grows a tree of all rows: one for each chunk was half of the time of predictions."""
    hyperparameters = at(KERNELS["sum"], noise=0.1)
    found = local(hyperparameters, 10)
    monkeypatch.setattr("halfgp.neighbours.LOCAL_BYTES", 16 * 11 * (len(found.landmarks) + 1) * 3)
    searches, chunks = [], []
    nearest, given = LocalPosterior._nearest, LocalPosterior._given
    monkeypatch.setattr(LocalPosterior, "_nearest", lambda *a: searches.append(a) or nearest(*a))
    monkeypatch.setattr(LocalPosterior, "_given", lambda *a, **k: chunks.append(a) or given(*a, **k))
    found.variances(NEW)
    assert len(chunks) > 10
    assert len(searches) == 1

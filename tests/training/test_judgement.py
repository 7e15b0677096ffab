from __future__ import annotations

import math

import pytest
import torch
from contracts.textbook import at, covariance, points, targets

from halfgp.errors import InputError
from halfgp.kernels import RBF, Linear, Matern
from halfgp.model import training_of
from halfgp.priors import PAPER
from halfgp.problem import Problem
from halfgp.settings import Settings, TrainingOptions
from halfgp.training import judgement, run, train
from halfgp.training.judgement import Judgement, judge

N = 600
START = at(1.0 * Matern(1.5, lengthscale=[0.8, 1.2]), noise=0.3)


def problem(noise=0.1):
    x = points(N, 2)
    return Problem(x, targets(x, noise=noise))


@pytest.mark.parametrize("kernel", [RBF(1.0), RBF(1.0) + Linear()])
def test_with_every_other_row_it_is_exact_leave_one_out(kernel, monkeypatch):
    few = Problem(points(60, 2), targets(points(60, 2)))
    monkeypatch.setattr(judgement, "ROWS", 60)
    monkeypatch.setattr(judgement, "LANDMARKS", 0)
    hyperparameters = at(kernel, noise=0.1)
    found = judge(hyperparameters, few, 0)
    inverse = torch.linalg.inv(covariance(kernel, few.x, torch.tensor(0.1)).detach())
    variances = 1.0 / inverse.diagonal()
    squares = (inverse @ few.y)[:, 0].square() * variances
    scale = squares.mean()
    density = -0.5 * (squares / scale + (2 * torch.pi * scale * variances).log())
    assert found.excess == pytest.approx(float(scale))
    assert found.log_density == pytest.approx(float(density.mean()))


def test_landmarks_tell_what_neighbours_do_not(monkeypatch):
    """Of a smooth function with much noise few neighbours know little: with landmarks it is nearly exact."""
    some, hyperparameters = problem(noise=1.0), at(RBF(3.0), noise=1.0)
    monkeypatch.setattr(judgement, "NEIGHBOURS", 5)
    inverse = torch.linalg.inv(covariance(hyperparameters.kernel, some.x, torch.tensor(1.0)).detach())
    exact = float((inverse @ some.y)[:, 0].square().div(inverse.diagonal()).mean())
    near = judge(hyperparameters, some, 0).excess
    monkeypatch.setattr(judgement, "LANDMARKS", 0)
    assert abs(near - exact) < 0.5 * abs(judge(hyperparameters, some, 0).excess - exact)


def test_noise_explained_away_is_less_likely():
    right, wrong = (judge(at(Matern(1.5), noise=noise), problem(), 0) for noise in (0.1, 1e-3))
    assert wrong.excess > 2.0 * right.excess
    assert wrong.log_density < right.log_density


def trained(monkeypatch, judged, few=False, **options):
    """What training finds with these densities, passed one after the other, and how many were."""
    left = list(judged)
    monkeypatch.setattr(run, "FEW_FEATURES", 4 if few else 0)
    monkeypatch.setattr(run, "judge", lambda hyperparameters, problem, seed: Judgement(*left.pop(0)))
    training = TrainingOptions(subset=300, subset_iterations=5, steps=0)
    settings = Settings(method="cg", training=training).with_params(**options)
    found = train(START, problem(), training_of(settings), PAPER)
    return found, len(judged) - len(left)


def judged(density, error=1.0):
    return (torch.full((4,), density), 1.0, error)


def test_the_point_that_predicts_better_is_taken(monkeypatch):
    subset, looks = trained(monkeypatch, [judged(2.0), judged(1.0), judged(0.0)])
    neighbours, _ = trained(monkeypatch, [judged(1.0), judged(2.0), judged(0.0)])
    assert looks == 3
    values = [float(found.hyperparameters.noise.value) for found in (subset, neighbours)]
    assert values[0] != values[1]
    assert [step.stage for step in neighbours.history][-1] == "neighbours"


def test_of_few_features_neighbourhoods_also_begin_where_a_subset_ended_and_nothing_is_shortened(monkeypatch):
    last = judged(4.0)  # with neighbours found again
    from_start, _ = trained(monkeypatch, [judged(1.0), judged(3.0), judged(2.0), last], few=True)
    from_subset, looks = trained(monkeypatch, [judged(1.0), judged(2.0), judged(3.0), last], few=True)
    assert looks == 4
    values = [float(found.hyperparameters.noise.value) for found in (from_start, from_subset)]
    assert values[0] != values[1]


def test_of_few_features_neighbours_are_found_again_unless_rows_that_are_left_out_lose_by_it(monkeypatch):
    before = [judged(1.0), judged(3.0), judged(2.0)]
    gained, lost = (trained(monkeypatch, [*before, judged(d)], few=True)[0] for d in (4.0, 2.0))
    values = [float(found.hyperparameters.noise.value) for found in (gained, lost)]
    assert values[0] != values[1]
    _, looks = trained(monkeypatch, [judged(3.0), judged(1.0), judged(2.0)], few=True)
    assert looks == 3  # what a subset taught has no neighbours


def test_lengthscales_are_shortened_for_as_long_as_predictions_gain(monkeypatch):
    as_they_are, _ = trained(monkeypatch, [judged(2.0), judged(1.0), judged(0.0)])
    gains = [judged(2.0), judged(1.0), judged(3.0, 0.9), judged(4.0, 0.8), judged(4.0, 0.7)]
    shortened, looks = trained(monkeypatch, gains)
    assert looks == 5
    before, after = (found.hyperparameters.kernel.kernel.lengthscale for found in (as_they_are, shortened))
    torch.testing.assert_close(after, before * run.SHORTER**2)


@pytest.mark.parametrize("other", [judged(3.0, 1.1), judged(math.nan, 0.5), judged(3.0, math.nan)])
def test_a_gain_that_loses_the_function_or_is_no_number_shortens_nothing(monkeypatch, other):
    assert trained(monkeypatch, [judged(2.0), judged(1.0), other])[1] == 3


@pytest.mark.parametrize(
    "options", [{"training__subset": 0}, {"training__subset": N}, {"method": "cholesky"}]
)
def test_all_rows_or_none_need_no_judgement(monkeypatch, options):
    assert trained(monkeypatch, [], **{"training__subset_iterations": 2, **options})[1] == 0


def test_rows_are_looked_at_by_the_seed_alone():
    first, second = (judge(START, problem(), seed) for seed in (3, 4))
    assert torch.equal(first.log_densities, judge(START, problem(), 3).log_densities)
    assert first.log_density != second.log_density


def test_rows_too_close_for_the_noise_are_judged_worst():
    some = Problem(torch.zeros(N, 2, dtype=torch.float64), torch.randn(N, 1, dtype=torch.float64))
    assert judge(at(RBF(), noise=1e-18, floor=0.0), some, 0).log_density == -math.inf


def test_what_cannot_be_judged_surpasses_nothing_and_is_surpassed():
    some, none = (Judgement(torch.full((4,), density), 1.0, 1.0) for density in (1.0, -math.inf))
    assert some.surpasses(none)
    assert not none.surpasses(some)
    assert not none.surpasses(none)


def test_neighbourhoods_that_cannot_be_factored_leave_the_subset(monkeypatch):
    def refuse(self, hyperparameters):
        raise InputError("not positive definite")

    monkeypatch.setattr(run.NeighbourLikelihood, "__call__", refuse)
    settings = Settings(method="cg", training=TrainingOptions(subset=300, subset_iterations=5))
    found = train(START, problem(), training_of(settings), PAPER)
    assert {step.stage for step in found.history} == {"subset"}

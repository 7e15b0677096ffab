from __future__ import annotations

import math

import pytest
from contracts.textbook import at, points, targets

from halfgp.kernels import RBF, Matern
from halfgp.model import training_of
from halfgp.priors import PAPER
from halfgp.problem import Problem
from halfgp.settings import Settings
from halfgp.training import run, train
from halfgp.training.judgement import Judgement, judge

N = 600
START = at(1.0 * Matern(1.5, lengthscale=[0.8, 1.2]), noise=0.3)


def problem():
    x = points(N, 2)
    return Problem(x, targets(x, noise=0.1))


def test_the_right_noise_is_about_as_sure_as_it_should_be():
    found = judge(at(RBF(1.0), noise=0.1), problem(), 0)
    assert found.excess == pytest.approx(1.0, abs=0.2)  # 512 squares: a standard error of 0.06, times three
    assert not found.too_sure


def test_noise_explained_away_is_too_sure_and_less_likely():
    right, wrong = (judge(at(Matern(1.5), noise=noise), problem(), 0) for noise in (0.1, 1e-3))
    assert wrong.too_sure
    assert wrong.log_density < right.log_density


def test_what_is_not_a_number_is_not_trusted():
    assert Judgement(math.nan, math.nan).too_sure


def trained(monkeypatch, judgements, **options):
    """The noise found by training with these judgements passed one after the other, and how many were."""
    left = list(judgements)

    def judged(point, problem, seed):
        assert seed not in range(options.get("random_state", 0), options.get("random_state", 0) + run.SUBSETS)
        return left.pop(0)

    monkeypatch.setattr(run, "judge", judged)
    settings = Settings(**{"method": "cg", "subset": 300, "steps": 0, **options})
    found = train(START, problem(), training_of(settings), PAPER)
    return float(found.hyperparameters.noise.value), len(judgements) - len(left)


GOOD, BAD, WORSE = Judgement(-1.0, 1.0), Judgement(-5.0, 9.0), Judgement(-6.0, 12.0)


def test_a_subset_that_speaks_for_all_rows_is_the_only_one(monkeypatch):
    assert trained(monkeypatch, [GOOD])[1] == 1


def test_another_subset_is_asked_where_one_is_too_sure(monkeypatch):
    second, looks = trained(monkeypatch, [BAD, GOOD])
    assert looks == 2
    assert second == trained(monkeypatch, [GOOD], random_state=1)[0]


def test_of_subsets_that_are_all_too_sure_the_likeliest_is_taken(monkeypatch):
    noise, looks = trained(monkeypatch, [WORSE, BAD, WORSE])
    assert looks == 3
    assert noise == trained(monkeypatch, [GOOD], random_state=1)[0]


@pytest.mark.parametrize("options", [{"subset": 0}, {"subset": N}, {"method": "cholesky"}])
def test_all_rows_or_none_need_no_judgement(monkeypatch, options):
    assert trained(monkeypatch, [], subset_iterations=2, **options)[1] == 0


def test_rows_are_looked_at_by_the_seed_alone():
    first, second = (judge(START, problem(), seed) for seed in (3, 4))
    assert first == judge(START, problem(), 3)
    assert first != second

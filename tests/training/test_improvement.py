from __future__ import annotations

import torch
from contracts.textbook import at, covariance, points

import halfgp.training.run
from halfgp.errors import InputError
from halfgp.kernels import Matern
from halfgp.likelihood import dense_likelihood
from halfgp.model import ExactGP, training_of
from halfgp.priors import WEAK
from halfgp.problem import Problem
from halfgp.settings import Settings, TrainingOptions
from halfgp.training import improvement
from halfgp.training.improvement import Improved, improve
from halfgp.training.judgement import Judgement

N = 700
X = points(N, 2)
TRUE = at(1.5 * Matern(1.5, lengthscale=[0.6, 1.5]), noise=0.05)
DRAW = torch.randn(N, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
Y = torch.linalg.cholesky(covariance(TRUE.kernel, X, TRUE.noise.value).detach()) @ DRAW
ROWS = Problem(X, Y)
FAR = at(1.5 * Matern(1.5, lengthscale=[1.1, 0.8]), noise=0.09)
TRAINING = training_of(Settings(method="cg"))


def improved(observe=lambda step, hyperparameters: None):
    here = Improved(FAR, improvement.judge(FAR, ROWS, 1))
    return here, improve(here, ROWS, TRAINING, WEAK, seed=1, observe=observe)


def loss(hyperparameters):
    return dense_likelihood(hyperparameters, X, Y, priors=WEAK).loss


def judged(density):
    return Judgement(torch.full((4,), density, dtype=torch.float64), 1.0, 1.0)


def test_steps_go_down_the_whole_likelihood_and_predict_better():
    before, after = improved()
    assert after.judged.surpasses(before.judged)
    best = min(loss(TRUE), loss(after.hyperparameters))
    assert loss(after.hyperparameters) - best < 0.1 * (loss(FAR) - best)


def test_where_none_pays_it_stays_and_knows_the_weights(monkeypatch):
    monkeypatch.setattr(improvement, "judge", lambda *args: judged(-100.0))
    before, after = improved()
    assert after.hyperparameters is before.hyperparameters
    exact = torch.linalg.solve(covariance(FAR.kernel, X, FAR.noise.value).detach(), Y)
    error = (covariance(FAR.kernel, X, FAR.noise.value).detach() @ (after.weights - exact)).norm()
    assert float(error) <= TRAINING.tol * float(Y.norm())


def test_every_step_has_to_pay(monkeypatch):
    """Two looks a step: the middle of the way and its end."""
    looks = []
    densities = iter([1.0, 2.0, 2.0, 1.5])

    def look(there, problem, seed):
        looks.append(there)
        return judged(next(densities))

    monkeypatch.setattr(improvement, "judge", look)
    here = Improved(FAR, judged(0.0))
    after = improve(here, ROWS, TRAINING, WEAK, seed=1, observe=lambda *args: None)
    assert len(looks) == 4
    assert after.hyperparameters is looks[1]


def test_no_step_goes_further_than_its_gradient_is_trusted(monkeypatch):
    seen = []
    monkeypatch.setattr(improvement, "judge", lambda there, *args: seen.append(there) or judged(-1.0))
    improved()
    _, _, end = seen  # first where it starts
    moved = (end.kernel.kernel.lengthscale / FAR.kernel.kernel.lengthscale).log().abs()
    assert 0.0 < float(moved.max()) <= improvement.TRUSTED + 1e-12


def test_the_history_tells_passes_and_residuals():
    steps = []
    improved(observe=lambda step, hyperparameters: steps.append(step))
    solves = [step for step in steps if step.stage == "cg"]
    assert 1 <= len(solves) <= improvement.EXACT_STEPS
    assert all(step.passes > 0 and step.residual <= TRAINING.tol for step in solves)
    assert {step.stage for step in steps} == {"cg", "neighbours"}


def test_neighbourhoods_that_cannot_be_factored_end_it(monkeypatch):
    def refuse(self, hyperparameters):
        raise InputError("not positive definite")

    monkeypatch.setattr(improvement.NeighbourLikelihood, "__call__", refuse)
    before, after = improved()
    assert after.hyperparameters is before.hyperparameters


def test_a_fit_takes_them_by_default_and_none_where_steps_are_chosen(monkeypatch):
    options = {"method": "cg", "training__subset": 200, "training__subset_iterations": 5}
    stages = {
        steps: {step.stage for step in ExactGP(**options, training__steps=steps).fit(X, Y).history}
        for steps in (None, 0)
    }
    assert "cg" in stages[None]
    assert "cg" not in stages[0]
    monkeypatch.setattr(halfgp.training.run, "EXACT_STEP_ROWS", N - 1)
    assert "cg" not in {step.stage for step in ExactGP(**options).fit(X, Y).history}
    assert TrainingOptions().steps is None

"""Another posterior stands beside the exact one in a model, its file, its report and the commands."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from contracts.commands import json_of
from torch import Tensor

from halfgp import ExactGP
from halfgp.archive import load_model, posteriors, save_model
from halfgp.errors import InputError
from halfgp.hyperparameters import Hyperparameters
from halfgp.persistence import Stored, require
from halfgp.prediction import LatentPrediction, Outcome, Posterior, Residuals
from halfgp.problem import Problem
from halfgp.report import Evaluation, build_page
from halfgp.tables import write_table

RNG = np.random.default_rng(0)
X = RNG.standard_normal((200, 2))
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.standard_normal(200)
NEW = RNG.standard_normal((30, 2))


@dataclass(frozen=True, eq=False)
class Inducing:
    """Rows seen through some of them, by projection: Q = K_nm K_mm^-1 K_mn stands for K."""

    problem: Problem
    hyperparameters: Hyperparameters
    inducing: Tensor

    @property
    def outcome(self) -> Outcome:
        return Outcome("inducing points", "cholesky", passes=0, residual=0.0, error=0.0, solved=True)

    @property
    def skipped(self) -> float:
        return 0.0

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Means, and two factors of the covariance, at points."""
        hyperparameters, z = self.hyperparameters, self.problem.x[self.inducing]
        assert hyperparameters.noise is not None
        kernel, noise = hyperparameters.kernel, float(hyperparameters.noise.value)
        lower = torch.linalg.cholesky(kernel(z, z) + 1e-8 * torch.eye(len(z), dtype=torch.float64))
        seen = torch.linalg.solve_triangular(lower, kernel(z, self.problem.x), upper=False)
        inner = torch.linalg.cholesky(noise * torch.eye(len(z), dtype=torch.float64) + seen @ seen.T)
        white = torch.linalg.solve_triangular(lower, kernel(z, x), upper=False)
        scaled = torch.linalg.solve_triangular(inner, white, upper=False)
        half = torch.linalg.solve_triangular(
            inner, seen @ hyperparameters.centred(self.problem.y), upper=False
        )
        mean = scaled.T @ half + (0.0 if hyperparameters.mean is None else hyperparameters.mean.value)
        return mean, white, math.sqrt(noise) * scaled

    @torch.no_grad()
    def predict(self, x: Tensor, *, variance: bool = False, errors: bool = False) -> LatentPrediction:
        mean, _, _ = self._parts(x)
        spread = self.covariance(x).diagonal() if variance else None
        error, of_spread = torch.zeros_like(mean), torch.zeros(len(x), dtype=torch.float64)
        return LatentPrediction(
            mean, spread, error if errors else None, of_spread if errors and variance else None
        )

    @torch.no_grad()
    def covariance(self, x: Tensor) -> Tensor:
        _, white, scaled = self._parts(x)
        return self.hyperparameters.kernel(x, x) - white.T @ white + scaled.T @ scaled

    def sample(
        self, x: Tensor, samples: int, seed: int, noise: float | Tensor = 0.0, joint: bool = False
    ) -> Tensor:
        raise NotImplementedError

    def log_marginal_likelihood(self) -> tuple[float, float]:
        raise NotImplementedError

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        found = self.predict(self.problem.x, variance=True)
        assert found.variance is not None
        return found.mean, found.variance + self.hyperparameters.diagonal_noise(None)

    @property
    def residuals(self) -> Residuals:
        mean, variance = self.leave_one_out()
        return Residuals(((self.problem.y - mean) / variance.sqrt()[:, None]).sort(dim=0).values)

    def start(self, rows: int) -> None:
        return None


def write(posterior: Inducing) -> tuple[dict[str, Any], dict[str, Tensor]]:
    return {}, {"inducing": posterior.inducing}


def read(about: dict[str, Any], stored: Stored, known: posteriors.Known) -> Posterior:
    return Inducing(known.problem, known.hyperparameters, require(stored, "inducing", torch.int64, (None,)))


@pytest.fixture
def model() -> ExactGP:
    exact = ExactGP(training__subset_iterations=10).fit(X, Y)
    hyperparameters = exact.hyperparameters
    other: Posterior = Inducing(exact.posterior.problem, hyperparameters, torch.arange(0, 200, 2))
    report = exact.report.with_outcome(other.outcome)
    return ExactGP.restored(exact.settings, replace(exact.fitted, posterior=other, report=report))


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    form = posteriors.PosteriorFormat(Inducing, ("inducing",), (), write, read)
    monkeypatch.setitem(posteriors.POSTERIORS, "inducing points", form)


def test_a_model_answers_with_it(model: ExactGP) -> None:
    found = model.predict(NEW, return_std=True, return_error=True)
    assert found.std is not None
    assert found.error is not None
    # The function, of size one, is learned to a few deviations of its noise of 0.1.
    assert np.abs(found.mean - np.sin(2 * NEW[:, 0])).mean() < 0.2
    assert (found.std > 0).all()
    covariance = model.predict(NEW, return_cov=True).cov
    assert covariance is not None
    np.testing.assert_allclose(np.sqrt(covariance.diagonal()), found.std, rtol=1e-10)


@pytest.mark.usefixtures("known")
def test_its_file_has_it_and_the_report_and_the_commands_take_it(model: ExactGP, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    save_model(model, tmp_path / "m", {"feature_names": ["a", "b"], "target_name": "y"})
    loaded, _ = load_model(tmp_path / "m")
    assert type(loaded.posterior) is Inducing
    assert loaded.report == model.report
    np.testing.assert_array_equal(loaded.predict(NEW).mean, model.predict(NEW).mean)
    evaluation = Evaluation.of(loaded, NEW, NEW[:, 0], feature_names=("a", "b"), target_name="y")
    assert "inducing points" in build_page(loaded, evaluation)
    write_table(tmp_path / "new.csv", {"a": NEW[:, 0], "b": NEW[:, 1], "y": np.sin(2 * NEW[:, 0])})
    assert json_of("evaluate", tmp_path / "m", tmp_path / "new.csv")["rmse"] < 0.3
    assert len(json_of("predict", tmp_path / "m", tmp_path / "new.csv")["columns"]["mean"]) == len(NEW)


def test_a_file_does_not_take_one_that_it_does_not_know(model: ExactGP, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"posterior of a class that files know, exact.*; got Inducing"):
        save_model(model, tmp_path / "m")
    assert not (tmp_path / "m").exists()

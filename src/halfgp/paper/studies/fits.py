"""Trained models: one fit for each combination that a part asks for, kept so that parts share them."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfgp.errors import InputError
from halfgp.estimator import GPRegressor
from halfgp.json_text import as_json
from halfgp.paper.frame.context import Context, SampledSplit
from halfgp.paper.frame.fingerprints import Origin, fingerprint_of
from halfgp.paper.studies import svgp
from halfgp.replacement import write_whole
from halfgp.scores import score

OURS = ("half", "single", "bfloat16")
METHODS = (*OURS, "svgp")


@dataclass(frozen=True)
class FitRequest:
    """Which model, on what.

    Attributes:
        set_name: "pol", "houseelectric", ...
        method: "half", "single" or "bfloat16" for `GPRegressor.paper` in it; "svgp" for GPyTorch's.
        kernel: "rbf", "matern12", "matern32" or "matern52".
        ard: one lengthscale per feature instead of one for all.
        seed: of everything random, and which split.
        rows: training rows at most; None for all.
        test_rows: test rows at most; None for all.
        steps: of Adam on all rows; for "svgp" epochs.
        inducing: points of "svgp".
    """

    set_name: str
    method: str = "half"
    kernel: str = "rbf"
    ard: bool = True
    seed: int = 0
    rows: int | None = None
    test_rows: int | None = None
    steps: int = 50
    inducing: int = 1024

    @property
    def file_name(self) -> str:
        """Of the file that keeps its fit."""
        words = (
            self.set_name,
            self.kernel,
            "ard" if self.ard else "one-lengthscale",
            self.method,
            f"rows-{'all' if self.rows is None else self.rows}",
            f"test-{'all' if self.test_rows is None else self.test_rows}",
            f"steps-{self.steps}",
            *([f"inducing-{self.inducing}"] if self.method == "svgp" else []),
            f"seed-{self.seed}",
        )
        return "-".join(words) + ".json"


@dataclass(frozen=True)
class Fit:
    """What became of it; figures are on standardised targets.

    Attributes:
        rows: it was trained on.
        test_rows: it was tested on.
        features: d.
        rmse: of the test rows.
        nll: of the test rows, nats each.
        constant_nll: of the same means with the best constant deviation, ½ ln(2πe·rmse²).
        fit_seconds: of training.
        predict_seconds: of means and deviations of the test rows, the solve for them included.
        trajectory: hyperparameters by name, before each step; one value for each step and, for lengthscales,
            each feature.
        losses: minus the log posterior density per row, at each step.
        passes: over the kernel matrix in training; 0 for "svgp".
        residual: of the last solve.
    """

    rows: int
    test_rows: int
    features: int
    rmse: float
    nll: float
    constant_nll: float
    fit_seconds: float
    predict_seconds: float
    trajectory: dict[str, list[Any]]
    losses: list[float]
    passes: int
    residual: float


def is_available(method: str) -> bool:
    """Whether a method can be run here: "svgp" needs GPyTorch."""
    return method in OURS or (method == "svgp" and svgp.is_installed())


def fit(context: Context, request: FitRequest) -> Fit:
    """Train and test a model, or read what an earlier call found.

    Raises:
        MissingData: the set is not there.
        KeyboardInterrupt: also where training took Ctrl-C for its end: a fit cut short is no result.
    """
    if request.method not in METHODS:
        raise InputError(f"`method` must be one of {', '.join(METHODS)}; got {request.method!r}.")
    path = context.output / "fits" / request.file_name
    now = fingerprint_now(request)
    known = _read(path, now, context)
    if known is not None:
        return known
    rows = context.rows(request.set_name, request.rows, request.test_rows, request.seed)
    found = _svgp(request, rows) if request.method == "svgp" else _ours(request, rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "request": asdict(request),
        "fingerprint": now,
        "sets": {request.set_name: context.sets[request.set_name]},
        "made": time.time(),
        "fit": asdict(found),
    }
    write_whole(path, as_json(document))
    return found


def fingerprint_now(request: FitRequest) -> str:
    """What a fit gets if it is made now: of its own model, not of the peer's."""
    other = GPRegressor.__module__ if request.method == "svgp" else svgp.__name__
    return fingerprint_of(__name__, asdict(request), without=(other,))


def _read(path: Path, now: str, context: Context) -> Fit | None:
    """A kept fit; None where there is none that would be the same now, or only an older one than wanted."""
    if not path.exists():
        return None
    document = json.loads(path.read_text(encoding="utf-8"))
    if "fingerprint" not in document or document["made"] < context.since:  # files of 0.1 have none
        return None
    if not Origin(document["fingerprint"], document["sets"]).is_current(now, context):
        return None
    context.sets.update(document["sets"])  # whoever reads it was made from these
    return Fit(**document["fit"])


def _ours(request: FitRequest, rows: SampledSplit) -> Fit:
    model = GPRegressor.paper(
        kernel=request.kernel,
        precision=request.method,
        ard=request.ard,
        training__steps=request.steps,
        random_state=request.seed,
    )
    start = time.perf_counter()
    model.fit(rows.x.numpy(), rows.y.numpy())
    fitted = time.perf_counter()
    report = model.report_
    assert report is not None
    if report.interrupted:
        raise KeyboardInterrupt
    mean, std = model.predict(rows.x_test.numpy(), return_std=True)
    end = time.perf_counter()
    history = model.history_
    return _scored(
        rows,
        mean,
        std,
        fit_seconds=fitted - start,
        predict_seconds=end - fitted,
        trajectory={
            name: [step.hyperparameters[name] for step in history] for name in history[0].hyperparameters
        },
        losses=[step.loss for step in history],
        passes=report.passes,
        residual=report.residual,
    )


def _svgp(request: FitRequest, rows: SampledSplit) -> Fit:
    found = svgp.fit(
        rows,
        request.kernel,
        request.ard,
        inducing=request.inducing,
        epochs=request.steps,
        seed=request.seed,
    )
    return _scored(
        rows,
        found.mean,
        found.std,
        fit_seconds=found.fit_seconds,
        predict_seconds=found.predict_seconds,
        trajectory={},
        losses=found.losses,
        passes=0,
        residual=0.0,
    )


def _scored(rows: SampledSplit, mean: NDArray[np.float64], std: NDArray[np.float64], **about: Any) -> Fit:
    found = score(rows.y_test, mean, std)
    assert found.nll is not None
    assert found.constant_nll is not None
    return Fit(
        rows=len(rows.y),
        test_rows=len(rows.y_test),
        features=rows.x.shape[1],
        rmse=found.rmse,
        nll=found.nll,
        constant_nll=found.constant_nll,
        **about,
    )

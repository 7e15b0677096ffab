"""Every choice of a model, declared once; nothing is looked at before `check`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from os import PathLike
from typing import Any

import torch

from halfgp.backends import Backend
from halfgp.errors import InputError
from halfgp.kernels import Kernel
from halfgp.options import Options, count, documented, flag, group, is_integer, one_of, option, positive
from halfgp.precision import Precision
from halfgp.preconditioners import PreconditionerConfig
from halfgp.preconditioners.recipes import RECIPES
from halfgp.priors import Priors, as_priors

MEANS = ("zero", "constant", "linear")
METHODS = ("auto", "cholesky", "cg")
VARIANCES = ("auto", "cholesky", "local")
UNSOLVED = ("raise", "warn")
MOST_THREADS = 1024  # more than any machine has cores; many more can take the process down
MOST_SEED = 2**63 - 1  # of torch's generators
UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}


def as_bytes(limit: object) -> int | None:
    """A number of bytes from 2e9, "2GB" or "1.5 GiB"; None stays None."""
    if limit is None:
        return None
    if isinstance(limit, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?(?:e[0-9]+)?)\s*([kmgt]i?|)b?\s*", limit.lower())
        value = float(match[1]) * UNITS[match[2]] if match else 0.0
    else:
        value = float(limit) if not isinstance(limit, bool) and isinstance(limit, Real) else 0.0
    if not 1.0 <= value < float("inf"):
        raise InputError(f'`memory_limit` must be a number of bytes, or text such as "2GB"; got {limit!r}.')
    return int(value)


def _anything(name: str, value: object) -> None:
    """What only a fit can judge."""


def _preconditioner(name: str, value: object) -> None:
    if isinstance(value, str):
        one_of(*RECIPES)(name, value)
    elif value is not None and not callable(getattr(value, "build", None)):
        raise InputError(f"`{name}` must be a name, None or a recipe as `Nystrom()` is; got {value!r}.")


def _mean(name: str, value: object) -> None:
    if callable(value):
        return
    if isinstance(value, bool) or not isinstance(value, Real):
        one_of(*MEANS)(name, value)
    elif not math.isfinite(value):
        raise InputError(f"`{name}` must be a finite number, where it is one; got {value!r}.")


def _path(name: str, value: object) -> None:
    if not isinstance(value, str | PathLike | None):
        raise InputError(f"`{name}` must be a path or None; got {value!r}.")


def _device(name: str, value: object) -> None:
    if value in ("auto", "cpu"):
        return
    try:
        kind = torch.device(str(value)).type
    except RuntimeError:
        kind = ""
    if kind != "cuda":
        raise InputError(f'`{name}` must be "auto", "cpu", "cuda", or one such as "cuda:1"; got {value!r}.')
    if not torch.cuda.is_available():
        raise InputError(
            f'`{name}` must be "auto" or "cpu" here, where torch sees no GPU; got {value!r}.'
            " Install a torch for CUDA or ROCm where there is one; `halfgp doctor` tells what it sees."
        )


def _search(name: str, value: object) -> None:
    if value is not None and not callable(value):
        raise InputError(f"`{name}` must be a function or None; got {value!r}.")


def _priors(_name: str, value: Any) -> None:
    as_priors(value)


def _precision(_name: str, value: Any) -> None:
    Precision.resolve(value)


def _memory_limit(_name: str, value: object) -> None:
    as_bytes(value)


def _seed(name: str, value: Any) -> None:
    if not is_integer(value) or not 0 <= value <= MOST_SEED:
        raise InputError(f"`{name}` must be an integer from 0 to {MOST_SEED}; got {value!r}.")


@documented
@dataclass(frozen=True, repr=False)
class TrainingOptions(Options):
    """Of training: exactly, on a subset where `method="cg"`, and by `steps` on all rows, with solves."""

    subset: int = option(1500, count(0), "Rows of the exact training before cg; 0 for none.")
    subset_iterations: int = option(60, count(0), "Of L-BFGS there, and with cholesky.")
    restarts: int = option(
        0, count(0), "Further starts of the exact training, drawn at random within bounds; the best counts."
    )
    search: Callable[..., Any] | None = option(
        None,
        _search,
        "An optimiser of one's own for the exact training, instead of L-BFGS.",
        "Called as scikit-learn's are: search(function, theta, bounds) to theta and its value, where"
        " function(theta) is the loss and its gradient.",
    )
    steps: int | None = option(
        None,
        count(0, none=True),
        "Training steps on all rows, by solves; None takes exact ones while they pay.",
    )
    optimiser: str = option("adam", one_of("adam", "lbfgs"), 'Of the steps: "adam" or "lbfgs".')
    learning_rate: float = option(0.05, positive(), "On the logarithm of a parameter, per step.")
    softplus: bool = option(
        False, flag, "Move parameters through softplus, as GPyTorch does, instead of the logarithm."
    )
    probes: int = option(10, count(1), "Right-hand sides of the gradient beside the targets.")
    gradient: str = option(
        "neighbours",
        one_of("pathwise", "hutchinson", "neighbours"),
        'Its estimator: "neighbours", of the least variance, "pathwise", or "hutchinson" as in the paper.',
    )
    tol: float = option(0.01, positive(), "True relative residual of every column of a solve.")
    min_iterations: int = option(0, count(0), "Of a solve, whatever the tolerance.")
    max_iterations: int = option(300, count(1), "Of a solve.")


@documented
@dataclass(frozen=True, repr=False)
class SolveOptions(Options):
    """Of the final solve, which predictions rest on; and of all solves their preconditioner."""

    tol: float = option(
        1e-2,
        positive(),
        "Relative residual of the final solve.",
        "It goes on until its error is also below a tenth of the predictive deviation in 99 % of the rows, as"
        " estimated.",
    )
    max_iterations: int = option(1000, count(1), "Iterations of the final solve, at most.")
    unsolved: str = option(
        "raise",
        one_of(*UNSOLVED),
        "Where the final solve is not exact enough: raise, or warn.",
        "A warning comes with every prediction again, and deviations then include the error.",
    )
    preconditioner: str | PreconditionerConfig | None = option(
        "auto",
        _preconditioner,
        "Of solves: auto, pivoted_cholesky, randomly_pivoted_cholesky or nystrom; None, or a recipe.",
    )
    rank: int | None = option(None, count(0, none=True), "Of the preconditioner; None is automatic.")


@documented
@dataclass(frozen=True, repr=False)
class VarianceOptions(Options):
    """Of predictive variances."""

    method: str = option(
        "auto",
        one_of(*VARIANCES),
        "Variances by cholesky or local, or auto.",
        "A dense factor gives exact ones, where rows and memory allow it; the nearest rows give local ones.",
    )
    neighbours: int | None = option(
        None, count(1, none=True), "Rows of local variances; None takes sixteen a feature, from 48 to 128."
    )
    calibrate: bool = option(
        True,
        flag,
        "Whether leave-one-out residuals on all rows set the scale of variances after training on a subset.",
        "No mean changes.",
    )


@documented
@dataclass(frozen=True, repr=False)
class Settings(Options):
    """What `ExactGP` and `GPRegressor` take."""

    kernel: str | Kernel = option(
        "matern32",
        _anything,
        "rbf, matern12, matern32, matern52 or rational_quadratic.",
        "Or a kernel object, whose values are where training starts.",
    )
    ard: bool = option(
        True, flag, "One lengthscale per feature instead of one for all.", "With a name of a kernel."
    )
    lengthscale: float | None = option(
        None,
        positive(none=True),
        "Where lengthscales start, with a name of a kernel.",
        "None takes half the root of the number of features.",
    )
    outputscale: float = option(1.0, positive(), "Where the outputscale starts, with a name of a kernel.")
    noise: float = option(
        0.1, positive(), "Variance of the noise where training starts, of standardised targets."
    )
    noise_floor: float | None = option(
        None,
        positive(none=True),
        "Least variance of the noise, of standardised targets, which training stays above.",
        "None for 1e-8 of up to four features, where solves are short whatever it is, and 1e-6 of more.",
    )
    mean: str | float | Callable[..., Any] = option(
        "constant",
        _mean,
        "Of the function before any data: zero, constant, learned, or linear, by least squares.",
        "Or a number that is known, or a function of points (m, d) to (m,) or (m, q), in the units of the"
        " targets.",
    )
    priors: str | Priors | None = option(
        "weak",
        _priors,
        "weak, paper or none.",
        'The weight of "weak" does not grow with the features; "paper" has its Gammas on each of them. Or'
        ' None, or a mapping from names such as "lengthscale" to `LogNormal`, `Gamma` or `Overall`.',
    )
    standardise_X: bool = option(True, flag, "Scale every feature to unit variance before training.")
    standardise_y: bool = option(True, flag, "The same for targets; undone in predictions.")
    method: str = option(
        "auto",
        one_of(*METHODS),
        "Training by cholesky, exactly in double, by cg, or auto, by the number of rows.",
    )
    precision: str | Precision = option(
        "auto",
        _precision,
        "Of training solves: auto, half, bfloat16, single or double.",
        '"auto" climbs as it must.',
    )
    training: TrainingOptions = option(
        None, group(TrainingOptions), "`TrainingOptions`: of training; None for their defaults."
    )
    solve: SolveOptions = option(
        None, group(SolveOptions), "`SolveOptions`: of solves; None for their defaults."
    )
    variances: VarianceOptions = option(
        None, group(VarianceOptions), "`VarianceOptions`: of variances; None for their defaults."
    )
    backend: str | Backend = option(
        "auto", _anything, "Of kernel products: auto, cpu, triton, reference, or a backend."
    )
    device: str = option("auto", _device, 'Where to compute: "cpu", "cuda", or "auto", which is where X is.')
    threads: int | None = option(
        None,
        count(1, MOST_THREADS, none=True),
        "Threads; None follows torch.",
    )
    memory_limit: int | str | None = option(
        None,
        _memory_limit,
        "Bytes, or text such as 2GB; None for what the machine has.",
    )
    checkpoint: str | PathLike[str] | None = option(
        None,
        _path,
        "Path of a file that a killed fit resumes from.",
        'It stays until the model is saved. Beside it, with ".solve" after its name, stands that of a last'
        " solve of more than a minute.",
    )
    random_state: int = option(0, _seed, "Seed of everything random.")

    def __post_init__(self) -> None:
        for name, defaults in GROUPS.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, defaults())

    def check(self, where: str = "") -> Settings:
        """Itself, or an `InputError` that names what cannot be."""
        super().check(where)
        if self.noise_floor is not None and self.noise <= self.noise_floor:
            raise InputError(
                f"`noise` must start above `noise_floor`, {self.noise_floor:g}; got {self.noise:g}."
            )
        return self


GROUPS: dict[str, type[Options]] = {
    "training": TrainingOptions,
    "solve": SolveOptions,
    "variances": VarianceOptions,
}

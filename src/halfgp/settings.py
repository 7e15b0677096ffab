"""Every choice of a model, its defaults in one place; nothing is looked at before `check`."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from numbers import Integral, Real
from os import PathLike
from typing import Any

from halfgp.backends import Backend
from halfgp.errors import InputError
from halfgp.kernels import Kernel
from halfgp.precision import Precision
from halfgp.preconditioners import PreconditionerConfig
from halfgp.preconditioners.recipes import RECIPES
from halfgp.priors import Priors, as_priors

CHOICES = {
    "mean": ("zero", "constant"),
    "method": ("auto", "cholesky", "cg"),
    "optimiser": ("adam", "lbfgs"),
    "gradient": ("pathwise", "hutchinson"),
    "unsolved": ("raise", "warn"),
    "variance": ("auto", "cholesky", "local"),
    "preconditioner": tuple(RECIPES),
}
COUNTS = {
    "subset": 0,
    "subset_iterations": 0,
    "steps": 0,
    "probes": 1,
    "min_iterations": 0,
    "max_iterations": 1,
    "test_max_iterations": 1,
    "neighbours": 1,
}
FLAGS = ("ard", "standardise_X", "standardise_y", "softplus", "calibrate", "progress")
POSITIVE = ("noise", "noise_floor", "lengthscale", "outputscale", "learning_rate", "tol", "test_tol")
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


@dataclass(frozen=True)
class Settings:
    """What `ExactGP` and `GPRegressor` take.

    Attributes:
        kernel: a name ("rbf", "matern12", "matern32", "matern52", "rational_quadratic") or a kernel object,
            whose values are where training starts.
        ard: with a name: one lengthscale per feature instead of one for all.
        lengthscale: with a name: where they start; None takes half the root of the number of features.
        outputscale: with a name: where it starts.
        noise: variance where it starts, of standardised targets.
        noise_floor: the noise stays above it in training.
        mean: "constant", learned, or "zero".
        priors: "weak", whose weight does not grow with the features; "paper" for its Gammas on each of them;
            None; or a mapping from names such as "lengthscale" to `LogNormal`, `Gamma` or `Overall`.
        standardise_X: scale every feature to unit variance before training.
        standardise_y: the same for targets; undone in predictions.
        method: "cholesky" trains exactly in double, "cg" by solves, "auto" by the number of rows.
        precision: of training solves: "auto" climbs as it must; or "half", "bfloat16", "single", "double".
        subset: rows of the exact pre-training before "cg"; 0 for none.
        subset_iterations: of L-BFGS there, and with "cholesky".
        optimiser: of steps on all rows: "adam" or "lbfgs".
        steps: on all rows, with "cg".
        learning_rate: on the logarithm of a parameter, per step.
        softplus: move parameters through softplus, as GPyTorch does, instead of the logarithm.
        probes: right-hand sides of the gradient beside the targets.
        gradient: estimator: "pathwise", or "hutchinson" as in the paper.
        preconditioner: "auto", "pivoted_cholesky", "randomly_pivoted_cholesky", "nystrom", None, or a recipe.
        rank: of it; None is automatic.
        tol: true relative residual of every column of a training solve.
        min_iterations: of a training solve.
        max_iterations: of a training solve.
        test_tol: true relative residual of the final solve, which predictions rest on. It goes on until its
            error is also below a tenth of the predictive deviation in 99 % of the rows, as estimated.
        test_max_iterations: of it.
        unsolved: where that cannot be had: "raise", or "warn", and with every prediction again; deviations
            then include the error.
        calibrate: after training on a subset, multiply outputscale and noise by what leave-one-out residuals
            on all rows ask for; no mean changes.
        variance: "cholesky", "local", or "auto": exact from a factor where rows and memory allow it,
            otherwise from the nearest rows.
        neighbours: so many of them; None takes sixteen a feature, at most 128.
        backend: of kernel products.
        device: where to compute.
        threads: of kernel products, training and solves; None follows torch.
        memory_limit: bytes, or text such as "2GB"; None for what the machine has.
        checkpoint: path of a file that a killed fit resumes from; it stays until the model is saved. Beside
            it, with ".solve" after its name, stands that of a last solve of more than a minute.
        progress: show a progress bar.
        random_state: seed of everything random.
    """

    kernel: str | Kernel = "matern32"
    ard: bool = True
    lengthscale: float | None = None
    outputscale: float = 1.0
    noise: float = 0.1
    noise_floor: float = 1e-6
    mean: str = "constant"
    priors: str | Priors | None = "weak"
    standardise_X: bool = True
    standardise_y: bool = True
    method: str = "auto"
    precision: str | Precision = "auto"
    subset: int = 1500
    subset_iterations: int = 60
    optimiser: str = "adam"
    steps: int = 0
    learning_rate: float = 0.05
    softplus: bool = False
    probes: int = 10
    gradient: str = "pathwise"
    preconditioner: str | PreconditionerConfig | None = "auto"
    rank: int | None = None
    tol: float = 0.05
    min_iterations: int = 0
    max_iterations: int = 300
    test_tol: float = 1e-2
    test_max_iterations: int = 1000
    unsolved: str = "raise"
    calibrate: bool = True
    variance: str = "auto"
    neighbours: int | None = None
    backend: str | Backend = "auto"
    device: str = "cpu"
    threads: int | None = None
    memory_limit: int | str | None = None
    checkpoint: str | PathLike[str] | None = None
    progress: bool = False
    random_state: int = 0

    def check(self) -> Settings:
        """Itself, or an `InputError` that names what cannot be."""
        for name, known in CHOICES.items():
            value = getattr(self, name)
            if value not in known and not (name == "preconditioner" and not isinstance(value, str)):
                raise InputError(f"`{name}` must be one of {', '.join(known)}; got {value!r}.")
        for name, least in COUNTS.items():
            value = getattr(self, name)
            if value is None and name == "neighbours":
                continue
            if not _is_integer(value) or value < least:
                raise InputError(f"`{name}` must be an integer of at least {least}; got {value!r}.")
        for name in POSITIVE:
            value = getattr(self, name)
            if value is None and name == "lengthscale":
                continue
            if (
                isinstance(value, bool)
                or not isinstance(value, Real)
                or not 0.0 < float(value) < float("inf")
            ):
                raise InputError(f"`{name}` must be a positive finite number; got {value!r}.")
        for name in FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"`{name}` must be True or False; got {getattr(self, name)!r}.")
        self._check_others()
        if self.noise <= self.noise_floor:
            raise InputError(
                f"`noise` must start above `noise_floor`, {self.noise_floor:g}; got {self.noise:g}."
            )
        if self.device != "cpu":
            raise InputError(
                f'`device` must be "cpu": there is no backend for others yet; got {self.device!r}.'
            )
        Precision.resolve(self.precision)
        as_priors(self.priors)
        as_bytes(self.memory_limit)
        return self

    def _check_others(self) -> None:
        """What would otherwise fail somewhere inside, without its name."""
        for name in ("rank", "threads"):
            value, least = getattr(self, name), int(name == "threads")
            if value is not None and (not _is_integer(value) or value < least):
                raise InputError(f"`{name}` must be an integer of at least {least}, or None; got {value!r}.")
        if self.threads is not None and self.threads > MOST_THREADS:
            raise InputError(f"`threads` must be at most {MOST_THREADS}; got {self.threads!r}.")
        if not _is_integer(self.random_state) or not 0 <= self.random_state <= MOST_SEED:
            raise InputError(
                f"`random_state` must be an integer from 0 to {MOST_SEED}; got {self.random_state!r}."
            )
        recipe = self.preconditioner
        if not isinstance(recipe, str | None) and not callable(getattr(recipe, "build", None)):
            raise InputError(
                f"`preconditioner` must be a name, None or a recipe as `Nystrom()` is; got {recipe!r}."
            )
        if not isinstance(self.checkpoint, str | PathLike | None):
            raise InputError(f"`checkpoint` must be a path or None; got {self.checkpoint!r}.")

    def as_dict(self) -> dict[str, Any]:
        """Values by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _is_integer(value: object) -> bool:
    """Of Python or NumPy, as a grid of parameters holds them; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


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

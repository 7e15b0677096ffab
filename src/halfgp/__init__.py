"""Exact Gaussian processes in low precision."""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from halfgp.version import __version__

if TYPE_CHECKING:
    from halfgp.errors import (
        BackendError,
        BackendWarning,
        ConstantColumnsWarning,
        ConvergenceWarning,
        DataWarning,
        DownloadError,
        FileError,
        HalfGPError,
        HalfGPWarning,
        InputError,
        MemoryLimitError,
        MissingData,
        NotFittedError,
        OutOfRangeError,
        TrainingError,
        UnsolvedError,
        UnsolvedWarning,
    )
    from halfgp.estimator import GPRegressor, load
    from halfgp.kernel_json import register_kernel
    from halfgp.kernels import RBF, Constant, Linear, Matern, Periodic, RationalQuadratic, White
    from halfgp.model import ExactGP, Prediction, PredictionInterval, SolveIteration
    from halfgp.operators import KernelOperator
    from halfgp.precision import Precision
    from halfgp.preconditioners import (
        AutomaticPreconditioner,
        Nystrom,
        PivotedCholesky,
        RandomlyPivotedCholesky,
        SparseInverseCholesky,
    )
    from halfgp.priors import Gamma, LogNormal, Overall
    from halfgp.settings import SolveOptions, TrainingOptions, VarianceOptions
    from halfgp.solvers import (
        SolveCheckpoint,
        SolveResult,
        alternating_projection,
        cg,
        lanczos,
        log_determinant,
        minres,
        refine,
    )

__all__ = [
    "RBF",
    "AutomaticPreconditioner",
    "BackendError",
    "BackendWarning",
    "Constant",
    "ConstantColumnsWarning",
    "ConvergenceWarning",
    "DataWarning",
    "DownloadError",
    "ExactGP",
    "FileError",
    "GPRegressor",
    "Gamma",
    "HalfCauchy",
    "HalfGPError",
    "HalfGPWarning",
    "InputError",
    "KernelOperator",
    "Linear",
    "LogNormal",
    "Matern",
    "MemoryLimitError",
    "MissingData",
    "Normal",
    "NotFittedError",
    "Nystrom",
    "OutOfRangeError",
    "Overall",
    "Periodic",
    "PivotedCholesky",
    "Precision",
    "Prediction",
    "PredictionInterval",
    "RandomlyPivotedCholesky",
    "RationalQuadratic",
    "SolveCheckpoint",
    "SolveIteration",
    "SolveOptions",
    "SolveResult",
    "SparseInverseCholesky",
    "TrainingError",
    "TrainingOptions",
    "UnsolvedError",
    "UnsolvedWarning",
    "VarianceOptions",
    "White",
    "__version__",
    "alternating_projection",
    "cg",
    "fixed",
    "from_gpytorch",
    "from_sklearn",
    "lanczos",
    "load",
    "log_determinant",
    "minres",
    "refine",
    "register_kernel",
]

# Imported when one is asked for: torch and the rest take seconds, and whoever presses Ctrl-C meanwhile
# in the shell should not see a traceback.
_NAMES = {
    "errors": "BackendError BackendWarning ConstantColumnsWarning ConvergenceWarning DataWarning"
    " DownloadError FileError HalfGPError HalfGPWarning InputError MemoryLimitError MissingData"
    " NotFittedError OutOfRangeError TrainingError UnsolvedError UnsolvedWarning",
    "estimator": "GPRegressor load",
    "integrations.gpytorch.conversion": "from_gpytorch",
    "integrations.sklearn": "from_sklearn",
    "kernels": "RBF Constant Linear Matern Periodic RationalQuadratic White",
    "model": "ExactGP Prediction PredictionInterval SolveIteration",
    "operators": "KernelOperator",
    "kernel_json": "register_kernel",
    "precision": "Precision",
    "preconditioners": (
        "AutomaticPreconditioner Nystrom PivotedCholesky RandomlyPivotedCholesky SparseInverseCholesky"
    ),
    "parameters": "fixed",
    "priors": "Gamma HalfCauchy LogNormal Normal Overall",
    "settings": "SolveOptions TrainingOptions VarianceOptions",
    "solvers": "SolveCheckpoint SolveResult alternating_projection cg lanczos log_determinant minres refine",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """A public name, or a module of the package."""
    if name in _MODULES:
        value = getattr(import_module(f"halfgp.{_MODULES[name]}"), name)
        globals()[name] = value
        return value
    if not name.startswith("_"):
        try:
            return import_module(f"halfgp.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"halfgp.{name}":
                raise
    raise AttributeError(f"module 'halfgp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _in_child() -> None:
    """OpenMP's threads do not live on in a forked child, where torch would wait for them for ever."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


os.register_at_fork(after_in_child=_in_child)

"""Exact Gaussian processes in low precision."""

from halfgp.kernels import RBF, Constant, Linear, Matern, Periodic, RationalQuadratic, White
from halfgp.operators import KernelOperator
from halfgp.precision import Precision
from halfgp.preconditioners import Nystrom, PivotedCholesky, RandomlyPivotedCholesky
from halfgp.solvers import (
    SolveResult,
    alternating_projection,
    cg,
    lanczos,
    log_determinant,
    minres,
    refine,
)
from halfgp.version import __version__

__all__ = [
    "RBF",
    "Constant",
    "KernelOperator",
    "Linear",
    "Matern",
    "Nystrom",
    "Periodic",
    "PivotedCholesky",
    "Precision",
    "RandomlyPivotedCholesky",
    "RationalQuadratic",
    "SolveResult",
    "White",
    "__version__",
    "alternating_projection",
    "cg",
    "lanczos",
    "log_determinant",
    "minres",
    "refine",
]

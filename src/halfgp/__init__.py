"""Exact Gaussian processes in low precision."""

from halfgp.kernels import RBF, Constant, Linear, Matern, Periodic, RationalQuadratic, White
from halfgp.operators import KernelOperator
from halfgp.precision import Precision
from halfgp.version import __version__

__all__ = [
    "RBF",
    "Constant",
    "KernelOperator",
    "Linear",
    "Matern",
    "Periodic",
    "Precision",
    "RationalQuadratic",
    "White",
    "__version__",
]

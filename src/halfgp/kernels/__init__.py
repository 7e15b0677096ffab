"""Covariance functions: mathematics only, no tensor larger than a pair of blocks."""

from halfgp.kernels.base import Kernel
from halfgp.kernels.compose import Power, Product, Scaled, Sum
from halfgp.kernels.linear import Constant, Linear, White
from halfgp.kernels.periodic import Periodic
from halfgp.kernels.profiles import StationaryProfile
from halfgp.kernels.program import Leaf, Node, Program
from halfgp.kernels.stationary import RBF, Matern, RationalQuadratic, Stationary

__all__ = [
    "RBF",
    "Constant",
    "Kernel",
    "Leaf",
    "Linear",
    "Matern",
    "Node",
    "Periodic",
    "Power",
    "Product",
    "Program",
    "RationalQuadratic",
    "Scaled",
    "Stationary",
    "StationaryProfile",
    "Sum",
    "White",
]

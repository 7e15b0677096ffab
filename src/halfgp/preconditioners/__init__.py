"""Symmetric positive definite matrices near K + noise that are cheap to invert."""

from halfgp.preconditioners.base import (
    LowRankPlusNoise,
    Preconditioner,
    PreconditionerConfig,
    Root,
    RowSource,
)
from halfgp.preconditioners.nystrom import Nystrom
from halfgp.preconditioners.pivoted_cholesky import PivotedCholesky
from halfgp.preconditioners.randomly_pivoted import RandomlyPivotedCholesky

__all__ = [
    "LowRankPlusNoise",
    "Nystrom",
    "PivotedCholesky",
    "Preconditioner",
    "PreconditionerConfig",
    "RandomlyPivotedCholesky",
    "Root",
    "RowSource",
]

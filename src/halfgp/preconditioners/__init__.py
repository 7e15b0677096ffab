"""Symmetric positive definite matrices near K + noise that are cheap to invert."""

from halfgp.preconditioners.automatic import AutomaticPreconditioner
from halfgp.preconditioners.base import (
    LowRankPlusNoise,
    Multiplier,
    Preconditioner,
    PreconditionerConfig,
    Root,
    build_preconditioner,
    has_root,
    is_below,
)
from halfgp.preconditioners.nystrom import Nystrom
from halfgp.preconditioners.pattern import Pattern
from halfgp.preconditioners.pivoted_cholesky import PivotedCholesky
from halfgp.preconditioners.randomly_pivoted import RandomlyPivotedCholesky
from halfgp.preconditioners.sparse_inverse_cholesky import (
    LandmarksAndNeighbours,
    SparseInverseCholesky,
    conditioned_on,
)

__all__ = [
    "AutomaticPreconditioner",
    "LandmarksAndNeighbours",
    "LowRankPlusNoise",
    "Multiplier",
    "Nystrom",
    "Pattern",
    "PivotedCholesky",
    "Preconditioner",
    "PreconditionerConfig",
    "RandomlyPivotedCholesky",
    "Root",
    "SparseInverseCholesky",
    "build_preconditioner",
    "conditioned_on",
    "has_root",
    "is_below",
]

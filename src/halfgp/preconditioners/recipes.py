"""Preconditioners by their names: what settings, training and files know, in one list."""

from __future__ import annotations

from typing import Any

from halfgp.preconditioners.automatic import AutomaticPreconditioner
from halfgp.preconditioners.base import PreconditionerConfig
from halfgp.preconditioners.nystrom import Nystrom
from halfgp.preconditioners.pivoted_cholesky import PivotedCholesky
from halfgp.preconditioners.randomly_pivoted import RandomlyPivotedCholesky
from halfgp.preconditioners.sparse_inverse_cholesky import SparseInverseCholesky

RECIPES: dict[str, type[Any]] = {
    "auto": AutomaticPreconditioner,
    "pivoted_cholesky": PivotedCholesky,
    "randomly_pivoted_cholesky": RandomlyPivotedCholesky,
    "nystrom": Nystrom,
}
# All that files know: those with a name, and what has more than a rank to it.
CLASSES: tuple[type[Any], ...] = (*RECIPES.values(), SparseInverseCholesky)


def recipe_named(name: str, rank: int | None) -> PreconditionerConfig:
    """The recipe of that name, with a rank; None is automatic."""
    named: PreconditionerConfig = RECIPES[name](rank=rank)
    return named

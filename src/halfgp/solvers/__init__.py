"""Linear solvers that stay right in low precision."""

from halfgp.solvers.alternating import alternating_projection
from halfgp.solvers.base import Climb, SolveResult, Status
from halfgp.solvers.cg import cg
from halfgp.solvers.checkpoint import SolveCheckpoint
from halfgp.solvers.iteration import Callback
from halfgp.solvers.lanczos import LanczosResult, lanczos
from halfgp.solvers.minres import minres
from halfgp.solvers.quadrature import LogDeterminant, log_determinant
from halfgp.solvers.refine import refine

__all__ = [
    "Callback",
    "Climb",
    "LanczosResult",
    "LogDeterminant",
    "SolveCheckpoint",
    "SolveResult",
    "Status",
    "alternating_projection",
    "cg",
    "lanczos",
    "log_determinant",
    "minres",
    "refine",
]

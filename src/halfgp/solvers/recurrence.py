"""The recurrence of preconditioned conjugate gradients for many right-hand sides at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from halfgp.operators.base import Operator
from halfgp.precision import DOUBLE, SINGLE, Format, Precision
from halfgp.preconditioners import Multiplier, Preconditioner
from halfgp.solvers.inner_products import Direct, InnerProduct, Log
from halfgp.solvers.krylov import KrylovSpace
from halfgp.solvers.reorthogonalise import Basis
from halfgp.solvers.state import OfRows, State

OF_ROWS = ("x", "r", "d")
BETWEEN_STEPS = (*OF_ROWS, "_gamma", "_coefficients", "_active", "_scale")


@dataclass(frozen=True)
class Arithmetic:
    """Which format each part of the recurrence is held in.

    Attributes:
        direction: search directions, rounded once and used so everywhere.
        state: solution, residual and preconditioned residual.
        product: the product with the direction.
        sums: inner products and their ratios.
        basis: earlier residuals.
        textbook: step sizes from r'z alone, as in the paper's algorithms; otherwise from the direction as it
            is, which stays the minimiser along it whatever was rounded.

    Vectors of any of these formats but double are held in float32, where they are exact.
    """

    direction: Format
    state: Format
    product: Format
    sums: Format
    basis: Format
    textbook: bool

    @property
    def dtype(self) -> torch.dtype:
        """That vectors are held in."""
        return torch.float64 if self.state == DOUBLE else torch.float32

    @classmethod
    def of(cls, precision: Precision) -> Arithmetic:
        """That of a rung: directions are rounded to what it multiplies, and the rest is wide."""
        return cls(precision.vectors, DOUBLE, DOUBLE, DOUBLE, precision.vectors, False)

    @classmethod
    def of_paper(cls, precision: Precision, standard: bool) -> Arithmetic:
        """That of the paper's algorithms: directions and products are held in 16 bits.

        Args:
            precision: a 16-bit one.
            standard: the method that fails, with everything in 16 bits; otherwise the stable one.
        """
        narrow = precision.inputs
        wide = narrow if standard else SINGLE
        return cls(narrow, wide, narrow, wide, SINGLE, True)


def rounded(v: Tensor, fmt: Format) -> Tensor:
    """Values rounded to a format, in their own dtype all the same: there they are exact."""
    return v if fmt == DOUBLE else v.to(fmt.dtype).to(v.dtype)


class Recurrence:
    """Iterates of t columns, in the sign convention r = b - A x, d = z + beta d (the paper's negated twice).

    With re-orthogonalisation z loses what it has in earlier ones, z <- z - z_j (z_j' r), which is
    r <- r - u (u' P^-1 r) with u = P z_j. The residual itself is left alone, unless the arithmetic is the
    paper's: to take from r what no step took from b - A x would part the two. `stray` tells how much of r the
    directions no longer see.

    Attributes:
        x: solution (n, t).
        r: residual (n, t).
        stray: (t,) norm of r in earlier directions relative to what is new in it.
        gain: (t,) by which the last step lowered the square of the error in the norm of A.
    """

    def __init__(
        self,
        system: Operator,
        preconditioner: Preconditioner | None,
        *,
        arithmetic: Arithmetic,
        inner_product: str,
        window: int | None,
        x: Tensor,
        r: Tensor,
    ) -> None:
        self._system = system
        self._preconditioner = preconditioner
        self._arithmetic = arithmetic
        kind = Log if inner_product == "log" else Direct
        self._inner: InnerProduct = kind(system, arithmetic.sums)
        self._basis = None if window == 0 else Basis(system, window, arithmetic.basis)
        takes_from_r = arithmetic.textbook or window is not None
        self._residuals = (
            Basis(system, window, arithmetic.basis) if self._basis is not None and takes_from_r else None
        )
        self._space: KrylovSpace | None = None
        keeps_all = self._basis is not None and window is None and not arithmetic.textbook
        if keeps_all and (preconditioner is None or isinstance(preconditioner, Multiplier)):
            self._space = KrylovSpace(system, preconditioner, cast(Basis, self._basis))
        # The paper's stable method scales: by a power of two near N^-1/2, and one for each column.
        self._scales = arithmetic.textbook and inner_product == "log"
        self._root = 2.0 ** -round(math.log2(max(system.size, 1)) / 2)
        self.x = x.to(arithmetic.dtype)
        self.r = rounded(r.to(arithmetic.dtype), arithmetic.state)
        self.stray = torch.zeros(r.shape[1], dtype=torch.float64, device=r.device)
        self.gain = torch.zeros_like(self.stray)
        self._active = torch.ones_like(self.stray, dtype=torch.bool)
        self._refresh()
        self._turn(torch.zeros_like(self._norm), self.z)

    @property
    def can_replace(self) -> bool:
        """Whether a true residual can take the place of the recurrence's without a restart."""
        return self._space is not None and self._basis is not None and self._basis.complete

    @property
    def norm(self) -> Tensor:
        """√(r' z) (t,), with z = P^-1 r."""
        return self._norm

    @property
    def is_finite(self) -> bool:
        """Whether the next direction can be multiplied: a sum with NaN or infinity in it is neither."""
        return bool(self._system.total(self.d.sum()).isfinite())

    @property
    def curvature_is_finite(self) -> bool:
        """Whether the last product was: a curvature that is not tells of the product, not of A."""
        return bool(self._inner.value(self._curvature).isfinite().all())

    def step(self, active: Tensor) -> Tensor:
        """One iteration of the active columns (t,); returns those whose curvature was not positive.

        If there are any such, nothing has been updated.
        """
        self._active = active
        self._product = self._multiply(self.d)
        self._curvature = self._inner(self.d, self._product)
        bad = active & ~(self._inner.value(self._curvature) > 0)
        if bool(bad.any()):
            return bad
        slope = self._gamma if self._arithmetic.textbook else self._inner(self.r, self.d)
        alpha = torch.where(active, self._inner.ratio(slope, self._curvature), 0.0).to(self.x.dtype)
        self.gain = alpha.double() * self._inner.value(slope)
        self.x = rounded(self.x.addcmul(self.d, alpha), self._arithmetic.state)
        self.r = rounded(self.r.addcmul(self._product, alpha, value=-1.0), self._arithmetic.state)
        gamma, before = self._gamma, self._coefficients
        self._refresh()
        if self._space is not None and self.can_replace:
            self._space.end(alpha, before, self._coefficients, self._norm)
        if self._arithmetic.textbook:
            beta = self._inner.ratio(self._gamma, gamma)
        else:
            beta = -self._inner.ratio(self._inner(self.z, self._product), self._curvature)
        beta = torch.where(active, beta, 0.0).to(self.x.dtype)
        self._previous = self.d
        self._turn(beta, self.z.addcmul(self.d, beta))
        return bad

    def replace(self, residual: Tensor) -> None:
        """Take the true residual (n, t), solve it on the space so far, and go on from what is left."""
        space, basis = self._space, self._basis
        if space is None or basis is None:
            raise RuntimeError("a recurrence that kept nothing cannot replace its residual")
        curvature = self._inner.value(self._curvature)
        e, left = space.correct(
            residual, self._previous, self._product, curvature, self.z / self._safe_norm()
        )
        self.x = self.x + e
        self.r = left
        self._active = torch.ones_like(self._active)
        space.withdraw()
        basis.withdraw()
        self._refresh()
        self._turn(torch.zeros_like(self._norm), self.z)

    def keep(self, columns: Tensor) -> None:
        """Drop all but these columns."""
        for name in ("x", "r", "z", "d", "_previous", "_product"):
            if hasattr(self, name):
                setattr(self, name, getattr(self, name)[:, columns])
        for name in ("stray", "gain", "_norm", "_gamma", "_curvature", "_coefficients", "_active", "_scale"):
            if hasattr(self, name):
                setattr(self, name, getattr(self, name)[..., columns])
        for part in self._parts.values():
            part.keep(columns)

    def state(self) -> State:
        """What the next step begins with; it makes the rest anew."""
        vectors = {name: OfRows(getattr(self, name)) for name in OF_ROWS}
        rest = BETWEEN_STEPS[len(OF_ROWS) :]
        numbers = {name: getattr(self, name) for name in rest if hasattr(self, name)}
        return {**vectors, **numbers, **{name: part.state() for name, part in self._parts.items()}}

    def restore(self, state: State) -> None:
        """Go on from there."""
        for name in BETWEEN_STEPS:
            if name in state:
                setattr(self, name, state[name])
        for name, part in self._parts.items():
            part.restore(state[name])

    @property
    def _parts(self) -> dict[str, Basis | KrylovSpace]:
        """What of earlier steps is kept."""
        parts = {"basis": self._basis, "residuals": self._residuals, "space": self._space}
        return {name: part for name, part in parts.items() if part is not None}

    def _multiply(self, d: Tensor) -> Tensor:
        if not self._scales:
            return rounded(self._system.matmul(d), self._arithmetic.product)
        scale = self._scale / self._root  # exact, but for what it takes below the least of the format
        scaled = rounded(d / scale, self._arithmetic.direction)
        return rounded(self._system.matmul(scaled), self._arithmetic.product) * scale

    def _refresh(self) -> None:
        """z, its norm and what r has in earlier directions, from r."""
        self.z = (
            self.r if self._preconditioner is None else self._preconditioner.solve(self.r).to(self.r.dtype)
        )
        self._coefficients = torch.zeros(0, self.r.shape[1], dtype=torch.float64, device=self.r.device)
        if self._basis is not None and len(self._basis):
            # A column that stands still has its last residual in the basis more than once: leave it alone.
            self._coefficients = torch.where(self._active, self._basis.coefficients(self.r), 0.0)
            self.z = self.z - self._basis.combine(self._coefficients)
            if self._residuals is not None:
                self.r = rounded(self.r - self._residuals.combine(self._coefficients), self._arithmetic.state)
        self.z = rounded(self.z, self._arithmetic.state)
        self._gamma = self._inner(self.r, self.z)
        self._norm = self._inner.value(self._gamma).clamp_min(0.0).sqrt()
        if self._residuals is None:
            self.stray = self._coefficients.norm(dim=0) / self._safe_norm()

    def _turn(self, beta: Tensor, direction: Tensor) -> None:
        """Take the next direction, and remember z."""
        if self._basis is not None:
            self._basis.append(self.z / self._safe_norm())
        if self._residuals is not None:
            self._residuals.append(self.r / self._safe_norm())
        if self._space is not None:
            direction = direction + self._space.conjugate(self.z)
            if self.can_replace:  # or the relation ends where its first vectors were dropped
                self._space.begin(self._norm, beta)
        if self._scales:
            # Divided before the cast to 16 bits: directions are residuals over noise, and would overflow.
            self._scale = self._system.binary_scale(direction).to(direction.dtype)
            self.d = rounded(direction / self._scale, self._arithmetic.direction) * self._scale
        else:
            self.d = rounded(direction, self._arithmetic.direction)

    def _safe_norm(self) -> Tensor:
        return torch.where(self._norm > 0, self._norm, torch.ones_like(self._norm)).to(self.x.dtype)

"""What conjugate gradients has learnt of A, so that a replaced residual need not start again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from halfgp.operators.base import Operator
from halfgp.preconditioners import Multiplier
from halfgp.solvers.reorthogonalise import Basis
from halfgp.solvers.state import OfRows, State, snapshot

Doubles = NDArray[np.float64]
LISTS = ("columns", "next", "betas", "norms")  # of a space, by step
OF_ROWS = ("direction", "product", "outside")  # of a boundary


@dataclass
class Boundary:
    """The last direction before a replacement, to which all later ones are made conjugate explicitly.

    Its product with A left the space of the residuals that are kept: `outside`, times `weight` (t,).
    """

    step: int
    direction: Tensor
    product: Tensor
    curvature: Tensor
    outside: Tensor
    weight: Tensor
    links: list[Tensor]


class KrylovSpace:
    """The Lanczos relation of a re-orthogonalised solve, A D = U H, kept as it was computed.

    D are the directions, z = P^-1 u the kept residuals in the P^-1 inner product's dual. With the relation,
    any right-hand side is solved on the space of all directions so far by one small system and no product
    with A: the true residual, once known, is first solved there, and conjugate gradients goes on from
    what is left, conjugate to everything before. Errors of H count only relative to the correction.

    Memory is O(k² t) for k steps beside the basis; a correction takes O(k³ t + n k t).
    """

    def __init__(self, system: Operator, preconditioner: Multiplier | None, basis: Basis) -> None:
        self._system = system
        self._preconditioner = preconditioner
        self._basis = basis
        self._columns: list[Tensor] = []  # column k of H (k + 1, t): coefficients of A d_k in u_0 ... u_k
        self._next: list[Tensor] = []  # (t,) the coefficient in u_{k+1}
        self._betas: list[Tensor] = []  # (t,) d_k = norm_k z_k + beta_k d_{k-1} + links to boundaries
        self._norms: list[Tensor] = []
        self._boundaries: list[Boundary] = []

    def begin(self, norm: Tensor, beta: Tensor) -> None:
        """A direction d = norm z + beta d_previous + ... starts, z being the newest of the basis."""
        self._norms.append(norm)
        self._betas.append(beta)

    def withdraw(self) -> None:
        """Forget the direction that was begun last: it will not be taken."""
        self._norms.pop()
        self._betas.pop()
        for boundary in self._boundaries:
            if boundary.links:
                boundary.links.pop()

    def end(self, alpha: Tensor, before: Tensor, after: Tensor, norm: Tensor) -> None:
        """Its product is known: A d = (r_k - r_{k+1}) / alpha.

        Args:
            alpha: (t,) step sizes, 0 in columns that stand still.
            before: (k, t) what r_k had in the older u.
            after: (k + 1, t) what r_{k+1} has in them.
            norm: (t,) of the part of r_{k+1} that is new.
        """
        still = alpha == 0
        inverse = torch.where(still, torch.zeros_like(alpha), 1 / alpha)
        column = -after
        column[:-1] += before
        column[-1] += self._norms[-1]
        column *= inverse
        column[-1, still] = 1.0  # a direction that was not taken: solved to nothing
        self._columns.append(column)
        self._next.append(-norm * inverse)

    def conjugate(self, z: Tensor) -> Tensor:
        """What makes a direction from z (n, t) conjugate to the boundaries, (n, t); remembered."""
        total = torch.zeros_like(z)
        for boundary in self._boundaries:
            link = -self._system.dot(z, boundary.product) / boundary.curvature
            link = torch.where(link.isfinite(), link, torch.zeros_like(link))
            boundary.links.append(link)
            total += link * boundary.direction
        return total

    def correct(
        self, residual: Tensor, direction: Tensor, product: Tensor, curvature: Tensor, newest: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Solve A e = residual on the space so far.

        Args:
            residual: (n, t), true.
            direction: the last one; with its product and curvature it becomes a boundary.
            product: A times it.
            curvature: (t,).
            newest: z (n, t), normalised, of the recurrence's last residual, which the true one replaces.

        Returns:
            e (n, t), and what is left of the residual (n, t).
        """
        steps = len(self._columns)
        self._boundaries.append(
            Boundary(steps - 1, direction, product, curvature, newest, self._next[-1], [])
        )
        y = self._solve(self._basis.coefficients(residual)[:steps])
        e = self._padded(self._directions(y))
        image = torch.zeros(steps, y.shape[1], dtype=y.dtype, device=y.device)
        for k, column in enumerate(self._columns):
            image[: k + 1] += column * y[k]
            if not self._is_boundary(k):
                image[k + 1] += self._next[k] * y[k]
        change = self._padded(image)
        for boundary in self._boundaries:
            change = change + boundary.outside * (boundary.weight * y[boundary.step])
        return e, residual - self._applied(change)

    def keep(self, columns: Tensor) -> None:
        """Drop all but these columns."""
        self._columns = [column[:, columns] for column in self._columns]
        self._next = [value[columns] for value in self._next]
        self._betas = [value[columns] for value in self._betas]
        self._norms = [value[columns] for value in self._norms]
        for boundary in self._boundaries:
            for name in OF_ROWS:
                setattr(boundary, name, getattr(boundary, name)[:, columns])
            boundary.curvature, boundary.weight = boundary.curvature[columns], boundary.weight[columns]
            boundary.links = [link[columns] for link in boundary.links]

    def state(self) -> State:
        """The relation as far as it goes."""
        boundaries = [
            {
                name: OfRows(value) if name in OF_ROWS else snapshot(value)
                for name, value in vars(boundary).items()
            }
            for boundary in self._boundaries
        ]
        lists = {name: snapshot(getattr(self, f"_{name}")) for name in LISTS}
        return {**lists, "boundaries": boundaries}

    def restore(self, state: State) -> None:
        """Go on from there."""
        for name in LISTS:
            setattr(self, f"_{name}", list(state[name]))
        self._boundaries = [
            Boundary(**{**boundary, "links": list(boundary["links"])}) for boundary in state["boundaries"]
        ]

    def _is_boundary(self, k: int) -> bool:
        return any(boundary.step == k for boundary in self._boundaries)

    def _applied(self, v: Tensor) -> Tensor:
        """P v."""
        return v if self._preconditioner is None else self._preconditioner.matmul(v)

    def _padded(self, c: Tensor) -> Tensor:
        """The combination of the basis, whose newest vector takes no part."""
        return self._basis.combine(torch.cat([c, torch.zeros_like(c[:1])])).double()

    def _solve(self, c: Tensor) -> Tensor:
        """The solution y (k, t) of H y = c, H (k, k) being known by columns."""
        steps, t = c.shape
        matrix = torch.zeros(t, steps, steps, dtype=torch.float64, device=c.device)
        for k, column in enumerate(self._columns):
            matrix[:, : k + 1, k] = column.T
            if not self._is_boundary(k):
                matrix[:, k + 1, k] = self._next[k]
        for boundary in self._boundaries:
            inside = self._basis.coefficients(self._applied(boundary.outside))[:steps]
            matrix[:, :, boundary.step] += (inside * boundary.weight).T
        return torch.from_numpy(_solved(matrix.cpu().numpy(), c.T.cpu().numpy())).T.to(c.device)

    def _directions(self, y: Tensor) -> Tensor:
        """Coefficients (k, t) in z of the combination y (k, t) of directions: their recurrence, backwards."""
        weights = y.clone()
        for k in range(len(y) - 1, -1, -1):
            if k:
                weights[k - 1] += self._betas[k] * weights[k]
            for boundary in self._boundaries:
                if k > boundary.step:
                    weights[boundary.step] += boundary.links[k - boundary.step - 1] * weights[k]
        return weights * torch.stack(self._norms[: len(y)])


def _solved(h: Doubles, c: Doubles) -> Doubles:
    """The solutions (t, k) of h y = c, for h (t, k, k) and c (t, k), by NumPy's LAPACK.

    Some builds of torch fail on batches of such matrices. A space that was exhausted makes h singular: least
    squares then, for any y is right, and what it does not solve stays in the residual.
    """
    try:
        return np.asarray(np.linalg.solve(h, c[:, :, None])[:, :, 0], dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.stack([np.linalg.lstsq(a, b)[0] for a, b in zip(h, c, strict=True)])

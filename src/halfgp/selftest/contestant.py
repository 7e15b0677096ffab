"""A backend that is held to the contract, with what its error bound has to know."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from halfgp.backends.base import Backend
from halfgp.precision import Precision


@dataclass(frozen=True)
class Contestant:
    """A backend under test.

    Attributes:
        label: for the name of the test.
        backend: what is bound.
        run: how many products are added in the products' format before the sum in the wide one; 0 for none.
        expansion: the precisions in which squared distances of points near their mean come from
            |x|^2 + |y|^2 - 2 x.y, whose error is relative to |x|^2 + |y|^2.
        gradient_expansion: the same where gradients are asked for.
        inputs: what becomes of scaled features in a 16-bit precision: "rounded" to its format, "unrounded"
            (in the format that computes), "split" into two numbers of it, or "fixed point" where there are
            many of them, else unrounded.
        stored_inputs: the same where entries are stored; empty for `inputs`.
        single_gradients: whether gradients in a 16-bit precision are by differences in single too.
        device: of the points.
    """

    label: str
    backend: Backend
    run: int = 0
    expansion: tuple[str, ...] = ()
    gradient_expansion: tuple[str, ...] = ()
    inputs: str = "rounded"
    stored_inputs: str = ""
    single_gradients: bool = False
    device: str = "cpu"

    def expands(self, precision: Precision, gradient: bool = False) -> bool:
        """Whether `expansion` has a precision, or `gradient_expansion`."""
        return precision.name in (self.gradient_expansion if gradient else self.expansion)

    def to(self, tensor: Tensor) -> Tensor:
        """On the device."""
        return tensor.to(self.device)

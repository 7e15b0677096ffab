"""Inner products of columns, summed as they are or through logarithms as the paper's LΣE does."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from halfgp.operators.base import Operator
from halfgp.precision import DOUBLE, Format


class InnerProduct(ABC):
    """Inner products in a scale of their own: only their ratios, signs and values leave it."""

    @abstractmethod
    def __call__(self, u: Tensor, v: Tensor) -> Tensor:
        """Products (..., t) of the columns of u and v (n, t), in the method's own scale."""

    @abstractmethod
    def ratio(self, numerator: Tensor, denominator: Tensor) -> Tensor:
        """Their ratio (t,), as a plain number."""

    @abstractmethod
    def value(self, product: Tensor) -> Tensor:
        """The product (t,) as a plain number."""


class Direct(InnerProduct):
    """Plain sums.

    In double they come from the operator as they are. In a narrower format every term and the result
    are rounded to it: in half a sum past 65504 is infinite and one below 2^-25 is zero, which is how
    standard conjugate gradients fail there.
    """

    def __init__(self, system: Operator, fmt: Format) -> None:
        self._system = system
        self._format = fmt

    def __call__(self, u: Tensor, v: Tensor) -> Tensor:
        """Sums (t,)."""
        if self._format == DOUBLE:
            return self._system.dot(u, v)
        dtype = self._format.dtype
        terms = (u.to(dtype) * v.to(dtype)).float()  # rounded terms; the sum itself in single, as on GPUs
        return self._system.total(terms.sum(dim=0)).to(dtype).double()

    def ratio(self, numerator: Tensor, denominator: Tensor) -> Tensor:
        """Quotient, rounded to the format."""
        return (numerator / denominator).to(self._format.dtype).double()

    def value(self, product: Tensor) -> Tensor:
        """Itself."""
        return product


class Log(InnerProduct):
    """The paper's LΣE: y_i = log|u_i| + log|v_i|, then y_max + log Σ s_i exp(y_i - y_max), with the sign.

    A product is (2, t): sign and logarithm. Nothing overflows or underflows whatever the format of the
    vectors, and ratios are differences. Terms are summed in the format given. Zero has the logarithm -inf.
    """

    def __init__(self, system: Operator, fmt: Format) -> None:
        self._system = system
        self._dtype = fmt.dtype

    def __call__(self, u: Tensor, v: Tensor) -> Tensor:
        """Signs and logarithms (2, t)."""
        left, right = u.to(self._dtype), v.to(self._dtype)
        logs = left.abs().log() + right.abs().log()
        largest = logs.amax(dim=0) if len(logs) else logs.new_full((u.shape[1],), -torch.inf)
        # Of all rows, wherever they are held: terms are added that were shifted by the same.
        largest = self._system.largest(largest)
        shift = torch.where(largest.isinf(), torch.zeros_like(largest), largest)
        total = (torch.sign(left) * torch.sign(right) * (logs - shift).exp()).sum(dim=0)
        total = self._system.total(total).double()
        return torch.stack([total.sign(), total.abs().log() + shift.double()])

    def ratio(self, numerator: Tensor, denominator: Tensor) -> Tensor:
        """Exponential of the difference of logarithms."""
        return numerator[0] * denominator[0] * (numerator[1] - denominator[1]).exp()

    def value(self, product: Tensor) -> Tensor:
        """Sign times exponential."""
        return product[0] * product[1].exp()

"""Scaled kernels, sums and products, nested at will."""

from __future__ import annotations

import copy
import functools
import operator
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from halfgp.errors import InputError
from halfgp.kernels.base import Kernel
from halfgp.kernels.linear import Constant
from halfgp.kernels.program import Lowering, Term
from halfgp.parameters import Parameter, ParameterValue, positive

if TYPE_CHECKING:
    from typing_extensions import Self


class Scaled(Kernel):
    """outputscale * kernel; its names are those of the kernel and "outputscale"."""

    def __init__(self, outputscale: ParameterValue | Parameter, kernel: Kernel) -> None:
        self._outputscale = positive("outputscale", outputscale, scalar=True)
        self._kernel = kernel

    @property
    def outputscale(self) -> Tensor:
        """The factor, a scalar."""
        return self._outputscale.value

    @property
    def kernel(self) -> Kernel:
        """What is scaled."""
        return self._kernel

    @property
    def _vanishes(self) -> bool:
        return self._kernel._vanishes

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """The outputscale, then the parameters of the kernel."""
        yield "outputscale", self._outputscale
        yield from self._kernel.named_parameters()

    def _replace(self, parameters: Mapping[str, Parameter]) -> Self:
        inner = dict(parameters)
        other = copy.copy(self)
        other._outputscale = inner.pop("outputscale", self._outputscale)
        other._kernel = self._kernel._replace(inner)
        return other

    def check_columns(self, d: int) -> None:
        """Raise unless the kernel can be evaluated on points with `d` columns."""
        self._kernel.check_columns(d)

    def on_columns(self, columns: Sequence[int]) -> Self:
        """That of the kernel, scaled."""
        other = copy.copy(self)
        other._kernel = self._kernel.on_columns(columns)
        return other

    def reach(self, fall: float) -> Tensor:
        """That of the kernel: a factor does not change the normalised covariance."""
        return self._kernel.reach(fall)

    def _evaluate(self, x1: Tensor, x2: Tensor) -> Tensor:
        return self.outputscale.to(x1) * self._kernel._evaluate(x1, x2)

    def _diagonal(self, x: Tensor, white: bool) -> Tensor:
        return self.outputscale.to(x) * self._kernel._diagonal(x, white)

    def _white(self, x: Tensor) -> Tensor:
        return self.outputscale.to(x) * self._kernel._white(x)

    def _lower(self, lowering: Lowering) -> Term:
        return lowering.multiply([Term(self.outputscale, None), self._kernel._lower(lowering)])

    def __repr__(self) -> str:
        inner = f"({self._kernel!r})" if isinstance(self._kernel, Combination) else repr(self._kernel)
        return f"{self.outputscale.item():g} * {inner}"


class Power(Kernel):
    """kernel ** exponent, a positive integer; its parameters are those of the kernel."""

    def __init__(self, kernel: Kernel, exponent: int) -> None:
        if isinstance(exponent, bool) or not isinstance(exponent, int) or exponent < 1:
            raise InputError(
                f"`exponent` must be a positive integer; got {exponent!r}. Other powers are no covariances."
            )
        self._kernel, self._exponent = kernel, exponent

    @property
    def kernel(self) -> Kernel:
        """What is raised."""
        return self._kernel

    @property
    def exponent(self) -> int:
        """How often it is a factor."""
        return self._exponent

    @property
    def _vanishes(self) -> bool:
        return self._kernel._vanishes

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Those of the kernel."""
        return self._kernel.named_parameters()

    def _replace(self, parameters: Mapping[str, Parameter]) -> Self:
        return self._of(self._kernel._replace(parameters))

    def on_columns(self, columns: Sequence[int]) -> Self:
        """That of the kernel, raised."""
        return self._of(self._kernel.on_columns(columns))

    def _of(self, kernel: Kernel) -> Self:
        other = copy.copy(self)
        other._kernel = kernel
        return other

    def check_columns(self, d: int) -> None:
        """Raise unless the kernel can be evaluated on points with `d` columns."""
        self._kernel.check_columns(d)

    def reach(self, fall: float) -> Tensor:
        """Where the kernel itself has fallen by a part of it."""
        return self._kernel.reach(fall / self._exponent)

    def _evaluate(self, x1: Tensor, x2: Tensor) -> Tensor:
        return self._kernel._evaluate(x1, x2) ** self._exponent

    def _diagonal(self, x: Tensor, white: bool) -> Tensor:
        return self._kernel._diagonal(x, white) ** self._exponent

    def _white(self, x: Tensor) -> Tensor:
        # (k + w)^p - k^p as w Σ (k + w)^i k^(p-1-i): nothing cancels.
        k, both = self._kernel._diagonal(x, False), self._kernel._diagonal(x, True)
        terms = (both**i * k ** (self._exponent - 1 - i) for i in range(self._exponent))
        return self._kernel._white(x) * functools.reduce(operator.add, terms)

    def _lower(self, lowering: Lowering) -> Term:
        return lowering.multiply([self._kernel._lower(lowering) for _ in range(self._exponent)])

    def __repr__(self) -> str:
        return f"({self._kernel!r}) ** {self._exponent}"


class Combination(Kernel):
    """Several kernels joined by one operation; names are prefixed by the position, as in "0.lengthscale"."""

    _join: Callable[[Tensor, Tensor], Tensor]
    _sign: str
    _kernels: tuple[Kernel, ...]

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        flat: list[Kernel] = []
        for kernel in kernels:
            flat.extend(kernel._kernels if isinstance(kernel, type(self)) else [kernel])
        self._kernels = tuple(flat)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The parts, none of which is a combination of the same kind."""
        return self._kernels

    @abstractmethod
    def _lower(self, lowering: Lowering) -> Term: ...

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """The parameters of the parts, in order."""
        for index, kernel in enumerate(self._kernels):
            for name, parameter in kernel.named_parameters():
                yield f"{index}.{name}", parameter

    def _replace(self, parameters: Mapping[str, Parameter]) -> Self:
        inner: list[dict[str, Parameter]] = [{} for _ in self._kernels]
        for name, parameter in parameters.items():
            index, _, rest = name.partition(".")
            inner[int(index)][rest] = parameter
        other = copy.copy(self)
        other._kernels = tuple(
            kernel._replace(part) for kernel, part in zip(self._kernels, inner, strict=True)
        )
        return other

    def check_columns(self, d: int) -> None:
        """Raise unless every part can be evaluated on points with `d` columns."""
        for kernel in self._kernels:
            kernel.check_columns(d)

    def on_columns(self, columns: Sequence[int]) -> Self:
        """Those of the parts, joined."""
        other = copy.copy(self)
        other._kernels = tuple(kernel.on_columns(columns) for kernel in self._kernels)
        return other

    def _evaluate(self, x1: Tensor, x2: Tensor) -> Tensor:
        return functools.reduce(self._join, (kernel._evaluate(x1, x2) for kernel in self._kernels))

    def _diagonal(self, x: Tensor, white: bool) -> Tensor:
        return functools.reduce(self._join, (kernel._diagonal(x, white) for kernel in self._kernels))

    def __repr__(self) -> str:
        parts = (f"({k!r})" if isinstance(k, Combination) else repr(k) for k in self._kernels)
        return f" {self._sign} ".join(parts)


class Sum(Combination):
    """The sum of kernels."""

    _join = staticmethod(operator.add)
    _sign = "+"

    @property
    def _vanishes(self) -> bool:
        return all(kernel._vanishes for kernel in self._kernels)

    def _white(self, x: Tensor) -> Tensor:
        return functools.reduce(operator.add, (kernel._white(x) for kernel in self._kernels))

    def _lower(self, lowering: Lowering) -> Term:
        return lowering.add([kernel._lower(lowering) for kernel in self._kernels if not kernel._vanishes])


class Product(Combination):
    """The product of kernels."""

    _join = staticmethod(operator.mul)
    _sign = "*"

    @property
    def _vanishes(self) -> bool:
        return any(kernel._vanishes for kernel in self._kernels)

    def _white(self, x: Tensor) -> Tensor:
        # (k + w)(k' + w') without k k', term by term: none of them is negative, so that nothing cancels.
        smooth, white = x.new_ones(len(x)), x.new_zeros(len(x))
        for kernel in self._kernels:
            white = white * kernel._diagonal(x, True) + smooth * kernel._white(x)
            smooth = smooth * kernel._diagonal(x, False)
        return white

    def _lower(self, lowering: Lowering) -> Term:
        return lowering.multiply([kernel._lower(lowering) for kernel in self._kernels])


def add(a: Kernel | ParameterValue, b: Kernel | ParameterValue) -> Kernel:
    """The sum, where a number is a `Constant` and a plain 0 nothing, so that `sum(kernels)` works."""
    parts = [part for part in (a, b) if not (isinstance(part, int | float) and part == 0)]
    kernels = [part if isinstance(part, Kernel) else Constant(part) for part in parts]
    return kernels[0] if len(kernels) == 1 else Sum(kernels)


def multiply(a: Kernel | ParameterValue, b: Kernel | ParameterValue) -> Kernel:
    """The product, where a number is an outputscale, merged with one that is there."""
    if isinstance(a, Kernel) and isinstance(b, Kernel):
        return Product([a, b])
    factor, kernel = (b, a) if isinstance(a, Kernel) else (a, b)
    assert isinstance(kernel, Kernel)
    assert not isinstance(factor, Kernel)
    if isinstance(kernel, Scaled):
        outer = positive("outputscale", factor, scalar=True).value
        return Scaled(kernel._outputscale.times(outer), kernel.kernel)
    return Scaled(factor, kernel)

"""What every kernel can do: name its parameters, evaluate its definition, and lower itself to a program."""

from __future__ import annotations

import copy
import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from halfgp.errors import InputError
from halfgp.kernels.program import Lowering, Program, Term
from halfgp.parameters import Parameter, ParameterValue
from halfgp.precision import Format

if TYPE_CHECKING:
    from typing_extensions import Self

K = TypeVar("K", bound="Kernel")


class Kernel(ABC):
    """An immutable covariance function of two points.

    A kernel with its own formula derives from `LeafKernel` and writes `_evaluate`, `_diagonal` and `_lower`.
    """

    # NumPy scalars then leave `2.0 * kernel` to us instead of making an array of objects.
    __array_ufunc__ = None

    @abstractmethod
    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Names and parameters, in a fixed order."""

    @abstractmethod
    def _replace(self, parameters: Mapping[str, Parameter]) -> Self:
        """The same kernel with the parameters of those names exchanged."""

    @abstractmethod
    def _evaluate(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The covariances between two sets of points (n1, D), (n2, D), without White."""

    @abstractmethod
    def _diagonal(self, x: Tensor, white: bool) -> Tensor:
        """The variances k(x_i, x_i), with or without White, of shape (n,)."""

    @abstractmethod
    def _lower(self, lowering: Lowering) -> Term:
        """This kernel's part of a program; never called on a kernel that `_vanishes`."""

    @abstractmethod
    def check_columns(self, d: int) -> None:
        """Raise unless the kernel can be evaluated on points with `d` columns."""

    @abstractmethod
    def on_columns(self, columns: Sequence[int]) -> Self:
        """The same kernel of wider points, whose column `columns[k]` is what this one takes for column k."""

    @property
    def _vanishes(self) -> bool:
        """Whether the covariance of two distinct points is always zero."""
        return False

    def with_parameters(self, values: Mapping[str, ParameterValue | Parameter]) -> Self:
        """A new kernel with some values exchanged; tensors keep their autograd graph, bounds stay."""
        parameters = dict(self.named_parameters())
        for name in values:
            if name not in parameters:
                nearest = difflib.get_close_matches(name, parameters, n=3) or list(parameters)
                raise InputError(
                    f"This kernel has no parameter {name!r}; did you mean {' or '.join(nearest)}?"
                )
        return self._replace(
            {
                name: value if isinstance(value, Parameter) else parameters[name].with_value(value)
                for name, value in values.items()
            }
        )

    def detached(self, requires_grad: bool = False) -> Self:
        """A copy whose parameters are fresh leaf tensors, to differentiate `program()` and `diagonal` by."""
        return self._replace({name: p.detached(requires_grad) for name, p in self.named_parameters()})

    def diagonal(self, x: Tensor, *, white: bool = True) -> Tensor:
        """The variances k(x_i, x_i), differentiable.

        Args:
            x: points (n, D).
            white: whether White takes part.

        Returns:
            (n,) in the format of `x`. O(n D).
        """
        x = self._points(x)
        return self._diagonal(x, white)

    def white(self, x: Tensor) -> Tensor:
        """What White has of the variances (n,): not their difference, in which it would be lost."""
        return self._white(self._points(x))

    def _white(self, x: Tensor) -> Tensor:
        return x.new_zeros(len(x))

    def amplitude(self, *points: Tensor) -> Tensor:
        """The largest variance on the points, without White, which normalises covariances (1 if all are 0).

        |k(x, y)| never exceeds it among the points, since a kernel matrix is positive semi-definite.
        """
        peaks = [self.diagonal(x.detach().double(), white=False).max() for x in points if len(x)]
        peak = torch.stack(peaks).max().detach() if peaks else torch.zeros((), dtype=torch.float64)
        return peak if peak > 0 else torch.ones_like(peak)

    def __call__(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The dense block of covariances by the definition, differentiable, without White.

        Args:
            x1: points (n1, D).
            x2: points (n2, D) of the same format.

        Returns:
            (n1, n2) in the format of the points. O(n1 n2 D) time, O(n1 n2) memory.
        """
        return self._evaluate(self._points(x1), self._points(x2))

    def support(self, format: Format) -> Tensor:
        """The largest distance at which a stationary kernel, normalised, is not zero in the format.

        Returns:
            The shape of the lengthscale: one distance per feature where each has its own. Infinite where no
            distance is known to make it zero.
        """
        return self.reach(format.vanishing_fall)

    def reach(self, fall: float) -> Tensor:
        """The distance beyond which a stationary kernel, normalised, is below exp(-fall), fall > 0."""
        raise InputError(
            f"`support` needs a stationary kernel; got {self!r}. Ask its factors or terms one by one."
        )

    def program(self) -> Program:
        """The flat form for a backend; its tensors carry the autograd graph of the parameters."""
        lowering = Lowering()
        return lowering.finish(None if self._vanishes else self._lower(lowering))

    def _points(self, x: Tensor) -> Tensor:
        """Points (n, D) in a real floating-point format."""
        x = torch.as_tensor(x)
        if x.ndim != 2:
            raise InputError(f"Points must have shape (n, d); got {tuple(x.shape)}. Use `x[:, None]`.")
        self.check_columns(x.shape[1])
        return x if x.is_floating_point() else x.to(torch.float64)

    def __add__(self, other: Kernel | ParameterValue) -> Kernel:
        from halfgp.kernels.compose import add

        return add(self, other)

    def __radd__(self, other: Kernel | ParameterValue) -> Kernel:
        from halfgp.kernels.compose import add

        return add(other, self)

    def __mul__(self, other: Kernel | ParameterValue) -> Kernel:
        from halfgp.kernels.compose import multiply

        return multiply(self, other)

    def __pow__(self, exponent: int) -> Kernel:
        from halfgp.kernels.compose import Power

        return self if exponent == 1 else Power(self, exponent)

    def __rmul__(self, other: Kernel | ParameterValue) -> Kernel:
        from halfgp.kernels.compose import multiply

        return multiply(other, self)


class LeafKernel(Kernel):
    """A kernel with a formula of its own, on all columns of the points or on some."""

    def __init__(self, parameters: Mapping[str, Parameter], active_dims: Sequence[int] | None = None) -> None:
        self._parameters = dict(parameters)
        self._active_dims = None if active_dims is None else _as_columns(active_dims)

    @property
    def active_dims(self) -> tuple[int, ...] | None:
        """The columns that the kernel looks at; None means all."""
        return self._active_dims

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Names and parameters, in the order of the constructor."""
        yield from self._parameters.items()

    def _replace(self, parameters: Mapping[str, Parameter]) -> Self:
        other = copy.copy(self)
        other._parameters = {**self._parameters, **parameters}
        return other

    def check_columns(self, d: int) -> None:
        """Raise unless the active columns exist and vector parameters have one value for each."""
        if self._active_dims is not None:
            if max(self._active_dims) >= d:
                raise InputError(
                    f"`active_dims` must be below the number of columns, {d}; got {list(self._active_dims)}."
                )
            d = len(self._active_dims)
        for name, parameter in self._parameters.items():
            if parameter.value.ndim and len(parameter.value) != d:
                raise InputError(
                    f"`{name}` must be a single number or one per active column, {d};"
                    f" got {len(parameter.value)}. Change it or set `active_dims`."
                )

    def on_columns(self, columns: Sequence[int]) -> Self:
        """With its active columns found again among others."""
        other = copy.copy(self)
        active = range(len(columns)) if self._active_dims is None else self._active_dims
        other._active_dims = _as_columns([columns[k] for k in active])
        return other

    def _select(self, x: Tensor) -> Tensor:
        """The active columns of the points."""
        return x if self._active_dims is None else x[:, list(self._active_dims)]

    def _value(self, name: str, like: Tensor | None = None) -> Tensor:
        """The value of a parameter, in the format and on the device of `like`."""
        value = self._parameters[name].value
        return value if like is None else value.to(like)

    def _options(self) -> dict[str, Any]:
        """What `repr` shows before the parameters."""
        return {}

    def __repr__(self) -> str:
        shown = {**self._options(), **{name: p.value.tolist() for name, p in self._parameters.items()}}
        if self._active_dims is not None:
            shown["active_dims"] = list(self._active_dims)
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in shown.items())})"


def _as_columns(active_dims: Sequence[int]) -> tuple[int, ...]:
    """Distinct non-negative column indices."""
    columns = tuple(int(column) for column in active_dims)
    if not columns or min(columns) < 0 or len(set(columns)) < len(columns):
        raise InputError(f"`active_dims` must be distinct non-negative columns, at least one; got {columns}.")
    return columns

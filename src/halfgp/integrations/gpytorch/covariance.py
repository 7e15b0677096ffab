"""A kernel matrix that is never formed, as a `LinearOperator`, with gradients in all that it is made of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from linear_operator.functions._matmul import Matmul
from linear_operator.operators import DenseLinearOperator, DiagLinearOperator, LinearOperator
from torch import Tensor

from halfgp.integrations.gpytorch.kept import Kept
from halfgp.kernels import Kernel
from halfgp.kernels.first_derivative import first_derivative
from halfgp.operators import KernelOperator
from halfgp.precision import Precision

ALL = slice(None)
FEW_ENTRIES = 2**16  # that torch evaluates as soon as the engine would


class KernelCovariance(LinearOperator):  # type: ignore[misc]
    """K(x1, x2) of a halfgp kernel, or a batch of them.

    Sums, products and positive multiples of such matrices are such matrices: the covariance of a composed
    kernel multiplies in one pass over its entries. Adding a diagonal gives a `NoisyCovariance`.

    Args:
        x1: points (..., n1, d).
        x2: points (..., n2, d).
        values: of the kernel's parameters in the order of their names, each (...) or (..., k).
        kernel: what they are the parameters of; its own values do not matter.
        precision: of products; "auto" is that of the points.
        kept: what earlier matrices of the same model have found out; None for nothing.
    """

    def __init__(
        self,
        x1: Tensor,
        x2: Tensor,
        *values: Tensor,
        kernel: Kernel,
        precision: str | Precision = "auto",
        kept: Kept | None = None,
    ) -> None:
        parameters = dict(kernel.named_parameters())
        tails = [x1.shape[-2:], x2.shape[-2:], *(p.value.shape for p in parameters.values())]
        tensors = [x1, x2, *values]
        heads = [t.shape[: t.ndim - len(tail)] for t, tail in zip(tensors, tails, strict=True)]
        batch = _together(*heads)
        tensors = [_expanded(t, batch, tail) for t, tail in zip(tensors, tails, strict=True)]
        kept = Kept() if kept is None else kept
        super().__init__(*tensors, kernel=kernel, precision=precision, kept=kept)
        self.x1, self.x2, *self.values = tensors
        self.kernel, self.precision, self.kept = kernel, precision, kept
        self._names, self._batch = list(parameters), batch
        self._bound: list[KernelOperator] | None = None

    def with_precision(self, precision: str | Precision) -> KernelCovariance:
        """The same matrix with other products."""
        return KernelCovariance(
            self.x1, self.x2, *self.values, kernel=self.kernel, precision=precision, kept=self.kept
        )

    # What LinearOperator asks for.

    def _size(self) -> torch.Size:
        return torch.Size([*self._batch, self.x1.shape[-2], self.x2.shape[-2]])

    def _transpose_nonbatch(self) -> KernelCovariance:
        return self._like(self.x2, self.x1, self.values)

    def _matmul(self, rhs: Tensor) -> Tensor:
        if torch.is_grad_enabled() and any(t.requires_grad for t in (rhs, *self.representation())):
            # Who differentiates the product itself, as operators around this one may, is not left without.
            differentiable: Tensor = Matmul.apply(self.representation_tree(), rhs, *self.representation())
            return differentiable
        columns = rhs.unsqueeze(-1) if rhs.ndim == 1 else rhs
        if not self._batch:  # one matrix: right-hand sides of a batch are more columns of it
            flat = columns.movedim(-2, 0).reshape(columns.shape[-2], -1)
            product = self._products[0] @ flat.detach()
            shape = (self.x1.shape[-2], *columns.shape[:-2], columns.shape[-1])
            result = torch.as_tensor(product).reshape(shape).movedim(0, -2)
        else:
            batch = _together(self._batch, columns.shape[:-2])
            which = torch.arange(math.prod(self._batch)).reshape(self._batch).expand(batch).reshape(-1)
            every = columns.detach().expand(*batch, *columns.shape[-2:]).reshape(-1, *columns.shape[-2:])
            parts = [
                torch.as_tensor(self._products[k] @ v) for k, v in zip(which.tolist(), every, strict=True)
            ]
            result = torch.stack(parts).reshape(*batch, self.x1.shape[-2], columns.shape[-1])
        return result.squeeze(-1) if rhs.ndim == 1 else result

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        """One pass for all hyperparameters, and for the points where they want it."""
        u, v = (w.unsqueeze(-1) if w.ndim == 1 else w for w in (left_vecs, right_vecs))
        batch = _together(self._batch, u.shape[:-2], v.shape[:-2])
        inputs = self.x1.requires_grad or self.x2.requires_grad
        totals = [torch.zeros_like(t) for t in (self.x1, self.x2, *self.values)]
        flat = [t.reshape(-1, *t.shape[len(self._batch) :]) for t in totals]
        which = torch.arange(len(flat[0])).reshape(self._batch).expand(batch).reshape(-1)
        pairs = [w.expand(*batch, *w.shape[-2:]).reshape(-1, *w.shape[-2:]) for w in (u, v)]
        # A square matrix has the gradients in both of its points as one; here they are two arguments.
        matrices = self._bind(square=False) if inputs else self._products
        for k, left, right in zip(which.tolist(), *pairs, strict=True):
            found = matrices[k].bilinear_gradient(left.detach(), right.detach(), inputs=inputs)
            parts = [found.get("x1"), found.get("x2"), *(found[name] for name in self._names)]
            for total, part in zip(flat, parts, strict=True):
                if part is not None:
                    total[k] += torch.as_tensor(part).to(total)
        tensors = (self.x1, self.x2, *self.values)
        return tuple(
            first_derivative(total, u, v, *tensors) if t.requires_grad else None
            for t, total in zip(tensors, totals, strict=True)
        )

    def _diagonal(self) -> Tensor:
        if not self._is_square:
            return self.to_dense().diagonal(dim1=-2, dim2=-1)
        return self._stacked([kernel.diagonal(x1) for kernel, x1, _ in self.elements()], self.shape[-1:])

    def to_dense(self) -> Tensor:
        """All entries (..., n1, n2), by the definition where a gradient may be asked for."""
        graph = torch.is_grad_enabled() and any(t.requires_grad for t in self.representation())
        if graph or self.shape.numel() <= FEW_ENTRIES or self.dtype not in (torch.float32, torch.float64):
            return self._stacked([kernel(x1, x2) for kernel, x1, x2 in self.elements()], self.shape[-2:])
        dense = [torch.as_tensor(matrix.to_dense()).to(self.dtype) for matrix in self._products]
        return self._stacked(dense, self.shape[-2:])

    def _getitem(self, row_index: Any, col_index: Any, *batch_indices: Any) -> KernelCovariance:
        x1 = self.x1[(*batch_indices, row_index, ALL)]
        x2 = self.x2[(*batch_indices, col_index, ALL)]
        return self._like(x1, x2, [value[batch_indices] if batch_indices else value for value in self.values])

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        rows, places = row_index.reshape(-1).unique(return_inverse=True)  # type: ignore[no-untyped-call]
        columns, others = col_index.reshape(-1).unique(return_inverse=True)  # type: ignore[no-untyped-call]
        block = self._like(self.x1[..., rows, :], self.x2[..., columns, :], self.values).to_dense()
        return block[(*batch_indices, places.view_as(row_index), others.view_as(col_index))]

    def _expand_batch(self, batch_shape: torch.Size) -> KernelCovariance:
        count = len(self._batch)
        x1, x2, *values = (_expanded(t, batch_shape, t.shape[count:]) for t in self.representation())
        return self._like(x1, x2, values)

    def _permute_batch(self, *dims: int) -> KernelCovariance:
        count = len(self._batch)
        x1, x2, *values = (t.permute(*dims, *range(count, t.ndim)) for t in self.representation())
        return self._like(x1, x2, values)

    def _unsqueeze_batch(self, dim: int) -> KernelCovariance:
        x1, x2, *values = (t.unsqueeze(dim) for t in self.representation())
        return self._like(x1, x2, values)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_bound": None}

    # What keeps compositions one matrix.

    def __add__(self, other: Any) -> Any:
        if isinstance(other, DiagLinearOperator) and other.shape[-2:] == self.shape[-2:] and self._is_square:
            from halfgp.integrations.gpytorch.noisy_covariance import NoisyCovariance

            return NoisyCovariance(self, other)
        if self._joins(other):
            return self._joined(other, lambda a, b: a + b)
        return super().__add__(other)

    def add_diagonal(self, diag: Tensor) -> Any:
        """K + diagonal, as `+` has it."""
        return self + super().add_diagonal(diag)._diag_tensor

    def mul(self, other: Any) -> Any:
        """As any operator; constants may have batches that the points have not."""
        if isinstance(other, Tensor) and other.ndim > 2 and other.shape[-2:] == (1, 1):
            return self._mul_constant(other[..., 0, 0])
        return super().mul(other)

    def _mul_constant(self, other: Tensor) -> Any:
        if not bool((other > 0).all()):
            return super()._mul_constant(other)
        factor = other.to(self.values[0]) if self.values else other.to(self.x1)
        kernel = 1.0 * self.kernel
        names = [name for name, _ in kernel.named_parameters()]
        if len(names) == len(self.values):  # an outputscale was there, and has become another one
            at = names.index("outputscale")
            values = [v * factor if k == at else v for k, v in enumerate(self.values)]
        else:
            values = [factor, *self.values]
        return self._like(self.x1, self.x2, values, kernel.detached())

    def _mul_matrix(self, other: Any) -> Any:
        """With any other matrix by dense entries: of operators roots of low rank would be multiplied."""
        other = other.evaluate_kernel()
        if self._joins(other):
            return self._joined(other, lambda a, b: a * b)
        return DenseLinearOperator(self.to_dense() * other.to_dense())

    def _joins(self, other: Any) -> bool:
        return (
            isinstance(other, KernelCovariance)
            and other.shape[-2:] == self.shape[-2:]
            and other.precision == self.precision
        )

    def _joined(self, other: KernelCovariance, join: Any) -> KernelCovariance:
        """Of both kernels, on the points of both: the same ones, or side by side."""
        mine, its = self.kernel, other.kernel
        x1, x2 = self.x1, self.x2
        if not (_is_same(x1, other.x1) and _is_same(x2, other.x2)):
            d = x1.shape[-1]
            mine, its = mine.on_columns(range(d)), its.on_columns(range(d, d + other.x1.shape[-1]))
            same = _is_same(x1, x2) and _is_same(other.x1, other.x2)
            batch = _together(self._batch, other._batch)
            x1 = _side_by_side(x1, other.x1, batch)
            x2 = x1 if same else _side_by_side(x2, other.x2, batch)
        # Kernels of the same kind are merged: what comes first stays first.
        return self._like(x1, x2, [*self.values, *other.values], join(mine, its).detached())

    # How it is computed.

    def _like(
        self, x1: Tensor, x2: Tensor, values: Sequence[Tensor], kernel: Kernel | None = None
    ) -> KernelCovariance:
        kernel = self.kernel if kernel is None else kernel
        return KernelCovariance(x1, x2, *values, kernel=kernel, precision=self.precision, kept=self.kept)

    @property
    def _is_square(self) -> bool:
        return _is_same(self.x1, self.x2) or (
            self.x1.shape == self.x2.shape and torch.equal(self.x1, self.x2)
        )

    def elements(self) -> Iterator[tuple[Kernel, Tensor, Tensor]]:
        """Of every matrix of the batch: its kernel and its points."""
        count = math.prod(self._batch)
        flat = [t.reshape(count, *t.shape[len(self._batch) :]) for t in (self.x1, self.x2, *self.values)]
        for k in range(count):
            named = {name: value[k] for name, value in zip(self._names, flat[2:], strict=True)}
            yield self.kernel.with_parameters(named), flat[0][k], flat[1][k]

    def _stacked(self, parts: list[Tensor], tail: torch.Size) -> Tensor:
        if not parts:
            return self.x1.new_zeros(*self._batch, *tail)
        return torch.stack(parts).reshape(*self._batch, *tail)

    @property
    def _products(self) -> list[KernelOperator]:
        """Every matrix of the batch, bound to the engine once."""
        if self._bound is None:
            self._bound = self._bind(square=self._is_square)
        return self._bound

    def _bind(self, square: bool) -> list[KernelOperator]:
        precision = self.precision
        if precision == "auto" and self.dtype == torch.float64:
            precision = "double"
        return [
            KernelOperator(
                kernel.detached(), x1.detach(), None if square else x2.detach(), precision=precision
            )
            for kernel, x1, x2 in self.elements()
        ]


def _together(*batches: torch.Size) -> torch.Size:
    """What batches broadcast to."""
    return torch.Size(np.broadcast_shapes(*map(tuple, batches)))


def _expanded(t: Tensor, batch: torch.Size, tail: torch.Size) -> Tensor:
    """A tensor of one matrix, or of a smaller batch, for all of a batch."""
    if t.shape == (*batch, *tail):
        return t
    # In a backward pass there is no graph, and yet it matters whose gradient is wanted.
    return t.expand(torch.Size([*batch, *tail])).requires_grad_(t.requires_grad)


def _is_same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are one, though perhaps by two names."""
    return a is b or (a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride())


def _side_by_side(a: Tensor, b: Tensor, batch: torch.Size) -> Tensor:
    return torch.cat([t.expand(*batch, *t.shape[-2:]) for t in (a, b)], dim=-1)

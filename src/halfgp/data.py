"""Validation of what users pass: arrays of any library become tensors, or an error says what to do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halfgp.errors import InputError, OutOfRangeError

ArrayLike = np.ndarray[Any, Any] | Tensor | Sequence[Any]
Array = np.ndarray[Any, Any] | Tensor
EXACT = 2.0**53  # below it every integer is a float64


def as_points(x: ArrayLike, name: str, device: torch.device | None = None) -> Tensor:
    """Points (n, d) as a finite float32 or float64 tensor, which shares the memory of `x` where it can."""
    points = as_real(x, name)
    if device is not None:
        check_device(points, name, device)
    if points.ndim != 2:
        remedy = f" Use `{name}[:, None]`." if points.ndim == 1 else ""
        raise InputError(f"`{name}` must have shape (n, d); got {tuple(points.shape)}.{remedy}")
    if points.shape[1] == 0:
        raise InputError(f"`{name}` must have at least one column; got shape {tuple(points.shape)}.")
    check_magnitude(points, name)
    return points


def on_device(points: Tensor, device: str) -> Tensor:
    """Points on a device that is named; "auto" leaves them where they are."""
    return points if device == "auto" else points.to(device)


@dataclass(frozen=True)
class Vectors:
    """Right-hand sides on their way through an operator.

    Attributes:
        values: (n, t), contiguous, float32 or float64.
        squeeze: whether they came as (n,).
        dtype: what the result is to be returned in, of torch or of NumPy.
    """

    values: Tensor
    squeeze: bool
    dtype: torch.dtype | np.dtype[Any]

    def restore(self, result: Tensor, dtype: torch.dtype | None = None) -> Array:
        """A result in the library the vectors came from, in their dtype or in the one given."""
        if self.squeeze:
            result = result.squeeze(-1)
        if isinstance(self.dtype, torch.dtype):
            return result.to(dtype or self.dtype)
        array: np.ndarray[Any, Any] = result.numpy()
        return array if dtype else array.astype(self.dtype, copy=False)


def as_vectors(
    v: ArrayLike, name: str, rows: int | None, device: torch.device, limit: float | None = None
) -> Vectors:
    """Vectors (n,) or (n, t) on that device, with so many rows and of at most that magnitude, if given."""
    values = as_real(v, name)
    if values.ndim not in (1, 2) or rows not in (None, len(values)):
        n = "n" if rows is None else rows
        raise InputError(f"`{name}` must have shape ({n},) or ({n}, t); got {tuple(values.shape)}.")
    check_device(values, name, device)
    if limit is not None:
        check_magnitude(values, name, limit)
    dtype: torch.dtype | np.dtype[Any] = v.dtype if isinstance(v, Tensor) else np.asarray(v).dtype
    floats = dtype.is_floating_point if isinstance(dtype, torch.dtype) else dtype.kind == "f"
    if not floats or dtype.itemsize < 4:
        # Integers become float64. Of 16-bit floats a sum may overflow: the result is as wide as the values.
        dtype = values.dtype if isinstance(v, Tensor) else values.numpy().dtype
    squeeze = values.ndim == 1
    return Vectors((values[:, None] if squeeze else values).contiguous(), squeeze, dtype)


def peaks(v: Tensor) -> Tensor:
    """The largest absolute value of each column of v (n, t): (t,), zero without rows."""
    return v.abs().amax(dim=0) if len(v) else v.new_zeros(v.shape[1])


def binary_scale(largest: Tensor) -> Tensor:
    """Powers of two (t,), float64, that bring numbers (t,) to [1/2, 1); 1 for zero.

    The largest numbers of double come to [1, 2): the next power of two is none of them.
    """
    exponent = torch.frexp(largest)[1].double().clamp_max(1023.0)
    return torch.where(largest > 0, torch.exp2(exponent), torch.ones_like(exponent))


def as_targets(y: ArrayLike, name: str, rows: int) -> tuple[Tensor, bool]:
    """Targets (n, q), float64, which may hold NaN but no infinity, and whether they came as (n,)."""
    values = as_real(y, name).to(torch.float64)
    if values.ndim not in (1, 2) or len(values) != rows or (values.ndim == 2 and values.shape[1] == 0):
        raise InputError(
            f"`{name}` must have shape ({rows},) or ({rows}, q), one row for each of `X`;"
            f" got {tuple(values.shape)}."
        )
    if bool(values.isinf().any()):
        raise InputError(f"`{name}` must not hold infinity. Remove such rows, or set them to NaN.")
    return (values[:, None] if values.ndim == 1 else values), values.ndim == 1


def as_noise(noise: float | ArrayLike, n: int, device: torch.device) -> Tensor:
    """Noise variances as float64 of shape () or (n,), finite and not negative."""
    values = as_real(noise, "noise").to(device, torch.float64)
    if values.ndim and values.shape != (n,):
        raise InputError(f"`noise` must be a number or of shape ({n},); got shape {tuple(values.shape)}.")
    if not bool((values.isfinite() & (values >= 0)).all()):
        worst = values.min() if bool(values.isfinite().all()) else values[~values.isfinite()].flatten()[0]
        raise InputError(f"`noise` must be finite and not negative; got {worst.item():g}.")
    return values


def as_levels(level: float | ArrayLike, name: str) -> tuple[list[float], bool]:
    """Probabilities, each between 0 and 1 and neither, and whether it was a single number."""
    values = as_real(level, name)
    if values.ndim > 1 or not values.numel():
        raise InputError(
            f"`{name}` must be a number such as 0.95, or a list of them; got shape {tuple(values.shape)}."
        )
    levels: list[float] = values.double().reshape(-1).tolist()
    for given in levels:
        check_level(given, name)
    return levels, values.ndim == 0


def check_level(level: float, name: str) -> None:
    """Refuse what is no probability, or one of 0 and 1."""
    if not 0.0 < level < 1.0:
        raise InputError(f"`{name}` must be between 0 and 1; got {level:g}. For 95 % write 0.95.")


def as_indices(i: object, n: int, device: torch.device) -> tuple[Tensor, bool]:
    """Row indices below `n` from an integer, a slice or integers, and whether it was a single one."""
    given = (
        i.cpu().numpy() if isinstance(i, Tensor) else np.arange(n)[i] if isinstance(i, slice) else np.array(i)
    )
    if given.ndim > 1 or (given.dtype.kind not in "iu" and given.size):
        raise InputError(f"Row indices must be integers, a slice, or one integer; got {i!r}.")
    indices = torch.from_numpy(given.astype(np.int64))
    if bool(((indices < -n) | (indices >= n)).any()):
        raise InputError(f"Row indices must be below {n}; got {i!r}.")
    return (indices % max(n, 1)).reshape(-1).to(device), given.ndim == 0


def is_rounded(value: int) -> bool:
    """Whether no float64 is this integer."""
    try:
        return int(float(value)) != value
    except OverflowError:
        return True


def first_rounded(array: np.ndarray[Any, Any]) -> int | None:
    """The first integer in an array that float64 would round, as it does identifiers; None without any."""
    if array.dtype.kind not in "iu" or array.dtype.itemsize < 8:
        return None
    large: list[int] = array[np.abs(array.astype(np.float64)) >= EXACT].tolist()
    return next((value for value in large if is_rounded(value)), None)


def check_exact(array: np.ndarray[Any, Any], name: str) -> None:
    """Raise for integers that float64 would round."""
    value = first_rounded(array)
    if value is not None:
        raise InputError(
            f"`{name}` must hold numbers that float64 has; got {value}, which it would round. Leave the"
            " column out, or subtract what its values have in common."
        )


def check_device(tensor: Tensor, name: str, device: torch.device) -> None:
    """Raise unless the tensor is on the device of the points."""
    if tensor.device != device:
        raise InputError(
            f"`{name}` must be on {device}, as the points are; got {tensor.device}. Move it there."
        )


def check_magnitude(values: Tensor, name: str, limit: float = math.inf) -> None:
    """Raise unless everything is finite and at most the limit; one pass, no copy."""
    if values.numel() == 0:
        return
    low, high = (value.item() for value in torch.aminmax(values))
    if math.isfinite(low) and math.isfinite(high) and -limit <= low and high <= limit:
        return
    finite = values.isfinite()
    if bool(finite.all()):
        raise InputError(
            f"`{name}` must not exceed {limit:.4g}, the largest of its format; got {max(-low, high):.4g}."
            " Scale it, or use a wider `precision`."
        )
    place = (~finite).nonzero()[0].tolist()
    where = f"row {place[0]}" + (f", column {place[1]}" if len(place) > 1 else "")
    raise InputError(
        f"`{name}` must be finite; got {values[tuple(place)].item()} in {where}. Remove or impute such rows."
    )


def check_reach(reach: Tensor, columns: Sequence[int], limit: float, format_name: str) -> None:
    """Raise unless scaled features stay in range: `reach` (f,) is how far each goes, `columns` where from."""
    beyond = ~(reach <= limit)  # not `>`, for a NaN must not pass
    if not bool(beyond.any()):
        return
    k = int(beyond.nonzero()[0])
    column = columns[k % len(columns)]  # a periodic kernel makes two features of a column
    raise OutOfRangeError(
        f"Column {column} of the points overflows {format_name}: scaled by the kernel it reaches"
        f" {reach[k].item():.4g}, and at most {limit:.4g} is possible. Standardise the column, raise its"
        " lengthscale, or use a wider `precision`."
    )


def as_real(x: float | ArrayLike, name: str) -> Tensor:
    """Float32 or float64: 16-bit floats become float32, integers float64."""
    if isinstance(x, Tensor):
        if x.layout != torch.strided:
            raise InputError(f"`{name}` must be dense; got layout {x.layout}. Use `{name}.to_dense()`.")
        if x.dtype == torch.bool or x.is_complex():
            raise InputError(f"`{name}` must hold real numbers; got {x.dtype}.")
        x = x.detach()
        if x.dtype in (torch.float32, torch.float64):
            return x
        if x.dtype == torch.int64:
            check_exact(x.cpu().numpy(), name)
        return x.to(torch.float32 if x.is_floating_point() else torch.float64)
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise InputError(f"`{name}` must be a rectangular array of numbers: {error}") from error
    if array.dtype.kind not in "fiu":
        raise InputError(f"`{name}` must hold real numbers; got dtype {array.dtype}. Convert it to float64.")
    check_exact(array, name)
    dtype = np.float32 if array.dtype.kind == "f" and array.dtype.itemsize <= 4 else np.float64
    array = array.astype(dtype, copy=False)  # also to native byte order
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()  # torch shares neither read-only memory nor memory that runs backwards
    return torch.from_numpy(array)

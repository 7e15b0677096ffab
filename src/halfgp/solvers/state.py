"""The state of a solve at one moment: numbers, texts and tensors in a tree, and how a file has them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

# Names to tensors, integers, booleans, texts, None, and lists and states of those; and to tuples of many
# small tensors of one dtype. Tensors of the rows held here are said to be (`OfRows`). To take a state after
# every iteration is cheap, for tensors (n, t) are not copied: a solve replaces them, and never changes them
# in place.
State = dict[str, Any]


class OfRows(NamedTuple):
    """A tensor of a state with a number for every row that is held here, along one of its dimensions."""

    values: Tensor
    axis: int = 0


def with_columns(matrix: Tensor, columns: Tensor | slice, values: Tensor) -> Tensor:
    """A copy of (n, t) in which these columns have other values: a state may hold the matrix itself."""
    copy = matrix.clone()
    copy.T[columns] = values.T.to(copy.dtype)  # whole columns, as they lie
    return copy


def snapshot(value: Any) -> Any:
    """A value that later changes do not reach, those within a vector (t,) included; a list is a tuple."""
    if isinstance(value, Tensor):
        return value.clone() if value.ndim < 2 else value
    return tuple(value) if isinstance(value, list) else value


def packed(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """A state as JSON, its tensors put under names that begin with this one.

    Tensors keep how they lie in memory, and go there as they lie: a product of other strides would add in
    another order, and end in other bits. Small ones, of which only the numbers count, go there as one.
    """
    if isinstance(value, OfRows):
        return {**packed(value.values, name, tensors), "rows": value.axis}
    if isinstance(value, Tensor):
        order = lying(value.stride())
        if not value.permute(order).is_contiguous():  # a part of something larger
            value, order = value.contiguous(), list(range(value.ndim))
        tensors[name] = value.permute(order).reshape(-1)
        return {"shape": list(value.shape), "strides": list(value.stride()), "device": str(value.device)}
    if isinstance(value, tuple):
        if value:
            tensors[name] = torch.cat([tensor.reshape(-1) for tensor in value])
        return {"shapes": [list(tensor.shape) for tensor in value]}
    if isinstance(value, dict):
        return {"state": {key: packed(inner, f"{name}.{key}", tensors) for key, inner in value.items()}}
    if isinstance(value, list):
        return [packed(inner, f"{name}.{k}", tensors) for k, inner in enumerate(value)]
    return value


def unpacked(value: Any, name: str, tensors: Mapping[str, Tensor], device: torch.device | None = None) -> Any:
    """What `packed` was given, without a word about rows; on this device, if one is given, or the CPU."""
    if isinstance(value, list):
        return [unpacked(inner, f"{name}.{k}", tensors, device) for k, inner in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if "state" in value:
        return {
            key: unpacked(inner, f"{name}.{key}", tensors, device) for key, inner in value["state"].items()
        }
    if "shapes" in value:
        start, parts = 0, []
        for shape in value["shapes"]:
            end = start + math.prod(shape)
            parts.append(tensors[name][start:end].reshape(shape))
            start = end
        return tuple(parts)
    there = value["device"] if device is None or value["device"] == "cpu" else device
    return torch.as_strided(tensors[name].to(there), value["shape"], value["strides"])


def lying(strides: Sequence[int]) -> list[int]:
    """Dimensions as they lie in memory, the one of the longest stride first."""
    return sorted(range(len(strides)), key=strides.__getitem__, reverse=True)

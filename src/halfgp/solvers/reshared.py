"""The state of a solve that other processes wrote, with the rows that are held here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from halfgp.persistence import Stored
from halfgp.solvers.state import lying


def reshared(files: Iterable[tuple[Stored, Tensor]], held: Tensor) -> Stored:
    """The file that would have been written here: what it has of rows comes from whoever held them.

    Args:
        files: of all processes that shared the rows out, one at a time, each with the rows (m,) that it held.
        held: (h,) those that are held here.
    """
    first: Stored | None = None
    own: dict[str, Tensor] = {}  # as they lie
    places = held.new_full((int(held.max()) + 1 if len(held) else 0,), -1)
    places[held] = torch.arange(len(held))
    for stored, rows in files:
        if first is None:
            shared = dict(_of_rows(stored.header["solves"]))
            alike = {name: values for name, values in stored.tensors.items() if name not in shared}
            first = replace(stored, tensors=alike)
        known = rows < len(places)
        places_here = torch.where(known, places[torch.where(known, rows, 0)], -1)
        there = (places_here >= 0).nonzero()[:, 0]
        for name, node in _of_rows(stored.header["solves"]):
            values, axis = _lying(stored.tensors[name], node)
            if values.shape[axis] != len(rows):
                raise ValueError(f"{values.shape[axis]} rows in a file of {len(rows)}")
            if name not in own:
                shape = [*values.shape[:axis], len(held), *values.shape[axis + 1 :]]
                own[name] = values.new_empty(shape)
            own[name].index_copy_(axis, places_here[there], values.index_select(axis, there))
    assert first is not None
    for name, node in _of_rows(first.header["solves"]):
        order = lying(node["strides"])
        whole = own[name].permute([order.index(axis) for axis in range(len(order))])
        node["shape"], node["strides"] = list(whole.shape), list(whole.stride())
    return replace(first, tensors={**first.tensors, **{name: v.reshape(-1) for name, v in own.items()}})


def _lying(values: Tensor, node: dict[str, Any]) -> tuple[Tensor, int]:
    """A tensor in the order of memory, contiguous, and which of its dimensions is that of rows."""
    order = lying(node["strides"])
    return values.reshape([node["shape"][axis] for axis in order]), order.index(node["rows"])


def _of_rows(solves: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every tensor of rows, as `packed` told of it, with its name."""
    for k, solve in enumerate(solves):
        yield from _below(solve["state"], f"{k}")


def _below(value: Any, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, list):
        for k, inner in enumerate(value):
            yield from _below(inner, f"{name}.{k}")
    elif isinstance(value, dict) and "state" in value:
        for key, inner in value["state"].items():
            yield from _below(inner, f"{name}.{key}")
    elif isinstance(value, dict) and "rows" in value:
        yield name, value

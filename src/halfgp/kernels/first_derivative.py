"""First derivatives that autograd does not see into: to differentiate them again is refused."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from halfgp.errors import InputError


class _FirstDerivative(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, value: Tensor, *_of: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(_ctx: Any, _gradient: Tensor) -> Any:
        raise InputError(
            "Second derivatives of covariances must be taken elsewhere: halfgp has first ones alone. With"
            " GPyTorch, compute what is differentiated twice outside of `enable`, with its own kernels."
        )


def first_derivative(value: Tensor, *of: Tensor) -> Tensor:
    """The value, which depends on tensors in a way that autograd does not see; to differentiate it raises."""
    found: Tensor = _FirstDerivative.apply(value, *of)  # type: ignore[no-untyped-call]
    return found

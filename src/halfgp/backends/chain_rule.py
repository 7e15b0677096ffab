"""From the gradient in a program's tensors, which a backend computes, to that in parameters and points."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from halfgp.kernels import Kernel
from halfgp.kernels.program import Program

# A program and points (n, D) in float64 to some tensors that depend on them, and the gradient in each.
ProgramGradient = Callable[[Program, list[Tensor]], tuple[list[Tensor], list[Tensor]]]


def parameter_gradient(
    kernel: Kernel, points: Sequence[Tensor], weights: Tensor | None, inputs: bool, backend: ProgramGradient
) -> tuple[dict[str, Tensor], Tensor | None, Tensor | None]:
    """What `KernelMatrix.bilinear_gradient` returns.

    Args:
        kernel: the kernel.
        points: one set (n, D) of a square matrix, or two.
        weights: (n,) of the diagonal of a square matrix, whose gradient is added here.
        inputs: whether the gradients in the points are wanted.
        backend: the pass over the entries off the diagonal.
    """
    with torch.enable_grad():
        kernel = kernel.detached(requires_grad=True)
        points = [x.to(torch.float64, copy=inputs).requires_grad_(inputs) for x in points]
        outputs, gradients = backend(kernel.program(), points)
        if weights is not None:
            outputs.append(kernel.diagonal(points[0]))
            gradients.append(weights)
    named = dict(kernel.named_parameters())
    wanted = [parameter.value for parameter in named.values()] + (points if inputs else [])
    found = pull_back(outputs, gradients, wanted)
    in_points = iter(found[len(named) :])
    return dict(zip(named, found, strict=False)), next(in_points, None), next(in_points, None)


def pull_back(
    outputs: Sequence[Tensor], gradients: Sequence[Tensor], inputs: Sequence[Tensor]
) -> list[Tensor]:
    """The gradient in the inputs from that in the outputs, zero where there is no way between them."""
    with torch.enable_grad():
        # Of scalars: to check the shape of a gradient that is given, torch imports SymPy for half a second.
        terms = [(o * g).sum() for o, g in zip(outputs, gradients, strict=True) if o.requires_grad]
    if not terms:
        return [torch.zeros_like(x, requires_grad=False) for x in inputs]
    found = torch.autograd.grad(terms, inputs, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]

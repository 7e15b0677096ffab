"""GPU kernels in Triton. Importing this package compiles nothing; it fails where Triton is not installed."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from halfgp.backends.part import WHOLE, Part
from halfgp.backends.reference import NeighboursInTorch, ReferenceMatrix
from halfgp.backends.triton.matrix import TritonMatrix
from halfgp.backends.triton.tiles import INTERPRETED
from halfgp.errors import InputError
from halfgp.kernels import Kernel
from halfgp.precision import SINGLE, Precision
from halfgp.truncation import EXACT, Truncation

__all__ = ["BACKEND", "INTERPRETED", "TritonBackend"]


@dataclass(frozen=True)
class TritonBackend(NeighboursInTorch):
    """Products on the tensor cores of a GPU.

    Attributes:
        fast: hold entries in one number of 16 bits where a precision has 16 bits, instead of a sum of two.
    """

    fast: bool = False
    name: str = "triton"

    def bind(
        self,
        kernel: Kernel,
        x1: Tensor,
        x2: Tensor | None,
        *,
        precision: Precision,
        store: bool,
        threads: int | None,
        truncation: Truncation = EXACT,
        part: Part = WHOLE,
    ) -> TritonMatrix | ReferenceMatrix:
        """Pack the points, O(n d). Double, and entries that are stored, are torch's on the same device."""
        if x1.device.type != "cuda" and not INTERPRETED:
            raise InputError(
                f'`backend="triton"` needs points on a GPU; got {x1.device}. Use "auto", or set'
                " TRITON_INTERPRET=1 before Python starts to try the kernels without one, slowly."
            )
        if store or precision.vectors is not SINGLE:
            return ReferenceMatrix(kernel, x1, x2, precision, store, truncation, part)
        if self.fast and precision.is_sixteen_bit:
            precision = precision.with_entries(precision.inputs)
        return TritonMatrix(kernel, x1, x2, precision, truncation, self.fast, part)


BACKEND = TritonBackend()

"""The compiled core of halfgp.backends.cpu (cpp/bindings.cpp)."""

from collections.abc import Sequence

from torch import Tensor

BLOCK: int

def instruction_sets() -> list[str]: ...
def has_fixed_point(name: str) -> bool: ...
def peak_multiply_adds(instruction_set: str, seconds: float) -> float: ...

class Program:
    def __init__(
        self,
        leaves: Sequence[tuple[int, int, bool, float, float, int, list[float], float, float]],
        nodes: Sequence[tuple[int, int, int]],
        constants: Sequence[float],
        scale: float,
        negligible: float,
    ) -> None: ...

def conditionals(
    instruction_set: str,
    single: bool,
    program: Program,
    features: Sequence[Tensor],
    diagonal: Tensor,
    targets: Tensor,
    rows: Tensor,
    members: Tensor,
    residuals: Tensor,
    deviations: Tensor,
    factor: Tensor | None,
    by_diagonal: Tensor | None,
    by_features: Sequence[Tensor | None],
    threads: int,
) -> tuple[float, list[float], list[float], list[list[float]]]: ...

class Points: ...

def pack(program: Program, single: bool, near: Tensor, features: Sequence[Tensor]) -> Points: ...

class Matrix:
    def __init__(
        self, instruction_set: str, single: bool, program: Program, rows: Points, columns: Points | None
    ) -> None: ...
    def store(self, format: int, threads: int) -> None: ...
    def product(self, v: Tensor, diagonal: Tensor, out: Tensor, threads: int) -> None: ...
    def block(self, out: Tensor, threads: int) -> None: ...
    def gradient(
        self,
        u: Tensor,
        v: Tensor,
        row_features: Sequence[Tensor | None],
        column_features: Sequence[Tensor | None],
        threads: int,
    ) -> tuple[float, list[float], list[float], list[list[float]]]: ...

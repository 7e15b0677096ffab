"""The compiled core of halfgp.backends.cpu (cpp/bindings.cpp)."""

import enum
from collections.abc import Sequence

from torch import Tensor

BLOCK: int
LANDMARKS: int

def instruction_sets() -> list[str]: ...
def has_fixed_point(name: str) -> bool: ...
def peak_multiply_adds(instruction_set: str, seconds: float) -> float: ...

class Profile(enum.Enum):
    rbf = ...
    matern12 = ...
    matern32 = ...
    matern52 = ...
    rational_quadratic = ...
    linear = ...

class NodeKind(enum.Enum):
    leaf = ...
    constant = ...
    add = ...
    multiply = ...

class Path(enum.Enum):
    expansion = ...
    difference = ...
    fixed_point = ...

class Stored(enum.Enum):
    none = ...
    float16 = ...
    bfloat16 = ...
    native = ...

class Node:
    kind: NodeKind
    a: int
    b: int
    def __init__(self, kind: NodeKind, a: int, b: int = -1) -> None: ...

class Leaf:
    profile: Profile
    features: int
    shared_scale: bool
    shape: float
    least_exponent: float
    near_path: Path
    by_products: bool
    centre: list[float]
    factor: float
    fixed_step: float
    def __init__(
        self,
        *,
        profile: Profile,
        features: int,
        shared_scale: bool,
        shape: float,
        least_exponent: float,
        near_path: Path,
        by_products: bool,
        centre: list[float],
        factor: float,
        fixed_step: float,
    ) -> None: ...

class Program:
    def __init__(
        self,
        leaves: Sequence[Leaf],
        nodes: Sequence[Node],
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
    explained: Tensor | None,
    residuals: Tensor,
    deviations: Tensor,
    factor: Tensor | None,
    by_diagonal: Tensor | None,
    by_features: Sequence[Tensor | None],
    threads: int,
) -> tuple[float, list[float], list[float], list[list[float]]]: ...
def nearest(
    instruction_set: str,
    points: Tensor,
    positions: Tensor | None,
    queries: Tensor,
    own: Tensor,
    found: Tensor,
    threads: int,
) -> None: ...

class SparseFactor:
    def __init__(self, columns: Tensor, entries: Tensor) -> None: ...
    def multiply(self, v: Tensor, out: Tensor, transposed: bool, threads: int) -> None: ...
    def solve(self, v: Tensor, transposed: bool) -> None: ...

class GroupedFactor64:
    log_pivots: float
    indefinite: int
    def __init__(
        self,
        instruction_set: str,
        program: Program,
        features: Sequence[Tensor],
        diagonal: Tensor,
        explained: Tensor,
        starts: Tensor,
        member_starts: Tensor,
        members: Tensor,
        threads: int,
    ) -> None: ...
    def multiply(self, v: Tensor, out: Tensor, transposed: bool, threads: int) -> None: ...
    def solve(self, v: Tensor, transposed: bool) -> None: ...

class GroupedFactor32(GroupedFactor64): ...  # by its interface, not by its kind
class Points: ...

def pack(
    program: Program,
    single: bool,
    near: Tensor,
    features: Sequence[Tensor],
    order: Tensor | None,
    runs: int,
) -> Points: ...

class Matrix:
    def __init__(
        self, instruction_set: str, single: bool, program: Program, rows: Points, columns: Points | None
    ) -> None: ...
    def choose_tiles(self, skip_zeros: bool, index: int, count: int, threads: int) -> None: ...
    def dropped(self, threads: int) -> float: ...
    @property
    def tiles(self) -> int: ...
    @property
    def share_skipped(self) -> float: ...
    def store(self, format: Stored, threads: int) -> None: ...
    def product(self, v: Tensor, diagonal: Tensor | None, out: Tensor, threads: int) -> None: ...
    def product_within(self, v: Tensor, diagonal: Tensor, out: Tensor, threads: int) -> None: ...
    def block(self, out: Tensor, threads: int) -> None: ...
    def gradient(
        self,
        u: Tensor,
        v: Tensor,
        row_features: Sequence[Tensor | None],
        column_features: Sequence[Tensor | None],
        threads: int,
    ) -> tuple[float, list[float], list[float], list[list[float]]]: ...

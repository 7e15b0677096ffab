"""A solve that is ended anywhere and goes on from its checkpoint ends in the bits of one that never was."""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from solvers.systems import columns, kernel_operator, smooth_operator, with_spectrum

import halfgp.solvers
import halfgp.solvers.checkpoint
import halfgp.solvers.reorthogonalise
from halfgp import PivotedCholesky, SolveCheckpoint, SolveResult, SparseInverseCholesky, cg
from halfgp.errors import FileError
from halfgp.operators import as_operator
from halfgp.persistence import fingerprint, read_file, write_file
from halfgp.precision import DOUBLE
from halfgp.solvers import Status
from halfgp.solvers.recurrence import Recurrence
from halfgp.solvers.reorthogonalise import Basis
from halfgp.solvers.reshared import reshared
from halfgp.solvers.state import State, packed, unpacked

Solve = Callable[..., SolveResult]
# Solves are ended in every iteration, each time by a solve anew: few rows make for few of them.
ROWS = 60
HARD = torch.logspace(-7, 0, ROWS, dtype=torch.float64)
MILD = torch.logspace(-2, 0, ROWS, dtype=torch.float64)


def uneven(n: int) -> torch.Tensor:
    """Right-hand sides that take unlike numbers of iterations, the first none."""
    b = columns(n, 5)
    b[:, 0] = 0.0
    b[:, 3] = 1.0
    return b


def climbing(**options: Any) -> SolveResult:
    """Starts in single, which stagnates, and ends in double."""
    return cg(smooth_operator(50, noise=1e-7), uneven(50), tol=1e-9, warn=False, **options)


def dropping(**options: Any) -> SolveResult:
    """Columns stop at tolerances of their own, and are dropped."""
    return cg(kernel_operator(ROWS), uneven(ROWS), tol=[1e-2, 1e-1, 1e-4, 1e-6, 1e-10], **options)


def with_errors(**options: Any) -> SolveResult:
    """As the last solve of a fit: preconditioned, from a start, until the error is small."""
    operator, b = smooth_operator(80, noise=1e-4, precision="single"), uneven(80)
    return cg(
        operator,
        b,
        x0=0.01 * b,
        preconditioner=PivotedCholesky(rank=5),
        error_tol=[1e-3, 1e-4, 1e-3, math.inf, 1e-5],
        warn=False,
        **options,
    )


def by_neighbours(**options: Any) -> SolveResult:
    """With a preconditioner that may be above the matrix, of which Ritz values tell how far."""
    operator, b = kernel_operator(80, noise=1e-5, precision="single"), uneven(80)
    how = {"preconditioner": SparseInverseCholesky(4), "error_tol": [1e-3, 1e-4, 1e-3, math.inf, 1e-5]}
    return cg(operator, b, warn=False, **how, **options)


def replacing(**options: Any) -> SolveResult:
    """Residuals are replaced by true ones, and go on in the space so far."""
    return cg(smooth_operator(100, noise=1e-4), columns(100, 3), tol=1e-7, **options)


def forgetful(**options: Any) -> SolveResult:
    """Keeps a few of the latest residuals."""
    return cg(with_spectrum(MILD), columns(ROWS, 2), reorthogonalise=7, tol=1e-6, warn=False, **options)


def plain(**options: Any) -> SolveResult:
    return cg(
        with_spectrum(MILD).numpy(),
        columns(ROWS, 2)[:, 0].numpy(),
        reorthogonalise=False,
        tol=1e-6,
        **options,
    )


def known_by_products(**options: Any) -> SolveResult:
    matrix = with_spectrum(HARD)
    return cg((lambda v: matrix @ v, ROWS), columns(ROWS, 3), tol=1e-6, **options)


def papers_stable(**options: Any) -> SolveResult:
    return cg(kernel_operator(80), columns(80, 3), method="paper", tol=1e-2, warn=False, **options)


def papers_standard(**options: Any) -> SolveResult:
    how = {"inner_product": "direct", "reorthogonalise": False, "method": "paper"}
    return cg(kernel_operator(80), columns(80, 3), tol=1e-2, max_iterations=40, warn=False, **how, **options)


def indefinite(**options: Any) -> SolveResult:
    """Breaks down."""
    eigenvalues = torch.cat([torch.linspace(1, 2, 60), torch.tensor([-1e-3])])
    return cg(with_spectrum(eigenvalues), columns(61, 3), tol=1e-8, warn=False, **options)


def short_of(**options: Any) -> SolveResult:
    """Runs out of iterations."""
    return cg(with_spectrum(HARD), columns(ROWS, 3), tol=1e-9, max_iterations=15, warn=False, **options)


SOLVES = [
    *(
        climbing,
        dropping,
        with_errors,
        by_neighbours,
        replacing,
        forgetful,
        plain,
        known_by_products,
        papers_stable,
    ),
    *(papers_standard, indefinite, short_of),
]


def kept(path: Path, **options: Any) -> SolveCheckpoint:
    """Written on Ctrl-C only, unless the options say more."""
    return SolveCheckpoint(path, "these", **{"interval": math.inf, **options})


def check_equal(one: SolveResult, other: SolveResult) -> None:
    for field in fields(SolveResult):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if field.name in ("solution", "residual_norms", "history", "earlier", "residual", "errors"):
            assert type(a) is type(b), field.name
            a, b = torch.as_tensor(a), torch.as_tensor(b)
            assert torch.equal(a.view(torch.int64), b.view(torch.int64)), field.name  # NaN is itself, too
        else:
            assert a == b, field.name
    assert str(one) == str(other)


def interrupted_at(iteration: int) -> Callable[[int, torch.Tensor], None]:
    def callback(i: int, residuals: torch.Tensor) -> None:
        if i == iteration:
            raise KeyboardInterrupt

    return callback


def test_the_solves_do_what_they_are_here_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, int] = {"keep": 0, "replace": 0}
    for name in seen:
        method = getattr(Recurrence, name)

        def count(self: Recurrence, *arguments: Any, name: str = name, method: Any = method) -> None:
            seen[name] += 1
            method(self, *arguments)

        monkeypatch.setattr(Recurrence, name, count)
    climbed = climbing()
    assert [(step.source, step.target) for step in climbed.climbs] == [("single", "double")]
    assert 5 < climbed.climbs[0].iteration < climbed.iterations - 5
    seen |= {"keep": 0}
    dropping()
    assert seen["keep"] > 1
    seen |= {"replace": 0}
    replacing()
    assert seen["replace"] > 1
    assert forgetful().iterations > 20
    assert with_errors().iterations > 10
    assert Status.BREAKDOWN in indefinite().column_status
    assert short_of().status is Status.MAX_ITERATIONS


@pytest.mark.parametrize("solve", SOLVES, ids=lambda solve: solve.__name__)
def test_interrupted_in_every_iteration_it_ends_in_the_same_bits(solve: Solve, tmp_path: Path) -> None:
    whole = solve()
    path = tmp_path / "solve"
    for iteration in range(1, whole.iterations + 1):
        with pytest.raises(KeyboardInterrupt):
            solve(checkpoint=kept(path), callback=interrupted_at(iteration))
    iterations: list[int] = []
    resumed = solve(checkpoint=kept(path), callback=lambda i, residuals: iterations.append(i))
    assert iterations == [whole.iterations]  # all others were done before
    check_equal(resumed, whole)


def test_a_basis_that_outgrows_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest residual gives its place to the newest, also while a state that holds it is kept."""
    monkeypatch.setattr(halfgp.solvers.reorthogonalise, "MEMORY", 20 * ROWS * 2 * 8)

    def solve(**options: Any) -> SolveResult:
        return cg(with_spectrum(HARD), columns(ROWS, 2), tol=1e-7, max_iterations=40, warn=False, **options)

    whole = solve()
    assert whole.iterations == 40
    for iteration in range(15, whole.iterations + 1):
        with pytest.raises(KeyboardInterrupt):
            solve(checkpoint=kept(tmp_path / "solve"), callback=interrupted_at(iteration))
    check_equal(solve(checkpoint=kept(tmp_path / "solve")), whole)


@pytest.mark.parametrize("precision", ["auto", "double"])
def test_a_solve_goes_on_beyond_the_memory_of_its_basis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    """Without what the dropped vectors told of the matrix."""
    monkeypatch.setattr(halfgp.solvers.reorthogonalise, "MEMORY", 40 * 400 * 8)
    operator, b = kernel_operator(400, noise=1e-4), columns(400, 1)

    def solve(**options: Any) -> SolveResult:
        return cg(operator, b, tol=1e-9, precision=precision, **options)

    whole = solve()
    assert whole.converged
    assert whole.iterations > 100
    with pytest.raises(KeyboardInterrupt):
        solve(checkpoint=kept(tmp_path / "solve"), callback=interrupted_at(90))
    check_equal(solve(checkpoint=kept(tmp_path / "solve")), whole)


def test_a_basis_that_is_restored_keeps_to_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """More processes had memory for more: the newest are kept."""
    system, vectors = as_operator(with_spectrum(MILD)), columns(ROWS, 100)
    basis, fewer = (Basis(system, None, DOUBLE) for _ in range(2))
    for j in range(100):
        basis.append(vectors[:, j : j + 1])
    tensors: dict[str, torch.Tensor] = {}
    state = unpacked(packed(basis.state(), "b", tensors), "b", tensors)
    monkeypatch.setattr(halfgp.solvers.reorthogonalise, "MEMORY", 40 * ROWS * 8)  # 64, in whole chunks
    fewer.restore(state)
    assert len(fewer) == 64
    assert not fewer.complete
    assert torch.equal(fewer.stacked()[0].T, vectors[:, 36:])
    fewer.append(vectors[:, :1])  # in the place of the oldest
    assert len(fewer) == 64
    some = vectors[:, :1]
    torch.testing.assert_close(fewer.coefficients(some)[1:], basis.coefficients(some)[37:])


class Watching(SolveCheckpoint):
    """Sees to it that an iteration changes nothing in the state before it."""

    def take(self, state: State) -> None:
        self.check()
        tensors: dict[str, torch.Tensor] = {}
        header = json.dumps(packed(state, "s", tensors))
        self.before = state, header, {name: tensor.clone() for name, tensor in tensors.items()}

    def check(self) -> None:
        if hasattr(self, "before"):
            state, header, copies = self.before
            tensors: dict[str, torch.Tensor] = {}
            assert json.dumps(packed(state, "s", tensors)) == header
            for name, tensor in tensors.items():
                assert tensor.equal(copies[name]) or bool(copies[name].isnan().any()), name


# A window's newest residual takes the place of the oldest, of which the state has a copy.
@pytest.mark.parametrize(
    "solve", [solve for solve in SOLVES if solve is not forgetful], ids=lambda solve: solve.__name__
)
def test_an_iteration_does_not_reach_into_the_state_before_it(solve: Solve, tmp_path: Path) -> None:
    watching = Watching(tmp_path / "solve", "these")
    check_equal(solve(checkpoint=watching), solve())
    watching.check()


def lines_of_solvers(limit: float) -> tuple[Callable[..., Any], list[int]]:
    """A tracer that raises KeyboardInterrupt at the n-th line that solvers execute, and its count."""
    folder, count = Path(halfgp.solvers.__file__).parent, [0]

    @functools.cache  # for it is asked at every call
    def concerned(file: str) -> bool:
        return Path(file).parent == folder and Path(file).name != "checkpoint.py"

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            count[0] += 1
            if count[0] == limit:
                raise KeyboardInterrupt
        return local

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        return local if concerned(frame.f_code.co_filename) else None

    return trace, count


def traced(solve: Solve, limit: float, checkpoint: SolveCheckpoint) -> tuple[SolveResult | None, int]:
    trace, count = lines_of_solvers(limit)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return solve(checkpoint=checkpoint), count[0]
    except KeyboardInterrupt:
        return None, count[0]
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("solve", [climbing, dropping, with_errors, forgetful], ids=lambda s: s.__name__)
def test_interrupted_at_any_line_it_ends_in_the_same_bits(solve: Solve, tmp_path: Path) -> None:
    whole = solve()
    lines = traced(solve, math.inf, kept(tmp_path / "none"))[1]
    ended = 0
    for k, line in enumerate(range(101, lines, lines // 7)):
        path = tmp_path / str(k)
        result, _ = traced(solve, line, kept(path))
        ended += result is None
        check_equal(solve(checkpoint=kept(path)), whole)
    assert ended > 5


class Clock:
    """Seven seconds an iteration, and what a write takes; when it was written, in whole iterations."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cost: float) -> None:
        self.now, self.iterations, self.written, self._cost = 0.0, 0, [], cost
        self._write = halfgp.solvers.checkpoint.write_file
        monkeypatch.setattr(halfgp.solvers.checkpoint.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(halfgp.solvers.checkpoint, "write_file", self.write)

    def iterate(self, iteration: int, residuals: torch.Tensor) -> None:
        self.now, self.iterations = self.now + 7.0, iteration

    def write(self, *arguments: Any) -> None:
        self._write(*arguments)
        self.now += self._cost
        self.written.append(self.iterations)


@pytest.mark.parametrize(
    ("interval", "share", "cost", "times"),
    [
        (0.0, math.inf, 1.0, lambda end: [*range(end), end]),
        (60.0, 0.03, 0.0, lambda end: [*range(9, end, 9), end]),  # 63 seconds
        (60.0, 0.03, 1.8, lambda end: [*range(9, end, 9), end]),
        (60.0, 0.03, 3.0, lambda end: [9, *range(9 + 15, end, 15), end]),  # 100 seconds, or 105
        (math.inf, 0.03, 0.0, lambda end: []),
    ],
)
def test_it_changes_no_bits_and_is_written_by_the_clock(
    interval: float,
    share: float,
    cost: float,
    times: Callable[[int], list[int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = replacing()
    clock = Clock(monkeypatch, cost)
    checkpoint = SolveCheckpoint(tmp_path / "solve", "these", interval=interval, share=share)
    check_equal(replacing(checkpoint=checkpoint, callback=clock.iterate), whole)
    assert clock.written == times(whole.iterations)


def test_a_solve_of_other_arguments_is_not_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, b = tmp_path / "solve", columns(80, 2)
    usual = {"tol": 1e-8, "x0": 0.1 * b, "warn": False}

    def solve(about: str = "these", callback: Any = None, b: torch.Tensor = b, **options: Any) -> SolveResult:
        checkpoint = SolveCheckpoint(path, about, interval=math.inf)
        return cg(kernel_operator(80), b, checkpoint=checkpoint, callback=callback, **{**usual, **options})

    with pytest.raises(KeyboardInterrupt):
        solve(callback=interrupted_at(8))
    others: list[dict[str, Any]] = [
        *({"about": "those"}, {"b": b * (1 + 2e-16)}, {"tol": 1e-9}, {"tol": [1e-8, 1e-9]}, {"x0": None}),
        *({"x0": 0.2 * b}, {"error_tol": 1.0}, {"max_iterations": 999}, {"min_iterations": 1}),
        *({"reorthogonalise": 5}, {"precision": "double"}, {"residual_precision": "single"}),
        *({"inner_product": "log"}, {"preconditioner": PivotedCholesky(rank=3)}),
    ]
    for other in others:
        caplog.clear()
        iterations: list[int] = []
        solve(callback=lambda i, residuals, seen=iterations: seen.append(i), **other)
        assert iterations[0] == 1, other
        assert f"{path} is not used" in caplog.text, other
    caplog.clear()
    iterations = []
    solve(callback=lambda i, residuals: iterations.append(i))
    assert iterations[0] == 8
    assert "not used" not in caplog.text


def test_a_solve_of_another_method_is_not_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def solve(method: str, callback: Any) -> SolveResult:
        how = {"method": method, "precision": "half", "inner_product": "log", "tol": 1e-6, "warn": False}
        checkpoint = SolveCheckpoint(tmp_path / "solve", "these", interval=math.inf)
        return cg(kernel_operator(80), columns(80, 2), checkpoint=checkpoint, callback=callback, **how)

    with pytest.raises(KeyboardInterrupt):
        solve("auto", interrupted_at(8))
    iterations: list[int] = []
    solve("paper", lambda i, residuals: iterations.append(i))
    assert iterations[0] == 1
    assert "is not used" in caplog.text


def test_solves_one_after_another(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Those that are done are not made again; where one is other than it was, neither are later ones used."""
    path, always = tmp_path / "solve", {"interval": 0.0, "share": math.inf}
    wholes = [dropping(), replacing(), climbing()]

    def all_of(*solves: Solve, interrupt: int = 0) -> tuple[list[SolveResult], list[int]]:
        checkpoint, iterations, results = kept(path, **always), [], []

        def callback(i: int, residuals: torch.Tensor) -> None:
            iterations.append(i)
            if interrupt and solve is solves[-1] and i == interrupt:
                raise KeyboardInterrupt

        for solve in solves:
            try:
                results.append(solve(checkpoint=checkpoint, callback=callback))
            except KeyboardInterrupt:
                break
        return results, iterations

    all_of(dropping, replacing, climbing, interrupt=11)
    before = path.read_bytes()
    all_of(dropping, replacing)  # stops before what was under way, and leaves it
    assert path.read_bytes() == before
    results, iterations = all_of(dropping, replacing, climbing)
    for result, whole in zip(results, wholes, strict=True):
        check_equal(result, whole)
    assert iterations == list(range(11, wholes[2].iterations + 1))
    assert not caplog.records or "not used" not in caplog.text
    results, iterations = all_of(dropping, climbing, replacing)
    assert iterations.count(1) == 2
    assert caplog.text.count("not used") == 1
    for result, whole in zip(results, [wholes[0], wholes[2], wholes[1]], strict=True):
        check_equal(result, whole)


def test_ctrl_c_before_anything_new_leaves_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "solve"
    with pytest.raises(KeyboardInterrupt):
        replacing(checkpoint=kept(path), callback=interrupted_at(9))
    before = path.read_bytes()

    def interrupt(self: Recurrence, state: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Recurrence, "restore", interrupt)
    with pytest.raises(KeyboardInterrupt):
        replacing(checkpoint=kept(path))
    assert path.read_bytes() == before


def test_a_file_that_is_damaged_or_another_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "solve"
    with pytest.raises(KeyboardInterrupt):
        replacing(checkpoint=kept(path), callback=interrupted_at(9))
    damaged = bytearray(path.read_bytes())
    damaged[-100] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(FileError, match="damaged: its checksum"):
        replacing(checkpoint=kept(path))
    assert path.read_bytes() == damaged
    path.write_text("my notes")
    with pytest.raises(FileError, match="not a halfgp solve"):
        replacing(checkpoint=kept(path))
    assert path.read_text() == "my notes"
    write_file(path, "solve", {"solves": [3]}, {})
    with pytest.raises(FileError, match="does not hold a solve"):
        replacing(checkpoint=kept(path))


def of_one_process(index: int, count: int) -> torch.Tensor:
    """Which of `replacing`'s rows each holds."""
    return torch.arange(100)[index::count]


def test_files_of_several_processes_that_do_not_fit_are_named_or_passed_by(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, whole = tmp_path / "solve", replacing()
    several = [tmp_path / f"solve.{k}-of-2" for k in (1, 2)]
    with pytest.raises(KeyboardInterrupt):
        replacing(checkpoint=kept(path), callback=interrupted_at(9))
    # All rows in the files of two, as where each solves by itself.
    stored = read_file(path, "solve")
    with pytest.raises(ValueError, match="100 rows in a file of 50"):
        reshared([(stored, of_one_process(k, 2)) for k in range(2)], torch.arange(100))
    later = {**stored.header, "moment": stored.header["moment"] + 1}
    for k, file in enumerate(several):
        held = {"held": fingerprint(of_one_process(k, 2))}
        write_file(file, "solve", {**later, **held}, stored.tensors)
    path.unlink()
    with pytest.raises(FileError, match="1-of-2` and those beside it hold no solve"):
        replacing(checkpoint=kept(path, held_by=of_one_process))
    # Of another solve, unreadable, or not all there: the solve begins anew, with a word.
    other = {"solves": [{**stored.header["solves"][0], "fingerprint": "other"}], "moment": 1}
    for write in (
        lambda file: write_file(file, "solve", {**later, "held": "other rows"}, stored.tensors),
        lambda file: write_file(file, "solve", other, stored.tensors),
        lambda file: file.write_text("my notes"),
        lambda file: file.unlink(missing_ok=file == several[0]),
    ):
        caplog.clear()
        write(several[1])
        check_equal(replacing(checkpoint=kept(path, held_by=of_one_process)), whole)
        assert "is not used" in caplog.text


def test_a_solve_of_other_points_is_not_used_but_of_rounded_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, whole = tmp_path / "solve", replacing()
    for wrote, reads, goes_on in (
        ("a", "a", True), ("a", "b", False), (None, "b", True), ("a", None, True)
    ):  # fmt: skip
        caplog.clear()
        path.unlink(missing_ok=True)
        with pytest.raises(KeyboardInterrupt):
            replacing(checkpoint=kept(path, exact=wrote), callback=interrupted_at(9))
        check_equal(replacing(checkpoint=kept(path, exact=reads)), whole)
        assert ("is not used" in caplog.text) != goes_on


def test_where_it_cannot_be_written_the_solve_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    absent = tmp_path / "absent" / "solve"
    check_equal(replacing(checkpoint=kept(absent, interval=0.0, share=math.inf)), replacing())
    assert caplog.text.count("a kill would lose it") == 1
    with pytest.raises(KeyboardInterrupt):
        replacing(checkpoint=kept(absent), callback=interrupted_at(9))


def test_numbers_beyond_the_range_of_double_stay_so(tmp_path: Path) -> None:
    """A solve that is done but has no finite solution is told of in the same way when it is made again."""

    def solve(checkpoint: SolveCheckpoint | None = None) -> SolveResult:
        return cg(torch.eye(3).double() * 1e-300, torch.full((3, 1), 1e30), checkpoint=checkpoint, warn=False)

    whole, always = solve(), {"interval": 0.0, "share": math.inf}
    assert whole.status is Status.NONFINITE
    first = kept(tmp_path / "solve", **always)
    solve(first)
    dropping(checkpoint=first)  # writes both
    check_equal(solve(kept(tmp_path / "solve")), whole)


def test_tensors_come_back_as_they_lay() -> None:
    square = torch.arange(12.0).reshape(3, 4)
    state = {
        "turned": square.T,
        "thin": square.T[:, :1].clone(memory_format=torch.contiguous_format).T.contiguous().T,
        "part": square[:, 1:3],
        "empty": square[:, :0],
        "number": torch.tensor(3),
        "many": (square[0], square[:2], square[:0]),
        "none": (),
        "list": [square.bool(), None, 3, "text"],
        "inner": {"a": True, "b": {"c": []}},
    }
    tensors: dict[str, torch.Tensor] = {}
    found = unpacked(json.loads(json.dumps(packed(state, "s", tensors))), "s", tensors)
    assert found["turned"].stride() == (1, 4)
    assert found["turned"].data_ptr() == square.data_ptr()  # nothing was copied
    assert found["thin"].stride() == state["thin"].stride()
    for name in ("turned", "thin", "part", "empty", "number"):
        assert torch.equal(found[name], state[name])
        assert found[name].dtype == state[name].dtype
    assert torch.equal(found["list"][0], state["list"][0])
    assert found["list"][1:] == state["list"][1:]
    assert [part.tolist() for part in found["many"]] == [part.tolist() for part in state["many"]]
    assert found["none"] == ()
    assert found["inner"] == state["inner"]

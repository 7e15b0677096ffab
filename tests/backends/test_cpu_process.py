"""The compiled engine as a guest in a Python process: modes, locks, signals, forks and memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from contracts import forked

from halfgp import RBF, KernelOperator, Matern
from halfgp.errors import InputError
from halfgp.precision import Precision

cpu = pytest.importorskip("halfgp.backends.cpu", reason="halfgp._cpu was not built")
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self")


def points(n: int, d: int = 9, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def slow_operator(threads: int = 1) -> KernelOperator:
    """One whose product takes many seconds on any machine, in small tasks."""
    n = 60_000 if threads == 1 else 100_000
    return KernelOperator(
        RBF(3.0), points(n), precision="double", backend=cpu.CpuBackend("scalar"), threads=threads
    )


def denormals_live() -> bool:
    tiny = np.full(64, 1e-310)
    return bool((tiny * 0.5 > 0).all()) and bool((tiny + tiny > 0).all())


@contextmanager
def signal_after(seconds: float) -> Iterator[list[float]]:
    """Raises KeyboardInterrupt in the main thread after a while; yields the processor time when it was sent.

    Processor time, for where others use the machine too no limit holds by the clock on the wall. The handler
    expects to run in the caller's mode, not in that of the engine.
    """

    def interrupt(*_: object) -> None:
        assert denormals_live()
        raise KeyboardInterrupt

    sent: list[float] = []

    def send() -> None:
        sent.append(time.process_time())
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    timer = threading.Timer(seconds, send)
    timer.start()
    try:
        yield sent
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_mode_of_denormals_is_the_callers_again_after_a_product(threads: int) -> None:
    x = points(1200)
    operator = KernelOperator(RBF(3.0), x, precision="half", backend="cpu", threads=threads)
    assert denormals_live()
    operator @ x
    assert denormals_live()
    operator.bilinear_gradient(x, x)
    assert denormals_live()
    with pytest.raises(InputError):
        operator @ x[1:]
    assert denormals_live()
    if not torch.set_flush_denormal(True):
        pytest.skip("this machine cannot flush denormals")
    try:
        operator @ x
        assert not denormals_live()
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this machine cannot flush denormals")
@pytest.mark.parametrize("threads", [1, 3])
def test_denormals_are_flushed_in_every_thread_of_a_product(threads: int) -> None:
    # The matrix itself: the operator would scale such vectors.
    single = Precision.resolve("single")
    matrix = cpu.BACKEND.bind(
        RBF(3.0), points(1200), points(1200, seed=1), precision=single, store=False, threads=threads
    )
    assert not matrix.matmul(torch.full((1200, 2), 1e-39), None).any()
    assert matrix.matmul(torch.full((1200, 2), 1e-36), None).all()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("what", ["product", "gradient"])
def test_a_signal_stops_a_pass_within_a_second_and_leaves_all_in_order(threads: int, what: str) -> None:
    operator = slow_operator(threads)
    v = torch.ones(operator.shape[1], 1)
    with pytest.raises(KeyboardInterrupt), signal_after(0.3) as sent:
        operator @ v if what == "product" else operator.bilinear_gradient(v, v)
    assert time.process_time() - sent[0] < threads * 1.0
    assert denormals_live()
    small = KernelOperator(RBF(3.0), points(300), precision="single", backend="cpu")
    assert torch.equal(small @ points(300), small @ points(300))
    assert bool(torch.isfinite(operator.rows([0, 1])).all())


def test_a_signal_stops_a_rectangular_product_of_few_rows_and_many_columns_within_a_second() -> None:
    # One block of rows: the product is a single task, which must look up now and then.
    operator = KernelOperator(
        RBF(3.0),
        points(256),
        points(300_000),
        precision="double",
        backend=cpu.CpuBackend("scalar"),
        threads=1,
    )
    v = torch.ones(300_000, 8)
    with pytest.raises(KeyboardInterrupt), signal_after(0.3) as sent:
        operator @ v
    assert time.process_time() - sent[0] < 1.0


def test_ctrl_c_ends_a_long_product_within_a_second_and_the_operator_still_works() -> None:
    # Tests started in the background of a shell ignore SIGINT, and Python follows: ask for it again.
    script = """
    import signal, time
    import torch
    from halfgp import RBF, KernelOperator
    from halfgp.backends.cpu import CpuBackend

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    x = torch.randn(60_000, 9)
    operator = KernelOperator(RBF(3.0), x, precision="double", backend=CpuBackend("scalar"))
    few = KernelOperator(RBF(3.0), x[:300], precision="double", backend=CpuBackend("scalar"))
    before = few @ x[:300]
    print("ready", flush=True)
    began = time.process_time()
    try:
        operator @ x
    except KeyboardInterrupt:
        print(time.process_time() - began, flush=True)
    print(torch.equal(few @ x[:300], before) and bool(torch.isfinite(operator.rows(0)).all()), flush=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "ready\n"
            ready = time.monotonic()
            time.sleep(0.5)
            sent = time.monotonic()
            child.send_signal(signal.SIGINT)
            # Its one thread had at most so much processor time before the signal, and a second after it.
            assert float(child.stdout.readline()) < sent - ready + 1.0
            assert child.stdout.readline() == "True\n"
            assert child.wait(timeout=20) == 0
        finally:
            child.kill()


def test_the_interpreter_can_exit_while_a_daemon_thread_multiplies() -> None:
    script = """
    import threading, time
    import torch
    from halfgp import RBF, KernelOperator
    from halfgp.backends.cpu import CpuBackend

    x = torch.randn(60_000, 9)
    operator = KernelOperator(RBF(3.0), x, precision="double", backend=CpuBackend("scalar"))
    threading.Thread(target=lambda: operator @ x, daemon=True).start()
    time.sleep(0.3)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@linux
def test_a_system_that_gives_no_more_threads_does_not_end_the_process() -> None:
    script = """
    import resource
    import torch
    from halfgp import RBF, KernelOperator

    x = torch.randn(5_000, 9)
    operator = KernelOperator(RBF(3.0), x, precision="single", backend="cpu", threads=60)
    wanted = operator @ x
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 100 * 2**20,) * 2)  # a stack is 8 MB or so
    try:
        assert torch.equal(operator @ x, wanted)
    except (RuntimeError, MemoryError):
        pass
    """
    forked.run(textwrap.dedent(script), check=True)


def test_other_python_threads_run_during_a_product() -> None:
    operator = slow_operator()
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.002):
            ticks.append(time.monotonic())

    worker = threading.Thread(target=tick)
    worker.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), signal_after(0.5):
        operator @ torch.ones(operator.shape[1], 1)
    stop.set()
    worker.join()
    # Up to the moment of the signal; the timer, a Python thread too, could not have sent it otherwise.
    assert sum(start < moment < start + 0.5 for moment in ticks) > 20


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork")
@pytest.mark.parametrize("storage", ["on_the_fly", "stored"])
def test_a_forked_child_multiplies_as_its_parent_did(storage: str) -> None:
    x = points(1200)
    operator = KernelOperator(
        Matern(1.5, 3.0), x, precision="half", backend="cpu", storage=storage, threads=3
    )
    wanted = operator @ x
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=lambda: results.put(torch.equal(operator @ x, wanted)))
    child.start()
    child.join(timeout=30)
    if child.is_alive():
        child.kill()
        pytest.fail("the child hangs")
    assert child.exitcode == 0
    assert results.get() is True


def growth(body: str) -> list[int]:
    """What a script prints, one integer a line; `resident()` and `peak()` are in bytes."""
    script = """
    import resource
    import torch
    from halfgp import RBF, KernelOperator
    from halfgp.backends.cpu import BACKEND

    def peak():
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    warm = torch.randn(600, 9)
    KernelOperator(RBF(3.0), warm, precision="half", backend="cpu", storage="stored") @ warm
    """
    done = forked.run(textwrap.dedent(script) + textwrap.dedent(body), check=True)
    return [int(line) for line in done.stdout.split()]


@linux
def test_a_product_on_the_fly_needs_little_memory_beside_inputs_and_outputs() -> None:
    (grown,) = growth("""
    x, v, rows = torch.randn(60_000, 9), torch.randn(60_000, 16), torch.randn(1_000, 9)
    before = peak()
    operator = KernelOperator(RBF(3.0), rows, x, precision="half", backend="cpu", threads=2)
    operator @ v
    print(peak() - before)
    """)
    # Points in float64 on the way in, some three times; then packed points and vectors, in float32.
    inputs = 60_000 * (3 * 9 * 8 + 9 * 4 + 16 * 4)
    assert grown < inputs + 16 * 2**20  # and not the 240 MB of the entries


@linux
@pytest.mark.parametrize(
    ("precision", "width", "outliers"), [("half", 2, 0), ("half", 2, 1), ("double", 8, 0)]
)
def test_stored_entries_take_the_bytes_that_are_announced(precision: str, width: int, outliers: int) -> None:
    grown, announced = growth(f"""
    x = torch.randn(512, 3)
    x[:{outliers}] *= 1000.0
    before = resident()
    many = [
        KernelOperator(RBF(), x, precision={precision!r}, backend="cpu", storage="stored")
        for _ in range({200 // width})
    ]
    print(resident() - before)
    print(len(many) * many[0].bound._matrix.stored_bytes({width}))
    """)
    points_and_objects = 200 // width * 2**17
    assert grown <= announced + points_and_objects
    # An outlying point has a block of its own, whose pages are hardly touched.
    assert outliers or grown >= 0.9 * announced

"""OpenBLAS is held to one thread for the steps of a training, and no longer."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from halfgp import ExactGP
from halfgp.threads import one_thread_of_openblas

THREADS = 2


def counts() -> set[int]:
    return {one["num_threads"] for one in threadpool_info() if one["internal_api"] == "openblas"}


@pytest.fixture(autouse=True)
def two_threads():
    with threadpool_limits(THREADS, "blas"):
        if counts() != {THREADS}:
            pytest.skip("NumPy and SciPy have another BLAS than OpenBLAS, or one core")
        yield


def test_within_it_has_one_thread():
    with one_thread_of_openblas():
        assert counts() == {1}
        with one_thread_of_openblas():
            assert counts() == {1}
        assert counts() == {1}
    assert counts() == {THREADS}


def test_a_failure_within_sets_it_back():
    with pytest.raises(KeyError), one_thread_of_openblas():
        raise KeyError
    assert counts() == {THREADS}


def test_threads_that_overlap_leave_it_as_it_was():
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with one_thread_of_openblas():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with one_thread_of_openblas():
        thread.start()
        entered.wait()
        assert counts() == {1}
    leave.set()
    thread.join()
    assert counts() == {THREADS}


def test_steps_of_training_have_one():
    seen = []
    model = ExactGP(training__subset_iterations=2)
    model.fit(np.linspace(0, 1, 9)[:, None], np.arange(9.0), callbacks=[lambda _: seen.append(counts())])
    assert {1} in seen
    assert counts() == {THREADS}

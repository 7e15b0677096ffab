"""Times that can be compared."""

from __future__ import annotations

from halfgp.paper.studies.timing import best_times


def test_times_are_the_best_of_several() -> None:
    calls = []
    found = best_times({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, seconds=0.0)
    assert calls == ["a", "b"] * 2
    assert 0.0 < found["a"] < 1.0
    best_times({"a": lambda: calls.clear()}, seconds=60.0, most=3)
    assert calls == []

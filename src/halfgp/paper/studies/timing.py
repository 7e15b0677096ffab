"""Times that can be compared: taken in turns, the best of several, in one run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping


def best_times(
    actions: Mapping[str, Callable[[], object]], seconds: float = 0.5, most: int = 20
) -> dict[str, float]:
    """The shortest time of each action, in seconds.

    Args:
        actions: what to do, by name.
        seconds: rounds end when they have taken so long, but not before the second.
        most: rounds at most.
    """
    best = dict.fromkeys(actions, float("inf"))
    start = time.perf_counter()
    for done in range(most):
        if done >= 2 and time.perf_counter() - start > seconds:
            break
        for name, action in actions.items():
            begin = time.perf_counter()
            action()
            best[name] = min(best[name], time.perf_counter() - begin)
    return best

"""What claims make of times."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from paper.fake_models import with_half

from halfgp.paper.frame.part import Verdict
from halfgp.paper.parts import times


@pytest.mark.parametrize(
    ("claim", "figures", "verdict"),
    [
        (times._faster, {"seconds": 7.9}, Verdict.HOLDS),
        (times._faster, {"seconds": 8.1}, Verdict.FAILS),
        (times._thrice, {"seconds": 2.6}, Verdict.HOLDS),
        (times._thrice, {"seconds": 2.7}, Verdict.FAILS),
        (times._slower, {"seconds": 8.1}, Verdict.HOLDS),
        (times._slower, {"seconds": 7.9}, Verdict.FAILS),
        (times._always, {"seconds": 7.9}, Verdict.HOLDS),
    ],
)
def test_claims_follow_from_figures(claim: Callable, figures: dict[str, float], verdict: Verdict) -> None:
    assert claim(with_half(**figures)).verdict is verdict


def test_compilation_is_a_fixed_time() -> None:
    assert times._fixed(7.0).verdict is Verdict.HOLDS
    assert times._fixed(None).verdict is Verdict.OPEN

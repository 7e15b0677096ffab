"""What KeOps spends on compiling."""

from __future__ import annotations

import pytest

from halfgp.paper.studies import keops


def test_compilation_is_what_a_second_run_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = iter([9.0, 2.0])
    monkeypatch.setattr(keops, "_run", lambda folder: next(taken))
    assert keops.compilation_seconds() == 7.0


def test_a_compilation_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keops, "PROGRAM", "raise SystemExit('no compiler')")
    with pytest.raises(RuntimeError, match="no compiler"):
        keops.compilation_seconds()

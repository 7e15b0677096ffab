"""Parts measured on little data, and fits that are exchanged for fakes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from paper.fake_models import Synthetic, fake_fit

from halfgp.paper.contents import PARTS
from halfgp.paper.frame import fingerprints
from halfgp.paper.frame.context import Context
from halfgp.paper.frame.part import Outcome
from halfgp.paper.parts import products, summation
from halfgp.paper.studies import keops, records, tables, trajectories, truncation
from halfgp.paper.studies.fits import Fit, FitRequest
from halfgp.paper.studies.timing import best_times


@pytest.fixture(scope="session")
def measured() -> Callable[[str], Outcome]:
    """Outcomes by name, each measured once."""
    found: dict[str, Outcome] = {}
    by_name = {part.name: part for part in PARTS}

    def briefly(actions: Mapping[str, Callable[[], object]], *_: float, **__: int) -> dict[str, float]:
        """Nobody looks at the times: two rounds will do."""
        return best_times(actions, seconds=0.0)

    def of(name: str) -> Outcome:
        if name not in found:
            with pytest.MonkeyPatch.context() as patch:
                for module in (products, summation, truncation):
                    patch.setattr(module, "best_times", briefly)
                few = {
                    label: replace(case, quick=2 * products.LEAST) for label, case in products.CASES.items()
                }
                patch.setattr(products, "CASES", few)
                found[name] = by_name[name].measure(Synthetic(quick=True, output=Path("unused")))
        return found[name]

    return of


@pytest.fixture
def edit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Changes the source of a module, as far as fingerprints are concerned."""

    def change(module: str, code: str = "EDITED = True") -> None:
        source_of = fingerprints.source_of
        monkeypatch.setattr(
            fingerprints,
            "source_of",
            lambda name: source_of(name) + (f"\n{code}\n" if name == module else ""),
        )
        fingerprints._makers.cache_clear()

    yield change
    monkeypatch.undo()
    fingerprints._makers.cache_clear()


@pytest.fixture
def changed(measured) -> Callable[..., dict[str, Any]]:
    """The data of a part, with a change."""

    def of(name: str, change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        data = copy.deepcopy(measured(name).data)
        change(data)
        return data

    return of


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[FitRequest]:
    """Exchanges fits for fakes, and holds what was asked for."""
    requests: list[FitRequest] = []

    def fit(context: Context, request: FitRequest) -> Fit:
        requests.append(request)
        return fake_fit(request)

    for module in (records, trajectories, tables):
        monkeypatch.setattr(module, "fit", fit)
    monkeypatch.setattr(records, "is_available", lambda method: True)
    monkeypatch.setattr(keops, "is_installed", lambda: False)
    return requests

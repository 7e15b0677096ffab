"""Parts about matrices, products and solves: each is run on little data, drawn, and can fail its claims."""

from __future__ import annotations

import copy
import importlib
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from halfgp.errors import InputError
from halfgp.paper import appendix_truncation_error, fig1, fig3, fig4a, fig4b, fig5c, fig5d, fig5e
from halfgp.paper.context import Context, Rows
from halfgp.paper.part import Verdict
from halfgp.paper.residuals import larger_is_faster_claim, outcome, solver_claims, without_converges_claim
from halfgp.paper.spectra import condition_claim, decay_claim, dimension_claims
from halfgp.paper.timing import best_times
from halfgp.paper.trained import trained
from halfgp.paper.truncation import emulated_difference, engine_difference, setting
from halfgp.report.files import as_json

FEATURES = {
    "elevators": 18,
    "keggdirected": 20,
    "protein": 9,
    "pol": 26,
    "covtype_elev": 53,
    "houseelectric": 11,
}
NAMES = [
    "fig1",
    "fig2c",
    "fig2d",
    "fig2e",
    "fig3",
    "fig4a",
    "fig4b",
    "fig5a",
    "fig5b",
    "fig5c",
    "fig5d",
    "fig5e",
    "appendix_summation_times",
    "appendix_truncation_error",
    "appendix_eigenvalue_difference",
    "appendix_rbf_effective_dimension",
    "appendix_rbf_spectrum",
    "appendix_inverses",
    "appendix_buzz_solvers",
    "appendix_elevators_ranks",
    "appendix_keggdirected_ranks",
    "appendix_pol_without_ard",
    "appendix_spectral_cutoff",
    "appendix_quantised_dimension",
    "appendix_scaling_in_single",
]
SOLVES = 250  # rows of a set in place of those that solves are studied on


@dataclass(frozen=True)
class Synthetic(Context):
    """Random rows in place of the sets."""

    def rows(self, name, most=None, most_test=None, split=None) -> Rows:
        n = most if name == "houseelectric" else SOLVES
        generator = torch.Generator().manual_seed(7)
        x = torch.randn(n + 10, FEATURES[name], dtype=torch.float64, generator=generator)
        y = (x[:, :3].sum(dim=1)).sin() + 0.3 * torch.randn(n + 10, dtype=torch.float64, generator=generator)
        return Rows(name, x[:n], y[:n], x[n:], y[n:], available=n)


@pytest.fixture(scope="module")
def measured():
    """Outcomes by name, each measured once."""
    found = {}

    def of(name: str):
        if name not in found:
            part = importlib.import_module(f"halfgp.paper.{name}").PART
            found[name] = part.measure(Synthetic(quick=True, output=Path("unused")))
        return found[name]

    return of


@pytest.mark.parametrize("name", NAMES)
def test_a_part_measures_claims_and_draws(measured, name: str) -> None:
    pytest.importorskip("matplotlib")
    from halfgp.report.pictures import drawn

    found = measured(name)
    part = importlib.import_module(f"halfgp.paper.{name}").PART
    assert found.claims
    for claim in found.claims:
        assert claim.reason.endswith(".")
        assert any(character.isdigit() for character in claim.measured)
    stored = json.loads(as_json(found.data))
    for panel in part.panels(stored) if part.panels else ():
        assert len(drawn(panel.draw)) < 150_000  # bytes of a page
    if part.table:
        table = part.table(stored)
        assert all(len(row) == len(table.heading) for row in table.rows)


def test_what_rounding_alone_decides_holds_on_any_machine(measured) -> None:
    for name in ("fig1", "appendix_truncation_error", "appendix_rbf_spectrum", "appendix_inverses"):
        assert measured(name).claims[0].verdict is Verdict.HOLDS, name
    assert measured("appendix_quantised_dimension").claims[0].verdict is Verdict.FAILS
    assert measured("appendix_spectral_cutoff").claims[1].verdict is Verdict.FAILS
    assert all(
        claim.verdict is Verdict.HOLDS for claim in measured("appendix_rbf_effective_dimension").claims
    )


def test_which_claims_a_run_requires(measured) -> None:
    required = {name for name in NAMES if any(claim.required for claim in measured(name).claims)}
    assert required == {
        "fig4b",
        "fig5a",
        "fig5b",
        "fig5e",
        "appendix_truncation_error",
        "appendix_rbf_effective_dimension",
        "appendix_rbf_spectrum",
    }


def changed(measured, name: str, change):
    data = copy.deepcopy(measured(name).data)
    change(data)
    return data


def test_matrices_without_zeros_fail(measured) -> None:
    data = changed(measured, "fig1", lambda d: d["zeros"].update(half=0.0))
    assert fig1._truncated(data).verdict is not Verdict.HOLDS


def test_a_spectrum_that_falls_as_fast_fails(measured) -> None:
    data = changed(measured, "appendix_rbf_spectrum", lambda d: d["above"].update(half=d["above"]["double"]))
    assert decay_claim(data).verdict is Verdict.FAILS
    data["above"]["half"] += 1
    assert decay_claim(data).verdict is Verdict.IN_PART


def test_an_indefinite_matrix_has_no_condition_number(measured) -> None:
    data = changed(measured, "fig2d", lambda d: d["least"].update(half=-1.0, bfloat16=-1.0))
    claim = condition_claim(data)
    assert claim.verdict is Verdict.IN_PART
    assert "half: not positive definite, least eigenvalue −0.99" in claim.measured


def test_an_effective_dimension_that_is_smaller_fails(measured) -> None:
    def swap(data) -> None:
        for key in ("by_noise", "dimension"):
            data[key]["half"], data[key]["double"] = data[key]["double"], data[key]["half"]

    data = changed(measured, "appendix_rbf_effective_dimension", swap)
    assert [claim.verdict for claim in dimension_claims(data)] == [Verdict.FAILS, Verdict.FAILS]


def test_sums_that_are_no_better_fail(measured) -> None:
    data = measured("fig4b").data
    at = data["sizes"].index(fig4b.CLAIMED)
    errors = {name: list(values) for name, values in data["errors"]["targets"].items()}
    errors["plain"][at] = 2 * max(errors["kahan"][at], errors["block_single"][at])
    assert fig4b._wide_sums({**data, "errors": {"targets": errors}}, at).verdict is not Verdict.HOLDS


def test_a_product_as_fast_as_single_fails(measured) -> None:
    def slow(data) -> None:
        for seconds in data["seconds"].values():
            seconds["half"] = seconds["single"]

    assert fig4a._twice_as_fast(changed(measured, "fig4a", slow)).verdict is Verdict.FAILS


def test_a_difference_in_the_last_bit_fails(measured) -> None:
    def differ(data) -> None:
        data["difference"][appendix_truncation_error.ENGINE][0] = 1e-16

    data = changed(measured, "appendix_truncation_error", differ)
    assert appendix_truncation_error._exact(data).verdict is Verdict.IN_PART


def test_a_direct_solve_that_succeeds_fails_the_claim(measured) -> None:
    def succeed(data) -> None:
        data["residuals"]["half"] = data["residuals"]["double"] = [0.01] * len(data["ranks"]["half"])

    data = changed(measured, "fig3", succeed)
    assert fig3._direct_fails(data).verdict is Verdict.FAILS
    assert fig3._by_round_off(data).verdict is Verdict.FAILS
    assert fig3._cg_solves({**data, "residual": 0.5, "iterations": 99}).verdict is Verdict.FAILS


def test_a_direct_solve_that_only_half_fails_is_round_off(measured) -> None:
    def differ(data) -> None:
        data["residuals"]["half"] = [2 * residual for residual in data["residuals"]["double"]]

    assert fig3._by_round_off(changed(measured, "fig3", differ)).verdict is Verdict.HOLDS


def run(rank: int, iterations: int | None, *, low: int | None = None, status: str = "max_iterations"):
    """A solve that took so many iterations, or failed."""
    good = iterations is not None
    return {
        "label": f"rank {rank}",
        "rank": rank,
        "history": [1.0, 0.4 if good else 3.0],
        "ending": status,
        "status": "converged" if good else status,
        "iterations": iterations,
        "ended": iterations or 50,
        "residual": 0.4 if good else 1.0,
        "low": low,
    }


def test_solvers_are_judged_by_what_they_reached() -> None:
    probes = {"status": "converged", "iterations": 9, "residual": 0.4}
    failed, good = run(0, None), run(15, 10)
    verdicts = [c.verdict for c in solver_claims({"runs": [failed, failed, good, good], "probes": probes})]
    assert verdicts == [Verdict.HOLDS] * 3
    probes = {"status": "stagnated", "iterations": 50, "residual": 0.9}
    verdicts = [c.verdict for c in solver_claims({"runs": [good, good, failed, good], "probes": probes})]
    assert verdicts == [Verdict.FAILS] * 3
    slow = run(15, 20)
    claims = solver_claims({"runs": [failed, good, slow, good], "probes": probes})
    assert [claim.verdict for claim in claims[:2]] == [Verdict.IN_PART] * 2


def test_ranks_are_judged_by_iterations() -> None:
    ranked = [run(0, 20), run(5, 12, low=30)]
    faster = {"runs": [*ranked, run(15, 11, low=29), run(50, 9, low=20)], "rho": 0.01}
    slower = {"runs": [*ranked, run(15, 13), run(50, 14)], "rho": 2.0}
    assert larger_is_faster_claim(faster).verdict is Verdict.HOLDS
    assert larger_is_faster_claim(slower).verdict is Verdict.FAILS
    assert without_converges_claim(faster).verdict is Verdict.HOLDS
    assert without_converges_claim({"runs": [run(0, None)]}).verdict is Verdict.FAILS


def test_kernels_are_judged_at_two_tolerances() -> None:
    quick, slow, stuck = run(15, 8, low=20), run(15, 12, low=30), run(15, 13)
    data = {
        "runs": {"paper": [quick, slow], "optimum": [stuck, slow]},
        "noise": {"paper": [1], "optimum": [1]},
    }
    assert fig5e._fewer(data).verdict is Verdict.HOLDS
    assert fig5e._at_the_optimum(data).verdict is Verdict.FAILS


def test_a_rank_rescues_only_what_diverges() -> None:
    def verdict(without: int | None, five: int | None) -> Verdict:
        return fig5c._rescued({"runs": [run(0, without), run(5, five)], "rho": 0.1}).verdict

    assert verdict(None, 9) is Verdict.HOLDS
    assert verdict(9, 9) is Verdict.FAILS
    assert verdict(None, None) is Verdict.FAILS


def test_tolerances_are_judged_by_true_residuals(measured) -> None:
    def exact(data) -> None:
        for found in data["sets"].values():
            found.update(true=list(fig5d.TOLERANCES), history=[1.0, 0.5, 0.1])

    data = changed(measured, "fig5d", exact)
    assert fig5d._tolerances(data).verdict is Verdict.FAILS
    assert fig5d._diverges(data).verdict is Verdict.FAILS
    for found in data["sets"].values():
        found.update(true=[1.0] * len(fig5d.TOLERANCES), history=[1.0, 0.1, float("inf")])
    assert fig5d._tolerances(data).verdict is Verdict.HOLDS
    assert fig5d._diverges(data).verdict is Verdict.HOLDS


@pytest.mark.parametrize("status", ["max_iterations", "nonfinite", "breakdown", "stagnated"])
def test_every_ending_has_words(status: str) -> None:
    assert "true residual 1" in outcome(run(0, None, status=status))


def test_a_difference_of_means_is_found() -> None:
    case = setting(4096, 0)
    assert 0.25 <= case.kept <= 0.5
    assert engine_difference(case) == 0.0
    assert emulated_difference(case, "block_single") == 0.0
    far = case.mean.near(case.new[:1])  # of one end only: rows that the other end needs are missing
    broken = copy.copy(case.mean)
    object.__setattr__(broken, "near", lambda z: far)
    object.__setattr__(case, "mean", broken)
    assert engine_difference(case) > 0.0


def test_times_are_the_best_of_several() -> None:
    calls = []
    found = best_times({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, seconds=0.0)
    assert calls == ["a", "b"] * 2
    assert 0.0 < found["a"] < 1.0
    best_times({"a": lambda: calls.clear()}, seconds=60.0, most=3)
    assert calls == []


@pytest.mark.parametrize(("name", "features"), FEATURES.items())
def test_trained_kernels_fit_their_sets(name: str, features: int) -> None:
    if name == "houseelectric":  # nothing is solved there
        with pytest.raises(InputError, match="Nothing was trained for houseelectric"):
            trained(name)
        return
    found = trained(name, ard=name != "pol")
    assert found.kernel(
        torch.zeros(2, features, dtype=torch.float64), torch.ones(1, features).double()
    ).shape == (2, 1)
    assert 1e-4 <= found.noise < 1.0
    assert "rows" in found.source

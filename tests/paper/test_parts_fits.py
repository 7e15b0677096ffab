"""Tables, trajectories and times: what claims make of figures, and that parts share their fits."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from halfgp.paper import (
    appendix_matern12,
    appendix_matern32,
    appendix_matern52,
    appendix_nll,
    appendix_osborne_trajectories,
    appendix_rmse,
    appendix_test_precision,
    appendix_times_with_compilation,
    appendix_times_without_compilation,
    fig6,
    fig7,
    keops,
    matern_tables,
    table1,
    trajectories,
    uci_plan,
    uci_records,
)
from halfgp.paper.by_set import ours
from halfgp.paper.context import Context
from halfgp.paper.fits import Fit, FitRequest
from halfgp.paper.part import Part, Verdict
from halfgp.paper.published import MATERN_NLL, MATERN_RMSE, MATERN_SECONDS, NLL, RMSE, published
from halfgp.paper.uci_claims import coarser_claim, faster_claim, kept_claim, svgp_claim
from halfgp.paper.uci_records import changes, drift, ratios, records
from halfgp.paper.uci_tables import spread, table, with_deviation
from halfgp.report.files import as_json
from halfgp.report.pictures import drawn

WITHOUT_DATA = (
    table1,
    fig6,
    fig7,
    appendix_osborne_trajectories,
    appendix_times_with_compilation,
    appendix_times_without_compilation,
    appendix_rmse,
    appendix_nll,
    appendix_matern12,
    appendix_matern32,
    appendix_matern52,
)
STEPS = 4
FACTORS = {"single": 1.0, "half": 1.01, "bfloat16": 1.1}  # of hyperparameters, beside single's
SECONDS = {"single": 8.0, "half": 5.0, "bfloat16": 5.0, "svgp": 1.0}
ERRORS = {"single": 0.2, "half": 0.204, "bfloat16": 0.21, "svgp": 0.3}


def fake_fit(request: FitRequest, **changed: float) -> Fit:
    """A model that was never trained; half is a hundredth off, bfloat16 a tenth."""
    rmse = changed.get("rmse", ERRORS[request.method]) * (1 + 0.001 * request.seed)
    factor = changed.get("factor", FACTORS.get(request.method, 1.0))
    noise = [2.0 * factor * 0.5**step for step in range(STEPS)]
    trajectory = {
        "kernel.outputscale": [factor] * STEPS,
        "kernel.lengthscale": [[factor, 2 * factor]] * STEPS,
        "noise": noise,
    }
    return Fit(
        rows=request.rows or 13_500,
        test_rows=100,
        features=26,
        rmse=rmse,
        nll=changed.get("nll", -0.5),
        constant_nll=0.5 * math.log(2 * math.pi * math.e * rmse**2),
        fit_seconds=changed.get("seconds", SECONDS[request.method]),
        predict_seconds=0.1,
        trajectory={} if request.method == "svgp" else trajectory,
        losses=[1.0] * STEPS,
        passes=10,
        residual=1e-3,
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[FitRequest]:
    """Exchanges fits for fakes, and holds what was asked for."""
    requests: list[FitRequest] = []

    def fit(context: Context, request: FitRequest) -> Fit:
        requests.append(request)
        return fake_fit(request)

    for module in (uci_records, trajectories, matern_tables):
        monkeypatch.setattr(module, "fit", fit)
    monkeypatch.setattr(uci_records, "is_available", lambda method: True)
    monkeypatch.setattr(keops, "is_installed", lambda: False)
    return requests


@pytest.fixture(params=[True, False], ids=["quick", "full"])
def context(request: pytest.FixtureRequest) -> Context:
    return Context(quick=request.param, output=Path("unused"))


QUICK = Context(quick=True, output=Path("unused"))
FULL = Context(quick=False, output=Path("unused"))


def stored(data: object) -> dict:
    return json.loads(as_json(data))


@pytest.mark.parametrize("module", WITHOUT_DATA, ids=lambda module: module.PART.name)
def test_a_part_is_measured_drawn_and_laid_out(asked: list[FitRequest], context: Context, module) -> None:
    part: Part = module.PART
    found = part.measure(context)
    assert found.claims
    for claim in found.claims:
        for text in (claim.text, claim.paper, claim.measured, claim.reason):
            assert text.endswith((".", ".)"))
            assert "nan" not in text
    data = stored(found.data)
    if part.table is not None:
        shown = part.table(data)
        assert {len(row) for row in shown.rows} == {len(shown.heading)}
        assert len(shown.rows) == len(data["records"])
    for panel in part.panels(data) if part.panels else ():
        assert "<svg" in drawn(panel.draw)


def test_parts_share_the_fits_of_the_tables(asked: list[FitRequest], context: Context) -> None:
    table1.PART.measure(context)
    known = {request.file_name for request in asked}
    assert len(known) == len(asked)  # each once
    for module in (fig6, fig7, appendix_osborne_trajectories, appendix_rmse, appendix_nll):
        asked.clear()
        module.PART.measure(context)
        assert {request.file_name for request in asked} <= known
    asked.clear()
    appendix_matern32.PART.measure(context)
    others = {request for request in asked if request.file_name not in known}
    assert {request.kernel for request in others} == {"matern32"}
    assert any(request.kernel == "rbf" for request in asked)  # what it is compared with


def test_the_full_table_has_the_sets_seeds_and_sizes_of_the_paper(asked: list[FitRequest]) -> None:
    table1.PART.measure(FULL)
    ours_asked = [request for request in asked if request.method != "svgp"]
    assert {request.steps for request in ours_asked} == {50}
    assert {request.inducing for request in asked if request.method == "svgp"} == {1024}
    seeds = Counter(request.set_name for request in asked if request.method == "half")
    assert seeds == {
        "pol": 5, "elevators": 5, "bike": 5, "kin40k": 3, "protein": 3, "keggdirected": 3,
        "osborne_magnetic": 3, "covtype_elev": 3, "houseelectric": 3,
    }  # fmt: skip
    rows = {r.set_name: r.rows for r in asked}
    assert rows["pol"] is None
    assert rows["houseelectric"] == uci_plan.LARGE_ROWS


def with_half(**changed: float) -> list[dict]:
    """Records of pol in which half is as told."""
    fits = {
        method: [fake_fit(FitRequest("pol", method), **(changed if method == "half" else {}))]
        for method in ("single", "half", "bfloat16", "svgp")
    }
    return [
        uci_records._record("rbf", "pol", method, found, fits["single"]) for method, found in fits.items()
    ]


@pytest.mark.parametrize(
    ("claim", "changed", "verdict"),
    [
        (kept_claim, {"rmse": 0.2 * 1.04}, Verdict.HOLDS),
        (kept_claim, {"rmse": 0.2 * 1.06}, Verdict.FAILS),
        (coarser_claim, {"factor": 1.09}, Verdict.HOLDS),
        (coarser_claim, {"factor": 1.11}, Verdict.FAILS),
        (faster_claim, {"seconds": 3.9}, Verdict.HOLDS),
        (faster_claim, {"seconds": 4.1}, Verdict.FAILS),
        (svgp_claim, {"seconds": 2.0}, Verdict.HOLDS),
        (svgp_claim, {"seconds": 0.5}, Verdict.IN_PART),
        (svgp_claim, {"seconds": 0.5, "rmse": 0.29}, Verdict.FAILS),
        (appendix_nll._as_single, {"nll": -0.49}, Verdict.HOLDS),
        (appendix_nll._as_single, {"nll": -0.47}, Verdict.FAILS),
        # ½ ln(2πe·0.2²) is −0.190
        (appendix_nll._beats_constant, {"rmse": 0.2, "nll": -0.20}, Verdict.HOLDS),
        (appendix_nll._beats_constant, {"rmse": 0.2, "nll": -0.18}, Verdict.FAILS),
        (appendix_nll._svgp_is_better, {"nll": -0.4}, Verdict.HOLDS),
        (appendix_nll._svgp_is_better, {"nll": -0.6}, Verdict.FAILS),
        (fig7._faster, {"seconds": 7.9}, Verdict.HOLDS),
        (fig7._faster, {"seconds": 8.1}, Verdict.FAILS),
        (fig7._thrice, {"seconds": 2.6}, Verdict.HOLDS),
        (fig7._thrice, {"seconds": 2.7}, Verdict.FAILS),
        (appendix_rmse._almost_the_same, {"rmse": 0.2 * 1.06}, Verdict.FAILS),
        (appendix_times_with_compilation._slower, {"seconds": 8.1}, Verdict.HOLDS),
        (appendix_times_with_compilation._slower, {"seconds": 7.9}, Verdict.FAILS),
        (appendix_times_without_compilation._always, {"seconds": 7.9}, Verdict.HOLDS),
    ],
)
def test_claims_follow_from_figures(claim: Callable, changed: dict[str, float], verdict: Verdict) -> None:
    assert claim(with_half(**changed)).verdict is verdict


def test_required_are_the_claims_of_the_small_sets_and_of_bfloat16(asked: list[FitRequest]) -> None:
    required = [claim.text for claim in table1.PART.measure(QUICK).claims if claim.required]
    assert len(required) == 2
    assert "within 5 % of single" in required[0]
    assert "bfloat16 is worse than float16" in required[1]


def test_where_svgp_is_not_installed_the_table_says_so(
    asked: list[FitRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uci_records, "is_available", lambda method: method != "svgp")
    found = table1.PART.measure(QUICK)
    assert found.claims[-1].verdict is Verdict.OPEN
    assert "not installed" in found.claims[-1].measured
    rows = [row for row in table(stored(found.data)).rows if row[2] == "SVGP"]
    assert len(rows) == 2
    assert all("not installed" in row for row in rows)
    assert all(request.method != "svgp" for request in asked)
    assert appendix_nll.PART.measure(QUICK).claims[-1].verdict is Verdict.OPEN


def test_drift_is_the_root_mean_square_of_logarithms() -> None:
    single = fake_fit(FitRequest("pol", "single"))
    far = fake_fit(FitRequest("pol", "half"), factor=math.exp(0.1))
    assert drift(single, single) == 0
    assert drift(far, single) == pytest.approx(0.1, rel=1e-12)
    noise_alone = replace(far, trajectory=single.trajectory | {"noise": far.trajectory["noise"]})
    assert drift(noise_alone, single) == pytest.approx(0.1 / 2, rel=1e-12)  # one of four numbers a step


def test_ratios_are_of_means_over_seeds(asked: list[FitRequest]) -> None:
    found = records(FULL)
    assert ratios(found, "rmse", "half", "single")["pol"] == pytest.approx(1.02, rel=1e-12)
    pol = next(record for record in found if (record["set"], record["method"]) == ("pol", "single"))
    assert pol["rmse"] == pytest.approx([0.2, 0.2002, 0.2004, 0.2006, 0.2008], rel=1e-12)
    shown = ours(found, "rmse")["values"]["single"][0]
    assert shown == pytest.approx([0.2004, np.std(pol["rmse"], ddof=1)], rel=1e-12)
    assert changes({"pol": 1.02, "bike": 0.985}) == "pol +2.0 %, bike −1.5 %"


def test_cells_have_deviations_where_there_are_several_seeds() -> None:
    assert spread([0.1, 0.12], 3) == "0.110 ± 0.014"
    assert spread([-0.5], 3) == "−0.500"
    assert spread([], 3) == "–"
    assert with_deviation(24_357, 2613, 1) == "24,357 ± 2,613"


def test_published_figures_are_corrected() -> None:
    assert published("rbf", "rmse", "protein", "single").value == 0.55  # not 0.055
    assert published("matern12", "nll", "pol", "half").value == -0.478  # not 0.0478
    assert published("matern52", "nll", "elevators", "half").value == 0.967  # not −0.967
    assert published("rbf", "rmse", "osborne_magnetic", "half") == published("rbf", "rmse", "3droad", "half")
    assert published("rbf", "rmse", "pol", "bfloat16") is None
    assert published("rbf", "rmse", "keggdirected", "half") is None
    assert published("matern32", "rmse", "pol", "single") is None


def test_published_tables_have_the_same_sets() -> None:
    assert RMSE.keys() == NLL.keys()
    for kernel, by_set in MATERN_RMSE.items():
        assert by_set.keys() == MATERN_NLL[kernel].keys() == MATERN_SECONDS[kernel].keys()


def test_in_the_paper_every_nll_of_half_is_worse_than_a_constant_deviation(asked: list[FitRequest]) -> None:
    claim = appendix_nll.PART.measure(QUICK).claims[1]
    assert "on 9 of 9 sets" in claim.paper


def test_matern_is_compared_with_rbf_of_the_same_seeds(asked: list[FitRequest]) -> None:
    found = appendix_matern12.PART.measure(FULL)
    assert found.claims[1].verdict is Verdict.FAILS  # fakes have one RMSE for all kernels
    asked_rbf = [(r.set_name, r.seed) for r in asked if r.kernel == "rbf"]
    assert asked_rbf == [(r.set_name, r.seed) for r in asked if (r.kernel, r.method) == ("matern12", "half")]


def test_the_signs_of_the_tables_contradict_each_other(asked: list[FitRequest]) -> None:
    assert appendix_matern52.PART.measure(QUICK).claims[-1].verdict is Verdict.FAILS


def test_trajectories_tell_the_largest_and_the_last_difference(asked: list[FitRequest]) -> None:
    data = trajectories.trajectories(QUICK, "protein")
    assert data["largest_difference"]["noise"] == pytest.approx(0.01, rel=1e-9)
    follows, ends = trajectories.claims(data, "Close.")
    assert (follows.verdict, ends.verdict) == (Verdict.HOLDS, Verdict.HOLDS)
    assert "noise 1.0 %" in follows.measured
    data["half"]["noise"][1] *= 1.5
    assert trajectories._difference(data, "noise", slice(STEPS)) == pytest.approx(0.515, rel=1e-9)
    assert trajectories._difference(data, "noise", slice(STEPS - 1, STEPS)) == pytest.approx(0.01, rel=1e-9)


def test_compilation_is_what_a_second_run_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = iter([9.0, 2.0])
    monkeypatch.setattr(keops, "_run", lambda folder: next(taken))
    assert keops.compilation_seconds() == 7.0
    assert appendix_times_with_compilation._fixed(7.0).verdict is Verdict.HOLDS
    assert appendix_times_with_compilation._fixed(None).verdict is Verdict.OPEN


def test_a_compilation_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keops, "PROGRAM", "raise SystemExit('no compiler')")
    with pytest.raises(RuntimeError, match="no compiler"):
        keops.compilation_seconds()


def test_predictions_in_half_are_near_those_in_single(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (200, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(len(X))
    for name in ("pol", "elevators"):
        (tmp_path / name).mkdir()
        np.savetxt(tmp_path / name / "data.csv.gz", np.column_stack([X, y]), delimiter=",")
    monkeypatch.setattr(uci_plan, "QUICK", replace(uci_plan.QUICK, steps=6))
    context = Context(quick=True, output=tmp_path / "output", data=tmp_path)
    found = appendix_test_precision.PART.measure(context)
    single, half, bfloat16 = found.data["records"][:3]
    assert [r["method"] for r in (single, half, bfloat16)] == ["single", "half", "bfloat16"]
    assert single["residual"] <= appendix_test_precision.TOL
    assert single["rmse"][0] < 0.9
    # Weights and means are rounded to 8 bits, and means are below 2.
    assert abs(half["rmse"][0] - single["rmse"][0]) < 2**-8
    assert half["rmse"] != single["rmse"]
    assert found.claims[0].verdict is Verdict.HOLDS
    assert len(appendix_test_precision.table(stored(found.data)).rows) == 6

"""The tables of the Matérn kernels: the models of Table 1 with another kernel."""

from __future__ import annotations

from collections.abc import Sequence

from halfgp.paper.context import Context
from halfgp.paper.fits import fit
from halfgp.paper.part import Claim, Data, Outcome, Verdict
from halfgp.paper.published import MATERN_RMSE, RMSE, name_of
from halfgp.paper.uci_claims import kept_claim
from halfgp.paper.uci_plan import request
from halfgp.paper.uci_records import KERNELS, Values, changes, means, models_note, records

SIGNS = (
    "In the paper's tables for half alone, what is called NLL is a log-likelihood; its signs are turned here."
)


def measure(context: Context, kernel: str) -> Outcome:
    """Fit every set with every method and seed, and compare with RBF on the same sets."""
    found = records(context, kernel)
    rbf = {
        record["set"]: [
            fit(context, request(context, record["set"], "half", seed=context.seed + k)).rmse
            for k in range(len(record["rmse"]))
        ]
        for record in found
        if record["method"] == "half"
    }
    data = {"records": found, "rbf_rmse": rbf}
    claims = (kept_claim(found, kernel), _against_rbf(found, rbf, kernel))
    return Outcome(data, claims, f"{models_note(context, found, kernel)} {SIGNS}")


def _against_rbf(found: Sequence[Data], rbf: dict[str, list[float]], kernel: str) -> Claim:
    """Whether it predicts better than RBF where the paper has it so."""
    ratio = {
        name: value / (sum(rbf[name]) / len(rbf[name]))
        for name, value in means(found, "rmse", "half").items()
    }
    paper: Values = {
        str(name_of(name)): half.value / base.value
        for name, (_, half, _) in MATERN_RMSE[kernel].items()
        if half is not None and (base := RMSE[name][1]) is not None
    }
    return Claim(
        text=f"In half, {KERNELS[kernel]} predicts better than RBF on most sets.",
        paper=f"RMSE against RBF's: {changes(paper, 0)}.",
        measured=f"RMSE against RBF's, of the same seeds: {changes(ratio)}.",
        verdict=Verdict.of(sum(value < 1 for value in ratio.values()) > len(ratio) / 2),
        reason="How rough the data are decides it, in any precision.",
    )

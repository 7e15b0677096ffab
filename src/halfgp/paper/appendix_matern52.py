"""Appendix, Tables A.2 and A.5: RMSE, NLL and training time with Matérn-5/2."""

from __future__ import annotations

from dataclasses import replace

from halfgp.paper import matern_tables
from halfgp.paper.context import Context
from halfgp.paper.part import Claim, Outcome, Part, Verdict
from halfgp.paper.published import MATERN52_NLL_TWICE, NAMES
from halfgp.paper.uci_tables import table
from halfgp.report import words


def measure(context: Context) -> Outcome:
    """As with the others, and a look at what the paper prints twice."""
    found = matern_tables.measure(context, "matern52")
    return replace(found, claims=(*found.claims, _signs()))


def _signs() -> Claim:
    pairs = ", ".join(
        f"{NAMES[name]} {words.number(a)} and {words.number(b)}"
        for name, (a, b) in MATERN52_NLL_TWICE.items()
    )
    return Claim(
        text="In the Matérn tables, columns called NLL hold negative log-likelihoods.",
        paper=f"It has Matérn-5/2 in half twice: {pairs}.",
        measured="The two have opposite signs on all three sets that are in both.",
        verdict=Verdict.of(*(a * b > 0 for a, b in MATERN52_NLL_TWICE.values())),
        reason="Those of the tables for half alone are log-likelihoods. In Matérn-1/2, 0.0478 is probably"
        " 0.478.",
    )


PART = Part(
    name="appendix_matern52",
    title="RMSE, NLL and training time, Matérn-5/2 with ARD",
    place="Appendix, Tables A.2 and A.5",
    module=__name__,
    measure=measure,
    table=table,
    minutes=150.0,
    optional=("gpytorch",),
)

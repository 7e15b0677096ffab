"""A diagnosis in a few plain sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfgp.kernels import Kernel

if TYPE_CHECKING:
    from halfgp.analysis.diagnosis import Diagnosis, FormatFinding, RankTrial


def sentences(found: Diagnosis) -> dict[str, str]:
    """By topic."""
    return {
        "data": _data(found),
        "kernel": _kernel(found),
        "precision": _precision(found),
        "pairs": _pairs(found),
        "dimension": _dimension(found),
        "rank": _rank(found),
    }


def in_words(kernel: Kernel) -> str:
    """Its leaves, with the range of their lengthscales."""
    parts = []
    for leaf in kernel.program().leaves:
        lengths = 1.0 / leaf.scales.detach()
        low, high = f"{float(lengths.min()):.3g}", f"{float(lengths.max()):.3g}"
        word = "periodic" if leaf.feature_parameters else leaf.profile.label
        if not leaf.is_stationary or leaf.feature_parameters:
            parts.append(word)
        elif low == high:
            parts.append(f"{word} with lengthscale {low}")
        else:
            parts.append(f"{word} with lengthscales from {low} to {high}")
    return " and ".join(parts) or "constant"


def _data(found: Diagnosis) -> str:
    text = f"{found.rows:,} rows with {found.features:,} feature{'' if found.features == 1 else 's'}"
    if found.sampled == found.rows:
        return f"{text}, all of them measured."
    return f"{text}; {found.sampled:,} of them were measured, and what follows is carried over to all."


def _kernel(found: Diagnosis) -> str:
    where = {
        "fitted": "as fitted",
        "given": "as given",
        "default": "where a fit starts, so that a fitted model may differ",
    }
    text = f"{_capital(found.kernel)}, noise variance {found.noise:.2g} in standardised units"
    return f"{text}: {where[found.origin]}."


def _precision(found: Diagnosis) -> str:
    safe = [f"{f.name} (ρ = {f.rho:.1g})" for f in found.formats if f.verdict == "safe"]
    parts = []
    if safe:
        parts.append(f"To a residual of {found.tol:g}, {_joined(safe)} {_are(safe)} safe.")
    else:
        parts.append(f"To a residual of {found.tol:g}, none of these formats is safe: use double.")
    parts += [_unsafe(f, found.tol) for f in found.formats if f.verdict != "safe"]
    return " ".join([*parts, 'precision="auto" chooses by this rule, and climbs where it must.'])


def _unsafe(found: FormatFinding, tol: float) -> str:
    name = f"{_capital(found.name)} (ρ = {found.rho:.1g})"
    if found.verdict == "inexact":
        close = ", within the tolerance" if found.residual <= tol else ""
        return f"{name} is inexact: uncorrected, a solve leaves a residual of {found.residual:.1g}{close}."
    if found.rho == float("inf"):
        return f"{_capital(found.name)} cannot hold the points."
    if found.residual == float("inf"):
        return f"{name} is unsafe: it makes K + noise indefinite."
    return f"{name} is unsafe: a solve leaves all of the residual."


def _pairs(found: Diagnosis) -> str:
    shares = {}
    for f in found.formats:
        shares[f.name.split()[0]] = f
    parts = [
        f"in {name}, {_percent(f.vanishing)} are zero and {_percent(f.negligible)} below its resolution"
        for name, f in shares.items()
    ]
    return f"Of the covariances of two rows: {'; '.join(parts)}."


def _dimension(found: Diagnosis) -> str:
    roughly = "" if found.sampled == found.rows else "about "
    return (
        "The effective dimension, the number of directions in which the data outweigh the noise, is"
        f" {roughly}{found.effective_dimension:,.0f}."
    )


def _rank(found: Diagnosis) -> str:
    by_rank = {trial.rank: trial for trial in found.trials}
    best, without = by_rank[found.recommended_rank], by_rank[0]
    roughly = "" if found.sampled == found.rows else "roughly "
    if best.rank == 0:
        text = f"A solve takes {roughly}{_count(without)} iterations without a preconditioner, and none pays"
        fewest = min(found.trials, key=lambda trial: trial.iterations)
        saved = without.iterations - fewest.iterations
        return f"{text}: rank {fewest.rank} saves {saved:,}, and costs as much." if saved else f"{text}."
    return (
        f"A preconditioner of rank {best.rank} pays: a solve takes {roughly}{_count(best)} iterations with it"
        f" and {_count(without)} without, {best.passes:,.0f} passes over K in place of {without.passes:,.0f}."
    )


def _count(trial: RankTrial) -> str:
    return f"{trial.iterations:,}" if trial.converged else f"more than {trial.iterations:,}"


def _percent(share: float) -> str:
    if share == 0.0:
        return "none"
    return "under 0.1 %" if share < 0.001 else f"{100 * share:.1f} %"


def _joined(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]

"""A diagnosis in a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from halfgp.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from halfgp.analysis.diagnosis import Diagnosis

INK, FAINT = "#1d2530", "#b9c2cd"
COLOURS = {"bfloat16": "#8a4fb0", "half": "#c2571a", "half inputs": "#2c8a57", "single": "#1f6fb4"}


def picture(found: Diagnosis) -> Figure:
    """Spectrum with the noise and each format's error, shares of pairs, and iterations by rank."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("A diagnosis is drawn by matplotlib: `pip install halfgp[plot]`.") from error
    figure = Figure(figsize=(13, 4), layout="constrained")
    spectrum, shares, ranks = figure.subplots(1, 3, width_ratios=(1.35, 1, 1))
    _spectrum(spectrum, found)
    _shares(shares, found)
    _ranks(ranks, found)
    for axes in (spectrum, shares, ranks):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
    return figure


def _spectrum(axes: Axes, found: Diagnosis) -> None:
    values = found.eigenvalues.numpy()
    index = np.arange(1, len(values) + 1)
    above = values > 0  # a logarithm shows no others: rounding in double
    axes.loglog(index[above], values[above], color=INK, lw=2, label="eigenvalues of K")
    axes.axhline(1.0, color=INK, lw=1, ls="--", label="noise")
    drawn = [entry for entry in found.formats if 0.0 < entry.rho < float("inf")]
    for entry in drawn:
        colour = COLOURS.get(entry.name, COLOURS[entry.name.split()[0]])
        style = ":" if entry.name == "half inputs" else "-"  # it may lie upon that of half entries
        axes.axhline(entry.rho, color=colour, lw=1.8, ls=style, label=f"error of {entry.name}")
    low = min([0.1, *(entry.rho for entry in drawn)])
    axes.set_ylim(low / 3, 1000 * max(values.max(), 1.0))  # room for the legend
    axes.set(xlabel="index", ylabel="in units of the noise variance", title="Spectrum and rounding errors")
    axes.grid(color=FAINT, lw=0.5, alpha=0.6)
    axes.legend(fontsize="small", frameon=False, loc="upper right", ncols=2)


def _shares(axes: Axes, found: Diagnosis) -> None:
    shares = {entry.name.split()[0]: entry for entry in found.formats}
    _bars(
        axes,
        list(shares),
        {
            "below its resolution": [100 * entry.negligible for entry in shares.values()],
            "exactly zero": [100 * entry.vanishing for entry in shares.values()],
        },
        [COLOURS[name] for name in shares],
    )
    axes.set(
        ylim=(0, 130), xlabel="format", ylabel="pairs of rows (%)", title="Covariances that hardly count"
    )
    axes.set_yticks([0, 25, 50, 75, 100])


def _ranks(axes: Axes, found: Diagnosis) -> None:
    best = found.recommended_rank
    _bars(
        axes,
        [f"{trial.rank}{'*' if trial.rank == best else ''}" for trial in found.trials],
        {
            "iterations": [float(trial.iterations) for trial in found.trials],
            "passes over K, all costs": [trial.passes for trial in found.trials],
        },
        [COLOURS["single"] if trial.rank == best else INK for trial in found.trials],
    )
    highest = max(max(trial.iterations, trial.passes) for trial in found.trials)
    axes.set_ylim(0, 1.3 * max(highest, 1.0))
    axes.set(xlabel="rank of the preconditioner (*: advised)", title=f"A solve to {found.tol:g}")


def _bars(axes: Axes, names: list[str], series: dict[str, list[float]], colours: list[str]) -> None:
    """Two bars for each name, a pale one and a full one."""
    at = np.arange(len(names))
    for shift, alpha, (label, heights) in zip((-0.2, 0.2), (0.4, 1.0), series.items(), strict=True):
        bars = axes.bar(at + shift, heights, 0.38, color=colours, alpha=alpha)
        axes.bar_label(bars, [_short(height) for height in heights], fontsize="x-small", padding=2)
        axes.bar(at, 0.0, color=INK, alpha=alpha, label=label)  # for the legend, in no format's colour
    axes.set_xticks(at, names)
    axes.grid(axis="y", color=FAINT, lw=0.5, alpha=0.6)
    axes.legend(fontsize="small", frameon=False, loc="upper right")


def _short(height: float) -> str:
    return f"{height:,.0f}" if height >= 10 else f"{height:.2g}"

"""The pictures of a report: SVG in the colours and font of the page, so that they follow its dark mode."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from halfgp.errors import InputError
from halfgp.report import words
from halfgp.training import Step

if TYPE_CHECKING:  # matplotlib is optional, and takes a second to import
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
Draw = Callable[["Axes"], None]

WIDTH, HEIGHT = 4.4, 3.1  # inches at 72 points: as wide as a phone, so that text keeps its size there
LEGEND_LETTERS = 62  # that fit above the axes
MOST_POINTS = 1000  # of a scatter; each is an element of the page
MOST_LINES = 40  # of one kind of hyperparameter
# Those of the page in daylight; on a page each is exchanged for its variable in the style sheet.
INK, FAINT, ACCENT = "#1d2530", "#b9c2cd", "#1f6fb4"
SECOND, THIRD, FOURTH = "#c2571a", "#2c8a57", "#8a4fb0"
VARIABLES = {
    INK: "ink",
    FAINT: "faint",
    ACCENT: "accent",
    SECOND: "second",
    THIRD: "third",
    FOURTH: "fourth",
}
STAGES = {
    "subset": "exact, on a subset",
    "neighbours": "exact, on neighbourhoods",
    "cholesky": "exact, on all rows",
    "cg": "by solves, on all rows",
}
SYMBOLS = {"outputscale": "output scale", "noise": "noise", "lengthscale": "lengthscale", "alpha": "α"}


def calibration_picture(levels: Floats, inside: Floats, inside_normal: Floats, rows: int) -> str:
    """Share of values (k,) inside intervals, and normal ones, against the share that should be there (k,)."""
    # Where the curve of a calibrated model lies in 95 of 100 samples as large as this, level by level.
    chance = 1.96 * np.sqrt(levels * (1 - levels) / rows)

    def draw(axes: Axes) -> None:
        axes.fill_between(
            100 * levels,
            100 * np.clip(levels - chance, 0, 1),
            100 * np.clip(levels + chance, 0, 1),
            color=FAINT,
            alpha=0.35,
            linewidth=0,
            label="chance, 95 %",
        )
        axes.plot([0, 100], [0, 100], color=FAINT, linewidth=1)
        axes.plot(100 * levels, 100 * inside_normal, color=SECOND, linewidth=1.5, label="normal intervals")
        axes.plot(100 * levels, 100 * inside, color=ACCENT, linewidth=2, label="intervals")
        axes.set(xlim=(0, 100), ylim=(0, 100), xlabel="interval holds (%)", ylabel="values found inside (%)")

    return picture("calibration", draw)


def residual_picture(y: Floats, mean: Floats, std: Floats, target: str, seed: int = 0) -> str:
    """Residuals against the mean, with two predictive standard deviations."""
    rows = np.random.default_rng(seed).permutation(len(y))[:MOST_POINTS]
    rows = rows[np.argsort(mean[rows])]

    def draw(axes: Axes) -> None:
        axes.vlines(
            mean[rows], -2 * std[rows], 2 * std[rows], color=FAINT, alpha=0.35, linewidth=1.5, label="±2 std"
        )
        axes.axhline(0, color=INK, linewidth=0.8)
        axes.plot(mean[rows], (y - mean)[rows], ".", color=ACCENT, markersize=4, alpha=0.7, label="residual")
        axes.set_xlabel(f"predicted mean, {shortened(target)}", parse_math=False)
        axes.set_ylabel("value − mean")

    return picture("residuals", draw)


def standardised_picture(y: Floats, mean: Floats, std: Floats) -> str:
    """Histogram of (value − mean) / std beside the normal density."""
    z = np.clip((y - mean) / std, -5, 5)  # what lies beyond is counted in the last bars
    grid = np.linspace(-5, 5, 201)

    def draw(axes: Axes) -> None:
        bars = min(41, max(11, 2 * round(math.sqrt(len(z)) / 2) + 1))
        axes.hist(z, bins=np.linspace(-5, 5, bars).tolist(), density=True, color=ACCENT, alpha=0.55)
        axes.plot(
            grid,
            np.exp(-0.5 * grid**2) / math.sqrt(2 * math.pi),
            color=INK,
            linewidth=1.3,
            label="standard normal",
        )
        axes.set(xlim=(-5, 5), xlabel="(value − mean) / std", ylabel="density")

    return picture("standardised", draw)


def error_picture(mean_error: Floats, std_error: Floats | None, std: Floats) -> str:
    """Estimated numerical errors in units of the predictive standard deviation, sorted."""
    share = 100 * (np.arange(len(std)) + 0.5) / len(std)

    def draw(axes: Axes) -> None:
        axes.semilogy(share, _sorted_ratio(mean_error, std), color=ACCENT, linewidth=2, label="of the mean")
        if std_error is not None:
            axes.semilogy(share, _sorted_ratio(std_error, std), color=SECOND, linewidth=2, label="of the std")
        axes.set(xlim=(0, 100), xlabel="rows (%), sorted", ylabel="error / predictive std")

    return picture("error", draw)


def loss_picture(history: Sequence[Step]) -> str:
    """The loss by evaluation, with two standard errors where it is an estimate."""
    colours = {"subset": SECOND, "neighbours": THIRD, "cholesky": ACCENT, "cg": ACCENT}

    def draw(axes: Axes) -> None:
        named = set()
        for stage, start, steps in stages(history):
            x = np.arange(start, start + len(steps))
            loss = np.array([step.loss for step in steps])
            error = np.array([2 * step.loss_error for step in steps])
            label = "_" if stage in named else STAGES.get(stage, stage)
            named.add(stage)
            colour = colours.get(stage, FOURTH)
            axes.plot(x, loss, ".-", color=colour, linewidth=1.5, markersize=4, label=label)
            if bool((error > 0).any()):  # not where it is exact, nor where nothing is known of it
                axes.fill_between(x, loss - error, loss + error, color=colour, alpha=0.25, linewidth=0)
                axes.errorbar(x, loss, yerr=error, fmt="none", ecolor=colour, elinewidth=1)
        axes.set(xlabel="evaluation", ylabel="loss per row (nats)", ylim=_without_peaks(history))
        _whole_numbers(axes)

    return picture("loss", draw)


def hyperparameter_picture(history: Sequence[Step]) -> str:
    """Every positive hyperparameter by evaluation, on a logarithmic scale."""
    series: dict[str, list[Any]] = {}
    for step in history:
        for name, value in step.hyperparameters.items():
            series.setdefault(name, []).append(value)
    colours = iter((THIRD, SECOND, INK, INK, INK))
    styles = {"lengthscale": (ACCENT, 1.2), "noise": (SECOND, 2.0), "outputscale": (THIRD, 2.0)}

    def draw(axes: Axes) -> None:
        for name, values in series.items():
            if len(values) != len(history) or name == "mean":
                continue
            lines = np.array([np.ravel(value) for value in values], dtype=np.float64)
            if not (lines > 0).all():
                continue
            short = name.rpartition(".")[2]
            colour, width = styles.get(short) or (next(colours, INK), 1.2)
            label = SYMBOLS.get(short, short) + ("s" if lines.shape[1] > 1 else "")
            for k, line in enumerate(lines.T[:MOST_LINES]):
                axes.semilogy(line, color=colour, linewidth=width, label="_" if k else label)
        axes.set(xlabel="evaluation", ylabel="standardised units")
        _whole_numbers(axes)

    return picture("hyperparameters", draw)


def solve_picture(history: Sequence[Step]) -> str | None:
    """Residuals and passes of the steps by solves; None where there were none."""
    steps = [step for step in history if step.stage == "cg"]
    if not steps:
        return None

    def draw(axes: Axes) -> None:
        x = np.arange(1, len(steps) + 1)
        axes.bar(x, [step.passes for step in steps], color=ACCENT, alpha=0.45, width=0.6)
        axes.set(xlabel="step on all rows", ylabel="passes over K (bars)")
        other = axes.twinx()
        residuals = np.maximum([step.residual for step in steps], np.finfo(np.float64).tiny)
        other.semilogy(x, residuals, "o-", color=SECOND, markersize=4)
        # At least two decades: otherwise the axis would be full of odd numbers.
        other.set(ylabel="relative residual (line)", ylim=(residuals.min() / 10, residuals.max() * 10))
        other.spines["right"].set_visible(True)
        other.grid(False)
        axes.set_xlim(0.4, len(steps) + 0.6)
        _whole_numbers(axes)

    return picture("solves", draw)


def picture(name: str, draw: Draw) -> str:
    """The SVG element of one pair of axes, as wide as its place on the page."""
    return embedded(drawn(draw), name)


def drawn(draw: Draw) -> str:
    """An SVG document of one pair of axes."""
    with _matplotlib() as figure_class, warnings.catch_warnings():
        # The browser has letters that matplotlib's own font, which only measures here, has not.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = figure_class(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.subplots()
        draw(axes)
        for each in figure.axes:
            _legible(each)
        labels = axes.get_legend_handles_labels()[1]
        if labels:
            figure.legend(loc="outside upper left", ncols=_columns(labels))  # where it hides no data
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    return text.getvalue()


def embedded(svg: str, name: str, label: str | None = None) -> str:
    """SVG for use inside a page: without preamble, in the page's colours and font, with ids of its own.

    Args:
        svg: a document as `drawn` makes it.
        name: what its ids begin with.
        label: for who cannot see it; the name if None.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var(--{variable})")
    # Its version decides which of the two matplotlib writes.
    svg = re.sub(r"font: ([0-9.]+px) [^;\"]*", r"font: \1 var(--font)", svg)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: var(--font)", svg)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\1{name}-", svg)
    said = escape(name if label is None else label)
    return svg.replace("<svg", f'<svg role="img" aria-label="{said}"', 1).strip()


def stages(history: Sequence[Step]) -> Iterator[tuple[str, int, list[Step]]]:
    """Runs of steps of one stage: its name, where it starts in the history, and its steps."""
    start = 0
    for stage, group in groupby(history, key=lambda step: step.stage):
        steps = list(group)
        yield stage, start, steps
        start += len(steps)


def shortened(text: str, most: int = 28) -> str:
    """Fit for a label."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _without_peaks(history: Sequence[Step]) -> tuple[float, float] | None:
    """Limits that leave out what a line search tried and turned back from; None where nothing is finite."""
    loss = np.array([step.loss for step in history])
    loss = loss[np.isfinite(loss)]
    if not len(loss):
        return None
    low, high = float(loss.min()), float(max(loss[0], loss[-1], np.quantile(loss, 0.75)))
    margin = 0.06 * (high - low) or 0.1
    return low - margin, high + margin


def _sorted_ratio(error: Floats, std: Floats) -> Floats:
    """In ascending order; a zero, which a logarithm cannot show, becomes the smallest that double has."""
    return np.sort(np.maximum(np.abs(error) / std, np.finfo(np.float64).eps))


def _whole_numbers(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))


def _columns(labels: Sequence[str]) -> int:
    """How many columns of a legend fit above the axes, each as wide as its longest label."""
    for columns in (4, 3, 2):
        widths = [max(map(len, part)) for part in np.array_split(np.array(labels), columns) if len(part)]
        if sum(widths) + 5 * len(widths) <= LEGEND_LETTERS:  # five for the line before a label and a space
            return columns
    return 1


def _legible(axes: Axes) -> None:
    """Plain numbers on a logarithmic axis of less than two decades, as many as there is room for."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        if axis.get_scale() != "log" or not isinstance(axis.get_major_locator(), LogLocator):
            continue
        decades = abs(math.log10(high / low))
        if decades >= 2:
            continue
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades > 0.7 else (1, 2, 3, 4, 6, 8)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
        axis.set_minor_formatter(FuncFormatter(lambda *_: ""))


def _tick(value: float) -> str:
    return f"{value:,g}" if 1e-3 <= value < 1e6 else words.number(value, 3)


@contextmanager
def _matplotlib() -> Iterator[Any]:
    """The class of figures, under the style of reports; nothing of the user's own style is touched."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("A report is drawn by matplotlib: `pip install halfgp[plot]`.") from error
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(
            {
                "font.size": 10,
                "axes.labelsize": 10,
                "legend.fontsize": 9,
                "legend.frameon": False,
                "legend.borderpad": 0.0,
                "legend.columnspacing": 1.2,
                "legend.handlelength": 1.4,
                "svg.fonttype": "none",
                "svg.hashsalt": "halfgp",  # the same model and data give the same page
                "axes.edgecolor": INK,
                "axes.labelcolor": INK,
                "axes.linewidth": 0.8,
                "text.color": INK,
                "xtick.color": INK,
                "ytick.color": INK,
                "axes.spines.top": False,
                "axes.spines.right": False,
                "axes.grid": True,
                "axes.axisbelow": True,
                "grid.color": FAINT,
                "grid.alpha": 0.5,
                "grid.linewidth": 0.5,
                "axes.unicode_minus": True,
                "text.parse_math": True,  # powers of ten on logarithmic axes; labels from files turn it off
            }
        )
        yield Figure

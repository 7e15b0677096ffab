"""Real terrain from scattered heights: fit, predict every cell with its uncertainty, and draw what came out.

    python examples/terrain_demo.py [directory] [--rows 20000]

The heights are those of the Jacksboro fault, Tennessee, which ship with matplotlib; nothing is downloaded.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LightSource, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from halfgp import GPRegressor
from halfgp.datasets import Dataset, load_dem
from halfgp.scores import score

Floats = NDArray[np.float64]
# Valley to ridge with lightness rising steadily, as in "viridis", in the colours of a map.
EARTH = LinearSegmentedColormap.from_list(
    "earth", ["#1d3b34", "#2f5d45", "#5c7f4c", "#94995a", "#c4ad78", "#e3cba8", "#f8f1e6"]
)
ERROR_CHECKED = 2000  # cells at which the numerical error is estimated
INK = "#20262e"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", nargs="?", default=".", type=Path, help="where the picture goes")
    parser.add_argument("--rows", default=20_000, type=int, help="cells whose height is known")
    parser.add_argument("--picture", default="terrain.png", help="its name")
    chosen = parser.parse_args()
    console = Console()

    terrain = load_dem()
    known, hidden = np.split(np.random.default_rng(0).permutation(len(terrain.y)), [chosen.rows])
    regressor = GPRegressor(progress=True)
    began = time.perf_counter()
    regressor.fit(terrain.X[known], terrain.y[known])
    fitted = time.perf_counter()
    mean, std = regressor.predict(terrain.X, return_std=True)
    predicted = time.perf_counter()

    some = hidden[:ERROR_CHECKED]
    _, some_std, numerical = regressor.predict(terrain.X[some], return_std=True, return_error=True)
    scores = score(terrain.y[hidden], mean[hidden], std[hidden])
    explained = 1 - scores.rmse**2 / np.var(terrain.y[hidden])
    report = regressor.report_

    table = Table(title="Terrain of the Jacksboro fault", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("known", f"{len(known):,} of {len(terrain.y):,} heights; the others are predicted")
    work = f"{report.passes} passes over K, {report.skipped:.0%} of it zero"
    table.add_row("fit", f"{fitted - began:.1f} s by {report.method}, {work}")
    table.add_row("predict", f"{predicted - fitted:.1f} s for {len(terrain.y):,} means and deviations")
    table.add_row("RMSE", f"{scores.rmse:.2f} m, R² {explained:.4f}")
    table.add_row("NLL", f"{scores.nll:.3f} nats; {scores.constant_nll:.3f} with one deviation for all")
    table.add_row("coverage", f"{100 * scores.coverage[0.95]:.1f} % of the heights in 95 % intervals")
    worst, in_stds = np.max(numerical.mean), np.max(numerical.mean / some_std)
    table.add_row("numerical error", f"at most {worst:.1g} m in the mean, {in_stds:.1g} deviations")
    console.print(table)

    path = chosen.directory / chosen.picture
    draw(terrain, known, mean, std, scores.rmse).savefig(path, dpi=160)
    console.print(f"The picture is {path}")


def draw(terrain: Dataset, known: NDArray[np.int64], mean: Floats, std: Floats, rmse: float) -> Figure:
    """Four panels: what is known, the mean as a relief, its deviation, and the error."""
    mpl.rcParams.update({"font.size": 10, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK})
    heights, relief = terrain.y.reshape(terrain.shape), mean.reshape(terrain.shape)
    scale = Normalize(heights.min(), heights.max())
    figure = Figure(figsize=(12.4, 11.2), layout="constrained", facecolor="white")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12, wspace=0.03, hspace=0.03)
    (first, second), (third, fourth) = figure.subplots(2, 2, sharex=True, sharey=True)

    first.scatter(
        *terrain.X[known].T, c=terrain.y[known], s=4e4 / len(known), cmap=EARTH, norm=scale, linewidths=0
    )
    first.set_facecolor("#8f99a5")  # darker than ridges, lighter than valleys
    finish(first, f"Known: {len(known):,} heights", EARTH, scale, "elevation (m)", terrain)

    shaded = LightSource(azdeg=315, altdeg=40).shade(
        relief, EARTH, norm=scale, blend_mode="soft", vert_exag=1.2, **cell_metres(terrain)
    )
    second.imshow(shaded, extent=extent(terrain), interpolation="nearest")
    finish(second, "Predicted: mean, with hill shading", EARTH, scale, "elevation (m)", terrain)

    spread = Normalize(*np.quantile(std, [0.001, 0.999]))
    third.imshow(std.reshape(terrain.shape), extent=extent(terrain), cmap="magma_r", norm=spread)
    finish(
        third, "Uncertainty: standard deviation", "magma_r", spread, "standard deviation (m)", terrain, "both"
    )

    most = 3 * rmse
    difference = Normalize(-most, most)
    fourth.imshow(relief - heights, extent=extent(terrain), cmap="RdBu_r", norm=difference)
    finish(
        fourth, f"Error: mean − truth, RMSE {rmse:.1f} m", "RdBu_r", difference, "error (m)", terrain, "both"
    )

    for axes in (third, fourth):
        axes.set_xlabel("east (km)")
    for axes in (first, third):
        axes.set_ylabel("north (km)")
    return figure


def finish(
    axes: Axes,
    title: str,
    colours: str | LinearSegmentedColormap,
    norm: Normalize,
    label: str,
    terrain: Dataset,
    extend: str = "neither",
) -> None:
    """Title, limits and a colour bar with its unit."""
    west, east, south, north = extent(terrain)
    axes.set(xlim=(west, east), ylim=(south, north), aspect="equal")
    axes.set_title(title, loc="left", fontsize=12.5, fontweight="bold", pad=8)
    axes.tick_params(length=3, color=INK, labelcolor=INK)
    bar = axes.figure.colorbar(
        ScalarMappable(norm, colours), ax=axes, label=label, shrink=0.86, aspect=28, pad=0.02, extend=extend
    )
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=3, color=INK, labelcolor=INK)


def extent(terrain: Dataset) -> tuple[float, float, float, float]:
    """West, east, south and north edge in km: half a cell beyond the outermost centres."""
    (rows, columns), (east, north) = terrain.shape, terrain.X.T
    half_x, half_y = np.ptp(east) / (columns - 1) / 2, np.ptp(north) / (rows - 1) / 2
    return east.min() - half_x, east.max() + half_x, north.min() - half_y, north.max() + half_y


def cell_metres(terrain: Dataset) -> dict[str, float]:
    """The size of a cell, in the unit of the heights."""
    west, east, south, north = extent(terrain)
    rows, columns = terrain.shape
    return {"dx": 1000 * (east - west) / columns, "dy": 1000 * (north - south) / rows}


if __name__ == "__main__":
    main()

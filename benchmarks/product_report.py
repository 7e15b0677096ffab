"""How the measurements of products.py are shown: tables, claims held or missed, and a bar chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

console = Console()


@dataclass(frozen=True)
class Claim:
    """A figure beside the one that was asked for; `sense` is "at least" or "at most"."""

    what: str
    measured: float
    sense: str
    required: float
    unit: str

    @property
    def held(self) -> bool:
        return self.measured >= self.required if self.sense == "at least" else self.measured <= self.required

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"held": self.held}


def print_rates(d: int, n: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """One table per number of features, fastest first."""
    table = Table(title=f"N = {n:,}, d = {d}", title_justify="left")
    for heading in ("", "10⁹ entries/s", "half is faster", "relative error", "of peak", "of sgemm"):
        table.add_column(heading, justify="left" if not heading else "right")
    best = next(row["rate"] for row in rows if row["name"] == "ours, half")
    for row in sorted(rows, key=lambda row: -row["rate"]):
        shares = (row.get(f"share_of_{whole}") for whole in ("peak", "sgemm"))
        percent = [f"{share:.0%}" if share else "" for share in shares]
        faster = "" if row["name"] == "ours, half" else f"{best / row['rate']:.3g}x"
        table.add_row(row["name"], f"{row['rate'] / 1e9:.3f}", faster, f"{row['error']:.1e}", *percent)
    console.print(table)


def print_claims(claims: Sequence[Claim], skipped: Mapping[str, str]) -> None:
    """Everything that was asked for beside what came, and what could not be measured here."""
    table = Table(title="Asked for and measured", title_justify="left")
    for heading in ("", "measured", "asked for", ""):
        table.add_column(heading, justify="left" if not heading else "right")
    for claim in claims:
        mark = "[green]held[/]" if claim.held else "[bold red]missed[/]"
        asked = f"{claim.sense} {claim.required:g}{claim.unit}"
        table.add_row(claim.what, f"{claim.measured:.3g}{claim.unit}", asked, mark)
    if claims:
        console.print(table)
    for name, reason in skipped.items():
        console.print(f"[yellow]skipped[/] {name}: {reason}", highlight=False)


def draw_chart(rows: Sequence[Mapping[str, Any]], n: int, t: int, path: Path) -> None:
    """Grouped bars of the entry rates on a logarithmic axis, ours first."""
    try:
        import matplotlib
    except ImportError:
        console.print(
            "[yellow]skipped[/] the chart: matplotlib is not installed (pip install 'halfgp[plot]')"
        )
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(row["name"] for row in rows))
    dimensions = list(dict.fromkeys(row["d"] for row in rows))
    colours = dict(
        zip(names, ("#0b5fa5", "#6aaed6", "#d9a441", "#b5651d", "#8a8a8a", "#c9c9c9"), strict=False)
    )
    width = 0.84 / len(names)
    figure, axes = pyplot.subplots(figsize=(9, 4.2), layout="constrained")
    for k, name in enumerate(names):
        rates = {row["d"]: row["rate"] / 1e9 for row in rows if row["name"] == name}
        places = [i + (k - (len(names) - 1) / 2) * width for i, d in enumerate(dimensions) if d in rates]
        heights = [rates[d] for d in dimensions if d in rates]
        bars = axes.bar(places, heights, width * 0.92, label=name, color=colours.get(name))
        axes.bar_label(bars, fmt="%.2g", fontsize=7, padding=1)
    axes.set_yscale("log")
    axes.set_ylabel("10⁹ entries per second")
    axes.set_xticks(range(len(dimensions)), [f"d = {d}" for d in dimensions])
    axes.set_title(f"K V with an RBF kernel: N = {n:,}, t = {t}", loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(y=0.12)
    axes.legend(ncols=len(names), loc="upper center", bbox_to_anchor=(0.5, -0.08), frameon=False, fontsize=8)
    figure.savefig(path, dpi=160)
    pyplot.close(figure)

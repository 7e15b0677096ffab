"""Does a fit depend on its seed? The same rows, fitted by several, and how far their scores are apart.

The seed draws the subset, the neighbourhoods, the rows that judge and the probes. Split 0, scores on
standardised targets, every fit in this process.

    HALFGP_DATA=... python benchmarks/seeds.py               bike by five seeds; three minutes on two cores
    python benchmarks/seeds.py --sets pol,bike --seeds 3     others
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from halfgp.datasets import load_uci
from halfgp.scores import score
from product_report import console
from training_peers import StandardisedSplit, default

HERE = Path(__file__).parent


def measure(name: str, seed: int) -> dict[str, Any]:
    """One fit."""
    rows = StandardisedSplit.of(load_uci(name))
    outcome = default(rows, random_state=seed)
    found = score(rows.y_test, outcome.mean, outcome.std, intervals=outcome.intervals)
    return {
        "set": name,
        "seed": seed,
        "rmse": found.rmse,
        "nll": found.nll,
        "interval_coverage": found.interval_coverage,
        "seconds": outcome.fit_seconds + outcome.predict_seconds,
        **outcome.about,
    }


def main(
    sets: Annotated[str, typer.Option(help="By commas.")] = "bike",
    seeds: Annotated[int, typer.Option(help="How many, from 0.")] = 5,
    output: Annotated[Path, typer.Option(help="JSON to write.")] = HERE / "seeds.json",
) -> None:
    """Fit by several seeds."""
    results = []
    table = Table(title="Fits by seed", title_justify="left")
    for heading in ("set", "seed", "RMSE", "NLL", "noise", "seconds"):
        table.add_column(heading, justify="left" if heading == "set" else "right")
    for name in sets.split(","):
        for seed in range(seeds):
            row = measure(name, seed)
            results.append(row)
            output.write_text(json.dumps(results, indent=1) + "\n")
            table.add_row(
                name, str(seed), f"{row['rmse']:.4f}", f"{row['nll']:.3f}", f"{row['noise']:.1e}",
                f"{row['seconds']:.1f}",
            )  # fmt: skip
        scores = [row["nll"] for row in results if row["set"] == name]
        table.add_row(name, "range", "", f"{max(scores) - min(scores):.3f}", "", "")
    console.print(table)


if __name__ == "__main__":
    typer.run(main)

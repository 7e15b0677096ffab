"""What do priors do to predictions: the default, none, and the paper's?

The 16 UCI sets, published splits, `GPRegressor(priors=...)` with everything else as it is. Of larger sets a
random sample of the training rows of each split is used, so that every fit is exact and rows are few per
feature, which is where a prior can do harm. Figures are on standardised targets, means over splits.

    weak     the default: one density for all lengthscales together, whatever their number
    none     the likelihood alone
    paper    Gammas on each lengthscale, as `GPRegressor.paper()` has them

    HALFGP_DATA=... python benchmarks/priors.py                  everything; half an hour on one core
    python benchmarks/priors.py --sets housing,yacht --splits 2  some; replaces their rows in priors.json
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from halfgp import GPRegressor
from halfgp.datasets import Dataset, load_uci
from halfgp.scores import score
from product_report import console

HERE = Path(__file__).parent
SETS = (
    *("airfoil", "autompg", "concrete", "energy", "gas", "housing", "skillcraft", "sml", "wine", "yacht"),
    *("pol", "elevators", "bike", "kin40k", "protein", "keggdirected"),
)
PRIORS: dict[str, str | None] = {"weak": "weak", "none": None, "paper": "paper"}
SCORES = ("rmse", "nll")


def measure(dataset: Dataset, splits: range, rows: int) -> dict[str, Any]:
    """Scores of every prior on every split: the same rows for all of them."""
    found: dict[str, dict[str, list[float]]] = {name: {"rmse": [], "nll": [], "noise": []} for name in PRIORS}
    for k in splits:
        x, y, x_test, y_test = dataset.split(k)
        chosen = np.random.default_rng(k).permutation(len(y))[:rows]
        x, y = x[chosen], y[chosen]
        mean, scale = y.mean(), y.std()
        for name, priors in PRIORS.items():
            gp = GPRegressor(priors=priors).fit(x, (y - mean) / scale)
            scores = score((y_test - mean) / scale, *gp.predict(x_test, return_std=True))
            assert scores.nll is not None
            found[name]["rmse"].append(scores.rmse)
            found[name]["nll"].append(scores.nll)
            found[name]["noise"].append(gp.noise_)
    of = len(dataset.split(0)[1])
    about = {"set": dataset.name, "features": dataset.X.shape[1], "rows": min(rows, of), "of": of}
    return {**about, "splits": list(splits), "priors": found}


def print_table(results: list[dict[str, Any]]) -> None:
    """In Markdown, as the documentation has it."""
    headings = [f"{name.upper()} {prior}" for name in SCORES for prior in PRIORS]
    print("| " + " | ".join(["", "d", "rows", "splits", *headings]) + " |")
    print("|---" * (4 + len(headings)) + "|")
    for row in results:
        mark = "" if row["rows"] == row["of"] else "*"
        cells = [row["set"], str(row["features"]), f"{row['rows']:,}{mark}", str(len(row["splits"]))]
        for name in SCORES:
            for prior in PRIORS:
                values = np.array(row["priors"][prior][name])
                spread = f" ± {values.std():.3f}" if prior == "weak" else ""
                cells.append(f"{values.mean():.3f}{spread}")
        print("| " + " | ".join(cells) + " |")
    print("\n\\* of more: a random sample of the training rows. ±: standard deviation over splits.")


def main(
    sets: Annotated[str, typer.Option(help="By commas.")] = ",".join(SETS),
    splits: Annotated[int, typer.Option(help="So many of each set.")] = 5,
    first: Annotated[int, typer.Option(help="Of these, the first.")] = 0,
    rows: Annotated[int, typer.Option(help="Training rows of a split, at most.")] = 1000,
    output: Annotated[Path, typer.Option(help="JSON to merge into.")] = HERE / "priors.json",
) -> None:
    """Measure what priors do on real data."""
    unknown = [name for name in sets.split(",") if name not in SETS]
    if unknown:
        raise typer.BadParameter(f"no set {', '.join(unknown)}; there are {', '.join(SETS)}")
    results: list[dict[str, Any]] = json.loads(output.read_text()) if output.exists() else []
    for set_name in sets.split(","):
        row = measure(load_uci(set_name), range(first, first + splits), rows)
        results = [r for r in results if r["set"] != set_name] + [row]
        results.sort(key=lambda r: SETS.index(r["set"]))
        output.write_text(json.dumps(results, indent=1) + "\n")
        console.print(f"[dim]{set_name} done[/]")
    print_table(results)


if __name__ == "__main__":
    typer.run(main)

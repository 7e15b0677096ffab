"""Are predictions as sure as they may be? Coverage and error over functions, noise, rows and kernels.

Functions that are known without noise are sampled, noise of a share of their deviation is added, and 1,000
new targets are predicted by `GPRegressor(kernel=...)`, nothing else chosen. Little noise is where a solve is
hardest, and where one that stops too early is most overconfident.

    wave       sin 5x, one feature
    smooth     a smooth function of five features
    kink       |x| and a steep edge, two features: rougher than most kernels think

scikit-learn's GaussianProcessRegressor, exact in double, with the same kernel and a WhiteKernel, stands
beside it at 500 rows.

    python benchmarks/honesty.py                           everything; goes on where it was; half an hour
    python benchmarks/honesty.py --rows 500 --kernels rbf  some
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from halfgp import GPRegressor
from halfgp.scores import score
from product_report import console

HERE = Path(__file__).parent
Floats = NDArray[np.float64]
NOISE = (0.0, 0.001, 0.01, 0.1)
ROWS = (500, 3500, 8000)
KERNELS = ("matern12", "matern32", "matern52", "rbf", "rational_quadratic")
TEST_ROWS = 1000
SKLEARN_ROWS = 500
LEAST = 0.9  # of 95 % intervals


def wave(x: Floats) -> Floats:
    return np.sin(5.0 * x[:, 0])


def smooth(x: Floats) -> Floats:
    a, b, c, d, e = x.T
    return np.sin(3 * a) + b**2 + np.exp(-c) * d + 0.5 * np.cos(4 * e * a)


def kink(x: Floats) -> Floats:
    return np.abs(x[:, 0]) + np.tanh(8.0 * (x[:, 1] - 0.3 * x[:, 0]))


FUNCTIONS: Mapping[str, tuple[Callable[[Floats], Floats], int]] = {
    "wave": (wave, 1),
    "smooth": (smooth, 5),
    "kink": (kink, 2),
}


def data(function: str, noise: float, rows: int, seed: int = 0) -> tuple[Floats, Floats, Floats, Floats]:
    """Points and targets to learn from, and others to predict."""
    call, d = FUNCTIONS[function]
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1.0, 1.0, (rows + TEST_ROWS, d))
    f = call(x)
    y = (f - f.mean()) / f.std() + noise * generator.standard_normal(len(f))
    return x[:rows], y[:rows], x[rows:], y[rows:]


def ours(kernel: str, x: Floats, y: Floats, new: Floats) -> tuple[Floats, Floats, dict[str, Any]]:
    gp = GPRegressor(kernel=kernel).fit(x, y)
    mean, std = gp.predict(new, return_std=True)
    return mean, std, {"route": gp.report_.route, "error": gp.report_.error, "learned_noise": gp.noise_}


def sklearn(kernel: str, x: Floats, y: Floats, new: Floats) -> tuple[Floats, Floats, dict[str, Any]]:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process import kernels as k

    start = np.full(x.shape[1], max(1.0, x.shape[1] ** 0.5) / 2)
    base: Any = {
        "matern12": lambda: k.Matern(start, nu=0.5),
        "matern32": lambda: k.Matern(start, nu=1.5),
        "matern52": lambda: k.Matern(start, nu=2.5),
        "rbf": lambda: k.RBF(start),
        "rational_quadratic": lambda: k.RationalQuadratic(),  # it has no lengthscales by feature
    }[kernel]()
    gp = GaussianProcessRegressor(
        k.ConstantKernel(1.0) * base + k.WhiteKernel(0.1, (1e-6, 1e2)), normalize_y=True, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # bounds that an optimum lies on
        gp.fit(x, y)
    mean, std = gp.predict(new, return_std=True)
    return mean, std, {}


METHODS: Mapping[str, Callable[..., tuple[Floats, Floats, dict[str, Any]]]] = {
    "halfgp": ours,
    "scikit-learn": sklearn,
}


def measure(method: str, function: str, kernel: str, noise: float, rows: int) -> dict[str, Any]:
    """One fit; a failure is a result too."""
    x, y, new, truth = data(function, noise, rows)
    case = {"method": method, "function": function, "kernel": kernel, "noise": noise, "rows": rows}
    began = time.perf_counter()
    try:
        mean, std, about = METHODS[method](kernel, x, y, new)
    except Exception as error:  # told in the table: nothing is predicted then
        return {**case, "failed": f"{type(error).__name__}: {error}"}
    found = score(truth, mean, std)
    assert found.coverage is not None
    return {
        **case,
        "coverage": found.coverage[0.95],
        "rmse": found.rmse,
        "nll": found.nll,
        "seconds": time.perf_counter() - began,
        **about,
    }


def print_table(results: list[dict[str, Any]]) -> None:
    """In Markdown, as the documentation has it: the worst of the functions, by kernel, rows and noise."""
    levels = sorted({row["noise"] for row in results})
    print("| kernel | rows | " + " | ".join(f"noise {level:g}" for level in levels) + " |")
    print("|---|---|" + "---|" * len(levels))
    groups = sorted(
        {(row["method"], row["kernel"], row["rows"]) for row in results},
        key=lambda group: (group[0] != "halfgp", KERNELS.index(group[1]), group[2]),
    )
    for method, kernel, rows in groups:
        cells = []
        for level in levels:
            some = [
                row for row in results
                if (row["method"], row["kernel"], row["rows"], row["noise"]) == (method, kernel, rows, level)
            ]  # fmt: skip
            cells.append(_cell(some))
        print(
            f"| {kernel}{'' if method == 'halfgp' else f', {method}'} | {rows:,} | "
            + " | ".join(cells)
            + " |"
        )


def _cell(some: list[dict[str, Any]]) -> str:
    if any("failed" in row for row in some):
        return "raised"
    if not some:
        return ""
    return f"{100 * min(row['coverage'] for row in some):.1f} %, {max(row['rmse'] for row in some):.2g}"


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """Coverage and error against noise, a column for each function."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(FUNCTIONS), figsize=(13, 6.5), sharex=True, layout="constrained")
    colours = dict(zip(KERNELS, plt.colormaps["viridis"](np.linspace(0.0, 0.9, len(KERNELS))), strict=True))
    styles = dict(zip(ROWS, (":", "--", "-"), strict=True))
    at = {level: k for k, level in enumerate(NOISE)}
    for column, function in enumerate(FUNCTIONS):
        for what, axis in zip(("coverage", "rmse"), axes[:, column], strict=True):
            for kernel in KERNELS:
                for rows in ROWS:
                    _line(axis, results, "halfgp", function, kernel, rows, what, at,
                          color=colours[kernel], ls=styles[rows], lw=1.4)  # fmt: skip
                _line(axis, results, "scikit-learn", function, kernel, SKLEARN_ROWS, what, at,
                      color=colours[kernel], ls="none", marker="x", ms=5)  # fmt: skip
            axis.grid(alpha=0.25)
        axes[0, column].set(title=function, ylim=(0.85, 1.005))
        axes[0, column].axhline(0.95, color="0.3", lw=0.8)
        axes[0, column].axhline(LEAST, color="tab:red", lw=0.8)
        axes[1, column].set(yscale="log", xlabel="noise, of the function's deviation")
        axes[1, column].set_xticks(range(len(NOISE)), [f"{100 * level:g} %" for level in NOISE])
    axes[0, 0].set_ylabel("share within 95 % intervals")
    axes[1, 0].set_ylabel("RMSE, of the function's deviation")
    lines = [plt.Line2D([], [], color=colours[kernel], label=kernel) for kernel in KERNELS]
    lines += [
        plt.Line2D([], [], color="0.3", ls=style, label=f"{rows:,} rows") for rows, style in styles.items()
    ]
    lines.append(plt.Line2D([], [], color="0.3", ls="none", marker="x", label="scikit-learn, 500 rows"))
    figure.legend(handles=lines, loc="outside lower center", ncols=9, frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _line(
    axis: Any,
    results: list[dict[str, Any]],
    method: str,
    function: str,
    kernel: str,
    rows: int,
    what: str,
    at: Mapping[float, int],
    **style: Any,
) -> None:
    wanted = (method, function, kernel, rows)
    some = [
        r for r in results if (r["method"], r["function"], r["kernel"], r["rows"]) == wanted and what in r
    ]
    some.sort(key=lambda row: row["noise"])
    axis.plot([at[row["noise"]] for row in some], [row[what] for row in some], **style)


def main(
    functions: Annotated[str, typer.Option(help="By commas.")] = ",".join(FUNCTIONS),
    kernels: Annotated[str, typer.Option(help="By commas.")] = ",".join(KERNELS),
    rows: Annotated[str, typer.Option(help="By commas.")] = ",".join(map(str, ROWS)),
    again: Annotated[bool, typer.Option(help="Measure what is there already, too.")] = False,
    output: Annotated[Path, typer.Option(help="JSON to go on with.")] = HERE / "honesty.json",
    picture: Annotated[Path | None, typer.Option(help="Where to draw.")] = None,
) -> None:
    """Measure coverage where it is hardest to have."""
    results: list[dict[str, Any]] = json.loads(output.read_text()) if output.exists() else []
    names = ("method", "function", "kernel", "noise", "rows")
    for count in map(int, rows.split(",")):
        for function in functions.split(","):
            for kernel in kernels.split(","):
                for noise in NOISE:
                    for method in METHODS:
                        if method == "scikit-learn" and count != SKLEARN_ROWS:
                            continue
                        key = (method, function, kernel, noise, count)
                        kept = [row for row in results if tuple(row[name] for name in names) != key]
                        if len(kept) < len(results) and not again:
                            continue
                        row = measure(method, function, kernel, noise, count)
                        results = [*kept, row]
                        output.write_text(json.dumps(results, indent=1) + "\n")
                        told = row.get("failed") or f"{100 * row['coverage']:.1f} %, RMSE {row['rmse']:.2g}"
                        console.print(f"[dim]{', '.join(map(str, key))}: {told}[/]")
    print_table(results)
    halfgp = [row for row in results if row["method"] == "halfgp"]
    short = [row for row in halfgp if "failed" in row or row["coverage"] < LEAST]
    console.print(
        f"{len(halfgp)} fits, {len(short)} with less than {LEAST:.0%} in intervals of 95 % or none at all"
    )
    if picture is not None:
        draw(results, picture)
    raise typer.Exit(int(bool(short)))


if __name__ == "__main__":
    typer.run(main)

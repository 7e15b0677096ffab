"""The tables' models, fitted and summarised over seeds, with the paper's figures beside them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import numpy as np

from halfgp.paper.frame.context import Context
from halfgp.paper.frame.part import Data
from halfgp.paper.studies.fits import OURS, Fit, fit, is_available
from halfgp.paper.studies.plan import effort, requests
from halfgp.paper.studies.published import STAND_INS, name_of, published
from halfgp.report import words

QUANTITIES = ("rmse", "nll", "constant_nll", "fit_seconds")
KERNELS = {"rbf": "RBF", "matern12": "Matérn-1/2", "matern32": "Matérn-3/2", "matern52": "Matérn-5/2"}
LABELS = {"single": "single", "half": "half", "bfloat16": "bfloat16", "svgp": "SVGP"}

NEAR = 0.05  # how much worse an RMSE may be and count as kept
CPU_TIMES = (
    "No entry is stored, so that products take multiply-adds and exponentials, not memory traffic. From 16"
    " features on, half's multiply-adds are in 16-bit integers; with fewer, half does what single does. On"
    " few rows most of the time goes into what is around the products."
)

Values = dict[str, float]  # by set


def records(context: Context, kernel: str = "rbf") -> list[Data]:
    """One for each set and method: figures of every seed, and the paper's.

    A method that is not installed has a record without figures.
    """
    wanted = list(requests(context, kernel))
    total = sum(len(each) for _, method, each in wanted if is_available(method))
    done = 0
    found: list[Data] = []
    single: list[Fit] = []  # of the set, which has them first
    for set_name, method, each in wanted:
        fits = []
        for one in each if is_available(method) else ():
            context.progress(done, total, f"{set_name}, {LABELS[method]}, seed {one.seed}")
            fits.append(fit(context, one))
            done += 1
        if method == "single":
            single = fits
        found.append(_record(kernel, set_name, method, fits, single))
    return found


def _record(kernel: str, set_name: str, method: str, fits: Sequence[Fit], single: Sequence[Fit]) -> Data:
    ours = method in OURS
    paper = {name: published(kernel, name, set_name, method) for name in ("rmse", "nll", "fit_seconds")}
    return {
        "set": set_name,
        "method": method,
        "installed": is_available(method),
        "rows": fits[0].rows if fits else None,
        "features": fits[0].features if fits else None,
        **{name: [getattr(one, name) for one in fits] for name in QUANTITIES},
        "noise": [one.trajectory["noise"][-1] for one in fits] if ours else [],
        "drift": [drift(a, b) for a, b in zip(fits, single, strict=True)] if ours else [],
        "paper": {name: None if f is None else [f.value, f.deviation] for name, f in paper.items()},
    }


def drift(fit: Fit, single: Fit) -> float:
    """Root mean square of log(value / value in single) over all steps and hyperparameters.

    Everything random is drawn once and alike, so that what differs is what rounding did to the gradients.
    """
    squares = []
    for name, values in fit.trajectory.items():
        ours, theirs = np.array(values, dtype=float), np.array(single.trajectory[name], dtype=float)
        steps = min(len(ours), len(theirs))  # one with a step that was rolled back has more
        squares.append(np.square(np.log(ours[:steps] / theirs[:steps])).ravel())
    return float(np.sqrt(np.concatenate(squares).mean()))


def means(found: Iterable[Data], quantity: str, method: str) -> Values:
    """Over the seeds, by set; of the sets that have any."""
    return {
        record["set"]: statistics.fmean(record[quantity])
        for record in found
        if record["method"] == method and record[quantity]
    }


def ratios(found: Sequence[Data], quantity: str, method: str, base: str) -> Values:
    """One method's mean over another's, by set, of the sets that have both."""
    above, below = means(found, quantity, method), means(found, quantity, base)
    return {name: above[name] / below[name] for name in above if name in below}


def published_ratios(
    quantity: str, sets: Iterable[str], method: str, base: str, kernel: str = "rbf"
) -> Values:
    """The same of the paper's figures, by the paper's names, of the sets that have both there."""
    found = {}
    for name in sets:
        above, below = (published(kernel, quantity, name, each) for each in (method, base))
        if above is not None and below is not None:
            found[str(name_of(name))] = above.value / below.value
    return found


def listed(values: Values, digits: int = 3, unit: str = "") -> str:
    """By set, in words: "pol 1.02, bike 0.99"."""
    return ", ".join(f"{name} {words.number(value, digits)}{unit}" for name, value in values.items())


def changes(values: Values, digits: int = 1) -> str:
    """Ratios as changes in percent, by set: "pol +2.0 %, bike −1.0 %"."""
    return ", ".join(f"{name} {_change(value - 1, digits)}" for name, value in values.items())


def _change(share: float, digits: int) -> str:
    if abs(100 * share) < 0.5 * 10.0**-digits:
        return f"{0:.{digits}f} %"  # without a sign that means nothing
    return f"{100 * share:+.{digits}f} %".replace("-", "−")


def models_note(context: Context, found: Sequence[Data], kernel: str = "rbf") -> str:
    """How models were made: rows, seeds, steps, what half is, stand-ins."""
    spent = effort(context)
    peer = (
        f" SVGP is GPyTorch’s, with {words.count(spent.inducing)} inducing points and {spent.epochs} epochs"
        " in minibatches of 1,024."
    )
    return (
        f"GPRegressor.paper, {KERNELS[kernel]} with ARD, {spent.steps} steps of Adam with at most 50 CG"
        f" iterations each. {sizes_note(found)} Seeds are splits too; ± is the standard deviation over them."
        " Targets are standardised. In half, the directions and products of CG are held in half, and points"
        " on a grid of 16 bits where there are at least 16 features; entries are computed on the fly and not"
        " rounded, which the paper’s are. Preconditioner and gradient are in single, as in its code."
        " Seconds are of the fit, with the solve and the factor that predictions rest on."
        f"{peer if any(record['method'] == 'svgp' for record in found) else ''}"
        " The paper’s seconds are of one V100, on all rows, with the compilation of KeOps."
    )


def sizes_note(found: Sequence[Data]) -> str:
    """Training rows of each set by the number of seeds, and what stands in for what."""
    ours = [record for record in found if record["method"] == "half"]
    by_seeds: dict[int, list[str]] = {}
    for record in ours:
        text = f"{record['set']} {words.count(record['rows'])}"
        by_seeds.setdefault(len(record["rmse"]), []).append(text)
    told = "; ".join(f"{words.plural(n, 'seed')} of {', '.join(names)}" for n, names in by_seeds.items())
    stand_ins = "".join(
        f" {record['set']} stands in for {name_of(record['set'])}."
        for record in ours
        if record["set"] in STAND_INS
    )
    return f"Training rows: {told}.{stand_ins}"

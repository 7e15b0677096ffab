"""What low precision would do to a user's data: which formats are safe, what vanishes, which rank pays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from halfgp.analysis.convergence import history
from halfgp.analysis.diagnosis_case import LEAST_ROWS, Case, make_case
from halfgp.analysis.diagnosis_words import in_words, sentences
from halfgp.analysis.sample import Sample
from halfgp.analysis.support import negligible_share, vanishing_share
from halfgp.backends import Backend
from halfgp.data import ArrayLike
from halfgp.errors import InputError
from halfgp.estimator import GPRegressor
from halfgp.kernels import Kernel
from halfgp.model import ExactGP
from halfgp.precision import Precision
from halfgp.preconditioners import PivotedCholesky
from halfgp.solvers.ladder import LARGEST_RHO, LEFT_BY_SINGLE

if TYPE_CHECKING:  # matplotlib is optional
    from matplotlib.figure import Figure

RANKS = (0, 5, 15, 50, 100, 500)
# A name, the precision and the storage of an operator; narrowest first.
FORMATS = (
    ("bfloat16 entries", "bfloat16", "stored"),
    ("half entries", "half", "stored"),
    ("half inputs", "half", "on_the_fly"),
    ("single", "single", "on_the_fly"),
)
WORTH = 0.05  # of the passes: a larger rank that gains less than this is not worth its memory
SPECTRUM_POINTS = 60  # of a spectrum in JSON


@dataclass(frozen=True)
class FormatFinding:
    """What a format does to K + noise.

    Attributes:
        name: "half entries" holds K in half, "half inputs" the points only.
        rho: norm of the error of K in units of the noise; inf where the points overflow the format.
        residual: true relative residual that a solve with the matrix of this format leaves, were it exact
            otherwise; inf where that matrix is not positive definite, or there is none.
        verdict: "safe" where `precision="auto"` would begin with it; "unsafe" where a solve is worth nothing;
            otherwise "inexact".
        vanishing: share of pairs whose covariance is zero in the format.
        negligible: share of pairs whose covariance is below its resolution next to the variance.
    """

    name: str
    rho: float
    residual: float
    verdict: str
    vanishing: float
    negligible: float


@dataclass(frozen=True)
class RankTrial:
    """A solve with a pivoted Cholesky preconditioner.

    Attributes:
        rank: of it.
        iterations: to the tolerance.
        converged: whether it got there.
        passes: what it costs in all, in products with K: iterations, and the preconditioner's share.
    """

    rank: int
    iterations: int
    converged: bool
    passes: float


@dataclass(frozen=True)
class Diagnosis:
    """What was found; `str` says it in words, and `plot` draws it.

    Attributes:
        rows: of the data.
        sampled: rows that were measured; what is said of all rows is carried over from these.
        dropped: rows without a target, left out.
        features: columns.
        kernel: in words.
        origin: of kernel and noise: "fitted" by a model, "given", or "default", where a fit starts.
        noise: variance, White included, of standardised targets; the least, where rows differ.
        tol: the tolerance that solves are judged by.
        formats: narrowest first.
        eigenvalues: estimates for K on all rows, in units of the noise, largest first; of a sample only the
            first half, for the others are too small.
        effective_dimension: of all rows.
        trials: by rank.
        recommended_rank: the smallest that is within a twentieth of the fewest passes.
    """

    rows: int
    sampled: int
    dropped: int
    features: int
    kernel: str
    origin: str
    noise: float
    tol: float
    formats: tuple[FormatFinding, ...]
    eigenvalues: Tensor
    effective_dimension: float
    trials: tuple[RankTrial, ...]
    recommended_rank: int

    @property
    def safe_formats(self) -> tuple[str, ...]:
        """Names, narrowest first."""
        return tuple(found.name for found in self.formats if found.verdict == "safe")

    def sentences(self) -> dict[str, str]:
        """What was found, in words, by topic."""
        return sentences(self)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; of the eigenvalues a few dozen, evenly spread over a logarithmic axis."""
        places = _spread(len(self.eigenvalues))
        values = {name: value for name, value in vars(self).items() if name != "eigenvalues"}
        return {
            **values,
            "formats": [asdict(found) for found in self.formats],
            "trials": [asdict(trial) for trial in self.trials],
            "safe_formats": list(self.safe_formats),
            "spectrum": {
                "index": [place + 1 for place in places],
                "eigenvalue_over_noise": self.eigenvalues[places].tolist(),
            },
        }

    def plot(self) -> Figure:
        """Three panels: spectrum, shares of pairs, iterations by rank. Needs matplotlib."""
        from halfgp.analysis.diagnosis_picture import picture

        return picture(self)

    def __str__(self) -> str:
        return "\n".join(self.sentences().values())


def diagnose(
    X: ArrayLike,
    y: ArrayLike | None = None,
    kernel: str | Kernel | None = None,
    noise: float | ArrayLike | None = None,
    *,
    model: GPRegressor | ExactGP | None = None,
    rows: int = 2000,
    tol: float = 1e-2,
    ranks: Sequence[int] = RANKS,
    standardise: bool = True,
    backend: str | Backend = "auto",
    threads: int | None = None,
    seed: int = 0,
) -> Diagnosis:
    """Measure what low precision does to a kernel matrix and to solving with it.

    Args:
        X: (n, d), finite.
        y: (n,) or (n, q), the right-hand sides of solves; rows with NaN are dropped, with a warning. Random
            numbers in place of None.
        kernel: of standardised points, such as `kernel_` of a fitted `GPRegressor`; a name takes the values
            that `GPRegressor` would start from, and None the kernel too.
        noise: variance, or (n,) variances, of standardised targets, such as `noise_`; None takes what
            `GPRegressor` would start from.
        model: a fitted model whose kernel, noise and scales are taken instead. If its rows had variances of
            their own, `noise` has those of these rows, in units of y squared.
        rows: how many are measured, drawn at random. O(rows³) time, some 100 rows² bytes.
        tol: relative residual that a solve should reach.
        ranks: of the preconditioners that are tried.
        standardise: bring every column of X and y to mean zero and variance one first.
        backend: whose products are measured.
        threads: of products; None follows torch.
        seed: of the sample.
    """
    _check_options(rows, tol, ranks)
    case = make_case(X, y, kernel, noise, model, standardise, seed)
    total, order = len(case.x), torch.randperm(len(case.x), generator=torch.Generator().manual_seed(seed))
    chosen = order[:rows]
    own = case.noise[chosen] if case.noise.ndim else case.noise
    sample = Sample.of(case.kernel, case.x[chosen], own, total, backend, threads)
    right = case.b[chosen] / sample.noise.sqrt()[:, None]
    eigenvalues = torch.linalg.eigvalsh(sample.entries).flip(0)
    known = len(chosen) if total == len(chosen) else len(chosen) // 2
    trials = tuple(_trial(sample, right, rank, tol) for rank in ranks if rank <= len(chosen))
    fewest = min(trial.passes for trial in trials)
    return Diagnosis(
        rows=total,
        sampled=len(chosen),
        dropped=case.dropped,
        features=case.x.shape[1],
        kernel=in_words(case.kernel),
        origin=case.origin,
        noise=float(sample.noise.min()),
        tol=tol,
        formats=tuple(_findings(case, sample, right, tol, seed)),
        eigenvalues=sample.stretch * eigenvalues[:known],
        effective_dimension=sample.effective_dimension(eigenvalues),
        trials=trials,
        recommended_rank=min(trial.rank for trial in trials if trial.passes <= (1 + WORTH) * fewest),
    )


def _check_options(rows: int, tol: float, ranks: Sequence[int]) -> None:
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < LEAST_ROWS:
        raise InputError(f"`rows` must be an integer of at least {LEAST_ROWS}; got {rows!r}.")
    if not 0.0 < tol < 1.0:
        raise InputError(f"`tol` must be between 0 and 1; got {tol!r}.")
    if not len(ranks) or min(ranks) != 0:
        raise InputError(f"`ranks` must be counts, 0 among them; got {list(ranks)!r}.")


def _findings(case: Case, sample: Sample, right: Tensor, tol: float, seed: int) -> list[FormatFinding]:
    # As operators have it: relative to the largest variance, so that no outputscale makes entries vanish.
    kernel = (1.0 / float(case.kernel.amplitude(case.x))) * case.kernel
    shares = {
        name: (
            vanishing_share(kernel, case.x, name, seed=seed).share,
            negligible_share(kernel, case.x, name, seed=seed).share,
        )
        for name in dict.fromkeys(precision for _, precision, _ in FORMATS)
    }
    return [_finding(sample, right, tol, *entry, shares[entry[1]]) for entry in FORMATS]


def _finding(
    sample: Sample,
    right: Tensor,
    tol: float,
    name: str,
    precision: str,
    storage: str,
    shares: tuple[float, float],
) -> FormatFinding:
    try:
        error = sample.error(precision, storage)
    except InputError:  # double could hold the points, and this format cannot
        return FormatFinding(name, math.inf, math.inf, "unsafe", *shares)
    residual = _residual(sample.with_noise(), error.matrix, right)
    narrow = Precision.resolve(precision).is_sixteen_bit
    limit = min(math.sqrt(tol), LARGEST_RHO) if narrow else max(tol / LEFT_BY_SINGLE, LARGEST_RHO)
    verdict = "safe" if error.rho <= limit else "inexact" if residual < 1.0 else "unsafe"
    return FormatFinding(name, error.rho, residual, verdict, *shares)


def _residual(matrix: Tensor, error: Tensor, b: Tensor) -> float:
    """The worst column's |b - A x| / |b| with (A + E) x = b; inf where A + E is not positive definite."""
    factor, failed = torch.linalg.cholesky_ex(matrix + error)
    if int(failed):
        return math.inf
    left = b - matrix @ torch.cholesky_solve(b, factor)
    return float((left.norm(dim=0) / b.norm(dim=0)).max())


def _trial(sample: Sample, b: Tensor, rank: int, tol: float) -> RankTrial:
    recipe = PivotedCholesky(rank=rank, noise=1.0) if rank else None
    found = history(sample.with_noise(stretched=True), b, solver="double", tol=tol, preconditioner=recipe)
    n = sample.rows
    # Building takes O(n rank²) and applying O(n rank), a pass O(n²): in passes, as measured at rank 500 for
    # 10,000 rows with nine features and one right-hand side, 14 and 0.13.
    passes = found.iterations * (1 + 2.7 * rank / n) + rank**2 / (1.8 * n)
    return RankTrial(rank, found.iterations, found.status == "converged", passes)


def _spread(n: int) -> list[int]:
    """Places from 0 to n - 1, evenly on a logarithmic axis."""
    steps = torch.logspace(0, math.log10(n), SPECTRUM_POINTS, dtype=torch.float64)
    return sorted({min(int(step) - 1, n - 1) for step in steps.round().tolist()})

"""What the tables' figures say about the paper's claims."""

from __future__ import annotations

from collections.abc import Sequence

from halfgp.paper.part import Claim, Data, Verdict
from halfgp.paper.uci_plan import SMALL
from halfgp.paper.uci_records import KERNELS, changes, listed, means, published_ratios, ratios
from halfgp.report import words

NEAR = 0.05  # how much worse an RMSE may be and count as kept
CPU_TIMES = (
    "No entry is stored, so that products take multiply-adds and exponentials, not memory traffic. From 16"
    " features on, half's multiply-adds are in 16-bit integers; with fewer, half does what single does. On"
    " few rows most of the time goes into what is around the products."
)


def kept_claim(found: Sequence[Data], kernel: str = "rbf", *, required: bool = False) -> Claim:
    """That half predicts as single does on the small sets."""
    kept = {name: value for name, value in ratios(found, "rmse", "half", "single").items() if name in SMALL}
    paper = published_ratios("rmse", kept, "half", "single", kernel)
    return Claim(
        text=f"With {KERNELS[kernel]}, the RMSE of half is within {words.percent(NEAR, 0)} of single's on the"
        " small sets.",
        paper=f"Half against single: {changes(paper)}." if paper else "It has no single to compare with.",
        measured=f"Half against single: {changes(kept, 2)}.",
        verdict=Verdict.of(*(value <= 1 + NEAR for value in kept.values())),
        reason="Half rounds vectors here, and points, but not entries: gradients hardly change. Predictions"
        " are made in single or better, in the paper too.",
        required=required,
    )


def coarser_claim(found: Sequence[Data], *, required: bool = False) -> Claim:
    """That bfloat16 strays farther from single than float16 does."""
    half, other = means(found, "drift", "half"), means(found, "drift", "bfloat16")
    rmse = ratios(found, "rmse", "bfloat16", "half")
    strayed = ", ".join(
        f"{name} {words.number(half[name], 2)} and {words.number(value, 2)}" for name, value in other.items()
    )
    return Claim(
        text="bfloat16 is worse than float16: training in it strays farther from training in single.",
        paper="float16 is the easiest to work with, for its wider range. (Its range is the narrower one.)",
        measured="Difference of the logarithms of hyperparameters from single's, root mean square over all"
        f" steps, in float16 and in bfloat16: {strayed}. RMSE in bfloat16 against float16:"
        f" {changes(rmse, 2)}.",
        verdict=Verdict.of(*(value > half[name] for name, value in other.items())),
        reason="bfloat16 has 8 bits of significand where float16 has 11. Its range is of no use, for vectors"
        " are scaled before they are rounded. Predictions do not show the difference: those of either are"
        " made in single or better.",
        required=required,
    )


def faster_claim(found: Sequence[Data]) -> Claim:
    """That half takes half the time of single."""
    speed = ratios(found, "fit_seconds", "single", "half")
    fast = published_ratios("fit_seconds", speed, "single", "half")
    return Claim(
        text="Training in half is at least twice as fast as in single.",
        paper=f"Speedups of at least two times, in the text; in Table 1 {listed(fast, 2, 'x')}.",
        measured=f"Single's time over half's: {listed(speed, 3, 'x')}.",
        verdict=Verdict.of(*(value >= 2 for value in speed.values())),
        reason=CPU_TIMES,
    )


def svgp_claim(found: Sequence[Data]) -> Claim:
    """That SVGP is faster and often predicts worse."""
    worse, slower = (ratios(found, name, "svgp", "half") for name in ("rmse", "fit_seconds"))
    text = "SVGP is faster than half, and often predicts significantly worse."
    paper = "Faster on every set; its RMSE is worse than half's by more than 5 % on four of eight."
    if not worse:
        remedy = "`pip install halfgp[paper]` adds it."
        return Claim(text, paper, "GPyTorch is not installed.", Verdict.OPEN, remedy)
    return Claim(
        text=text,
        paper=paper,
        measured=f"RMSE of SVGP against half's: {changes(worse, 0)}. Its time over half's:"
        f" {listed(slower, 2, 'x')}.",
        verdict=Verdict.of(
            *(value < 1 for value in slower.values()), any(value > 1 + NEAR for value in worse.values())
        ),
        reason="A step of SVGP costs the cube of the inducing points, whatever the rows: on a processor that"
        " is dear beside products that are not. The paper does not tell its epochs.",
    )

"""Figure 2e: the effective dimension of a Matérn-1/2 kernel evaluated in each format."""

from __future__ import annotations

from halfgp.kernels import Matern
from halfgp.paper.context import Context
from halfgp.paper.part import Outcome, Part
from halfgp.paper.spectra import dimension_claims, dimension_panels, dimensions


def measure(context: Context) -> Outcome:
    """Decompose growing matrices in every format."""
    data = dimensions(Matern(nu=0.5), context)
    return Outcome(
        data,
        claims=dimension_claims(data),
        note="Matérn-1/2 with lengthscale 1 on points drawn uniformly from [−3, 3], evaluated in the format."
        " The sum of λ / (λ + σ²), negative eigenvalues counted as zero. The paper does not tell its noise.",
    )


PART = Part(
    name="fig2e",
    title="Effective dimension, Matérn-1/2",
    place="Figure 2e",
    module=__name__,
    measure=measure,
    panels=dimension_panels,
    minutes=1.4,
)

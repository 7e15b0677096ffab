"""Appendix, Figure A.2b: the effective dimension of an RBF kernel evaluated in each format."""

from __future__ import annotations

from halfgp.kernels import RBF
from halfgp.paper.context import Context
from halfgp.paper.part import Outcome, Part
from halfgp.paper.spectra import dimension_claims, dimension_panels, dimensions


def measure(context: Context) -> Outcome:
    """Decompose growing matrices in every format."""
    data = dimensions(RBF(), context)
    return Outcome(
        data,
        claims=dimension_claims(data, required=True),
        note="RBF with lengthscale 1 on points drawn uniformly from [−3, 3], evaluated in the format. The sum"
        " of λ / (λ + σ²), negative eigenvalues counted as zero.",
    )


PART = Part(
    name="appendix_rbf_effective_dimension",
    title="Effective dimension, RBF",
    place="Appendix, Figure A.2b",
    module=__name__,
    measure=measure,
    panels=dimension_panels,
    minutes=1.4,
)

"""Figure 2d: eigenvalues of a Matérn-1/2 kernel evaluated in each format."""

from __future__ import annotations

from halfgp.kernels import Matern
from halfgp.paper.context import Context
from halfgp.paper.part import Outcome, Part
from halfgp.paper.spectra import condition_claim, decay_claim, spectrum, spectrum_panels
from halfgp.report import words


def measure(context: Context) -> Outcome:
    """Decompose one matrix in every format."""
    data = spectrum(Matern(nu=0.5), context)
    return Outcome(
        data,
        claims=(decay_claim(data), condition_claim(data)),
        note=f"Matérn-1/2 with lengthscale 1, {words.count(data['rows'])} points drawn uniformly from [−3,"
        " 3]. Points and every operation of the kernel are in the format, the decomposition is in double.",
    )


PART = Part(
    name="fig2d",
    title="Eigenvalue spectrum, Matérn-1/2",
    place="Figure 2d",
    module=__name__,
    measure=measure,
    panels=spectrum_panels,
    minutes=0.2,
)

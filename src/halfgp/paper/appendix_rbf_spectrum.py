"""Appendix, Figure A.2c: eigenvalues of an RBF kernel evaluated in each format."""

from __future__ import annotations

from halfgp.kernels import RBF
from halfgp.paper.context import Context
from halfgp.paper.part import Outcome, Part
from halfgp.paper.spectra import decay_claim, spectrum, spectrum_panels
from halfgp.report import words


def measure(context: Context) -> Outcome:
    """Decompose one matrix in every format."""
    data = spectrum(RBF(), context)
    return Outcome(
        data,
        claims=(decay_claim(data, required=True),),
        note=f"RBF with lengthscale 1, {words.count(data['rows'])} points drawn uniformly from [−3, 3]."
        " Points and every operation of the kernel are in the format, the decomposition is in double.",
    )


PART = Part(
    name="appendix_rbf_spectrum",
    title="Eigenvalue spectrum, RBF",
    place="Appendix, Figure A.2c",
    module=__name__,
    measure=measure,
    panels=spectrum_panels,
    minutes=0.2,
)

"""Appendix, Table A.3: RMSE, NLL and training time with Matérn-1/2."""

from __future__ import annotations

from functools import partial

from halfgp.paper.matern_tables import measure
from halfgp.paper.part import Part
from halfgp.paper.uci_tables import table

PART = Part(
    name="appendix_matern12",
    title="RMSE, NLL and training time, Matérn-1/2 with ARD",
    place="Appendix, Table A.3",
    module=__name__,
    measure=partial(measure, kernel="matern12"),
    table=table,
    minutes=150.0,
    optional=("gpytorch",),
)

"""Estimators of ½ tr(A^-1 dA), A = K + noise, by the names that settings know them by."""

from halfgp.likelihood.traces.base import Probes, Trace
from halfgp.likelihood.traces.hutchinson import HutchinsonTrace
from halfgp.likelihood.traces.neighbours import NeighbourTrace
from halfgp.likelihood.traces.pathwise import PathwiseTrace

TRACES: dict[str, type[Trace]] = {
    "pathwise": PathwiseTrace,
    "hutchinson": HutchinsonTrace,
    "neighbours": NeighbourTrace,
}

__all__ = ["TRACES", "HutchinsonTrace", "NeighbourTrace", "PathwiseTrace", "Probes", "Trace"]

"""All parts, in the order of the paper."""

from __future__ import annotations

from collections.abc import Iterable

from halfgp.paper.frame.part import Part
from halfgp.paper.parts import (
    direct_solves,
    kernels,
    matrices,
    predictions,
    products,
    scores,
    single_precision,
    summation,
    theory,
    times,
    tolerances,
)
from halfgp.paper.studies import dimensions, solvers, spectra, support, tables, trajectories, truncation

MODULES = (
    direct_solves,
    kernels,
    matrices,
    predictions,
    products,
    scores,
    single_precision,
    summation,
    theory,
    times,
    tolerances,
    dimensions,
    solvers,
    spectra,
    support,
    tables,
    trajectories,
    truncation,
)
ORDER = (
    "fig1",
    "fig2a",
    "fig2b",
    "fig2c",
    "fig2d",
    "fig2e",
    "fig3",
    "fig4a",
    "fig4b",
    "fig5a",
    "fig5b",
    "fig5c",
    "fig5d",
    "fig5e",
    "table1",
    "fig6",
    "fig7",
    "appendix_summation_times",
    "appendix_matern_distances",
    "appendix_truncation_error",
    "appendix_eigenvalue_difference",
    "appendix_rbf_effective_dimension",
    "appendix_rbf_spectrum",
    "appendix_inverses",
    "appendix_buzz_solvers",
    "appendix_elevators_ranks",
    "appendix_keggdirected_ranks",
    "appendix_pol_without_ard",
    "appendix_osborne_trajectories",
    "appendix_times_with_compilation",
    "appendix_times_without_compilation",
    "appendix_rmse",
    "appendix_nll",
    "appendix_matern12",
    "appendix_matern32",
    "appendix_matern52",
    "appendix_test_precision",
    "appendix_scaling_in_single",
    "appendix_spectral_cutoff",
    "appendix_quantised_dimension",
)


def in_order(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Parts as the paper has them, and after those any that it does not have."""
    return tuple(sorted(parts, key=lambda part: ORDER.index(part.name) if part.name in ORDER else len(ORDER)))


PARTS = in_order(part for module in MODULES for part in module.PARTS)

"""What low precision does to kernel matrices and to solving with them."""

from halfgp.analysis.convergence import SOLVERS, Residuals, history
from halfgp.analysis.diagnosis import Diagnosis, FormatFinding, RankTrial, diagnose
from halfgp.analysis.direct import DirectRoute, direct_route
from halfgp.analysis.matrices import as_format, kernel_matrix
from halfgp.analysis.rounding import (
    STRATEGIES,
    ProductErrors,
    RoundedInverse,
    inverse_of_rounded,
    product_errors,
)
from halfgp.analysis.spectrum import (
    QuantisedDimension,
    effective_dimension,
    eigenvalues,
    entry_error_norm,
    largest_eigenvalue_difference,
    quantised_effective_dimension,
    rho,
    spectral_cutoff,
    spectral_norm,
)
from halfgp.analysis.support import Share, largest_distance, negligible_share, vanishing_share

__all__ = [
    "SOLVERS",
    "STRATEGIES",
    "Diagnosis",
    "DirectRoute",
    "FormatFinding",
    "ProductErrors",
    "QuantisedDimension",
    "RankTrial",
    "Residuals",
    "RoundedInverse",
    "Share",
    "as_format",
    "diagnose",
    "direct_route",
    "effective_dimension",
    "eigenvalues",
    "entry_error_norm",
    "history",
    "inverse_of_rounded",
    "kernel_matrix",
    "largest_distance",
    "largest_eigenvalue_difference",
    "negligible_share",
    "product_errors",
    "quantised_effective_dimension",
    "rho",
    "spectral_cutoff",
    "spectral_norm",
    "vanishing_share",
]

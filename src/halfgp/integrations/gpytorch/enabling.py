"""`enable`: GPyTorch's own kernels with our products, for code that is not to be edited."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any

from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import AdditiveKernel, Kernel, LinearKernel, ProductKernel, ScaleKernel
from gpytorch.lazy import LazyEvaluatedKernelTensor
from linear_operator import settings, to_linear_operator
from linear_operator.operators import LinearOperator
from torch import Tensor

from halfgp.errors import BackendWarning
from halfgp.integrations.gpytorch.covariance import KernelCovariance
from halfgp.integrations.gpytorch.kernels import LEAVES, MatrixFreeKernel, covariance
from halfgp.integrations.gpytorch.noisy_covariance import NoisyCovariance
from halfgp.integrations.gpytorch.prediction import SolvedPredictions
from halfgp.precision import Precision

Place = tuple[type, str]
PLACES: tuple[Place, ...] = (
    *((family, "forward") for family in (*LEAVES, ProductKernel)),
    (Kernel, "__call__"),
    (Kernel, "prediction_strategy"),
    (LinearKernel, "prediction_strategy"),
    (LazyEvaluatedKernelTensor, "evaluate_kernel"),
    (LinearOperator, "_mul_matrix"),
    (MultivariateNormal, "log_prob"),
)
_FOUND: dict[Place, Any] = {}  # what was there before the first `enable` that holds
_ENABLED: list[enable] = []  # those that hold; the last one counts
_WHOLE: ContextVar[bool] = ContextVar(
    "whole", default=False
)  # whether all of the kernel that is called is ours


class enable:
    """From now on GPyTorch's kernels multiply, solve and predict by halfgp; or within a `with` block.

    Taken over are RBF, Matérn, rational quadratic, periodic, linear and constant kernels, and whatever is
    composed of them by scaling, adding and multiplying. A model with any other kernel is computed by GPyTorch
    as ever, and a `BackendWarning` says so, once for a kernel.

    Args:
        precision: of products: "auto" for that of the points, with solves on a ladder that begins in half;
            or "half", "bfloat16", "single" or "double" for all of them.

    `disable()`, or the end of the block, puts everything back as it was found. Of several that hold, the last
    one counts.
    """

    def __init__(self, precision: str | Precision = "auto") -> None:
        Precision.resolve(precision)
        self._precision = precision
        self._told: set[type] = set()
        self._known: set[Any] = set()
        self._hold()

    def disable(self) -> None:
        """Put back what was there: that of another `enable` that still holds, or all as it was found."""
        if self not in _ENABLED:
            return
        _ENABLED.remove(self)
        if _ENABLED:
            _ENABLED[-1]._install()
            return
        while _FOUND:
            place, method = _FOUND.popitem()
            setattr(*place, method)

    def __enter__(self) -> enable:
        if self not in _ENABLED:  # a block of it has ended before, and this is another
            self._hold()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disable()

    def _hold(self) -> None:
        if not _ENABLED:
            _FOUND.update((place, place[0].__dict__[place[1]]) for place in PLACES)
        _ENABLED.append(self)
        self._install()

    def _install(self) -> None:
        leaves: dict[Place, Callable[..., Any]] = {
            (family, "forward"): self._forward(family) for family in LEAVES
        }
        replacements = leaves | {
            (ProductKernel, "forward"): self._product(),
            (Kernel, "__call__"): self._call(),
            (Kernel, "prediction_strategy"): _predictions,
            (LinearKernel, "prediction_strategy"): _predictions,
            (LazyEvaluatedKernelTensor, "evaluate_kernel"): self._evaluated(),
            (LinearOperator, "_mul_matrix"): _entrywise(_FOUND[LinearOperator, "_mul_matrix"]),
            (MultivariateNormal, "log_prob"): self._log_prob(),
        }
        for place, made in replacements.items():
            setattr(place[0], place[1], made)
        families = (*LEAVES, ProductKernel, ScaleKernel, AdditiveKernel, MatrixFreeKernel)
        self._known = {family.forward for family in families}

    def _call(self) -> Callable[..., Any]:
        """As ever, knowing whether all parts of a kernel are ours; who asks for a part may want a tensor."""
        own = _FOUND[Kernel, "__call__"]

        def call(kernel: Kernel, *args: Any, **params: Any) -> Any:
            parts = (type(part) for part in kernel.modules() if isinstance(part, Kernel))
            token = _WHOLE.set(all(part.forward in self._known and _has_our_distance(part) for part in parts))
            try:
                return own(kernel, *args, **params)
            finally:
                _WHOLE.reset(token)

        return call

    def _forward(self, family: type[Kernel]) -> Callable[..., Any]:
        """Our matrix in place of a dense one."""
        own, precision = _FOUND[family, "forward"], self._precision

        def forward(kernel: Kernel, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Any:
            if diag or params.get("last_dim_is_batch", False) or not _WHOLE.get():
                return own(kernel, x1, x2, diag=diag, **params)
            return covariance(kernel, family, x1, x2, precision)

        return forward

    def _product(self) -> Callable[..., Any]:
        """That of rectangular matrices too, which GPyTorch makes dense."""
        own = _FOUND[ProductKernel, "forward"]

        def forward(kernel: ProductKernel, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Any:
            if diag or not _WHOLE.get():
                return own(kernel, x1, x2, diag=diag, **params)
            factors = [to_linear_operator(factor(x1, x2, **params)) for factor in kernel.kernels]
            if not all(isinstance(factor, KernelCovariance) for factor in factors):
                return own(kernel, x1, x2, diag=diag, **params)
            result = factors[0]
            for factor in factors[1:]:
                result = result * factor
            return result

        return forward

    def _log_prob(self) -> Callable[..., Any]:
        """By our matrix where it is ours, also where BoTorch has told GPyTorch to take dense factors."""
        own = _FOUND[MultivariateNormal, "log_prob"]

        def log_prob(distribution: MultivariateNormal, value: Tensor) -> Tensor:
            matrix = distribution.lazy_covariance_matrix.evaluate_kernel()
            ours = isinstance(matrix, NoisyCovariance) and matrix.is_ours
            theirs = settings.fast_computations(True, True, True) if ours else contextlib.nullcontext()
            with theirs:
                density: Tensor = own(distribution, value)
            return density

        return log_prob

    def _evaluated(self) -> Callable[..., Any]:
        """As ever, and a word about what could not be taken over."""
        own, told = _FOUND[LazyEvaluatedKernelTensor, "evaluate_kernel"], self._told

        def evaluate_kernel(lazy: LazyEvaluatedKernelTensor) -> Any:
            matrix = own(lazy)
            kind = type(lazy.kernel)
            if not isinstance(matrix, KernelCovariance) and kind not in told:
                told.add(kind)
                warnings.warn(
                    f"halfgp does not know all of the kernel {kind.__name__}, so that GPyTorch computes it"
                    " itself. Known are RBF, Matern, RQ, Periodic, Linear and Constant kernels, and Scale,"
                    " sums and products of them.",
                    BackendWarning,
                    stacklevel=2,
                )
            return matrix

        return evaluate_kernel


def _entrywise(own: Callable[..., Any]) -> Callable[..., Any]:
    """Products, entry by entry, in which one matrix is ours: lazy ones, and those of others, ask nobody."""

    def mul_matrix(one: LinearOperator, other: LinearOperator) -> Any:
        one, other = one.evaluate_kernel(), other.evaluate_kernel()
        if isinstance(one, KernelCovariance):
            return one._mul_matrix(other)
        return other._mul_matrix(one) if isinstance(other, KernelCovariance) else own(one, other)

    return mul_matrix


def _has_our_distance(kernel: type[Kernel]) -> bool:
    """Whether a kernel measures distances as GPyTorch does: of another measure ours would know nothing."""
    return kernel.covar_dist is Kernel.covar_dist


def _predictions(_kernel: Kernel, *args: Any) -> SolvedPredictions:
    return SolvedPredictions(*args)

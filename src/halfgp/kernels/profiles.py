"""What a leaf of a kernel makes of two points: each profile, with all that is known about it, in one object.

A stationary profile is a function k(s) of the squared scaled distance s, with k(0) = 1. To add one, derive
from `StationaryProfile` and write `value`. Everything else has a default that is safe: slopes come from
autograd, nothing is taken to vanish, samples of the prior are refused, and the reference backend serves.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halfgp.errors import InputError
from halfgp.kernels.first_derivative import first_derivative

LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class EngineForm:
    """How the compiled engine writes a profile (cpp/profile.inl).

    It works with psi = factor * scaled features and q = -|psi_i - psi_j|² / 2.

    Attributes:
        factor: from scaled features to psi.
        steepness: the largest slope, in q, of the power of two that it computes: errors of q count so often.
    """

    factor: float
    steepness: float = 1.0


class Profile(ABC):
    """A function of the scaled features of two points.

    Attributes:
        name: of the profile in the engine, where that has it, and in messages.
        label: for people to read.
        is_stationary: whether it is a `StationaryProfile`; otherwise it is the inner product.
    """

    name: str
    label: str
    is_stationary: bool

    @abstractmethod
    def between(self, z1: Tensor, z2: Tensor, shape: Tensor | None) -> Tensor:
        """The factor (..., n1, n2) from scaled features (..., n, f) of each side; differentiable."""

    def engine_form(self, shape: float | None) -> EngineForm | None:
        """How the engine writes it; None where it does not know the profile."""
        return None

    def draw(self, normal: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """What is random about the frequencies of random features, free of hyperparameters.

        Args:
            normal: (f, m) independent normal numbers.
            generator: for more of them.

        Returns:
            Directions (f, m), in units of scaled features, and levels (m,) for `frequencies`, or None.
        """
        raise InputError(
            f"The profile {self.name!r} has no spectral draw, so that its prior cannot be sampled. Write its"
            ' `draw`, or train with `gradient="hutchinson"`, which samples no prior.'
        )

    def frequencies(self, directions: Tensor, levels: Tensor | None, shape: Tensor | None) -> Tensor:
        """Frequencies (f, m), in units of scaled features, from what was drawn; smooth in the shape."""
        return directions


class InnerProduct(Profile):
    """<z1, z2>."""

    name, label, is_stationary = "linear", "linear", False

    def between(self, z1: Tensor, z2: Tensor, shape: Tensor | None) -> Tensor:
        """Inner products."""
        return z1 @ z2.mT

    def engine_form(self, shape: float | None) -> EngineForm:
        """As it is."""
        return EngineForm(1.0)

    def draw(self, normal: Tensor, generator: torch.Generator) -> tuple[Tensor, None]:
        """Weights: g·z has the covariance <z1, z2>."""
        return normal, None


class StationaryProfile(Profile):
    """k(s) of the squared scaled distance s = |z1 - z2|², with k(0) = 1.

    Attributes:
        has_cusp: whether the slope in s is infinite at zero, where then nothing may cancel.
    """

    is_stationary = True
    has_cusp = False

    @abstractmethod
    def value(self, squared: Tensor, shape: Tensor | None) -> Tensor:
        """k(s) at squared distances of any shape, in torch."""

    def value_and_slope(self, squared: Tensor, shape: Tensor | None) -> tuple[Tensor, Tensor]:
        """k(s) and dk/ds, without a graph.

        The slope at zero may be any finite number: every use of it is multiplied by the distance.
        """
        with torch.enable_grad():
            leaf = squared.detach().requires_grad_()
            value = self.value(leaf, None if shape is None else shape.detach())
            (slope,) = torch.autograd.grad(value.sum(), leaf)
        return value.detach(), torch.where(squared > 0, slope, 0.0)

    def covariance(self, squared: Tensor, shape: Tensor | None) -> Tensor:
        """k(s), differentiable in squared distances and shape, also where two points are one."""
        held = None if shape is None else shape.to(squared)
        found: Tensor = _Covariance.apply(squared, held, self)  # type: ignore[no-untyped-call]
        return found

    def between(self, z1: Tensor, z2: Tensor, shape: Tensor | None) -> Tensor:
        """k(s) of all pairs."""
        return self.covariance(squared_distances(z1, z2), shape)

    def reach(self, fall: float, shape: float | None) -> float:
        """The scaled distance beyond which |k| is below exp(-fall), fall > 0; infinite if none is known."""
        return math.inf

    def engine_exponent(self, exponent: float) -> float:
        """The power of two, as the engine computes it, at which the covariance is 2**exponent."""
        return exponent


def squared_distances(z1: Tensor, z2: Tensor) -> Tensor:
    """|z1 - z2|² (..., n1, n2) by differences, which unlike |x|² + |y|² - 2xy do not cancel."""
    return torch.cdist(z1, z2, compute_mode="donot_use_mm_for_euclid_dist").square()


class _Covariance(torch.autograd.Function):
    """A profile with its slope taken along.

    Autograd itself would keep six n×n matrices, and √ has no derivative at zero where the profile has one.
    """

    @staticmethod
    def forward(ctx: Any, squared: Tensor, shape: Tensor | None, profile: StationaryProfile) -> Tensor:
        if not any(ctx.needs_input_grad):
            return profile.value(squared, shape)
        value, slope = profile.value_and_slope(squared, shape)
        ctx.profile = profile
        ctx.save_for_backward(slope, shape, None if shape is None else squared)
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        slope, shape, squared = ctx.saved_tensors
        by_shape = None
        if ctx.needs_input_grad[1]:
            with torch.enable_grad():
                leaf = shape.detach().requires_grad_()
                total = (ctx.profile.value(squared.detach(), leaf) * gradient).sum()
            (by_shape,) = torch.autograd.grad(total, leaf)
            by_shape = first_derivative(by_shape, shape, squared, gradient)
        return gradient * slope, by_shape, None


class _Written(StationaryProfile):
    """A profile whose slope is written out beside its value."""

    def value(self, squared: Tensor, shape: Tensor | None) -> Tensor:
        """k(s)."""
        return self.value_and_slope(squared, shape)[0]

    @abstractmethod
    def value_and_slope(self, squared: Tensor, shape: Tensor | None) -> tuple[Tensor, Tensor]: ...


class SquaredExponential(_Written):
    """exp(-s/2)."""

    name, label = "rbf", "RBF"

    def value_and_slope(self, squared: Tensor, shape: Tensor | None) -> tuple[Tensor, Tensor]:
        """The slope is -k/2."""
        value = torch.exp(-0.5 * squared)
        return value, -0.5 * value

    def reach(self, fall: float, shape: float | None) -> float:
        """√(2 fall)."""
        return math.sqrt(2.0 * fall)

    def engine_form(self, shape: float | None) -> EngineForm:
        """As 2^q."""
        return EngineForm(math.sqrt(LOG2_E))

    def draw(self, normal: Tensor, generator: torch.Generator) -> tuple[Tensor, None]:
        """The spectral density is normal."""
        return normal, None


class _Matern(_Written):
    """A polynomial in a = √(2 nu s), times exp(-a)."""

    twice_nu: int

    def _polynomial(self, a: float) -> tuple[float, float]:
        """The polynomial less 1, and its derivative."""
        return 0.0, 0.0

    def reach(self, fall: float, shape: float | None) -> float:
        """The root of a - log(polynomial(a)) = fall, even in double, where exp(-fall) itself is zero.

        The left side is convex and increasing, so that Newton's method descends to the root from above.
        """
        a, before = 3.0 * fall + 10.0, math.inf
        while a < before:
            more, derivative = self._polynomial(a)
            slope = 1.0 - derivative / (1.0 + more)
            if slope <= 0.0:  # at zero
                break
            before, a = a, max(a - (a - math.log1p(more) - fall) / slope, 0.0)
        return min(a, before) / math.sqrt(self.twice_nu)

    def engine_form(self, shape: float | None) -> EngineForm:
        """As a polynomial times 2^-√-q."""
        return EngineForm(LOG2_E * math.sqrt(2.0 * self.twice_nu))

    def engine_exponent(self, exponent: float) -> float:
        """That of the exponential alone, where the polynomial makes the covariance larger."""
        return -math.sqrt(self.twice_nu) * LOG2_E * self.reach(-exponent * math.log(2.0), None)

    def draw(self, normal: Tensor, generator: torch.Generator) -> tuple[Tensor, None]:
        """The spectral density is a multivariate t: one chi-squared for a whole frequency."""
        more = torch.randn(self.twice_nu, normal.shape[1], generator=generator, dtype=torch.float64)
        return normal * torch.sqrt(self.twice_nu / more.square().sum(dim=0)), None


class Matern12(_Matern):
    """exp(-r), r = √s."""

    name, label, twice_nu, has_cusp = "matern12", "Matérn 1/2", 1, True

    def value_and_slope(self, squared: Tensor, shape: Tensor | None) -> tuple[Tensor, Tensor]:
        """The slope is -exp(-r) / (2 r), infinite at zero, where two points are one and nothing moves."""
        r = squared.sqrt()
        value = torch.exp(-r)
        return value, torch.where(r > 0, -0.5 * value / r, 0.0)

    def reach(self, fall: float, shape: float | None) -> float:
        """There is no polynomial."""
        return fall

    def engine_exponent(self, exponent: float) -> float:
        """There is no polynomial."""
        return exponent


class Matern32(_Matern):
    """(1 + a) exp(-a), a = √(3 s)."""

    name, label, twice_nu = "matern32", "Matérn 3/2", 3

    def value_and_slope(self, squared: Tensor, shape: Tensor | None) -> tuple[Tensor, Tensor]:
        """The slope is -3/2 exp(-a)."""
        a = (3.0 * squared).sqrt_()
        decay = torch.exp(-a)
        return a.add_(1.0).mul_(decay), decay.mul(-1.5)

    def _polynomial(self, a: float) -> tuple[float, float]:
        return a, 1.0


class Matern52(_Matern):
    """(1 + a + a²/3) exp(-a), a = √(5 s)."""

    name, label, twice_nu = "matern52", "Matérn 5/2", 5

    def value_and_slope(self, squared: Tensor, shape: Tensor | None) -> tuple[Tensor, Tensor]:
        """The slope is -5/6 (1 + a) exp(-a)."""
        a = (5.0 * squared).sqrt_()
        decay = torch.exp(-a)
        value = torch.addcmul(a + 1.0, a, a, value=1.0 / 3.0).mul_(decay)
        return value, a.add_(1.0).mul_(decay).mul_(-5.0 / 6.0)

    def _polynomial(self, a: float) -> tuple[float, float]:
        return a + a * a / 3.0, 1.0 + 2.0 * a / 3.0


class HalfIntegerMatern(StationaryProfile):
    """p! / (2p)! Σ (p + i)! / (i! (p - i)!) (2a)^(p - i) exp(-a), a = √(2 nu s), nu = p + 1/2."""

    def __init__(self, twice_nu: int) -> None:
        self.name, self.label = f"matern{twice_nu}/2", f"Matérn {twice_nu}/2"
        p = twice_nu // 2
        first = math.factorial(p) / math.factorial(2 * p)
        self._twice_nu = twice_nu
        self._coefficients = [  # of a^p, a^(p-1), ..., 1
            first * math.factorial(p + i) / math.factorial(i) / math.factorial(p - i) * 2.0 ** (p - i)
            for i in range(p + 1)
        ]

    def value(self, squared: Tensor, shape: Tensor | None) -> Tensor:
        """By Horner's rule."""
        a = (self._twice_nu * squared).sqrt()
        polynomial = torch.zeros_like(a)
        for coefficient in self._coefficients:
            polynomial = polynomial * a + coefficient
        return polynomial * torch.exp(-a)


class RationalQuadraticProfile(_Written):
    """(1 + s / (2 alpha))^-alpha, with alpha for its shape."""

    name, label = "rational_quadratic", "rational quadratic"

    def value_and_slope(self, squared: Tensor, shape: Tensor | None) -> tuple[Tensor, Tensor]:
        """By log1p, because large alpha brings the base close to 1; the slope is -k / (2 base)."""
        assert shape is not None
        w = squared / (2.0 * shape)
        value = torch.exp(-shape * torch.log1p(w))
        return value, -0.5 * value / (1.0 + w)

    def reach(self, fall: float, shape: float | None) -> float:
        """√(2 alpha (exp(fall / alpha) - 1)), with the power out of the root, where it overflows later."""
        assert shape is not None
        if fall / (2.0 * shape) > 700.0:
            return math.inf
        return math.sqrt(-2.0 * shape * math.expm1(-fall / shape)) * math.exp(fall / (2.0 * shape))

    def engine_form(self, shape: float | None) -> EngineForm:
        """As 2^(-alpha log2(1 - q))."""
        assert shape is not None
        return EngineForm(1.0 / math.sqrt(shape), shape * LOG2_E)

    def draw(self, normal: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Levels in [0, 1), at which `frequencies` takes the quantile of a mixing variable."""
        return normal, torch.rand(normal.shape[1], generator=generator, dtype=torch.float64)

    def frequencies(self, directions: Tensor, levels: Tensor | None, shape: Tensor | None) -> Tensor:
        """The profile is the mean of exp(-g s/2) over g of the Gamma distribution of shape and rate alpha.

        By its quantile g moves smoothly with alpha.
        """
        from scipy.special import gammaincinv  # of use to this profile alone, and slow to import

        assert shape is not None
        assert levels is not None
        alpha = shape.item()
        g = torch.from_numpy(gammaincinv(alpha, levels.cpu().numpy())).to(directions) / alpha
        return directions * g.sqrt()


INNER_PRODUCT = InnerProduct()
SQUARED_EXPONENTIAL = SquaredExponential()
MATERN12, MATERN32, MATERN52 = Matern12(), Matern32(), Matern52()
RATIONAL_QUADRATIC = RationalQuadraticProfile()

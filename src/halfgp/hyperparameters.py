"""Everything that training moves: parameters of the kernel, noise and mean, by name and as a vector."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from halfgp.errors import InputError
from halfgp.kernels import RBF, Kernel, Matern, RationalQuadratic, Scaled
from halfgp.parameters import Parameter, Transform

REACH = 30.0  # on the real line: a factor of 10^13 up or down is as far as any parameter may go
KERNELS = ("rbf", "matern12", "matern32", "matern52", "rational_quadratic")


def kernel_by_name(
    name: str,
    d: int,
    *,
    ard: bool,
    lengthscale: float,
    outputscale: float,
    active_dims: list[int] | None = None,
) -> Kernel:
    """A scaled stationary kernel for points with d columns.

    Args:
        name: one of `KERNELS`.
        d: columns.
        active_dims: those that it looks at, d of them; None for all.
        ard: one lengthscale per column instead of one for all.
        lengthscale: where they start.
        outputscale: where it starts.
    """
    if name not in KERNELS:
        raise InputError(
            f"`kernel` must be a kernel such as `Matern(1.5)`, or one of {', '.join(KERNELS)}; got {name!r}."
        )
    lengthscales = [lengthscale] * d if ard else lengthscale
    if name.startswith("matern"):
        base: Kernel = Matern(nu=int(name[-2]) / 2, lengthscale=lengthscales, active_dims=active_dims)
    else:
        family = RBF if name == "rbf" else RationalQuadratic
        base = family(lengthscale=lengthscales, active_dims=active_dims)
    return outputscale * base


@dataclass(frozen=True)
class Hyperparameters:
    """All that training moves, at one place in its space.

    Attributes:
        kernel: with its values.
        noise: variance of every row, or None where rows have fixed variances of their own.
        mean: (q,) one for each target, or None for zero.
    """

    kernel: Kernel
    noise: Parameter | None
    mean: Parameter | None

    def named_parameters(self) -> dict[str, Parameter]:
        """By name: "kernel.lengthscale", "noise", "mean"; in a fixed order."""
        named = {f"kernel.{name}": parameter for name, parameter in self.kernel.named_parameters()}
        if self.noise is not None:
            named["noise"] = self.noise
        if self.mean is not None:
            named["mean"] = self.mean
        return named

    def with_parameters(self, parameters: Mapping[str, Parameter]) -> Hyperparameters:
        """The same with all of `named_parameters` exchanged."""
        inner = {n.removeprefix("kernel."): p for n, p in parameters.items() if n.startswith("kernel.")}
        return replace(
            self,
            kernel=self.kernel.with_parameters(inner),
            noise=parameters.get("noise"),
            mean=parameters.get("mean"),
        )

    def detached(self, requires_grad: bool = False) -> Hyperparameters:
        """A copy whose values are fresh leaf tensors."""
        return self.with_parameters(
            {name: p.detached(requires_grad) for name, p in self.named_parameters().items()}
        )

    def unbounded(self) -> Hyperparameters:
        """The same values with no bounds but those of their sign: coordinates are then logarithms."""

        def free(p: Parameter) -> Parameter:
            return replace(p, lower=0.0 if p.lower >= 0.0 else -math.inf, upper=math.inf)

        return self.with_parameters({name: free(p) for name, p in self.named_parameters().items()})

    @property
    def any_fixed(self) -> bool:
        """Whether training leaves some as they are."""
        return any(p.fixed for p in self.named_parameters().values())

    def scaled(self, scale: float) -> Hyperparameters:
        """With the kernel and the learned noise, its floor included, multiplied by a number."""
        noise = self.noise
        if noise is not None:
            noise = replace(noise, value=noise.value * scale, lower=noise.lower * scale)
        return replace(self, kernel=scale * self.kernel, noise=noise)

    def stretched(self, factor: float) -> Hyperparameters:
        """With every lengthscale multiplied by a number, as far as its bounds allow."""

        def stretch(p: Parameter) -> Parameter:
            least, most = math.nextafter(p.lower, math.inf), math.nextafter(p.upper, -math.inf)
            return p if p.fixed else p.with_value((p.value.detach() * factor).clamp(least, most))

        named = self.named_parameters().items()
        return self.with_parameters(
            {name: stretch(p) if name.endswith("lengthscale") else p for name, p in named}
        )

    def normalised(self) -> tuple[Hyperparameters, float]:
        """Those of the matrix divided by its outputscale, and that; as they are, and 1, where it has none."""
        if self.noise is None or not isinstance(self.kernel, Scaled):
            return self, 1.0
        scale = float(self.kernel.outputscale)
        noise = replace(self.noise, value=self.noise.value / scale, lower=0.0, upper=math.inf)
        return replace(self, kernel=self.kernel.kernel, noise=noise), scale

    def of_targets(self, targets: Sequence[int]) -> Hyperparameters:
        """Those of some targets: the kernel and the noise that all share, and their means."""
        if self.mean is None or len(targets) == len(self.mean.value):
            return self
        return replace(self, mean=self.mean.with_value(self.mean.value[list(targets)]))

    def centred(self, y: Tensor) -> Tensor:
        """Targets (n, q) without their mean."""
        return y if self.mean is None else y - self.mean.value.detach().to(y)

    def diagonal_noise(self, fixed: Tensor | None) -> Tensor:
        """The variances on the diagonal: () as learned, or (n,) as given."""
        if self.noise is None:
            assert fixed is not None
            return fixed
        return self.noise.value.detach()


@dataclass(frozen=True)
class Coordinates:
    """Hyperparameters as a vector on the real line, in the order of their names, without fixed ones.

    Attributes:
        like: whose structure and bounds are used.
        softplus: whether positive parameters are reached by softplus instead of exp.
    """

    like: Hyperparameters
    softplus: bool = False

    def vector(self, hyperparameters: Hyperparameters) -> Tensor:
        """As a vector (p,), float64."""
        parts = [
            self._transform(p).unconstrain(p.value.detach()).reshape(-1)
            for p in hyperparameters.named_parameters().values()
            if not p.fixed
        ]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)

    def hyperparameters(self, vector: Tensor) -> Hyperparameters:
        """Those at a vector (p,)."""
        values = self._values(vector)
        named = self.like.named_parameters().items()
        return self.like.with_parameters(
            {name: p.with_value(values[name]) if name in values else p for name, p in named}
        )

    def pull_back(self, vector: Tensor, gradient: Mapping[str, Tensor]) -> Tensor:
        """The gradient (p,) in the vector, from that in the values by name."""
        leaf = vector.detach().clone().requires_grad_(True)
        with torch.enable_grad():
            values = self._values(leaf).items()
            total = sum((gradient[name].to(vector.device) * value).sum() for name, value in values)
        if not isinstance(total, Tensor):
            return torch.zeros_like(vector)
        return torch.autograd.grad(total, leaf)[0]

    def _values(self, vector: Tensor) -> dict[str, Tensor]:
        """Of what is not fixed, by name, at a vector (p,)."""
        values, start = {}, 0
        for name, parameter in self.like.named_parameters().items():
            if parameter.fixed:
                continue
            part = vector[start : start + parameter.value.numel()].reshape(parameter.value.shape)
            start += parameter.value.numel()
            values[name] = _constrained(self._transform(parameter), part)
        return values

    def _transform(self, parameter: Parameter) -> Transform:
        half_line = math.isfinite(parameter.lower) and math.isinf(parameter.upper)
        return replace(parameter.transform, softplus=self.softplus and half_line)


def _constrained(transform: Transform, part: Tensor) -> Tensor:
    """Values strictly within the bounds, wherever on the real line an optimiser has gone."""
    if math.isinf(transform.lower) and math.isinf(transform.upper):
        return part
    # Softplus is the identity far up: there its numbers are as large as the values.
    within = part.clamp(-REACH, math.inf if transform.softplus else REACH)
    # A bound with many digits can still swallow what is added to it.
    least, most = math.nextafter(transform.lower, math.inf), math.nextafter(transform.upper, -math.inf)
    return transform.constrain(within).clamp(least, most)

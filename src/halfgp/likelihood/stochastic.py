"""Gradients of the log marginal likelihood from solves and products alone, with frozen randomness."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.errors import InputError
from halfgp.hyperparameters import Hyperparameters
from halfgp.kernels.random_features import PriorSamples
from halfgp.operators import Operator
from halfgp.priors import Priors, log_prior
from halfgp.problem import Problem

FEATURES = 128  # of each prior sample; second moments are right for any number, fourth ones nearly for this
ESTIMATORS = ("pathwise", "hutchinson")


@dataclass(frozen=True)
class GradientEstimator:
    """d(loss) = -½ Σ α'dK α + (q/2) tr(K̂^-1 dK), the trace by s probes whose solves CG takes along with y.

    "hutchinson" is the paper's pseudo-loss: tr = E[u'dK z], u = K̂^-1 z, z random signs. "pathwise" takes
    z ~ N(0, K̂) instead, a prior sample with noise, and tr = E[u'dK u]: its solves are small where the data
    say much, so that they converge sooner and tolerate rounding better. What is random in either is drawn
    once: the right-hand sides then move smoothly with the hyperparameters, and the last solution is a good
    start for the next.

    Attributes:
        x: points (m, d) of the rows held here.
        y: targets (m, q) of those, float64.
        kind: "pathwise" or "hutchinson".
        probes: (m, s) random signs, or with "pathwise" the noise of the prior samples in units of its
            standard deviation.
        prior_samples: s functions with the kernel's covariance; None with "hutchinson".
        priors: of the hyperparameters.
    """

    x: Tensor
    y: Tensor
    kind: str
    probes: Tensor
    prior_samples: PriorSamples | None
    priors: Priors

    @classmethod
    def draw(
        cls,
        hyperparameters: Hyperparameters,
        problem: Problem,
        *,
        kind: str,
        probes: int,
        priors: Priors,
        seed: int,
    ) -> GradientEstimator:
        """Draw what is random, by seed: for all rows the same numbers, wherever they are held."""
        if kind not in ESTIMATORS:
            raise InputError(f"`gradient` must be one of {', '.join(ESTIMATORS)}; got {kind!r}.")
        if probes < 1:
            raise InputError(f"`probes` must be at least 1; got {probes}.")
        x, y = problem.x[problem.held], problem.y[problem.held]
        shape = (problem.rows, probes)
        generator = torch.Generator().manual_seed(seed)
        if kind == "hutchinson":
            signs = torch.randint(0, 2, shape, generator=generator).double() * 2 - 1
            return cls(x, y, kind, signs[problem.held], None, priors)
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64)[problem.held]
        # A seed of its own: with the same one, frequencies and noise would be the same numbers.
        another = int(torch.randint(2**62, (), generator=generator))
        samples = PriorSamples.draw(hyperparameters.kernel, x.shape[1], probes, FEATURES, another)
        return cls(x, y, kind, drawn, samples, priors)

    def right_hand_sides(self, hyperparameters: Hyperparameters, nugget: Tensor) -> Tensor:
        """(m, q + s): centred targets, then probes.

        Args:
            hyperparameters: where.
            nugget: noise and White on the diagonal, () or (m,).
        """
        probes = self.probes
        if self.prior_samples is not None:
            scale = nugget.sqrt()
            noise = probes * (scale[:, None] if scale.ndim else scale)
            probes = self.prior_samples.samples_at(hyperparameters.kernel, self.x) + noise
        return torch.cat([hyperparameters.centred(self.y), probes], dim=1)

    def gradient(
        self, hyperparameters: Hyperparameters, operator: Operator, solutions: Tensor
    ) -> dict[str, Tensor]:
        """The gradient of the loss, per row and target, by name.

        Args:
            hyperparameters: where.
            operator: K + noise there.
            solutions: (m, q + s) of the right-hand sides there.
        """
        q = self.y.shape[1]
        weights, u = solutions[:, :q], solutions[:, q:]
        other = u if self.kind == "pathwise" else self.probes
        left = torch.cat([weights * -0.5, u * (0.5 * q / u.shape[1])], dim=1)
        right = torch.cat([weights, other], dim=1)
        inner, _, _ = operator.bilinear_gradient(left, right)
        found = {f"kernel.{name}": g for name, g in inner.items()}
        parameters = hyperparameters.detached(requires_grad=True).named_parameters()
        if "noise" in parameters:
            found["noise"] = operator.dot(left, right).sum()
        if "mean" in parameters:
            found["mean"] = -operator.total(weights.sum(dim=0))
        with torch.enable_grad():
            prior = log_prior(parameters, self.priors)
        if prior.requires_grad:
            leaves = {name: p.value for name, p in parameters.items()}
            by_prior = torch.autograd.grad(prior, list(leaves.values()), allow_unused=True)
            for name, g in zip(leaves, by_prior, strict=True):
                found[name] = found[name] if g is None else found[name] - g
        return {name: g.detach() / (operator.size * q) for name, g in found.items()}

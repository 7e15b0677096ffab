"""Gradients of the log marginal likelihood from solves and products alone, with frozen randomness."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.errors import InputError
from halfgp.hyperparameters import Hyperparameters
from halfgp.likelihood.traces import TRACES, Probes, Trace
from halfgp.operators import Operator
from halfgp.priors import Priors, log_prior
from halfgp.problem import Problem


@dataclass(frozen=True)
class GradientEstimator:
    """d(loss) = -½ Σ α'dA α + (q/2) tr(A^-1 dA), the trace by s probes whose solves CG takes along with y.

    What is random is drawn once: the right-hand sides then move smoothly with the hyperparameters, and the
    last solution is a good start for the next.

    Attributes:
        y: targets (m, q) of the rows held here, float64.
        trace: what its probes are.
        priors: of the hyperparameters.
    """

    y: Tensor
    trace: Trace
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
        """Draw what is random, by seed; the kind is a name in `TRACES`."""
        if kind not in TRACES:
            raise InputError(f"`gradient` must be one of {', '.join(TRACES)}; got {kind!r}.")
        if probes < 1:
            raise InputError(f"`probes` must be at least 1; got {probes}.")
        trace = TRACES[kind].draw(hyperparameters, problem, probes, seed)
        return cls(problem.y[problem.held], trace, priors)

    def at(self, hyperparameters: Hyperparameters, operator: Operator) -> GradientEquations:
        """What is to be solved for the gradient there, K + noise being the operator."""
        probes = self.trace.probes(hyperparameters, operator)
        return GradientEquations(
            hyperparameters, operator, hyperparameters.centred(self.y), probes, self.priors
        )


@dataclass(frozen=True)
class GradientEquations:
    """Right-hand sides at some hyperparameters, and the gradient that their solutions give.

    Attributes:
        hyperparameters: where.
        operator: K + noise there.
        targets: (m, q), centred.
        probes: of the trace.
        priors: of the hyperparameters.
    """

    hyperparameters: Hyperparameters
    operator: Operator
    targets: Tensor
    probes: Probes
    priors: Priors

    @property
    def right_hand_sides(self) -> Tensor:
        """(m, q + s): centred targets, then those of the probes."""
        return torch.cat([self.targets, self.probes.sides], dim=1)

    @property
    def passes(self) -> int:
        """Over K beside those of the solve: what the probes took, and one for the gradient."""
        return self.probes.passes + 1

    def gradient(self, solutions: Tensor) -> dict[str, Tensor]:
        """The gradient of the loss, per row and target, by name, from solutions (m, q + s)."""
        q = self.targets.shape[1]
        weights = solutions[:, :q]
        u, v = self._pairs(solutions)
        left = torch.cat([weights * -0.5, u * (0.5 * q / u.shape[1])], dim=1)
        found = self._bilinear(left, torch.cat([weights, v], dim=1))
        for name, g in self.probes.known.items():
            found[name] = found[name] + q * g
        parameters = self.hyperparameters.detached(requires_grad=True).named_parameters()
        if "mean" in parameters:
            found["mean"] = -self.operator.total(weights.sum(dim=0))
        with torch.enable_grad():
            prior = log_prior(parameters, self.priors)
        if prior.requires_grad:
            leaves = {name: p.value for name, p in parameters.items()}
            by_prior = torch.autograd.grad(prior, list(leaves.values()), allow_unused=True)
            for name, g in zip(leaves, by_prior, strict=True):
                found[name] = found[name] if g is None else found[name] - g
        return {name: g.detach() / (self.operator.size * q) for name, g in found.items()}

    def gradients_of_probes(self, solutions: Tensor) -> dict[str, Tensor]:
        """By every probe alone, the gradient of ½ log det(K + noise) per row: (s, ...) by name.

        Their deviation over √s is the standard error of `gradient`. One pass a probe.
        """
        u, v = self._pairs(solutions)
        each = [self._bilinear(0.5 * u[:, [c]], v[:, [c]]) for c in range(u.shape[1])]
        stacked = {name: torch.stack([one[name] for one in each]) for name in each[0]}
        for name, g in self.probes.known.items():
            stacked[name] = stacked[name] + g
        return {name: g / self.operator.size for name, g in stacked.items()}

    def _pairs(self, solutions: Tensor) -> tuple[Tensor, Tensor]:
        """Of the probes: u and v (m, s)."""
        u = solutions[:, self.targets.shape[1] :]
        return u, u if self.probes.partners is None else self.probes.partners

    def _bilinear(self, left: Tensor, right: Tensor) -> dict[str, Tensor]:
        """Σ_c left_c' dA right_c in all that A depends on, by name."""
        inner, _, _ = self.operator.bilinear_gradient(left, right)
        found = {f"kernel.{name}": g for name, g in inner.items()}
        if self.hyperparameters.noise is not None:
            found["noise"] = self.operator.dot(left, right).sum()
        return found

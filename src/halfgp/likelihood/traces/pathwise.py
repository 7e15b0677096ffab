"""The trace by samples of the prior, noise included."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.hyperparameters import Hyperparameters
from halfgp.kernels.random_features import PriorSamples
from halfgp.likelihood.traces.base import Probes, Trace
from halfgp.operators import Operator
from halfgp.problem import Problem

FEATURES = 128  # of each prior sample; second moments are right for any number, fourth ones nearly for this


@dataclass(frozen=True)
class PathwiseTrace(Trace):
    """tr(A^-1 dA) = E[u'dA u], u = A^-1 z, of z ~ N(0, A), a sample of the prior with noise.

    Its solutions are small where the data say much, so that they converge sooner than those of random signs,
    and tolerate rounding better.

    Attributes:
        x: points (m, d) of the rows held here.
        noise: (m, s) of the samples, in units of its standard deviation.
        samples: s functions with the kernel's covariance.
    """

    x: Tensor
    noise: Tensor
    samples: PriorSamples

    @classmethod
    def draw(
        cls, hyperparameters: Hyperparameters, problem: Problem, probes: int, seed: int
    ) -> PathwiseTrace:
        """Frequencies and noise; the kernel is that of the hyperparameters, with any values."""
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(problem.rows, probes, generator=generator, dtype=torch.float64)[problem.held]
        noise = noise.to(problem.device)
        # A seed of its own: with the same one, frequencies and noise would be the same numbers.
        another = int(torch.randint(2**62, (), generator=generator))
        d = problem.features
        samples = PriorSamples.draw(hyperparameters.kernel, d, probes, FEATURES, another, problem.device)
        return cls(problem.at(problem.held), noise, samples)

    def probes(self, hyperparameters: Hyperparameters, operator: Operator) -> Probes:
        """The samples at the rows."""
        scale = operator.nugget.sqrt()
        noise = self.noise * (scale[:, None] if scale.ndim else scale)
        return Probes(self.samples.samples_at(hyperparameters.kernel, self.x) + noise)

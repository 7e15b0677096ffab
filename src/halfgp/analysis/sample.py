"""A sample of rows that stands for all of them, its kernel matrix in units of the noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from halfgp.analysis.spectrum import effective_dimension, spectral_norm
from halfgp.backends import Backend
from halfgp.errors import InputError
from halfgp.kernels import Kernel
from halfgp.operators import KernelOperator
from halfgp.precision import Precision

STEPS = 40  # of Lanczos, for norms that are wanted to some percent


@dataclass(frozen=True)
class FormatError:
    """What a format adds to a kernel matrix.

    Attributes:
        matrix: (n, n) that of the sample, in units of the noise, as large as that of all rows would be.
        rho: its norm.
    """

    matrix: Tensor
    rho: float


@dataclass(frozen=True)
class Sample:
    """Rows drawn at random, n of N, and what they tell of all.

    - Large eigenvalues of K grow as the number of rows, and the noise does not: N/n K + noise on the sample
      has about the conditioning of K + noise on all rows. Solves are measured with that.
    - The error of a format grows as √N where entries are rounded independently, and as N where points are,
      for that moves whole rows of K together. By which power is read off a part of the sample. So is
      the power by which the effective dimension grows.
    - The residual that an error leaves is made in the directions of the noise, which are those of K + noise
      on the sample as it is.

    Attributes:
        kernel: the covariance.
        x: points (n, d).
        noise: (n,) variances, White included.
        rows: N.
        entries: D^-1/2 K D^-1/2 with D the noise, (n, n), in double.
        backend: of what is measured.
        threads: of it.
    """

    kernel: Kernel
    x: Tensor
    noise: Tensor
    rows: int
    entries: Tensor
    backend: str | Backend
    threads: int | None

    @classmethod
    def of(
        cls, kernel: Kernel, x: Tensor, noise: Tensor, rows: int, backend: str | Backend, threads: int | None
    ) -> Sample:
        """From points (n, d) and variances () or (n,) beside the kernel's White, of `rows` in all."""
        with torch.no_grad():
            total = noise + kernel.white(x)
        if not bool((total > 0).all()):
            raise InputError(f"`noise` must be positive; got {float(total.min()):g}.")
        bare = cls(kernel, x, total, rows, torch.empty(0), backend, threads)
        return replace(bare, entries=bare._dense("double", "on_the_fly"))

    @property
    def stretch(self) -> float:
        """N/n."""
        return self.rows / len(self.x)

    def with_noise(self, stretched: bool = False) -> Tensor:
        """K + noise in units of the noise (n, n), of the sample or as if it were all rows."""
        factor = self.stretch if stretched else 1.0
        return factor * self.entries + torch.eye(len(self.x), dtype=torch.float64)

    def effective_dimension(self, eigenvalues: Tensor) -> float:
        """Of all rows, from the eigenvalues (n,) of the entries and those of half the sample."""
        whole, n = effective_dimension(eigenvalues, 1.0), len(self.x)
        if self.rows == n:
            return whole
        half = self.entries[: n // 2, : n // 2]
        part = effective_dimension(torch.linalg.eigvalsh(half), 1.0)
        return min(whole * self._grown(whole, part, n // 2, 0.0), float(self.rows))

    def error(self, precision: str | Precision, storage: str) -> FormatError:
        """What an operator of that precision and storage adds to the matrix of all rows.

        Raises:
            InputError: the format cannot hold the points.
        """
        error, size = self._dense(precision, storage) - self.entries, len(self.x) // 4
        norm, part = spectral_norm(error, STEPS), spectral_norm(error[:size, :size], STEPS)
        factor = self._grown(norm, part, size, 0.5)
        return FormatError(factor * error, factor * norm)

    def _grown(self, whole: float, part: float, size: int, least: float) -> float:
        """By what factor something grows from the sample to all rows, if it did so from `size` rows on."""
        power = math.log(whole / part) / math.log(len(self.x) / size) if part > 0.0 else 0.0
        return float(self.stretch ** min(max(power, least), 1.0))

    def _dense(self, precision: str | Precision, storage: str) -> Tensor:
        """D^-1/2 K D^-1/2 as an operator has it, without White."""
        operator = KernelOperator(
            self.kernel,
            self.x,
            precision=precision,
            storage=storage,
            backend=self.backend,
            threads=self.threads,
        )
        with torch.no_grad():
            dense = torch.as_tensor(operator.to_dense()).double()
            dense.diagonal().copy_(self.kernel.diagonal(self.x, white=False))  # exact in every precision
            root = self.noise.sqrt()
            return dense / root[:, None] / root

"""Training rows of the real data sets, and kernels at the hyperparameters that were trained on them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halfgp import RBF, KernelOperator, Matern
from halfgp.kernels import Kernel

SETS = ("pol", "elevators", "bike", "protein", "keggdirected")
KERNELS = ("rbf", "matern32")
HYPERPARAMETERS = Path(__file__).with_name("hyperparameters.json")


def data_directory(given: Path | None) -> Path:
    """The directory of the sets: as given, or as HALFGP_DATA says; either may hold them under `uci`."""
    place = given or (Path(os.environ["HALFGP_DATA"]) if "HALFGP_DATA" in os.environ else None)
    if place is None:
        raise SystemExit("Where are the data sets? Set HALFGP_DATA, or pass --data.")
    return place / "uci" if (place / "uci").is_dir() else place


def training_rows(
    directory: Path, name: str, rows: int | None = None, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Features (n, d) and targets (n,) of split 0 in float64, standardised by the training rows.

    Args:
        directory: of all sets.
        name: of one.
        rows: a random sample of so many; None for all.
        seed: of the sample.
    """
    table = np.loadtxt(directory / name / "data.csv.gz", delimiter=",")
    test = np.loadtxt(directory / name / "test_mask.csv.gz", delimiter=",", usecols=0).astype(bool)
    train = torch.from_numpy(table[~test])
    spread = train.std(dim=0)
    train = (train - train.mean(dim=0)) / torch.where(spread > 0, spread, 1.0)
    if rows is not None and rows < len(train):
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
        train = train[order[:rows]]
    return train[:, :-1].contiguous(), train[:, -1].contiguous()


@dataclass(frozen=True)
class Problem:
    """One set with one trained kernel: points (n, d), targets (n,) and the operator on them in double."""

    set_name: str
    kernel_name: str
    x: Tensor
    y: Tensor
    kernel: Kernel
    noise: float

    @property
    def label(self) -> str:
        return f"{self.set_name}, {self.kernel_name}"

    def operator(self, precision: str = "double") -> KernelOperator:
        return KernelOperator(self.kernel, self.x, noise=self.noise, precision=precision)

    def right_hand_sides(self, probes: int) -> Tensor:
        """The targets and so many Gaussian probes (n, 1 + probes)."""
        generator = torch.Generator().manual_seed(1)
        z = torch.randn(len(self.y), probes, generator=generator, dtype=torch.float64)
        return torch.cat([self.y[:, None], z], dim=1)


def stored_hyperparameters() -> dict[str, Any]:
    """By set, then kernel."""
    if not HYPERPARAMETERS.exists():
        raise SystemExit(f"{HYPERPARAMETERS.name} is missing: run train_hyperparameters.py.")
    values: dict[str, Any] = json.loads(HYPERPARAMETERS.read_text())
    return values["sets"]


def trained_problem(directory: Path, set_name: str, kernel_name: str, rows: int | None) -> Problem:
    """The set with the kernel as trained."""
    values = stored_hyperparameters()[set_name][kernel_name]
    x, y = training_rows(directory, set_name, rows)
    lengthscale = values["lengthscale"]
    shape = RBF(lengthscale=lengthscale) if kernel_name == "rbf" else Matern(1.5, lengthscale=lengthscale)
    return Problem(set_name, kernel_name, x, y, values["outputscale"] * shape, values["noise"])

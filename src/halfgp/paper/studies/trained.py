"""Hyperparameters that were trained once and are shipped: solves are studied where training ends."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from halfgp.errors import InputError
from halfgp.kernels import RBF, Kernel, Matern

FILES = ("hyperparameters.json",)


@dataclass(frozen=True)
class Trained:
    """A kernel and a noise for standardised data.

    Attributes:
        kernel: with its values.
        noise: variance.
        source: how they were obtained, in words.
    """

    kernel: Kernel
    noise: float
    source: str


def trained(set_name: str, kernel: str = "rbf", *, ard: bool = True, training: str | None = None) -> Trained:
    """What was found for a set.

    Args:
        set_name: such as "pol".
        kernel: "rbf", "matern12", "matern32" or "matern52".
        ard: with one lengthscale per feature instead of one for all.
        training: of several, the one that was trained in this way; a key of the file's `sources`.
    """
    document = _document()
    for model in document["models"]:
        wanted = (set_name, kernel, ard, training or model["training"])
        if (model["set"], model["kernel"], model["ard"], model["training"]) == wanted:
            lengthscale = model["lengthscale"]
            base = RBF(lengthscale) if kernel == "rbf" else Matern(int(kernel[-2]) / 2, lengthscale)
            return Trained(
                model["outputscale"] * base, model["noise"], document["sources"][model["training"]]
            )
    raise InputError(f"Nothing was trained for {set_name} with {kernel}{' and ARD' if ard else ''}.")


@functools.cache
def _document() -> dict[str, Any]:
    text = files("halfgp.paper.studies").joinpath(*FILES).read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document

"""Model files of earlier formats in the terms of this one, one step after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from halfgp.choices import ROUTES
from halfgp.json_values import number_from, object_from, typed
from halfgp.persistence import FORMAT_VERSION, Stored, require

HEADER_1 = ("settings", "kernel", "method", "squeeze", "report", "history", "solve", "extra")
HEADER_3 = ("settings", "kernel", "squeeze", "report", "history", "accuracy", "solve", "extra")
EXACT, AGAIN = "exact", "exact, to be solved again"  # kinds of posteriors

# Settings of the third format that went into groups.
MOVED = {
    **{name: ("training", name) for name in ("optimiser", "learning_rate", "softplus", "probes", "gradient")},
    **{name: ("training", name) for name in ("tol", "min_iterations", "max_iterations")},
    "test_tol": ("solve", "tol"),
    "test_max_iterations": ("solve", "max_iterations"),
    "unsolved": ("solve", "unsolved"),
    "variance": ("variances", "method"),
    "neighbours": ("variances", "neighbours"),
    "calibrate": ("variances", "calibrate"),
}


# Those of the fifth that followed them.
MOVED_LATER = {
    **{name: ("training", name) for name in ("subset", "subset_iterations", "steps")},
    **{name: ("solve", name) for name in ("preconditioner", "rank")},
}


def migrated(stored: Stored) -> Stored:
    """What a file of any format that there was holds, in the terms of this one."""
    for version in range(stored.version, FORMAT_VERSION):
        stored = STEPS[version](stored)
    return stored


def _from_1(stored: Stored) -> Stored:
    """The first format does not tell how exact a solve is, nor columns that are held."""
    header = dict(object_from(stored.header, "header", HEADER_1))
    method = header.pop("method")
    header["settings"] = {"unsolved": "warn", **typed(header["settings"], "settings", dict)}
    unknown = {"method": method, "route": ROUTES[-1], "error": 0.0, "solved": False}
    header["report"] = {**typed(header["report"], "report", dict), **unknown}
    header["accuracy"] = {"share": "nan"}
    d = require(stored, "x", torch.float64, (None, None)).shape[1]
    q = require(stored, "y", torch.float64, (None, None)).shape[1]
    tensors = {
        "x.constant": torch.zeros(d, dtype=torch.bool),
        "x.held": torch.zeros(d, dtype=torch.float64),
        "floor": torch.zeros(q, dtype=torch.float64),
        "solve.residual_norms": torch.zeros(q, dtype=torch.float64),
        "solve.history": torch.zeros(0, q, dtype=torch.float64),
    }
    return replace(stored, header=header, tensors={**tensors, **stored.tensors})


def _from_2(stored: Stored) -> Stored:
    """The second format has one share for all targets, and one scale of local variances."""
    header = dict(object_from(stored.header, "header", HEADER_3))
    accuracy = dict(typed(header["accuracy"], "accuracy", dict))
    share = number_from(accuracy.pop("share", None), "accuracy.share", nan=True)
    header["accuracy"] = accuracy
    q = require(stored, "y", torch.float64, (None, None)).shape[1]
    tensors = {
        "variance_known": torch.tensor(math.inf, dtype=torch.float64),
        "shares": torch.full((q,), share, dtype=torch.float64),
    }
    return replace(stored, header=header, tensors={**tensors, **stored.tensors})


def _from_3(stored: Stored) -> Stored:
    """The third format has one kind of posterior, in the header itself, and all settings on one level."""
    header = dict(object_from(stored.header, "header", HEADER_3))
    header["settings"] = _grouped(header["settings"], MOVED)
    accuracy, solve = header.pop("accuracy"), header.pop("solve")
    header["posterior"] = {"kind": EXACT, "accuracy": accuracy, "solve": solve}
    if accuracy == {}:  # of the first format
        header["posterior"] = {"kind": AGAIN}
    report = dict(typed(header["report"], "report", dict))
    if report.get("route") == "low rank":  # of the preconditioner that there was
        report["route"] = "products"
    header["report"] = report
    return replace(stored, header=header)


def _from_4(stored: Stored) -> Stored:
    """The fourth format has no residuals: an exact posterior finds them when they are asked for."""
    about = typed(stored.header.get("posterior"), "posterior", dict)
    if about.get("kind") not in (EXACT, AGAIN):
        return stored
    q = require(stored, "y", torch.float64, (None, None)).shape[1]
    none = {"residuals": torch.zeros(0, q, dtype=torch.float64)}
    return replace(stored, tensors={**none, **stored.tensors})


def _from_5(stored: Stored) -> Stored:
    """The fifth format has more settings on the first level."""
    header = dict(typed(stored.header, "header", dict))
    header["settings"] = _grouped(header.get("settings"), MOVED_LATER)
    return replace(stored, header=header)


def _from_6(stored: Stored) -> Stored:
    """The sixth format comes from products that left nothing out."""
    header = dict(typed(stored.header, "header", dict))
    header["report"] = {"skipped": 0.0, **typed(header.get("report"), "report", dict)}
    return replace(stored, header=header)


def _from_7(stored: Stored) -> Stored:
    """The seventh format has no groups: a file of targets that the same rows have is as it was."""
    return stored


def _from_8(stored: Stored) -> Stored:
    """The eighth format has preconditioners of neighbours whose rows shared none."""
    header = dict(typed(stored.header, "header", dict))
    settings = dict(typed(header.get("settings"), "settings", dict))
    solve = dict(typed(settings.get("solve", {}), "settings.solve", dict))
    recipe = solve.get("preconditioner")
    if isinstance(recipe, dict) and recipe.get("class") == "SparseInverseCholesky":
        fields = typed(recipe.get("fields"), "settings.solve.preconditioner.fields", dict)
        solve["preconditioner"] = {**recipe, "fields": {"group": 1, **fields}}
        header["settings"] = {**settings, "solve": solve}
    return replace(stored, header=header)


def _grouped(value: object, moved: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Settings with those of the first level that moved in their groups, under their new names."""
    settings = dict(typed(value, "settings", dict))
    object_from({name: settings[name] for name in moved if name in settings}, "settings", tuple(moved))
    for name, (group, inner) in moved.items():
        within = typed(settings.get(group, {}), f"settings.{group}", dict)
        settings[group] = {**within, inner: settings.pop(name)}
    return settings


STEPS: dict[int, Callable[[Stored], Stored]] = {
    1: _from_1,
    2: _from_2,
    3: _from_3,
    4: _from_4,
    5: _from_5,
    6: _from_6,
    7: _from_7,
    8: _from_8,
}

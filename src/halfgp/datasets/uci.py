"""The UCI sets: which there are, and how their files are read."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np

from halfgp.datasets.dataset import Dataset, Floats
from halfgp.datasets.folders import check_name, folders, nearest_names, places_of
from halfgp.errors import InputError, MissingData

# GitHub's limit on the size of a file: this one lies there in two.
PARTS = {"song": ("data.csv.gz", "data1.csv.gz")}

# fmt: off
UCI_NAMES = (
    "3droad", "airfoil", "autompg", "autos", "bike", "breastcancer", "buzz", "challenger", "concrete",
    "concreteslump", "elevators", "energy", "fertility", "forest", "gas", "houseelectric", "housing",
    "keggdirected", "keggundirected", "kin40k", "machine", "parkinsons", "pendulum", "pol", "protein",
    "pumadyn32nm", "servo", "skillcraft", "slice", "sml", "solar", "song", "stock", "tamielectric",
    "wine", "yacht",
)
# fmt: on
"""Those at `download.UCI_URL`."""


def load_uci(name: str, folder: str | Path | None = None) -> Dataset:
    """A UCI set from `<folder>/uci/<name>/` or `<folder>/<name>/`: data.csv.gz and test_mask.csv.gz, if any.

    The last column of the data is the target. Nothing is standardised.

    Args:
        name: such as "pol"; `available()` lists what is there.
        folder: of all sets; None for the one that HALFGP_DATA names, then the cache of `fetch_uci`.
    """
    files = uci_files(name, folder)
    if files:
        return read_uci(name, files[0].parent)
    found = available(folder)
    raise MissingData(
        f"`name` must be a set in {places_of(folder)}; got {name!r}.{nearest_names(name, found)}"
        f" {'It holds ' + ', '.join(found) + '.' if found else 'It holds none.'}"
        " Set HALFGP_DATA or pass `folder`, or download with `halfgp.datasets.fetch_uci(name)`."
    )


def uci_files(name: str, folder: str | Path | None = None) -> tuple[Path, ...]:
    """The files that `load_uci` reads a set from, the data first; none where it is not there."""
    check_name(name)
    for place in _uci_folders(folder):
        if (place / name / "data.csv.gz").is_file():
            files = (*PARTS.get(name, ("data.csv.gz",)), "test_mask.csv.gz")
            return tuple(path for file in files if (path := place / name / file).exists())
    return ()


def available(folder: str | Path | None = None) -> tuple[str, ...]:
    """Names of the UCI sets that `load_uci` finds, sorted."""
    return tuple(
        sorted({path.parent.name for place in _uci_folders(folder) for path in place.glob("*/data.csv.gz")})
    )


def read_uci(name: str, folder: Path) -> Dataset:
    """A set from its own folder."""
    parts = [folder / part for part in PARTS.get(name, ("data.csv.gz",))]
    values = np.concatenate([_read_numbers(part) for part in parts if part.exists()])
    mask_path = folder / "test_mask.csv.gz"
    mask = _read_numbers(mask_path).astype(np.bool_) if mask_path.exists() else None
    if mask is not None and len(mask) != len(values):
        raise InputError(
            f"Data and test mask in {folder} must have equally many rows; got {len(values)} and {len(mask)}."
            " Delete the folder, and fetch the set again."
        )
    d = values.shape[1] - 1
    return Dataset(
        name=name,
        X=np.ascontiguousarray(values[:, :d]),
        y=values[:, d].copy(),
        feature_names=tuple(f"x{k}" for k in range(d)),
        target_name="y",
        test_mask=mask,
        source=str(folder),
    )


def _read_numbers(path: Path) -> Floats:
    try:
        if path.stat().st_size == 0:
            raise EOFError("the file is empty")
        values = np.loadtxt(path, delimiter=",", dtype=np.float64, ndmin=2)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise InputError(f"{path} must hold rows of numbers in gzip: {error}. Fetch it again.") from error
    return values


def _uci_folders(folder: str | Path | None) -> list[Path]:
    return [place / part for place in folders(folder) for part in ("uci", "")]

"""Real data for examples, benchmarks and tests: a map that ships with matplotlib, UCI sets, large sets.

Nothing is downloaded unless `fetch_uci` is called. The other loaders read files: from the folder given, else
from the one that HALFGP_DATA names, else from where `fetch_uci` put them.
"""

from __future__ import annotations

import difflib
import gzip
import hashlib
import importlib
import importlib.util
import json
import math
import os
import re
import tempfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from halfgp.errors import DownloadError, InputError, MissingData

Floats = np.ndarray[Any, np.dtype[np.float64]]

UCI_URL = "https://raw.githubusercontent.com/treforevans/uci_datasets/master/uci_datasets/"


@dataclass(frozen=True, eq=False)
class Dataset:
    """A regression problem.

    Attributes:
        name: of the set.
        X: (n, d) features.
        y: (n,) targets.
        feature_names: (d,).
        target_name: with its unit, where known.
        test_mask: (n, splits), True where a row is a test row of a split; None if no splits were published.
        source: where it came from.
        shape: (rows, columns) of a grid, so that `y.reshape(shape)` is its picture; None if it is none.
    """

    name: str
    X: Floats
    y: Floats
    feature_names: tuple[str, ...]
    target_name: str
    test_mask: np.ndarray[Any, np.dtype[np.bool_]] | None
    source: str
    shape: tuple[int, int] | None = None

    def split(self, k: int = 0) -> tuple[Floats, Floats, Floats, Floats]:
        """Split `k` as X_train, y_train, X_test, y_test.

        Where no splits were published, a random tenth of the rows is held out, drawn with `k` as the seed.
        """
        if k < 0 or (self.test_mask is not None and k >= self.test_mask.shape[1]):
            splits = "0 or more" if self.test_mask is None else f"0 to {self.test_mask.shape[1] - 1}"
            raise InputError(f"`k` must be a split of {self.name}, {splits}; got {k}.")
        if self.test_mask is None:
            test = np.zeros(len(self.y), dtype=np.bool_)
            test[np.random.default_rng(k).permutation(len(self.y))[: len(self.y) // 10]] = True
        else:
            test = self.test_mask[:, k]
        return self.X[~test], self.y[~test], self.X[test], self.y[test]


def load_dem() -> Dataset:
    """The elevation model of the Jacksboro fault, Tennessee, that ships with matplotlib: 344 × 403 heights.

    Features are kilometres east and north of the south-western corner, to the centres of the cells, on a
    sphere at the middle latitude (good to 0.2 % over this extent). Rows run from the north-west, as in a
    picture.
    """
    try:
        cbook = importlib.import_module("matplotlib.cbook")
    except ImportError as error:
        raise InputError("The elevation model ships with matplotlib: `pip install halfgp[plot]`.") from error
    with np.load(
        cbook.get_sample_data("jacksboro_fault_dem.npz", asfileobj=False), allow_pickle=False
    ) as file:
        elevation = file["elevation"].astype(np.float64)
        dx, dy = float(file["dx"]), float(file["dy"])  # degrees
        middle = 0.5 * (float(file["ymin"]) + float(file["ymax"]))
    rows, columns = elevation.shape
    degree = math.radians(1) * 6371.0088  # km along a meridian, with the mean radius of the Earth
    east = (np.arange(columns) + 0.5) * dx * degree * math.cos(math.radians(middle))
    north = (rows - 0.5 - np.arange(rows)) * dy * degree
    grid = np.meshgrid(east, north)
    return Dataset(
        name="jacksboro_dem",
        X=np.stack([axis.ravel() for axis in grid], axis=1),
        y=elevation.ravel(),
        feature_names=("east (km)", "north (km)"),
        target_name="elevation (m)",
        test_mask=None,
        source="matplotlib sample data, jacksboro_fault_dem.npz",
        shape=(rows, columns),
    )


def load_uci(name: str, folder: str | Path | None = None) -> Dataset:
    """A UCI set from `<folder>/uci/<name>/` or `<folder>/<name>/`: data.csv.gz and test_mask.csv.gz, if any.

    The last column of the data is the target. Nothing is standardised.

    Args:
        name: such as "pol"; `available()` lists what is there.
        folder: of all sets; None for the one that HALFGP_DATA names, then the cache of `fetch_uci`.
    """
    files = uci_files(name, folder)
    if files:
        return _read_uci(name, files[0].parent)
    found = available(folder)
    raise MissingData(
        f"`name` must be a set in {_places(folder)}; got {name!r}.{_near(name, found)}"
        f" {'It holds ' + ', '.join(found) + '.' if found else 'It holds none.'}"
        " Set HALFGP_DATA or pass `folder`, or download with `halfgp.datasets.fetch_uci(name)`."
    )


def uci_files(name: str, folder: str | Path | None = None) -> tuple[Path, ...]:
    """The files that `load_uci` reads a set from, the data first; none where it is not there."""
    _check_name(name)
    for place in _uci_folders(folder):
        if (place / name / "data.csv.gz").is_file():
            files = (*_PARTS.get(name, ("data.csv.gz",)), "test_mask.csv.gz")
            return tuple(path for file in files if (path := place / name / file).exists())
    return ()


def available(folder: str | Path | None = None) -> tuple[str, ...]:
    """Names of the UCI sets that `load_uci` finds, sorted."""
    return tuple(
        sorted({path.parent.name for place in _uci_folders(folder) for path in place.glob("*/data.csv.gz")})
    )


def load_large(
    name: str, folder: str | Path | None = None, rows: int | None = None, seed: int = 0
) -> Dataset:
    """A large set from `<folder>/large/<name>.parquet` or `<folder>/<name>.parquet`; needs pyarrow.

    Known are houseelectric (2,049,280 × 11), osborne_magnetic (990,987 × 3) and covtype_elev (581,012 × 53).
    Any file with numeric columns of which one is called `target` will do.

    Args:
        name: of the file, without its suffix.
        folder: as for `load_uci`.
        rows: a random sample of so many, in the order of the file; None for all.
        seed: of the sample.
    """
    files = large_files(name, folder)
    if not files:
        found = sorted(
            {other.stem for path in _parquets(name, folder) for other in path.parent.glob("*.parquet")}
        )
        raise MissingData(
            f"`name` must be a .parquet file in {_places(folder)}; got {name!r}.{_near(name, found)}"
            f" {'There are ' + ', '.join(found) + '.' if found else 'There are none.'}"
            " Set HALFGP_DATA or pass `folder`."
        )
    (path,) = files
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise InputError("A .parquet file needs pyarrow: `pip install halfgp[tables]`.") from error
    try:
        with parquet.ParquetFile(path) as file:
            names: list[str] = file.schema_arrow.names
            n: int = file.metadata.num_rows
            if "target" not in names:
                raise InputError(
                    f"{path} must have a column `target`; it has {', '.join(names)}. Rename one."
                )
            features = tuple(column for column in names if column != "target")
            chosen = _sample(n, rows, seed)
            values = np.empty((len(chosen), len(features) + 1))
            # One column at a time: all of them and their copy in float64 need not be in memory together.
            for k, column in enumerate((*features, "target")):
                values[:, k] = file.read(columns=[column]).column(column).to_numpy()[chosen]
            target_name = (file.schema_arrow.metadata or {}).get(b"target", b"target").decode()
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{path} must be a .parquet file of numbers: {error}. Copy it again.") from error
    X, y = np.ascontiguousarray(values[:, :-1]), values[:, -1].copy()
    return Dataset(name, X, y, features, target_name, None, str(path))


def large_files(name: str, folder: str | Path | None = None) -> tuple[Path, ...]:
    """The file that `load_large` reads a set from, alone; none where it is not there."""
    _check_name(name)
    return tuple(path for path in _parquets(name, folder) if path.is_file())[:1]


def _parquets(name: str, folder: str | Path | None) -> list[Path]:
    """Where a large set is looked for."""
    return [place / part / f"{name}.parquet" for place in _folders(folder) for part in ("large", "")]


def fetch_uci(
    name: str, *, base_url: str = UCI_URL, cache: str | Path | None = None, progress: bool = True
) -> Dataset:
    """A UCI set, downloaded on the first call and read from the cache on every other; needs pooch.

    A file takes its name in the cache only when it is complete and its SHA-256 is as expected: as published
    where this module knows it, else as in the first download, which `checksums.json` beside the sets records.

    Args:
        name: such as "pol", "3droad", "song", "buzz" or "houseelectric".
        base_url: where `<name>/data.csv.gz` and `<name>/test_mask.csv.gz` lie.
        cache: folder for the sets; None for ~/.cache/halfgp (or XDG_CACHE_HOME). They go into its `uci`.
        progress: whether to show a bar for each file, if tqdm is installed.

    Raises:
        InputError: if there is no such set at the address, or pooch is not installed.
        DownloadError: if the transfer failed, or a file is not the expected one.
    """
    _check_name(name)
    root = Path(cache) if cache is not None else _cache()
    folder = root / "uci" / name
    for file in (*_PARTS.get(name, ("data.csv.gz",)), "test_mask.csv.gz"):
        _fetch(name, file, f"{base_url.rstrip('/')}/{name}/{file}", folder / file, progress)
    return _read_uci(name, folder)


def _fetch(name: str, file: str, url: str, path: Path, progress: bool) -> None:
    key = f"{name}/{file}"
    ledger = path.parent.parent / "checksums.json"
    recorded = _recorded(ledger)
    expected = _SHA256.get(key) or recorded.get(key)
    if path.exists():
        if expected is not None and _sha256(path) != expected:
            raise DownloadError(f"{path} has changed since it was downloaded. Delete it, and fetch it again.")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the cache itself, so that the last step is a rename within one file system.
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=path.parent.parent) as partial:
        download = Path(partial) / file
        _download(name, url, download, progress)
        found = _sha256(download)
        if expected is not None and found != expected:
            remedy = (
                "Try again, or pass another `base_url`"
                if key in _SHA256
                else f"Try again; if the change is meant, remove its line from {ledger}"
            )
            raise DownloadError(f"{url} must have the SHA-256 {expected}; got {found}. {remedy}.")
        _check_gzip(url, download)
        if expected is None:
            note = Path(partial) / ledger.name
            note.write_text(json.dumps({**recorded, key: found}, indent=2, sort_keys=True) + "\n")
            note.replace(ledger)
        download.replace(path)


def _recorded(ledger: Path) -> dict[str, str]:
    try:
        return dict(json.loads(ledger.read_text())) if ledger.exists() else {}
    except (ValueError, TypeError) as error:
        raise DownloadError(f"{ledger} must hold checksums in JSON: {error}. Delete it.") from error


def _download(name: str, url: str, path: Path, progress: bool) -> None:
    try:
        pooch = importlib.import_module("pooch")
        requests = importlib.import_module("requests")
    except ImportError as error:
        raise InputError("Downloads need pooch: `pip install halfgp[datasets]`.") from error
    bar = progress and importlib.util.find_spec("tqdm") is not None
    try:
        pooch.HTTPDownloader(progressbar=bar, chunk_size=2**18)(url, str(path), None)
    except requests.exceptions.RequestException as error:
        if getattr(error.response, "status_code", None) == 404:
            known = _near(name, UCI_NAMES) or f" Known are {', '.join(UCI_NAMES)}."
            raise InputError(f"`name` must be a set, and {url} is not there; got {name!r}.{known}") from error
        raise DownloadError(
            f"{url} could not be fetched: {error}. Check the connection and try again, or put the files into"
            " a folder and name it with HALFGP_DATA."
        ) from error


def _check_gzip(url: str, path: Path) -> None:
    """Read it to its end, which holds a checksum: a server may cut a file short and not say so."""
    try:
        with gzip.open(path) as file:
            while file.read(2**20):
                pass
    except (OSError, EOFError, zlib.error) as error:
        raise DownloadError(f"{url} must be a complete gzip file; it is not: {error}. Try again.") from error


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _read_uci(name: str, folder: Path) -> Dataset:
    parts = [folder / part for part in _PARTS.get(name, ("data.csv.gz",))]
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


def _sample(n: int, rows: int | None, seed: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    if rows is None:
        return np.arange(n)
    if not 1 <= rows <= n:
        raise InputError(f"`rows` must be between 1 and {n}, all that there are; got {rows}.")
    return np.sort(np.random.default_rng(seed).choice(n, rows, replace=False))


def _check_name(name: str) -> None:
    if not re.fullmatch(r"\w[\w-]*", name):  # it becomes part of a path and of an address
        raise InputError(f"`name` must be made of letters, digits, - and _; got {name!r}.")


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "halfgp"


def _folders(folder: str | Path | None) -> list[Path]:
    if folder is not None:
        return [Path(folder)]
    named = os.environ.get("HALFGP_DATA")
    return [Path(named), _cache()] if named else [_cache()]


def _uci_folders(folder: str | Path | None) -> list[Path]:
    return [place / part for place in _folders(folder) for part in ("uci", "")]


def _places(folder: str | Path | None) -> str:
    return " or ".join(map(str, _folders(folder)))


def _near(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


# GitHub's limit on the size of a file: this one lies there in two.
_PARTS = {"song": ("data.csv.gz", "data1.csv.gz")}

# fmt: off
UCI_NAMES = (
    "3droad", "airfoil", "autompg", "autos", "bike", "breastcancer", "buzz", "challenger", "concrete",
    "concreteslump", "elevators", "energy", "fertility", "forest", "gas", "houseelectric", "housing",
    "keggdirected", "keggundirected", "kin40k", "machine", "parkinsons", "pendulum", "pol", "protein",
    "pumadyn32nm", "servo", "skillcraft", "slice", "sml", "solar", "song", "stock", "tamielectric",
    "wine", "yacht",
)
# fmt: on
"""The sets at `UCI_URL`."""

# Of the files as published. Those of 3droad, buzz, houseelectric and song are from Git LFS pointers in the
# history of that repository, which for pol, kin40k, protein and keggdirected agree with files at hand.
# Those of the two parts of song are not known: the pointers are from before it was cut.
_SHA256 = {
    "3droad/data.csv.gz": "23b4995cca12fca521056cee7d5055ca28bea6a4fcae53259069650b448e1b51",
    "3droad/test_mask.csv.gz": "05a88da30f7a47a02b68a421d32a9c14515572c7d263607b1177081bfe236d95",
    "airfoil/data.csv.gz": "1cce82516ac9e564fba52f55d817eb147fc39085f5d7b958ad15b92f4207f23e",
    "airfoil/test_mask.csv.gz": "dbba6121fb8f900350fe10d724b54faa2b67fcc7bfc3409cf7add717281609e4",
    "autompg/data.csv.gz": "31989fbdd7083b901b9f02958581bce9f697e8c27bb3b0d1d0a1cd6d04d6b6c2",
    "autompg/test_mask.csv.gz": "4d5e96f4d752bc6effb50ebfc029856c71286abfd64c54e3ae50a8fb62792cb6",
    "bike/data.csv.gz": "411f76ae426c0e348a2629dcf6b3b29102c7db465eae780a3454c39db1dfac4f",
    "bike/test_mask.csv.gz": "cf13dc25e80c03019cf2b01666f9cc29b03ea222f5c519536023ea56669bf337",
    "buzz/data.csv.gz": "35813e6fa09f8ef6b94e57151a5a213e9bbb16021cf209636f6d9b8cc2270785",
    "buzz/test_mask.csv.gz": "c33a2772d7536ff6aad46335305845ff08c0df35c590fd7dbac3433aaf400f6b",
    "concrete/data.csv.gz": "542c5d9a0d301bdb47550280398dcbbe2fb8404631fc945de1ea6df9ade741c6",
    "concrete/test_mask.csv.gz": "fae0926c655e4f9fb5669d0dbf2226bd8ff7daaadbd376adb8f32eac6f752e7e",
    "elevators/data.csv.gz": "e39bc18a80ec3611e4fd76d0f86ee377e96ba21b568b9997576d538dafe56b7b",
    "elevators/test_mask.csv.gz": "9fe662eacca95ae2c9301cbc4c4134e55d58e903cb0cfb683771ffdd2d248eb5",
    "energy/data.csv.gz": "431b6df04243db782bbcd45e408373a654334496ebe5d9c9985ab2e826a39f51",
    "energy/test_mask.csv.gz": "217df2cd4cabf818390e26a65384ea113c95b75bd687787a37ed2f87f28c9bb8",
    "gas/data.csv.gz": "bd82bee47199d3952bee30a59739794b26baa742e1da7f7bd42b9a34552321a1",
    "gas/test_mask.csv.gz": "f171d06831e358dcb6cdf7cd168c2c9ed1768bcd805c8faa427c26099907e64e",
    "houseelectric/data.csv.gz": "4bfa1f7375cac4015ee3a6624fdd3404671abb78f98f1fe2cdfb01cff69a648a",
    "houseelectric/test_mask.csv.gz": "2d49f5ff1a54968913e2a9163d630a528e73ea775e9a808ad9101dec80227cea",
    "housing/data.csv.gz": "9f5b8a1cbc051465dcf10f4298aaccd8a596ea68de0db693159be6e7d07ccf12",
    "housing/test_mask.csv.gz": "4c114b259566dd04b92befc3f22709d77fe1d5a9048cebe2452c50d57056c1ac",
    "keggdirected/data.csv.gz": "51b7bb56e3f3eae36273cdd5a549c042bdf0ec10948a6f8e6b01a1d6912212cd",
    "keggdirected/test_mask.csv.gz": "b8a7fc902444fdbc5866e8bf314e4778a303d675ef5267c83c5c25b70dacd357",
    "kin40k/data.csv.gz": "9bee7f2a9f39aa61a015f239378368601fb3978c5bb9a96433e88a55d40883ba",
    "kin40k/test_mask.csv.gz": "d15fd645d0e81a9a17ce2d0b8dde470bb2efba4d5f417459965abe4b237e2aea",
    "pol/data.csv.gz": "1c16126352954571e78f52d5a9d1b947a38655885d7cadd9407a4c9615fe4e04",
    "pol/test_mask.csv.gz": "c5540259aabe58f5c7a534ed6f5141f8c1157d5de592e45884b7fced6091e981",
    "protein/data.csv.gz": "f709d0107c3ee90ab019b9e5d77fc2ae182158958cb70b1903236a51334fd01b",
    "protein/test_mask.csv.gz": "22afe05e8d17c428558d78a77efeecc08d58004b6c95741d1c533c3207c69fe9",
    "skillcraft/data.csv.gz": "41233f5ea6bf596b04aa64f5eaf9bf4489ddeec53524fe2cc46d75bc7d480c0e",
    "skillcraft/test_mask.csv.gz": "d97279b0da7415b80b3a0e8b6acb552bc7f974dc42f142a23a74f645b414736e",
    "sml/data.csv.gz": "d7c7e68697fa616bac790f9b50f0c6ea7f5e946a5084792b6ccbe76f8b18baa1",
    "sml/test_mask.csv.gz": "62f96cf8aed97879874d7a359646559b846d764a693740781809609787ca2160",
    "song/test_mask.csv.gz": "f387bbbe8653be2c0223e0c59dbe37a2285263aed8e960c90a58f00729f00474",
    "wine/data.csv.gz": "e2ca3346651ddb43fbc6a1355e70e74b7ce68f93059e04405e9cb749c219eae2",
    "wine/test_mask.csv.gz": "df80c2a700eafb42230991dd7a94c08d47baea55dde125a0a0dcae08964d4559",
    "yacht/data.csv.gz": "88ec8ea1a979ab0628a54392822c60b3699ea22541e912e83246f7d49f5adad1",
    "yacht/test_mask.csv.gz": "2f6d6b091146887589db66073317b8485e853d27e664b99b8b402ad57ba4a936",
}

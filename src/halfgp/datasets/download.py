"""UCI sets from the network into a cache, each file whole and as it was published."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import importlib.util
import json
import tempfile
import zlib
from pathlib import Path

from halfgp.datasets.checksums import SHA256
from halfgp.datasets.dataset import Dataset
from halfgp.datasets.folders import cache_folder, check_name, nearest_names
from halfgp.datasets.uci import PARTS, UCI_NAMES, read_uci
from halfgp.errors import DownloadError, InputError

UCI_URL = "https://raw.githubusercontent.com/treforevans/uci_datasets/master/uci_datasets/"


def fetch_uci(
    name: str, *, base_url: str = UCI_URL, cache: str | Path | None = None, progress: bool = True
) -> Dataset:
    """A UCI set, downloaded on the first call and read from the cache on every other; needs pooch.

    A file takes its name in the cache only when it is complete and its SHA-256 is as expected: as published
    where `checksums.py` knows it, else as in the first download, which `checksums.json` beside the sets
    records.

    Args:
        name: such as "pol", "3droad", "song", "buzz" or "houseelectric".
        base_url: where `<name>/data.csv.gz` and `<name>/test_mask.csv.gz` lie.
        cache: folder for the sets; None for ~/.cache/halfgp (or XDG_CACHE_HOME). They go into its `uci`.
        progress: whether to show a bar for each file, if tqdm is installed.

    Raises:
        InputError: if there is no such set at the address, or pooch is not installed.
        DownloadError: if the transfer failed, or a file is not the expected one.
    """
    check_name(name)
    root = Path(cache) if cache is not None else cache_folder()
    folder = root / "uci" / name
    for file in (*PARTS.get(name, ("data.csv.gz",)), "test_mask.csv.gz"):
        _fetch(name, file, f"{base_url.rstrip('/')}/{name}/{file}", folder / file, progress)
    return read_uci(name, folder)


def _fetch(name: str, file: str, url: str, path: Path, progress: bool) -> None:
    key = f"{name}/{file}"
    ledger = path.parent.parent / "checksums.json"
    recorded = _recorded(ledger)
    expected = SHA256.get(key) or recorded.get(key)
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
                if key in SHA256
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
            known = nearest_names(name, UCI_NAMES) or f" Known are {', '.join(UCI_NAMES)}."
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

"""Data sets are found, fetched and split as documented; a download is complete and checked, or not there."""

from __future__ import annotations

import functools
import gzip
import http.server
import importlib.util
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from halfgp.datasets import (
    UCI_NAMES,
    Dataset,
    available,
    download,
    fetch_uci,
    large_files,
    load_dem,
    load_large,
    load_uci,
    uci_files,
)
from halfgp.datasets.checksums import SHA256
from halfgp.errors import DownloadError, InputError

needs_pooch = pytest.mark.skipif(importlib.util.find_spec("pooch") is None, reason="needs pooch")
needs_pyarrow = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="needs pyarrow")
VALUES = np.random.default_rng(0).standard_normal((20, 4)).round(3)
MASK = np.arange(20)[:, None] % 10 == np.arange(10)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test touches the user's own cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "halfgp"


def as_gzip(values: np.ndarray) -> bytes:
    text = "\n".join(",".join(f"{value:g}" for value in row) for row in values)
    return gzip.compress(text.encode() + b"\n", mtime=0)


def write_set(folder: Path, name: str = "tiny", values: np.ndarray = VALUES) -> Path:
    place = folder / name
    place.mkdir(parents=True)
    (place / "data.csv.gz").write_bytes(as_gzip(values))
    (place / "test_mask.csv.gz").write_bytes(as_gzip(MASK))
    return place


class Server:
    """Serves a folder on this machine; `alter` may change what is sent, and requests are written down."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[str] = []
        self.status = 200
        self.alter: Callable[[bytes], bytes] = lambda content: content
        self.states_length = True
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append(self.path)
                file = outer.folder / self.path.lstrip("/")
                if not file.is_file() or outer.status != 200:
                    self.send_error(404 if outer.status == 200 else outer.status)
                    return
                content = file.read_bytes()
                self.send_response(200)
                if outer.states_length:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(outer.alter(content))

            def log_message(self, *_: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    write_set(tmp_path / "served")
    serving = Server(tmp_path / "served")
    thread = threading.Thread(target=serving.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield serving
    serving.http.shutdown()
    thread.join()
    serving.http.server_close()


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_published_split_is_the_masks() -> None:
    data = Dataset("t", VALUES[:, :3], VALUES[:, 3], ("a", "b", "c"), "y", MASK, "here")
    for k in (0, 9):
        X_train, y_train, X_test, y_test = data.split(k)
        assert np.array_equal(X_test, VALUES[k::10, :3])
        assert np.array_equal(y_test, VALUES[k::10, 3])
        assert X_train.shape == (18, 3)
        assert y_train.shape == (18,)
    for k in (-1, 10):
        with pytest.raises(InputError, match=f"`k` must be a split of t, 0 to 9; got {k}"):
            data.split(k)


def test_without_published_splits_a_seeded_tenth_is_held_out() -> None:
    data = Dataset("t", VALUES[:, :3], VALUES[:, 3], ("a", "b", "c"), "y", None, "here")
    X_train, y_train, X_test, y_test = data.split(3)
    assert len(y_test) == 2
    assert sorted([*y_train, *y_test]) == sorted(data.y)
    assert X_train.shape == (18, 3)
    assert np.array_equal(X_test, data.split(3)[2])
    assert not np.array_equal(y_test, data.split(4)[3])
    with pytest.raises(InputError, match="0 or more; got -1"):
        data.split(-1)


def test_the_elevation_model_is_a_map_in_kilometres() -> None:
    pytest.importorskip("matplotlib")
    data = load_dem()
    assert data.shape == (344, 403)
    assert data.X.shape == (344 * 403, 2)
    assert data.X.dtype == data.y.dtype == np.float64
    assert 200 < data.y.min() < data.y.max() < 1100  # metres, in the Cumberland Mountains
    east, north = (data.X[:, k].reshape(data.shape) for k in (0, 1))
    # 0.3358° of longitude at 36.6° N and 0.2867° of latitude.
    assert east.max() == pytest.approx(29.9, abs=0.2)
    assert north.max() == pytest.approx(31.9, abs=0.2)
    assert np.all(np.diff(east, axis=1) > 0)
    assert np.all(np.diff(north, axis=0) < 0)  # north is up


def test_the_elevation_model_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.cbook", None)
    with pytest.raises(InputError, match=r"pip install halfgp\[plot\]"):
        load_dem()


@pytest.mark.parametrize("part", ["uci", "."])
def test_a_set_is_found_in_either_layout(tmp_path: Path, part: str) -> None:
    write_set(tmp_path / part)
    data = load_uci("tiny", tmp_path)
    assert np.array_equal(data.X, VALUES[:, :3])
    assert np.array_equal(data.y, VALUES[:, 3])
    assert data.feature_names == ("x0", "x1", "x2")
    assert data.test_mask is not None
    assert data.test_mask.dtype == bool
    assert np.array_equal(data.test_mask, MASK)
    assert available(tmp_path) == ("tiny",)


def test_the_environment_names_the_folder_and_the_cache_comes_after(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HALFGP_DATA", raising=False)
    assert available() == ()
    write_set(cache / "uci", "cached")
    write_set(tmp_path / "own" / "uci", "mine")
    assert available() == ("cached",)
    monkeypatch.setenv("HALFGP_DATA", str(tmp_path / "own"))
    assert available() == ("cached", "mine")
    assert load_uci("mine").source == str(tmp_path / "own" / "uci" / "mine")
    assert load_uci("cached").name == "cached"


def test_an_unknown_set_is_refused_with_its_neighbours(tmp_path: Path) -> None:
    write_set(tmp_path, "elevators")
    with pytest.raises(
        InputError, match=r"got 'elevator'\. Did you mean 'elevators'\?.*HALFGP_DATA.*fetch_uci"
    ):
        load_uci("elevator", tmp_path)
    with pytest.raises(InputError, match="It holds none"):
        load_uci("pol", tmp_path / "absent")
    with pytest.raises(InputError, match="must be made of letters"):
        load_uci("../elevators", tmp_path)


def test_a_set_in_two_parts_is_read_as_one(tmp_path: Path) -> None:
    place = write_set(tmp_path, "song", VALUES[:12])
    with pytest.raises(InputError, match="equally many rows; got 12 and 20"):
        load_uci("song", tmp_path)
    (place / "data1.csv.gz").write_bytes(as_gzip(VALUES[12:]))
    assert np.array_equal(load_uci("song", tmp_path).y, VALUES[:, 3])


def test_files_are_those_that_are_read(tmp_path: Path) -> None:
    assert uci_files("tiny", tmp_path) == large_files("tiny", tmp_path) == ()
    folder = write_set(tmp_path / "uci")
    (folder / "notes.txt").write_text("not read")
    assert uci_files("tiny", tmp_path)[0] == Path(load_uci("tiny", tmp_path).source) / "data.csv.gz"
    assert {path.name for path in uci_files("tiny", tmp_path)} == set(files_in(folder)) - {"notes.txt"}
    for path in (tmp_path / "large" / "tiny.parquet", tmp_path / "tiny.parquet"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    assert large_files("tiny", tmp_path) == (tmp_path / "large" / "tiny.parquet",)


@pytest.mark.parametrize("content", [b"", b"plain", gzip.compress(b"a,b\n", mtime=0), as_gzip(VALUES)[:-20]])
def test_a_damaged_set_is_refused(tmp_path: Path, content: bytes) -> None:
    (write_set(tmp_path) / "data.csv.gz").write_bytes(content)
    with pytest.raises(InputError, match=r"data\.csv\.gz must hold rows of numbers in gzip"):
        load_uci("tiny", tmp_path)


@needs_pooch
def test_a_set_is_fetched_once(server: Server, cache: Path) -> None:
    data = fetch_uci("tiny", base_url=server.url, progress=False)
    assert np.array_equal(data.y, VALUES[:, 3])
    assert server.requests == ["/tiny/data.csv.gz", "/tiny/test_mask.csv.gz"]
    assert files_in(cache) == ["uci/checksums.json", "uci/tiny/data.csv.gz", "uci/tiny/test_mask.csv.gz"]
    assert set(json.loads((cache / "uci" / "checksums.json").read_text())) == {
        "tiny/data.csv.gz",
        "tiny/test_mask.csv.gz",
    }
    again = fetch_uci("tiny", base_url=server.url, progress=False)
    assert np.array_equal(again.X, data.X)
    assert len(server.requests) == 2
    assert np.array_equal(load_uci("tiny").X, data.X)


@needs_pooch
def test_the_cache_may_lie_anywhere_and_a_bar_be_shown(
    server: Server, tmp_path: Path, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fetch_uci("tiny", base_url=server.url.rstrip("/"), cache=tmp_path / "here")
    assert "uci/tiny/data.csv.gz" in files_in(tmp_path / "here")
    assert not cache.exists()
    assert ("100%" in capfd.readouterr().err) == (importlib.util.find_spec("tqdm") is not None)


@needs_pooch
def test_a_set_in_two_parts_is_fetched_whole(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    place = write_set(server.folder, "song", VALUES[:12])
    (place / "data1.csv.gz").write_bytes(as_gzip(VALUES[12:]))
    monkeypatch.delitem(SHA256, "song/test_mask.csv.gz")
    assert np.array_equal(fetch_uci("song", base_url=server.url, progress=False).y, VALUES[:, 3])


@needs_pooch
def test_a_file_that_is_not_the_published_one_is_not_kept(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SHA256, "tiny/data.csv.gz", "0" * 64)
    with pytest.raises(
        DownloadError, match=r"must have the SHA-256 0{64}; got \w{64}\. Try again, or pass another"
    ):
        fetch_uci("tiny", base_url=server.url, progress=False)
    assert files_in(cache) == []


@needs_pooch
def test_a_file_that_differs_from_the_first_download_is_not_kept(server: Server, cache: Path) -> None:
    fetch_uci("tiny", base_url=server.url, progress=False)
    data = cache / "uci" / "tiny" / "data.csv.gz"
    data.unlink()
    (server.folder / "tiny" / "data.csv.gz").write_bytes(as_gzip(VALUES + 1))
    with pytest.raises(
        DownloadError, match=r"if the change is meant, remove its line from .*checksums\.json"
    ):
        fetch_uci("tiny", base_url=server.url, progress=False)
    assert not data.exists()


@needs_pooch
def test_a_file_that_changed_in_the_cache_is_noticed(server: Server, cache: Path) -> None:
    fetch_uci("tiny", base_url=server.url, progress=False)
    (cache / "uci" / "tiny" / "data.csv.gz").write_bytes(as_gzip(VALUES + 1))
    with pytest.raises(
        DownloadError, match=r"has changed since it was downloaded\. Delete it, and fetch it again"
    ):
        fetch_uci("tiny", base_url=server.url, progress=False)
    (cache / "uci" / "checksums.json").write_text("[1")
    with pytest.raises(DownloadError, match=r"checksums\.json must hold checksums in JSON.*Delete it"):
        fetch_uci("tiny", base_url=server.url, progress=False)


@needs_pooch
@pytest.mark.parametrize("states_length", [True, False], ids=["length stated", "length unknown"])
def test_a_transfer_that_breaks_off_leaves_nothing(server: Server, cache: Path, states_length: bool) -> None:
    server.alter = lambda content: content[: len(content) // 2]
    server.states_length = states_length
    with pytest.raises(DownloadError, match=r"could not be fetched|must be a complete gzip file"):
        fetch_uci("tiny", base_url=server.url, progress=False)
    assert files_in(cache) == []
    server.alter = lambda content: content
    assert fetch_uci("tiny", base_url=server.url, progress=False).X.shape == (20, 3)


@needs_pooch
def test_a_pointer_or_a_web_page_is_no_data_set(server: Server, cache: Path) -> None:
    server.states_length = False
    server.alter = lambda _: b"version https://git-lfs.github.com/spec/v1\n"
    with pytest.raises(DownloadError, match="must be a complete gzip file; it is not: Not a gzipped file"):
        fetch_uci("tiny", base_url=server.url, progress=False)
    assert files_in(cache) == []


@needs_pooch
def test_a_set_that_is_not_there_is_refused_with_its_neighbours(server: Server, cache: Path) -> None:
    with pytest.raises(
        InputError, match=r"/elevator/data\.csv\.gz is not there; got 'elevator'\. Did you mean"
    ):
        fetch_uci("elevator", base_url=server.url, progress=False)
    with pytest.raises(InputError, match="Known are 3droad, airfoil"):
        fetch_uci("qqqq", base_url=server.url, progress=False)
    assert files_in(cache) == []


@needs_pooch
def test_other_failures_of_a_server_are_reported(server: Server) -> None:
    server.status = 503
    with pytest.raises(
        DownloadError, match=r"could not be fetched: 503 .*Check the connection and try again"
    ):
        fetch_uci("tiny", base_url=server.url, progress=False)
    with pytest.raises(DownloadError, match="could not be fetched"):
        fetch_uci("tiny", base_url="http://127.0.0.1:9/", progress=False)


def test_fetching_without_pooch_says_what_to_install(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(InputError, match=r"pip install halfgp\[datasets\]"):
        fetch_uci("pol", base_url="http://127.0.0.1:9/")
    assert files_in(cache) == []


def test_every_known_checksum_is_of_a_known_set() -> None:
    assert {key.split("/")[0] for key in SHA256} <= set(UCI_NAMES)
    for name in ("3droad", "song", "buzz", "houseelectric"):
        assert name in UCI_NAMES


def write_large(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "lon": np.arange(100.0),
        "target": np.arange(100) * 2,
        "height": np.arange(100).astype(np.int8),
    }
    folder.mkdir(parents=True)
    table = pa.table(columns).replace_schema_metadata({"target": "field (nT)"})
    pq.write_table(table, folder / "survey.parquet", row_group_size=30)


@needs_pyarrow
@pytest.mark.parametrize("part", ["large", "."])
def test_a_large_set_is_read_whole_or_sampled(tmp_path: Path, part: str) -> None:
    write_large(tmp_path / "data" / part)
    data = load_large("survey", tmp_path / "data")
    assert data.feature_names == ("lon", "height")
    assert data.target_name == "field (nT)"
    assert np.array_equal(data.y, np.arange(100) * 2)
    assert np.array_equal(data.X[:, 1], np.arange(100))
    sample = load_large("survey", tmp_path / "data", rows=10, seed=1)
    assert sample.X.shape == (10, 2)
    assert np.array_equal(sample.y, 2 * sample.X[:, 0])
    assert np.all(np.diff(sample.y) > 0)
    assert np.array_equal(sample.X, load_large("survey", tmp_path / "data", rows=10, seed=1).X)
    assert not np.array_equal(sample.X, load_large("survey", tmp_path / "data", rows=10, seed=2).X)


@needs_pyarrow
def test_bad_requests_for_large_sets_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    write_large(tmp_path / "large")
    for rows in (0, 101):
        with pytest.raises(InputError, match=f"`rows` must be between 1 and 100, .* got {rows}"):
            load_large("survey", tmp_path, rows=rows)
    with pytest.raises(InputError, match=r"got 'surveys'\. Did you mean 'survey'\? There are survey\."):
        load_large("surveys", tmp_path)
    pq.write_table(pa.table({"a": [1.0]}), tmp_path / "other.parquet")
    with pytest.raises(InputError, match="must have a column `target`; it has a"):
        load_large("other", tmp_path)
    (tmp_path / "garbage.parquet").write_bytes(b"garbage" * 10)
    with pytest.raises(InputError, match=r"garbage\.parquet must be a \.parquet file of numbers"):
        load_large("garbage", tmp_path)


def test_large_sets_without_pyarrow_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(InputError, match=r"pip install halfgp\[tables\]"):
        load_large("a", tmp_path)


@functools.cache
def real(name: str) -> Path:
    """The folder of the real data, if it has that set."""
    directory = os.environ.get("HALFGP_DATA")
    if directory is None or not Path(directory, name).exists():
        pytest.skip(f"HALFGP_DATA has no {name}")
    return Path(directory)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "n", "d"), [("pol", 15_000, 26), ("elevators", 16_599, 18), ("yacht", 308, 6)]
)
def test_real_sets_have_their_documented_sizes(name: str, n: int, d: int) -> None:
    data = load_uci(name, real(f"uci/{name}"))
    assert data.X.shape == (n, d)
    assert data.test_mask is not None
    assert data.test_mask.shape == (n, 10)
    assert np.all(data.test_mask.sum(axis=1) == 1)  # ten folds
    X_train, _, X_test, _ = data.split(4)
    assert len(X_train) + len(X_test) == n


@pytest.mark.data
def test_real_files_have_the_published_checksums() -> None:
    folder = real("uci") / "uci"
    for name in available(folder):
        for file in ("data.csv.gz", "test_mask.csv.gz"):
            assert download._sha256(folder / name / file) == SHA256[f"{name}/{file}"]


@pytest.mark.data
@needs_pyarrow
@pytest.mark.parametrize(
    ("name", "d", "target"),
    [
        ("houseelectric", 11, "global_active_power (kW)"),
        ("osborne_magnetic", 3, "total-field magnetic anomaly (nT)"),
        ("covtype_elev", 53, "Elevation (m)"),
    ],
)
def test_real_large_sets_are_sampled(name: str, d: int, target: str) -> None:
    data = load_large(name, real(f"large/{name}.parquet"), rows=1000)
    assert data.X.shape == (1000, d)
    assert data.target_name == target
    assert np.isfinite(data.X).all()
    assert np.isfinite(data.y).all()

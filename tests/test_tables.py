"""Numbers in a file are read as they stand; anything else is refused with the place and a remedy."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import stat
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfgp.delimited import Dialect
from halfgp.errors import InputError
from halfgp.tables import count_rows, parquet, read_table, table, write_table

TEXT = [".csv", ".tsv", ".csv.gz", ".tsv.gz"]
BINARY = [".npz", ".npy"]
needs_pyarrow = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="needs pyarrow")
each_named_format = pytest.mark.parametrize(
    "suffix", [*TEXT, ".npz", pytest.param(".parquet", marks=needs_pyarrow)]
)


def written(folder: Path, text: str | bytes, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@each_named_format
def test_what_is_written_is_read_back_bit_by_bit(tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(0)
    columns = {
        "a, b": rng.standard_normal(50) * 10.0 ** rng.integers(-300, 300, 50),
        "größe": np.where(rng.random(50) < 0.3, np.nan, 0.1),
        "file": np.arange(50),
        "y": rng.standard_normal(50).astype(np.float32),
        "flag": rng.random(50) < 0.5,
    }
    path = tmp_path / f"table{suffix}"
    write_table(path, columns)
    table = read_table(path, target="y")
    assert set(table.feature_names) == {"a, b", "größe", "file", "flag"}
    assert table.target_name == "y"
    assert table.source == path
    assert table.X.dtype == np.float64
    assert table.X.flags.c_contiguous
    for k, name in enumerate(table.feature_names):
        assert np.array_equal(table.X[:, k], columns[name].astype(float), equal_nan=True)
    assert table.y is not None
    assert np.array_equal(table.y, columns["y"])
    assert table.y.flags.writeable


@given(
    st.lists(st.tuples(st.floats(), st.floats(allow_nan=False)), min_size=1, max_size=8),
    st.sampled_from([*TEXT, *BINARY]),
)
def test_every_float_survives(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float, float]], suffix: str
) -> None:
    path = tmp_path_factory.mktemp("floats") / f"t{suffix}"
    a, b = np.array(rows).T
    write_table(path, {"x0": a, "y": b})
    table = read_table(path, target="-1")
    assert table.y is not None
    assert table.X[:, 0].tobytes() == a.tobytes() or np.array_equal(table.X[:, 0], a, equal_nan=True)
    assert table.y.tobytes() == b.tobytes()


def test_an_array_has_columns_by_position(tmp_path: Path) -> None:
    values = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    np.save(tmp_path / "a.npy", values)
    table = read_table(tmp_path / "a.npy", target="-1")
    assert table.feature_names == ("x0", "x1", "x2")
    assert table.target_name == "x3"
    assert np.array_equal(table.X, values[:, :3])
    by_name = read_table(tmp_path / "a.npy", target="x1", features=["x3", "0"])
    assert np.array_equal(by_name.X, values[:, [3, 0]])
    assert by_name.y is not None
    assert np.array_equal(by_name.y, values[:, 1])


def test_an_archive_has_features_and_a_target(tmp_path: Path) -> None:
    X, y = np.arange(6).reshape(3, 2), np.array([[1.0], [2.0], [3.0]])
    np.savez_compressed(tmp_path / "a.npz", y=y, X=X)
    for target in (None, "y", "-1"):
        table = read_table(tmp_path / "a.npz", target=target)
        assert table.feature_names == ("x0", "x1")
        assert table.target_name == "y"
        assert np.array_equal(table.X, X)
        assert table.y is not None
        assert np.array_equal(table.y, y[:, 0])
    np.savez(tmp_path / "b.npz", X=X)
    assert read_table(tmp_path / "b.npz", target=None, require_target=False).y is None
    with pytest.raises(InputError, match="`target` must name a column"):
        read_table(tmp_path / "b.npz", target=None)


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ("1,2\n3,4\n", ("x0", "x1"), [[1, 2], [3, 4]]),
        ("a,b\n1,2", ("a", "b"), [[1, 2]]),
        ('"a b", "c,d"\n1,2\n', ("a b", "c,d"), [[1, 2]]),
        ("\ufeffa,b\r\n1,2\r\n\r\n\r\n", ("a", "b"), [[1, 2]]),
        ("\ufeff1,2\n", ("x0", "x1"), [[1, 2]]),
        (",b\n7,8\n", ("x0", "b"), [[7, 8]]),
        ('"two\nlines",b\n1,2\n', ("two\nlines", "b"), [[1, 2]]),
        ("a,2019\n1,2\n", ("a", "2019"), [[1, 2]]),
        ("a,b\n 1 , -2e-3\n+.5,inf\n", ("a", "b"), [[1, -2e-3], [0.5, np.inf]]),
        ("\n  \na,b\n1,2\n", ("a", "b"), [[1, 2]]),
        ("a\n1\n2\n", ("a",), [[1], [2]]),
        ("a;b\n1;2\n", ("a", "b"), [[1, 2]]),
        ("a\tb\n1\t2\n", ("a", "b"), [[1, 2]]),
        ("1;2\n3;4\n", ("x0", "x1"), [[1, 2], [3, 4]]),
        ("a;b\n1,5;-,5e-3\n;2\n", ("a", "b"), [[1.5, -0.5e-3], [np.nan, 2]]),
        ("1,5;2,25\n3,5;4\n", ("x0", "x1"), [[1.5, 2.25], [3.5, 4]]),
        ("1,234;1,5\n", ("x0", "x1"), [[1.234, 1.5]]),
        ('"a";"b, c"\n1.5;2\n', ("a", "b, c"), [[1.5, 2]]),
        ('a,b\n"1,5","2,5"\n', ("a", "b"), [[1.5, 2.5]]),
        ("a,b;c\n1,2\n3,4\n", ("a", "b;c"), [[1, 2], [3, 4]]),
        ("0,1,2\n5,6,7\n", ("0", "1", "2"), [[5, 6, 7]]),
        ("a,b\nTrue,false\n", ("a", "b"), [[1, 0]]),
        ("a,b\n9007199254740992,1e300\n", ("a", "b"), [[2**53, 1e300]]),
    ],
)
def test_text_as_people_write_it(
    tmp_path: Path, text: str, names: tuple[str, ...], rows: list[list[float]]
) -> None:
    table = read_table(written(tmp_path, text), target=None, require_target=False)
    assert table.feature_names == names
    assert np.array_equal(table.X, rows, equal_nan=True)
    assert table.y is None
    assert table.target_name is None


@pytest.mark.parametrize(
    ("text", "options", "names", "rows"),
    [
        ("2019,2020\n1,2\n", {"header": True}, ("2019", "2020"), [[1, 2]]),
        ("0,1,2\n5,6,7\n", {"header": False}, ("x0", "x1", "x2"), [[0, 1, 2], [5, 6, 7]]),
        ("a|b\n1|2\n", {"delimiter": "|"}, ("a", "b"), [[1, 2]]),
        ("a;b\n1,500;2\n", {"decimal": ","}, ("a", "b"), [[1.5, 2]]),
        ("a\n1,5\n", {"decimal": ",", "delimiter": ";"}, ("a",), [[1.5]]),
    ],
)
def test_text_as_it_is_said_to_be(
    tmp_path: Path, text: str, options: dict, names: tuple[str, ...], rows: list
) -> None:
    path = written(tmp_path, text)
    table = read_table(path, target=None, require_target=False, dialect=Dialect(**options))
    assert table.feature_names == names
    assert table.X.tolist() == rows


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": "::"}, "`delimiter` must be one character that is in no number.* got '::'"),
        ({"delimiter": "1"}, "`delimiter`"),
        ({"delimiter": "\n"}, "`delimiter`"),
        ({"decimal": "'"}, "`decimal` must be"),
        ({"decimal": ",", "delimiter": ","}, "`delimiter` and `decimal` must differ"),
    ],
)
def test_bad_dialects_are_refused(tmp_path: Path, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_table(written(tmp_path, "a,b\n1,2\n"), target="a", dialect=Dialect(**options))


def test_a_name_that_is_asked_for_makes_a_header_of_numbers(tmp_path: Path) -> None:
    path = written(tmp_path, "2019,2020,2021\n1,2,3\n")
    table = read_table(path, target="2021")
    assert (table.feature_names, table.target_name, table.X.tolist()) == (("2019", "2020"), "2021", [[1, 2]])
    assert read_table(path, target="-1", features=["2020"]).X.tolist() == [[2]]
    assert read_table(path, target="-1").X.tolist() == [[2019, 2020], [1, 2]]
    small = written(tmp_path, "7,1,2\n1,2,3\n")
    assert read_table(small, target="2").X.tolist() == [[7, 1], [1, 2]]  # an index, as it may be


def test_standard_input_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    class Input:
        buffer = io.BytesIO(b"a;y\n1;2\n3;x\n")

    monkeypatch.setattr(sys, "stdin", Input)
    with pytest.raises(InputError, match="Column 'y' of standard input must hold numbers; got 'x' in line 3"):
        read_table("-", target="y")
    Input.buffer = io.BytesIO(b"a;y\n1;2\n")
    table = read_table("-", target="y")
    assert (table.X.tolist(), str(table.source)) == ([[1]], "standard input")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="standard input is closed"):
        read_table("-", target="y")


@pytest.mark.parametrize("suffix", [".npy", ".npz", pytest.param(".parquet", marks=needs_pyarrow)])
def test_integers_that_would_be_rounded_are_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    for value, fine in ((2**53 + 1, False), (2**60, True), (-(2**53) - 1, False), (2**63 - 1, False)):
        column = np.array([1, value, 3])
        if suffix == ".npy":
            np.save(path, np.stack([column, column], axis=1))
        else:
            write_table(path, {"x0": column, "x1": column})
        if fine:
            assert read_table(path, target="-1").X[1, 0] == value
        else:
            with pytest.raises(InputError, match=f"'x0' .* got {value}, which it would round"):
                read_table(path, target="-1")


@pytest.mark.parametrize("missing", ["", "NA", "na", "nan", "NaN", "null", "NULL", "N/A", "None", " "])
def test_missing_values_are_nan_in_any_column(tmp_path: Path, missing: str) -> None:
    table = read_table(written(tmp_path, f"a,b,y\n{missing},2,3\n4,{missing},{missing}\n"), target="y")
    assert np.array_equal(table.X, [[np.nan, 2], [4, np.nan]], equal_nan=True)
    assert table.y is not None
    assert np.array_equal(table.y, [3, np.nan], equal_nan=True)


def test_a_first_row_with_missing_values_is_no_header(tmp_path: Path) -> None:
    assert read_table(written(tmp_path, "NA,1\n2,3\n"), target="x1").X.shape == (2, 1)


def test_columns_are_chosen_before_they_must_be_numbers(tmp_path: Path) -> None:
    path = written(tmp_path, "id,when,a,b,y\nk1,2020-01-01,1,2,3\nk2,2020-01-02,4,5,6\n")
    dropped = read_table(path, target="y", drop=["id", "1"])
    assert dropped.feature_names == ("a", "b")
    chosen = read_table(path, target="y", features=["b"])
    assert chosen.X.tolist() == [[2], [5]]
    assert read_table(path, target="z", features=["b", "a"], require_target=False).X.tolist() == [
        [2, 1],
        [5, 4],
    ]


def test_a_name_goes_before_an_index(tmp_path: Path) -> None:
    assert read_table(written(tmp_path, "a,b,0\n1,2,3\n"), target="0").target_name == "0"


def test_thousands_of_columns_work(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((3, 5000))
    write_table(tmp_path / "wide.csv", {f"c{k}": values[:, k] for k in range(5000)})
    assert np.array_equal(read_table(tmp_path / "wide.csv", target="c4999").X, values[:, :-1])


def test_many_rows_take_no_longer_than_a_loop_over_them(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((5000, 20)).tolist()
    text = "\n".join([",".join(map(repr, row)) for row in values] * 4)
    path = written(tmp_path, text)
    start = time.process_time()
    assert len([[float(field) for field in row] for row in csv.reader(io.StringIO(text))]) == 20_000
    loop = time.process_time() - start
    start = time.process_time()
    assert read_table(path, target="-1").X.shape == (20_000, 19)
    # It reads the text once to know its kind, once for its values, and checks both.
    assert time.process_time() - start < 10 * loop


LABEL = r"Leave the column out with `drop` \(--drop\), or encode it as numbers"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has rows|is empty"),
        ("\n\n", "is empty"),
        ("a,y\n", "columns and no row"),
        ("a,y\n1,2\n3\n", "must have 2 cells, as the first has; line 3 has 1"),
        ("a,y\n1,2,3\n", "line 2 has 3.*belongs in double quotes"),
        ('a,y\n"1\n",2\n1\n', "line 4 has 1"),
        ("a,y\n1,2\n\nred,3\n", f"Column 'a' of .* must hold numbers; got 'red' in line 4. {LABEL}"),
        ("a,y\n2020_01,2\n", "got '2020_01' in line 2"),
        ('a,y\n"1,500",2\n', r"got '1,500' in line 2. If its comma is a decimal one, .*--decimal ,"),
        ("a;y\n1,5;2\n1.5;2\n", "got '1,5' in line 2"),
        ("a;y\n1,5;2\n" + "3;4\n" * 200 + "1.5;2\n", "got '1.5' in line 203"),
        ("a,y\n9007199254740993,2\n", "float64 has; got 9007199254740993 in line 2, which it would round"),
        ("a,y\nnan,-9007199254740993\n", "'y' .* got -9007199254740993 in line 2"),
        ("a,y\n1" + "0" * 350 + ",2\n", "which it would round"),
        ("a,y\n" + "z" * 100 + ",2\n", "got 'z{40}…'"),
        ("a,a,y\n1,2,3\n", "must have different names; 'a' repeat"),
        ("a;y\n1;2\n3;4;5\n", "must have 2 cells, as the first has; line 3 has 3"),
        ('a,y\n1,"2\n', "must name a readable .csv file.*unexpected end of data"),
        (b"a,y\n1,\xe9\n", "must name text in UTF-8"),
        ("a,y\n1,2\n".encode("utf-16"), "binary or UTF-16|UTF-8"),
        (bytes(range(256)), "binary or UTF-16"),
        (b"a,y\n1,2\x00\n" + b" " * 5000, "binary"),
        (gzip.compress(b"a,y\n1,2\n", mtime=0), "binary|UTF-8"),
    ],
)
def test_bad_text_is_refused_with_the_place(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_table(written(tmp_path, text), target="y")


def test_bad_archives_are_refused(tmp_path: Path) -> None:
    whole = gzip.compress(b"a,y\n" + b"1.234,5.678\n" * 10_000, mtime=0)
    with pytest.raises(InputError, match=r"ends too early\. Copy it again"):
        read_table(written(tmp_path, whole[: len(whole) // 2], "cut.csv.gz"), target="y")
    with pytest.raises(InputError, match=r"readable .csv.gz file"):
        read_table(written(tmp_path, b"a,y\n1,2\n", "plain.csv.gz"), target="y")
    damaged = bytearray(whole)
    damaged[20:40] = bytes(20)
    with pytest.raises(InputError, match=r"damaged.csv.gz"):
        read_table(written(tmp_path, bytes(damaged), "damaged.csv.gz"), target="y")


@pytest.mark.parametrize("suffix", [".npy", ".npz", pytest.param(".parquet", marks=needs_pyarrow)])
@pytest.mark.parametrize("content", [b"", b"garbage" * 100], ids=["empty", "garbage"])
def test_garbage_is_refused(tmp_path: Path, suffix: str, content: bytes) -> None:
    with pytest.raises(InputError, match=rf"readable {suffix} file|ends too early"):
        read_table(written(tmp_path, content, f"t{suffix}"), target="-1")


@pytest.mark.parametrize("suffix", [".npy", ".npz", pytest.param(".parquet", marks=needs_pyarrow)])
def test_a_truncated_file_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    write_table(path, {"a": np.arange(1000.0), "y": np.arange(1000.0)})
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(InputError, match=rf"t\{suffix}"):
        read_table(path, target="-1")


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "o.npy", np.array([[1, "a"]], dtype=object))
    np.savez(tmp_path / "o.npz", X=np.array([[1, "a"]], dtype=object))
    for name in ("o.npy", "o.npz"):
        with pytest.raises(InputError, match="allow_pickle=False"):
            read_table(tmp_path / name, target="-1")


def test_arrays_of_other_shapes_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(3))
    with pytest.raises(InputError, match=r"shape \(n, d\); got float64 of shape \(3,\)"):
        read_table(tmp_path / "a.npy", target="-1")
    np.savez(tmp_path / "a.npz", X=np.ones((3, 2)), y=np.ones(4))
    with pytest.raises(InputError, match="equally many rows"):
        read_table(tmp_path / "a.npz", target="y")
    np.savez(tmp_path / "b.npz", X=np.ones((3, 2)), y=np.ones((3, 2)))
    with pytest.raises(InputError, match=r"Column 'y' .* must hold real numbers \(n,\)"):
        read_table(tmp_path / "b.npz", target="y")


@needs_pyarrow
def test_parquet_columns_are_numbers_or_named_in_the_error(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "a": pa.array([1, None, 3], pa.int8()),
        "a.b": pa.array([2**60, 5, 6], pa.int64()),
        "flag": pa.array([True, False, None]),
        "half": pa.array(np.array([1, 2, 3], dtype=np.float16)),
        "label": ["1", "2", "3"],
        "y": [0.5, None, float("nan")],
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet", target="y", drop=["label"])
    wanted = [[1, 2**60, 1, 1], [np.nan, 5, 0, 2], [3, 6, np.nan, 3]]
    assert np.array_equal(table.X, wanted, equal_nan=True)
    with pytest.raises(InputError, match=f"Column 'label' .* must hold numbers; got string. {LABEL}"):
        read_table(tmp_path / "t.parquet", target="y")


@needs_pyarrow
def test_parquet_is_read_some_rows_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.setattr(parquet, "CHUNK", 7)
    values = {"a": [None if i % 5 == 0 else i for i in range(40)], "y": [i / 3 for i in range(40)]}
    pq.write_table(pa.table(values), tmp_path / "t.parquet", row_group_size=11)
    table = read_table(tmp_path / "t.parquet", target="y")
    np.testing.assert_array_equal(table.X[:, 0], np.array(values["a"], dtype=float))
    np.testing.assert_array_equal(table.y, values["y"])


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pip install halfgp\[tables\]"):
        read_table(written(tmp_path, b"", "t.parquet"), target="y")
    with pytest.raises(InputError, match=r"pip install halfgp\[tables\]"):
        write_table(tmp_path / "o.parquet", {"a": np.ones(2)})
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"target": "temprature"},
            "`target` must name a column .* got 'temprature'. Did you mean 'temperature'",
        ),
        ({"target": "qqq"}, "It has 'humidity', 'wind', 'temperature'"),
        ({"target": "3"}, "`target` must name a column"),
        ({"target": "-4"}, "`target` must name a column"),
        ({"target": None}, "got None. It has 'humidity', .* '-1' is the last"),
        ({"target": "wind", "drop": ["humid"]}, "`drop` must name a column .* Did you mean 'humidity'"),
        ({"target": "wind", "features": ["x0"]}, "`features` must name a column"),
        ({"target": "wind", "drop": ["wind"]}, "`drop` must not hold the target"),
        ({"target": "wind", "features": ["wind"]}, "'wind' is the target"),
        ({"target": "wind", "features": ["humidity", "0"]}, "'humidity' comes twice"),
        ({"target": "wind", "features": ["humidity"], "drop": ["humidity"]}, "'humidity' is in `drop`"),
        ({"target": "wind", "drop": ["humidity", "temperature"]}, "At least one feature must remain"),
        ({"target": "wind", "features": []}, "At least one feature must remain"),
    ],
)
def test_bad_choices_of_columns_are_refused(tmp_path: Path, arguments: dict, message: str) -> None:
    path = written(tmp_path, "humidity,wind,temperature\n1,2,3\n")
    with pytest.raises(InputError, match=message):
        read_table(path, **arguments)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no .*absent\.csv"):
        read_table(tmp_path / "absent.csv", target="y")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match=r"is none\. Name a file inside it"):
        read_table(tmp_path / "folder.csv", target="y")
    with pytest.raises(InputError, match=r"must end in .csv, .*; got 'table.xlsx'"):
        read_table(written(tmp_path, "a", "table.xlsx"), target="y")


@pytest.mark.parametrize("suffix", [*TEXT, *BINARY, pytest.param(".parquet", marks=needs_pyarrow)])
def test_a_failed_write_leaves_the_old_file_alone(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"t{suffix}"
    write_table(path, {"a": np.ones(2)})
    before = path.read_bytes()

    def write_half(file: object, columns: object) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    monkeypatch.setitem(table.WRITERS, suffix, write_half)
    with pytest.raises(KeyboardInterrupt):
        write_table(path, {"a": np.zeros(2)})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", [*TEXT, ".npz", ".npy"])
def test_the_same_table_gives_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    for name in ("a", "b"):
        write_table(tmp_path / f"{name}{suffix}", {"x": np.arange(5.0)})
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_a_written_file_has_the_usual_permissions(tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", {"x": np.ones(1)})
    plain = written(tmp_path, "", "plain")
    assert stat.S_IMODE((tmp_path / "t.csv").stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "at least one column"),
        ({"a": np.ones(2), "b": np.ones(3)}, r"each \(2,\); got float64 of shape \(3,\) in 'b'"),
        ({"a": np.ones((2, 2))}, r"of shape \(2, 2\) in 'a'. Give every output a column"),
        ({"a": np.float64(1)}, r"of shape \(\) in 'a'"),
        ({"a": np.array(["x"])}, "real numbers"),
        ({"1": np.ones(2), "2": np.ones(2)}, "named by numbers"),
    ],
)
def test_bad_columns_are_refused(tmp_path: Path, columns: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        write_table(tmp_path / "t.csv", columns)
    assert not list(tmp_path.iterdir())


def test_places_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="directory that exists"):
        write_table(tmp_path / "absent" / "t.csv", {"a": np.ones(1)})
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(InputError, match="directory that exists"):
        write_table(tmp_path / "d.csv", {"a": np.ones(1)})


@needs_pyarrow
@pytest.mark.parametrize("group", [3, 100])
@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_a_folder_of_parquet_is_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, group: int
) -> None:
    """Groups and files are cut wherever a part ends, and there may be more parts than rows.

    A group is decoded some rows at a time, of which a part may have the last ones only.
    """
    monkeypatch.setattr(parquet, "CHUNK", 2)
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "rows"
    folder.mkdir()
    values, begins = np.arange(41.0), 0
    for name, rows in (("b", 7), ("a", 20), ("c", 14)):
        some = values[begins : begins + rows]
        pq.write_table(pa.table({"x": some, "y": -some}), folder / f"{name}.parquet", row_group_size=group)
        begins += rows
    whole = read_table(folder, target="y")
    assert whole.X[:, 0].tolist() == [*values[7:27], *values[:7], *values[27:]]
    assert count_rows(folder) == len(values)
    parts = [read_table(folder, target="y", part=(k, count)) for k in range(count)]
    assert np.array_equal(np.concatenate([part.X for part in parts]), whole.X)
    assert np.array_equal(np.concatenate([part.y for part in parts]), whole.y)  # type: ignore[arg-type]


@needs_pyarrow
def test_files_of_a_folder_have_the_same_columns(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [1.0, 2.0], "y": [1.0, 2.0]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"z": [1.0, 2.0], "y": [1.0, 2.0]}), tmp_path / "b.parquet")
    with pytest.raises(InputError, match="must have the same columns"):
        read_table(tmp_path, target="y")

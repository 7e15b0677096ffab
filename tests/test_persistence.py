"""Files come back as they were, or are refused in words; a killed writer leaves the file whole."""

from __future__ import annotations

import json
import math
import os
import pickle
import random
import resource
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from contracts import forked
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

import halfgp.persistence as module
from halfgp import RBF, Constant, Linear, Matern, Periodic, RationalQuadratic, White, replacement
from halfgp.errors import FileError, HalfGPError, InputError
from halfgp.kernel_json import kernel_from_spec, kernel_to_spec
from halfgp.kernels import Kernel, Product, Scaled, Sum
from halfgp.parameters import Parameter
from halfgp.persistence import FORMAT_VERSION, Stored, fingerprint, read_file, require, write_file

TENSORS = {"x": torch.arange(6.0, dtype=torch.float64).reshape(2, 3), "n": torch.tensor(7)}
HEADER = {"kernel": kernel_to_spec(2.0 * RBF([0.1, 0.2]) + White(0.3)), "name": 'a "quoted" [bracket'}
ONE_DIRECTORY = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]  # examples overwrite one another


# ---------------------------------------------------------------------------------------------- kernels


@st.composite
def parameters(draw: st.DrawFn, scalar: bool = False) -> Parameter:
    """Values of any magnitude, subnormal ones too, within bounds that may be infinite."""
    number = st.floats(5e-324, 1e300)
    values = draw(number if scalar else st.one_of(number, st.lists(number, min_size=1, max_size=3)))
    lower = draw(st.sampled_from([0.0, -math.inf, -0.0, -1.5]))
    upper = draw(st.sampled_from([math.inf, 1.5e300]))
    return Parameter(torch.tensor(values, dtype=torch.float64), lower, upper)


COLUMNS = st.one_of(st.none(), st.lists(st.integers(0, 2**40), min_size=1, max_size=3, unique=True))
LEAVES = st.one_of(
    st.builds(RBF, parameters(), COLUMNS),
    st.builds(Matern, st.sampled_from([0.5, 1.5, 2.5]), parameters(), COLUMNS),
    st.builds(RationalQuadratic, parameters(scalar=True), parameters(), COLUMNS),
    st.builds(Periodic, parameters(), parameters(), COLUMNS),
    st.builds(Linear, parameters(), COLUMNS),
    st.builds(Constant, parameters(scalar=True)),
    st.builds(White, parameters(scalar=True)),
)
KERNELS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(Scaled, parameters(scalar=True), inner),
        st.builds(Sum, st.lists(inner, min_size=1, max_size=3)),
        st.builds(Product, st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=8,
)


def description(kernel: Kernel) -> object:
    """Everything about a kernel, without the code under test: classes, options, bits and bounds."""
    parts: tuple[Kernel, ...] = ()
    if isinstance(kernel, Sum | Product):
        parts = kernel.kernels
    elif isinstance(kernel, Scaled):
        parts = (kernel.kernel,)
    return (
        type(kernel),
        getattr(kernel, "nu", None),
        getattr(kernel, "active_dims", None),
        [
            (n, p.value.dtype, p.value.shape, p.value.numpy().tobytes(), p.lower.hex(), p.upper.hex())
            for n, p in kernel.named_parameters()
        ],
        [description(part) for part in parts],
    )


@settings(max_examples=200)
@given(KERNELS)
def test_kernels_come_back_to_the_last_bit(kernel: Kernel) -> None:
    text = json.dumps(kernel_to_spec(kernel), allow_nan=False)
    assert description(kernel_from_spec(json.loads(text))) == description(kernel)


def test_parameters_of_a_training_loop_are_stored_without_their_graph() -> None:
    kernel = RBF(torch.tensor([0.5, 0.7], requires_grad=True).exp())
    (parameter,) = (p for _, p in kernel_from_spec(kernel_to_spec(kernel)).named_parameters())
    assert not parameter.value.requires_grad
    assert torch.equal(parameter.value, kernel.lengthscale.detach())


def nested(depth: int) -> Kernel:
    kernel: Kernel = RBF()
    for _ in range(depth - 1):
        kernel = Scaled(2.0, kernel)
    return kernel


def test_kernels_nest_fifty_deep_and_no_deeper() -> None:
    spec = kernel_to_spec(nested(50))
    assert description(kernel_from_spec(spec)) == description(nested(50))
    with pytest.raises(InputError, match="nested at most 50 deep"):
        kernel_to_spec(nested(51))
    deeper = kernel_to_spec(Scaled(2.0, RBF()))
    deeper["kernels"] = [spec]
    with pytest.raises(FileError, match="nested more than 50 deep"):
        kernel_from_spec(deeper)


def test_a_kernel_of_a_class_of_ones_own_is_not_stored() -> None:
    class RBF2(RBF):
        pass

    for kernel in (RBF2(), 2.0 * RBF2() + RBF(), type("RBF", (RBF,), {})()):
        with pytest.raises(InputError, match=r"`kernel` must be made of RBF, Matern"):
            kernel_to_spec(kernel)


def spec_with(path: str, value: object) -> dict[str, Any]:
    """The spec of a kernel with one place changed, or removed where the value is ...."""
    spec: Any = json.loads(json.dumps(kernel_to_spec(Matern(1.5, [0.5, 1.0], [0, 1]) + 2.0 * RBF())))
    *way, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    place = spec
    for key in way:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return dict(spec)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("class", "os.system", r"`kernel\.class` must be one of RBF, .*; got 'os\.system'"),
        ("class", ["Sum"], r"`kernel\.class` must be one of"),
        ("class", "Kernel", r"`kernel\.class` must be one of"),
        ("kernels", [], "must be a list of at least one kernel"),
        ("kernels", {}, "must be a list of at least one kernel"),
        ("kernels", ..., "must be an object with the fields"),
        ("kernels.0", None, r"`kernel\.kernels\.0` must be an object with the fields"),
        ("kernels.0.class", "White", r"kernels\.0\.options` must be an object with the fields \[\]"),
        ("kernels.0.options.nu", 1.0, "`nu` must be 0.5, 1.5, 2.5 or another half integer"),
        ("kernels.0.options.nu", [1], r"options\.nu` must be a number"),
        ("kernels.0.options.nu", None, r"options\.nu` must be a number"),
        ("kernels.0.options.nu", "1.5", r"options\.nu` must be a number"),
        ("kernels.0.options.nu", ..., "must be an object with the fields"),
        ("kernels.0.options.active_dims", [0, 0], "`active_dims` must be distinct"),
        ("kernels.0.options.active_dims", [0.5], "must be a list of columns"),
        ("kernels.0.options.active_dims", [True], "must be a list of columns"),
        ("kernels.0.options.active_dims", 3, "must be a list of columns"),
        ("kernels.0.parameters.lengthscale", 1.0, "must be an object with the fields"),
        ("kernels.0.parameters.lengthscale.value", math.nan, r"lengthscale\.value` must be a number"),
        ("kernels.0.parameters.lengthscale.value", [1.0, math.nan], "must be a number"),
        ("kernels.0.parameters.lengthscale.value", "inf", "must be positive and finite"),
        ("kernels.0.parameters.lengthscale.value", [], "must be one number, or one per feature"),
        ("kernels.0.parameters.lengthscale.value", [[1.0]], "must be a number"),
        ("kernels.0.parameters.lengthscale.value", 10**400, "must be a number"),
        ("kernels.0.parameters.lengthscale.value", True, "must be a number"),
        ("kernels.0.parameters.lengthscale.value", -1.0, "must be positive and finite"),
        ("kernels.0.parameters.lengthscale.lower", 0.7, "must be finite and between 0.7 and inf"),
        ("kernels.0.parameters.lengthscale.upper", "nan", r"upper` must be a number"),
        ("kernels.0.parameters.lengthscale.upper", ..., "must be an object with the fields"),
        ("kernels.0.parameters.period", {}, "must be an object with the fields"),
        ("kernels.0.__reduce__", "os.system", "must be an object with the fields"),
        ("kernels.1.parameters.outputscale.value", [1.0, 2.0], "`outputscale` must be a single number"),
        ("kernels.1.kernels", [1, 2], "must be a list of one kernel; got"),
    ],
)
def test_a_bad_spec_is_refused_with_its_place(path: str, value: object, message: str) -> None:
    with pytest.raises(FileError, match=message):
        kernel_from_spec(spec_with(path, value))


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
PLACES = [
    "class",
    "kernels",
    *(f"kernels.0.{k}" for k in ("class", "options", "parameters", "kernels", "options.nu")),
    *(f"kernels.0.{k}" for k in ("options.active_dims", "parameters.lengthscale")),
    *(f"kernels.0.parameters.lengthscale.{k}" for k in ("value", "lower", "upper")),
    "kernels.1.kernels.0",
]


@settings(max_examples=300)
@given(st.sampled_from(PLACES), JSON)
def test_any_json_is_a_kernel_or_is_refused(path: str, value: object) -> None:
    try:
        kernel = kernel_from_spec(spec_with(path, value))
    except FileError:
        return
    repr(kernel)
    assert description(kernel_from_spec(kernel_to_spec(kernel))) == description(kernel)


# ------------------------------------------------------------------------------------------------ files


DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool]


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Any bits, NaN and negative zero included, in any shape with up to three axes, empty ones too."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    if dtype == torch.bool:
        return torch.randint(2, shape, generator=generator).bool()
    size = torch.empty(0, dtype=dtype).element_size()
    raw = torch.randint(256, (math.prod(shape) * size,), dtype=torch.uint8, generator=generator)
    return raw.view(dtype).reshape(shape)


def bits(tensor: Tensor) -> tuple[torch.dtype, torch.Size, bytes]:
    return tensor.dtype, tensor.shape, tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@settings(max_examples=100, suppress_health_check=ONE_DIRECTORY)
@given(
    header=st.dictionaries(
        st.text(),
        st.one_of(st.none(), st.integers(), st.text(), st.floats(allow_nan=False, allow_infinity=False)),
    ),
    contents=st.dictionaries(st.text().filter(lambda name: name != "__metadata__"), tensors(), max_size=4),
    kind=st.sampled_from(["model", "checkpoint"]),
)
def test_files_come_back_to_the_last_bit(tmp_path: Path, header: Any, contents: Any, kind: Any) -> None:
    if any(0xD800 <= ord(letter) < 0xE000 for name in contents for letter in name):
        return  # half a character is no name
    write_file(tmp_path / "file", kind, header, contents)
    stored = read_file(tmp_path / "file", kind)
    assert (stored.kind, stored.version) == (kind, FORMAT_VERSION)
    assert stored.header == header
    assert {name: bits(tensor) for name, tensor in stored.tensors.items()} == {
        name: bits(tensor) for name, tensor in contents.items()
    }


def test_kernels_travel_in_the_header(tmp_path: Path) -> None:
    kernel = nested(50) + Matern(0.5, Parameter(torch.tensor(0.1), 1e-3, 2.0))
    with pytest.raises(InputError, match="nested at most 50"):
        kernel_to_spec(kernel)  # one level more than its first part
    kernel = nested(49) + Matern(0.5, Parameter(torch.tensor(0.1), 1e-3, 2.0))
    write_file(tmp_path / "m", "model", {"a": {"kernel": kernel_to_spec(kernel)}}, {})
    read = kernel_from_spec(read_file(tmp_path / "m", "model").header["a"]["kernel"])
    assert description(read) == description(kernel)


def test_tensors_of_any_layout_in_memory_are_stored(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4).requires_grad_()
    contents = {
        "whole": base,
        "same": base,
        "turned": base.T,
        "part": base[1:, ::2],
        "row": base[1].expand(2, 4),
    }
    write_file(tmp_path / "m", "model", {}, contents)
    stored = read_file(tmp_path / "m", "model")
    assert all(torch.equal(stored.tensors[name], tensor) for name, tensor in contents.items())
    with pytest.raises(InputError, match="`s` must be dense"):
        write_file(tmp_path / "m", "model", {}, {"s": torch.eye(2).to_sparse()})
    with pytest.raises(
        InputError, match=r"`c` must hold floats, integers or booleans; got torch\.complex128"
    ):
        write_file(tmp_path / "m", "model", {}, {"c": torch.zeros(2, dtype=torch.complex128)})
    with pytest.raises(InputError, match="`__metadata__`"):
        write_file(tmp_path / "m", "model", {}, {"__metadata__": torch.zeros(2)})


@pytest.mark.parametrize("header", [{"a": math.nan}, {"a": math.inf}, {"a": object()}, {"a": {1, 2}}])
def test_a_header_that_is_not_json_is_refused(tmp_path: Path, header: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="`header` must be JSON"):
        write_file(tmp_path / "m", "model", header, {})
    assert list(tmp_path.iterdir()) == []


def test_a_header_that_could_not_be_read_is_not_written(tmp_path: Path) -> None:
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    with pytest.raises(InputError, match="`header` must be nested at most"):
        write_file(tmp_path / "m", "model", {"a": deep}, {})


def test_tensors_own_their_memory(tmp_path: Path) -> None:
    path = tmp_path / "m"
    write_file(path, "model", {}, TENSORS)
    stored = read_file(path, "model")
    path.write_bytes(b"\xff" * path.stat().st_size)  # in place, as a map of the file would see
    assert torch.equal(stored.tensors["x"], TENSORS["x"])
    stored.tensors["x"].zero_()
    os.truncate(path, 0)
    assert stored.tensors["x"].sum() == 0


# ---------------------------------------------------------------------------------- files that are none


def written(path: Path, **changes: str) -> Path:
    """A file with some of its metadata changed, past all checks of the writer."""
    metadata = {
        "format": "halfgp",
        "kind": "model",
        "format_version": "1",
        "halfgp_version": "9.9",
        "header": "{}",
    }
    save_file(dict(TENSORS), path, metadata=metadata | changes)
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "pt"}, "safetensors file, but not one of halfgp"),
        ({"kind": "checkpoint"}, "this is a checkpoint, not a model: use it where a checkpoint is asked for"),
        (
            {"format_version": str(FORMAT_VERSION + 1)},
            f"by halfgp 9.9 in format {FORMAT_VERSION + 1}, and halfgp .* upgrade with pip install -U halfgp",
        ),
        ({"format_version": "0"}, "must be a positive integer; got '0'"),
        ({"format_version": "-1"}, "must be a positive integer"),
        ({"format_version": "1.0"}, "must be a positive integer"),
        ({"format_version": "9" * 5000}, "must be a positive integer"),
        ({"format_version": "¹"}, "must be a positive integer"),
        ({"header": ""}, "The header of .* is damaged"),
        ({"header": "{"}, "The header of .* is damaged"),
        ({"header": "[]"}, "must be a JSON object; got list"),
        ({"header": '{"a": NaN}'}, "NaN is not JSON"),
        ({"header": '{"a": ' + "9" * 10_000 + "}"}, "is damaged"),
        ({"header": '{"a": ' + "[" * 201 + "]" * 201 + "}"}, "nested more than 200 deep"),
        ({"header": "[" * 1_000_000}, "nested more than 200 deep"),
        ({"header": '"' + '\\"[' * 100_000}, "is damaged"),
    ],
)
def test_files_with_other_metadata_are_refused(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    path = written(tmp_path / "m", **changes)
    with pytest.raises(FileError, match=message):
        read_file(path, "model")


def test_brackets_in_strings_are_not_depth(tmp_path: Path) -> None:
    header = {"a": '\\"[[' * 300, "[" * 300: "\\"}
    write_file(tmp_path / "m", "model", header, {})
    assert read_file(tmp_path / "m", "model").header == header


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m"
    with pytest.raises(FileError, match="There is no file"):
        read_file(path, "model")
    with pytest.raises(FileError, match="is a directory"):
        read_file(tmp_path, "model")
    with pytest.raises(FileError, match="not a regular file"):
        read_file("/dev/null", "model")
    with pytest.raises(FileError, match="cannot be read"):
        read_file("a\0b", "model")
    path.write_bytes(b"")
    with pytest.raises(FileError, match="is empty"):
        read_file(path, "model")
    with pytest.raises(FileError, match="cannot be read"):
        read_file(path / "below_a_file", "model")
    save_file(dict(TENSORS), path)
    with pytest.raises(FileError, match="not one of halfgp"):
        read_file(path, "model")
    torch.save(TENSORS, path)
    with pytest.raises(FileError, match="is not a halfgp model, or is damaged"):
        read_file(path, "model")


def test_file_errors_are_value_errors_of_this_package() -> None:
    assert issubclass(FileError, ValueError)
    assert issubclass(FileError, HalfGPError)


class Bomb:
    """What runs when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("how", ["pickle", "torch", "numpy"])
def test_a_malicious_pickle_is_refused_and_not_run(tmp_path: Path, how: str) -> None:
    path, marker = tmp_path / "m", tmp_path / "ran"
    with path.open("wb") as file:
        if how == "pickle":
            pickle.dump(Bomb(marker), file)
        elif how == "torch":
            torch.save(Bomb(marker), file)
        else:
            np.save(file, np.array([Bomb(marker)], dtype=object), allow_pickle=True)
    with pytest.raises(FileError, match="is not a halfgp model, or is damaged"):
        read_file(path, "model")
    assert not marker.exists()


def well_formed_or_refused(path: Path) -> None:
    """A file of any bytes is one or the other, and a kernel in its header likewise."""
    try:
        stored = read_file(path, "model")
        assert isinstance(stored.header, dict)
        assert all(isinstance(tensor, Tensor) and tensor.numel() < 100 for tensor in stored.tensors.values())
        fingerprint(*stored.tensors.values(), stored.header)
        require(stored, "x", torch.float64, (None, 3))
        repr(kernel_from_spec(stored.header.get("kernel")))
    except FileError:
        pass


@settings(max_examples=300, suppress_health_check=ONE_DIRECTORY)
@given(st.data())
def test_damaged_files_load_well_formed_or_are_refused(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "m"
    write_file(path, "model", HEADER, TENSORS)
    good = path.read_bytes()
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(0, 4))):
        damaged[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged[: data.draw(st.integers(0, len(good)))])
    well_formed_or_refused(path)
    path.write_bytes(damaged)
    well_formed_or_refused(path)


@pytest.mark.parametrize("seed", range(4))
def test_thousands_of_damaged_files(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "m"
    write_file(path, "model", HEADER, TENSORS)
    good = path.read_bytes()
    rng = random.Random(seed)
    for _ in range(500):
        damaged = bytearray(good)
        for _ in range(rng.choice([1, 1, 2, 8])):
            k = rng.randrange(len(good))
            damaged[k] = rng.choice([damaged[k] ^ (1 << rng.randrange(8)), rng.randrange(256)])
        path.write_bytes(damaged)
        well_formed_or_refused(path)


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "m"
    write_file(path, "model", HEADER, TENSORS)
    good = path.read_bytes()
    loaded = 0
    for bit in range(8 * len(good)):
        damaged = bytearray(good)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            stored = read_file(path, "model")
        except FileError:
            continue
        loaded += 1  # what JSON says in two ways: an E for an e
        assert stored.header == HEADER
        assert all(torch.equal(stored.tensors[name], tensor) for name, tensor in TENSORS.items())
    assert loaded < 10


def test_a_file_without_its_checksum_is_refused_unless_it_is_of_the_first_format(tmp_path: Path) -> None:
    assert read_file(written(tmp_path / "m"), "model").version == 1
    with pytest.raises(FileError, match="checksum does not fit"):
        read_file(written(tmp_path / "m", format_version="2"), "model")
    with pytest.raises(FileError, match="checksum"):
        read_file(written(tmp_path / "m", checksum="0" * 64), "model")


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m"
    write_file(path, "model", HEADER, TENSORS)
    good = path.read_bytes()
    for size in range(len(good)):
        path.write_bytes(good[:size])
        with pytest.raises(FileError):
            read_file(path, "model")


# --------------------------------------------------------------------------------------------- writing


def assert_untouched(directory: Path) -> None:
    """One file is there, the earlier one."""
    assert [path.name for path in directory.iterdir()] == ["m"]
    assert torch.equal(read_file(directory / "m", "model").tensors["x"], TENSORS["x"])


@pytest.mark.parametrize("step", [(module, "save_file"), (replacement, "_sync")], ids=["save", "sync"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=repr)
def test_a_write_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: tuple[Any, str], error: BaseException
) -> None:
    write_file(tmp_path / "m", "model", {}, TENSORS)

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(*step, fail)
    wanted = FileError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(wanted):
        write_file(tmp_path / "m", "model", {}, {"x": torch.zeros(5)})
    monkeypatch.undo()
    assert_untouched(tmp_path)


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    write_file(tmp_path / "m", "model", {}, TENSORS)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))  # writes beyond fail, as on a full disk
    try:
        with pytest.raises(FileError, match="cannot be written"):
            write_file(tmp_path / "m", "model", {}, {"x": torch.zeros(1_000_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert_untouched(tmp_path)


def test_places_that_cannot_be_written_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileError, match=r"there is no directory `.*missing`\. Create it first"):
        write_file(tmp_path / "missing" / "m", "model", {}, TENSORS)
    with pytest.raises(FileError, match="is a directory"):
        write_file(tmp_path, "model", {}, TENSORS)
    with pytest.raises(FileError, match="not a regular file"):
        write_file("/dev/null", "model", {}, TENSORS)
    with pytest.raises(FileError, match="cannot be written"):
        write_file("a\0b", "model", {}, TENSORS)
    with pytest.raises(FileError, match="cannot be written"):
        write_file(tmp_path / ("long" * 100), "model", {}, TENSORS)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module.os, "mkdir", refuse)
    with pytest.raises(FileError, match=r"no permission for `.*`\. Choose another directory"):
        write_file(tmp_path / "m", "model", {}, TENSORS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write and read everywhere")
def test_permissions_are_respected(tmp_path: Path) -> None:
    write_file(tmp_path / "m", "model", {}, TENSORS)
    (tmp_path / "m").chmod(0)
    with pytest.raises(FileError, match="cannot be read: no permission"):
        read_file(tmp_path / "m", "model")
    tmp_path.chmod(0o500)
    with pytest.raises(FileError, match="no permission"):
        write_file(tmp_path / "n", "model", {}, TENSORS)


def leave_behind(path: Path, age: float) -> None:
    """What a writer to that path that was killed so many seconds ago has left."""
    before = set(path.parent.iterdir())
    child = os.fork()
    if child == 0:
        with replacement.replacing(path):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    (directory,) = set(path.parent.iterdir()) - before
    for left in (*directory.iterdir(), directory):
        os.utime(left, (time.time() - age,) * 2)


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """What another one may be writing now, and what belongs to another file, stays."""
    leave_behind(tmp_path / "m", age=3600)
    leave_behind(tmp_path / "m", age=0)
    leave_behind(tmp_path / "other", age=3600)
    write_file(tmp_path / "m", "model", {}, TENSORS)
    assert sum(path.is_dir() for path in tmp_path.iterdir()) == 2
    write_file(tmp_path / "other", "model", {}, TENSORS)
    assert sum(path.is_dir() for path in tmp_path.iterdir()) == 1


def test_permissions_and_links_are_kept(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    link.symlink_to(real)
    write_file(link, "model", {}, {})
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(real.stat().st_mode) == 0o666 & ~mask
    real.chmod(0o600)
    write_file(link, "model", {}, TENSORS)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert torch.equal(read_file(real, "model").tensors["x"], TENSORS["x"])


KILLED_WRITER = """
import os, random, signal, sys, time
import torch
from halfgp.persistence import read_file, write_file

path, rng, versions = sys.argv[1], random.Random(0), set()

def write(version):
    write_file(path, "checkpoint", {"version": version}, {"x": torch.full((100_000,), version)})

write(0)
for attempt in range(20):
    heard, told = os.pipe()
    child = os.fork()  # torch is imported once, for all children
    if child == 0:
        version = 1_000_000 * (attempt + 1)
        while True:
            write(version)
            os.write(told, b".")
            version += 1
    os.read(heard, 1)  # it did write, however busy the machine is, and is killed at one of the next
    os.close(heard)
    os.close(told)
    time.sleep(rng.uniform(0.0, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    stored = read_file(path, "checkpoint")
    assert torch.equal(stored.tensors["x"], torch.full((100_000,), stored.header["version"]))
    versions.add(stored.header["version"])
print(len(versions))
"""


def test_a_killed_writer_leaves_a_complete_file(tmp_path: Path) -> None:
    assert (
        int(forked.run(KILLED_WRITER, tmp_path / "c", check=True).stdout) == 20
    )  # every one of them did write


# ----------------------------------------------------------------------------- fields and fingerprints


def test_required_tensors_are_checked_by_name() -> None:
    stored = Stored("model", 1, {}, {"x": torch.zeros(4, 3)})
    assert require(stored, "x", torch.float32, (None, 3)) is stored.tensors["x"]
    assert require(stored, "x", torch.float32, (4, 3)) is stored.tensors["x"]
    with pytest.raises(FileError, match=r"The model must hold a tensor `y`; it holds \['x'\]"):
        require(stored, "y", torch.float32, ())
    for dtype, shape in (
        (torch.float64, (4, 3)),
        (torch.float32, (None, 4)),
        (torch.float32, (4,)),
        (torch.float32, ()),
        (torch.float32, (4, 3, None)),
    ):
        with pytest.raises(
            FileError, match=r"`x` of the model must be .*; got torch.float32 of shape \(4, 3\)"
        ):
            require(stored, "x", dtype, shape)


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    code = (
        "import torch; from halfgp.persistence import fingerprint;"
        " print(fingerprint(torch.arange(3), {'b': 1, 'a': [0.1]}))"
    )
    other = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"  # than the one of this process
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": other},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == fingerprint(torch.arange(3), {"a": [0.1], "b": 1})


def test_fingerprints_differ_where_anything_does() -> None:
    x = torch.arange(6.0)
    parts: list[tuple[object, ...]] = [
        (),
        (None,),
        ("",),
        (x,),
        (x, x),
        (x.reshape(2, 3),),
        (x.reshape(3, 2),),
        (x.reshape(2, 3).T,),
        (x.double(),),
        (x.view(torch.int32),),
        (torch.nextafter(x, x + 1),),
        (torch.zeros(0),),
        (torch.zeros(0, 2),),
        (torch.tensor(0.0),),
        (torch.tensor(-0.0),),
        (torch.zeros(1),),
        ("a", "b"),
        ("ab",),
        (["a", "b"],),
        ({"a": "b"},),
        (1,),
        (1.0,),
        (True,),
        ("1",),
        (math.inf,),
    ]
    assert len({fingerprint(*part) for part in parts}) == len(parts)
    assert fingerprint(x.reshape(2, 3).T) == fingerprint(x.reshape(2, 3).T.contiguous())
    assert fingerprint(torch.zeros(3).requires_grad_()) == fingerprint(torch.zeros(3))
    assert fingerprint(torch.zeros(()).expand(1)) == fingerprint(torch.zeros(1))
    assert len(fingerprint()) == 64
    with pytest.raises(InputError, match="A fingerprint is of tensors and JSON values; got <object"):
        fingerprint(object())

"""One-file models and checkpoints: safetensors with a JSON header, written whole or not at all, no pickle."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from halfgp.errors import FileError, HalfGPError, InputError
from halfgp.replacement import FilePath, mode_of_regular, replacing
from halfgp.version import __version__

FORMAT_VERSION = 9
MAX_JSON_DEPTH = 200

_DTYPES = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
)

Kind = Literal["model", "checkpoint", "solve"]


@dataclass(frozen=True, eq=False)
class Stored:
    """What a file holds, checked as a file but not yet for its fields.

    Attributes:
        kind: "model", "checkpoint" or "solve".
        version: the version of the format it was written in.
        header: JSON.
        tensors: on the CPU, in memory of their own.
    """

    kind: Kind
    version: int
    header: dict[str, Any]
    tensors: dict[str, Tensor]


def write_file(path: FilePath, kind: Kind, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a file that is complete under its name at every moment, also through a crash or a power cut.

    Args:
        path: where to; see `replacing`.
        kind: "model", "checkpoint" or "solve".
        header: JSON, without NaN and infinities.
        tensors: dense tensors on any device, real or boolean.
    """
    metadata = {
        "format": "halfgp",
        "kind": kind,
        "format_version": str(FORMAT_VERSION),
        "halfgp_version": __version__,
        "header": _encode_header(header),
    }
    contents = _independent(tensors)
    metadata["checksum"] = _checksum(metadata, contents)
    try:
        with replacing(path) as temporary:
            save_file(contents, temporary, metadata=metadata)
    except (SafetensorError, ValueError) as error:  # ValueError: a NUL in the path
        if isinstance(error, HalfGPError):
            raise
        raise FileError(f"`{path}` cannot be written: {error}.") from error


def read_file(path: FilePath, kind: Kind, *, header_only: bool = False) -> Stored:
    """Read a file written by `write_file`; nothing in it is ever executed.

    Args:
        path: of it.
        kind: "model", "checkpoint" or "solve".
        header_only: without its tensors, and so without its checksum: what it says may be damaged.

    Raises:
        FileError: whatever is wrong with the file, and what to do.
    """
    try:
        if mode_of_regular(Path(path)) is None:
            raise FileError(f"There is no file `{path}`. Check the path.")
        with Path(path).open("rb") as probe:  # safetensors says of what it may not read that it is not there
            if not probe.read(1):
                raise FileError(f"`{path}` is empty. Restore it from a copy, or save anew.")
    except FileError:
        raise
    except PermissionError as error:
        raise FileError(f"`{path}` cannot be read: no permission. Ask its owner, or copy it.") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise FileError(f"`{path}` cannot be read: {error}.") from error
    try:
        with safe_open(os.fspath(path), framework="pt", device="cpu") as file:
            metadata = dict(file.metadata() or {})
            version = _check_metadata(path, metadata, kind)
            # Clones: the loader's own tensors are windows into the file, which may be replaced meanwhile.
            names = [] if header_only else file.keys()
            tensors = {name: file.get_tensor(name).clone() for name in names}
        written = metadata.pop("checksum", None)
        # Files of the first format have none.
        if (
            not header_only
            and (version > 1 or written is not None)
            and written != _checksum(metadata, tensors)
        ):
            raise FileError(
                f"`{path}` is damaged: its checksum does not fit. Restore it from a copy, or save anew."
            )
    except (FileError, MemoryError):
        raise
    except Exception as error:  # whatever a parser raises on bytes of any origin, the file is what is wrong
        raise FileError(
            f"`{path}` is not a halfgp {kind}, or is damaged: {error}. Restore it from a copy, or save anew."
        ) from error
    return Stored(kind, version, _decode_header(path, metadata.get("header", "")), tensors)


def require(stored: Stored, name: str, dtype: torch.dtype, shape: Sequence[int | None]) -> Tensor:
    """The tensor of that name, dtype and shape, in which None stands for any size."""
    tensor = stored.tensors.get(name)
    if tensor is None:
        raise FileError(
            f"The {stored.kind} must hold a tensor `{name}`; it holds {sorted(stored.tensors)}. Save it anew."
        )
    fits = len(shape) == tensor.ndim and all(
        size in (None, actual) for size, actual in zip(shape, tensor.shape, strict=True)
    )
    if tensor.dtype != dtype or not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise FileError(
            f"`{name}` of the {stored.kind} must be {dtype} of shape ({wanted}); got {tensor.dtype} of shape"
            f" {tuple(tensor.shape)}. Save it anew."
        )
    return tensor


def fingerprint(*parts: object) -> str:
    """SHA-256, in hexadecimal, of tensors (bytes, dtype and shape) and JSON values, in their order.

    The same in every process and on every device; the order of keys in a dict does not matter.
    """
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor):
            flat = part.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
            flat = flat.as_strided(flat.shape, (1,))  # one number that was expanded has a stride of 0
            label, data = f"{part.dtype} {list(part.shape)}", flat.view(torch.uint8).numpy().data
        else:
            try:
                text = json.dumps(part, sort_keys=True, separators=(",", ":"))
            except (TypeError, ValueError, RecursionError) as error:
                raise InputError(f"A fingerprint is of tensors and JSON values; got {part!r:.80}.") from error
            label, data = "json", memoryview(text.encode())
        # With its length in front, no part can pass for the end of one and the start of another.
        digest.update(f"{label} {data.nbytes}\n".encode())
        digest.update(data)
    return digest.hexdigest()


def may_be_same(one: object, other: object) -> bool:
    """Whether two fingerprints say nothing against it; None is that of somebody who does not know."""
    return None in (one, other) or one == other


def _encode_header(header: Mapping[str, Any]) -> str:
    """The text of a header, of which it is certain that it can be read again."""
    try:
        text = json.dumps(dict(header), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"`header` must be JSON, without NaN and infinities: {error}.") from error
    if _json_depth(text) > MAX_JSON_DEPTH:
        raise InputError(f"`header` must be nested at most {MAX_JSON_DEPTH} deep. Flatten it.")
    return text


def _decode_header(path: FilePath, text: str) -> dict[str, Any]:
    """The header from its text."""
    # Before parsing: a parser that recurses into a hostile file may take the whole process down.
    if _json_depth(text) > MAX_JSON_DEPTH:
        raise FileError(f"The header of `{path}` is nested more than {MAX_JSON_DEPTH} deep. It is damaged.")
    try:
        header = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FileError(f"The header of `{path}` is damaged: {error}. Restore it from a copy.") from error
    if not isinstance(header, dict):
        raise FileError(f"The header of `{path}` must be a JSON object; got {type(header).__name__}.")
    return header


def _refuse_constant(name: str) -> object:
    """NaN and infinities, which Python would read although they are not JSON."""
    raise ValueError(f"{name} is not JSON")


def _json_depth(text: str) -> int:
    """How deep brackets nest outside strings."""
    bare = re.sub(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\Z)', "", text, flags=re.DOTALL)
    steps = ((bracket in "[{") - (bracket in "]}") for bracket in bare)
    return max(itertools.accumulate(steps, initial=0))


def _check_metadata(path: FilePath, metadata: Mapping[str, str], kind: Kind) -> int:
    """The version of the format, after all refusals that need no tensor."""
    if metadata.get("format") != "halfgp":
        raise FileError(f"`{path}` is a safetensors file, but not one of halfgp. Check the path.")
    written = metadata.get("format_version", "")
    if not re.fullmatch("[1-9][0-9]{0,8}", written):
        raise FileError(f"The format version of `{path}` must be a positive integer; got {written!r:.80}.")
    if int(written) > FORMAT_VERSION:
        author = metadata.get("halfgp_version", "of a version that it does not name")
        raise FileError(
            f"`{path}` was written by halfgp {author:.40} in format {written}, and halfgp {__version__} reads"
            f" up to format {FORMAT_VERSION}; upgrade with pip install -U halfgp."
        )
    found = metadata.get("kind", "")
    if found != kind:
        raise FileError(
            f"`{path}`: this is a {found:.40}, not a {kind}: use it where a {found:.40} is asked for, or give"
            f" the path of a {kind}."
        )
    return int(written)


def _checksum(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """Of all that a file says, in whatever order its tensors lie."""
    names = sorted(tensors)
    return fingerprint(dict(metadata), names, *(tensors[name] for name in names))


def _independent(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous tensors on the CPU, no two in the same memory, which safetensors would refuse."""
    result: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        if name == "__metadata__":
            raise InputError("`tensors` must not use the name `__metadata__`, which the format reserves.")
        if tensor.layout != torch.strided:
            raise InputError(f"`{name}` must be dense; got layout {tensor.layout}. Use `to_dense()`.")
        if tensor.dtype not in _DTYPES:
            raise InputError(
                f"`{name}` must hold floats, integers or booleans; got {tensor.dtype}. Convert it."
            )
        plain = tensor.detach().cpu().resolve_neg().contiguous()
        memory = plain.untyped_storage().data_ptr()
        result[name] = plain.clone() if memory in seen else plain
        seen.add(memory)
    return result

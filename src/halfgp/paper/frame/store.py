"""Results on disk: one JSON file and the pictures of each part, written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path

from halfgp.errors import FileError, InputError
from halfgp.json_text import as_json
from halfgp.paper.frame.context import Context
from halfgp.paper.frame.fingerprints import Origin, fingerprint_of
from halfgp.paper.frame.part import Claim, Data, Part, Verdict
from halfgp.replacement import write_whole
from halfgp.report.pictures import drawn


class Status(str, Enum):
    """How the run of a part ended."""

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Result:
    """What is kept of a part.

    Attributes:
        name: of the part.
        status: how it ended.
        mode: "quick" or "full".
        fingerprint: of what made it but the data; see `fingerprints`.
        seconds: it took.
        reason: why it failed or was skipped; "" where it did neither.
        data: as the part found it.
        claims: as the part decided them.
        note: of the part.
        warnings: that were given meanwhile, each once.
        versions: of what it was made with.
        machine: that it was made on.
        sets: of data that it was made from, each with its digest.
    """

    name: str
    status: Status
    mode: str
    fingerprint: str
    seconds: float
    reason: str
    data: Data
    claims: tuple[Claim, ...]
    note: str
    warnings: tuple[str, ...]
    versions: dict[str, str]
    machine: str
    sets: dict[str, str] = field(default_factory=dict)


def fingerprint_now(part: Part, context: Context) -> str:
    """What a result of the part gets if it is made now."""
    return fingerprint_of(part.module, {"mode": context.mode, "seed": context.seed})


def is_current(part: Part, result: Result, context: Context) -> bool:
    """Whether the part would find the same now: neither code nor versions, settings or data have changed."""
    return Origin(result.fingerprint, result.sets).is_current(fingerprint_now(part, context), context)


def write(output: Path, result: Result) -> None:
    """Keep a result in place of an earlier one."""
    output.mkdir(parents=True, exist_ok=True)
    write_whole(output / f"{result.name}.json", as_json(asdict(result)) + "\n")


def read(output: Path, name: str) -> Result | None:
    """A kept result; None if there is none.

    Raises:
        FileError: there is a file of that name which is none.
    """
    path = output / f"{name}.json"
    if not path.exists():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        claims = tuple(
            Claim(**claim | {"verdict": Verdict(claim["verdict"])}) for claim in document.pop("claims")
        )
        status, warnings = Status(document.pop("status")), tuple(document.pop("warnings"))
        return Result(**document, status=status, claims=claims, warnings=warnings)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise FileError(f"`{path}` is no result of this version: {error}. Delete it.") from error


def check_mode(output: Path, names: Iterable[str], mode: str) -> None:
    """Refuse to put quick results in place of full ones, which took hours, and the reverse.

    Raises:
        InputError: there are results of the other mode.
    """
    for name in names:
        result = read(output, name)
        if result is not None and result.mode != mode:
            raise InputError(
                f"`output` must not hold results of another mode than {mode}; {output} has {name} in"
                f" {result.mode}. Give another directory, or delete this one."
            )


def draw(output: Path, part: Part, result: Result) -> None:
    """Write the pictures of a result: `fig2a.svg`, or `fig1-1.svg`, `fig1-2.svg`, … of several."""
    for old in picture_paths(output, part.name):
        old.unlink()
    panels = part.panels(result.data) if part.panels is not None and result.status is Status.DONE else ()
    for k, panel in enumerate(panels, start=1):
        name = part.name if len(panels) == 1 else f"{part.name}-{k}"
        write_whole(output / f"{name}.svg", drawn(panel.draw))


def picture_paths(output: Path, name: str) -> list[Path]:
    """The pictures of a part, in order."""
    single = output / f"{name}.svg"
    if single.exists():
        return [single]
    return sorted(output.glob(f"{name}-*.svg"), key=lambda path: int(path.stem.rpartition("-")[2]))

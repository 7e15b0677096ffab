"""A file that takes the place of another only once it is complete, also through a crash or a power cut."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from halfgp.errors import FileError

FilePath = str | os.PathLike[str]
STALE = 600.0  # seconds: what nobody has written to for so long, a killed process has left


@contextlib.contextmanager
def replacing(path: FilePath) -> Iterator[Path]:
    """A new file to write to, which is found under `path` when the block has ended without an error.

    An earlier file is replaced, and its permissions are kept. A symbolic link stays, and its target is
    written. A failure leaves an earlier file as it was and nothing beside it. Only a process that is killed
    can leave its temporary file behind, in a hidden directory; a later one for the same path removes it.

    Raises:
        FileError: it cannot be written there, whatever the system's reason is.
    """
    directory = Path(path).parent
    try:
        target = Path(path).resolve()
        directory = target.parent
        mode = mode_of_regular(target)
        with _temporary_beside(target) as temporary:
            if mode is None:
                mode = stat.S_IMODE(temporary.stat().st_mode)  # what the umask makes of a new file
            yield temporary
            temporary.chmod(mode)  # a library may have put a file of its own there, for its owner only
            _sync(temporary)
            temporary.replace(target)
        _sync(directory)  # the new name, too, has to survive a power cut
    except FileNotFoundError as error:
        raise FileError(
            f"`{path}` cannot be written: there is no directory `{directory}`. Create it first."
        ) from error
    except PermissionError as error:
        raise FileError(
            f"`{path}` cannot be written: no permission for `{directory}`. Choose another directory."
        ) from error
    except OSError as error:
        raise FileError(
            f"`{path}` cannot be written: {error.strerror or error}. Make room, or choose another directory."
        ) from error


def write_whole(path: Path, text: str) -> None:
    """Write text under its name only once it is complete.

    Raises:
        FileError: it cannot be written there.
    """
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def mode_of_regular(path: Path) -> int | None:
    """The permissions of a file, None if there is none; a directory or a device is refused."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        what = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
        raise FileError(f"`{path}` is {what}. Give the path of a file.")
    return stat.S_IMODE(mode)


@contextlib.contextmanager
def _temporary_beside(target: Path) -> Iterator[Path]:
    """A new file on the file system of the target, which is gone afterwards unless it was renamed."""
    # By a digest, for a name that is as long as names may be leaves no room for more.
    prefix = f".halfgp-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}-"
    for earlier in target.parent.glob(f"{prefix}*"):
        _remove_if_stale(earlier)
    # In a directory of its own: safetensors makes a file beside the one it is given, under a name of its own.
    directory = target.parent / f"{prefix}{secrets.token_hex(8)}"
    directory.mkdir(mode=0o700)
    try:
        temporary = directory / "partial"
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        yield temporary
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _remove_if_stale(directory: Path) -> None:
    """What a killed process has left; not what another is writing now."""
    with contextlib.suppress(OSError):  # someone else's to remove, or removed meanwhile
        last = max(path.stat().st_mtime for path in (directory, *directory.iterdir()))
        if time.time() - last > STALE:
            shutil.rmtree(directory)


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot, and have then done what they do
            raise
    finally:
        os.close(descriptor)

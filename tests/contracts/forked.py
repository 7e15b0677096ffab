"""Programs in processes of their own, which can be killed and measured, and start in no time.

They are forked from a server that has imported what is slow to import: torch and scikit-learn take seconds of
a processor, and dozens of tests start a process. What is about the start of an interpreter itself, or about
what is imported when, takes `subprocess`.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        "pytest",
        "scipy.optimize",
        "pyarrow.parquet",
        "halfgp.estimator",
        "halfgp.backends.cpu",
        "halfgp.cli.fit",
        "halfgp.operators.sharded",
    ]
)


class Program:
    """The source of a program at work, as `subprocess.Popen([sys.executable, "-c", source, ...])` has it."""

    def __init__(self, source: str, *arguments: object, env: Mapping[str, str] = os.environ) -> None:
        self._source = source
        streams = self._streams = [_empty_file() for _ in ("out", "err")]
        self._process = SERVER.Process(
            target=_run,
            args=(source, [str(argument) for argument in arguments], streams, Path.cwd(), dict(env)),
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout: float = 120) -> int:
        self.communicate(timeout)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float = 120) -> tuple[str, str]:
        """What it wrote, when it has ended."""
        self._process.join(timeout)
        if self.returncode is None:
            self._process.kill()
            raise subprocess.TimeoutExpired(self._source, timeout)
        out, err = (stream.read_text(encoding="utf-8") for stream in self._streams)
        for stream in self._streams:
            stream.unlink()
        return out, err


def run(
    source: str,
    *arguments: object,
    check: bool = False,
    timeout: float = 120,
    env: Mapping[str, str] = os.environ,
) -> subprocess.CompletedProcess[str]:
    """The same to its end; with `check` that must be a good one."""
    program = Program(source, *arguments, env=env)
    out, err = program.communicate(timeout)
    assert program.returncode is not None
    assert not check or program.returncode == 0, err
    return subprocess.CompletedProcess([source, *arguments], program.returncode, out, err)


def _run(source: str, arguments: list[str], streams: list[Path], cwd: Path, env: dict[str, str]) -> None:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    for number, path in enumerate(streams, start=1):
        file = os.open(path, os.O_WRONLY)
        os.dup2(file, number)
        os.close(file)
    sys.argv = ["-c", *arguments]
    exec(compile(source, "<string>", "exec"), {"__name__": "__main__"})


def _empty_file() -> Path:
    handle, path = tempfile.mkstemp()
    os.close(handle)
    return Path(path)

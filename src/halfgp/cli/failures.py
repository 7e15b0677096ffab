"""Every way in which a command can end, and its exit code; no traceback unless HALFGP_DEBUG asks for one.

0: done. 1: it could not be done. 2: it was not understood. 130: Ctrl-C. 141: nobody reads the output.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from halfgp.cli.output import remark, show_json
from halfgp.errors import ConstantColumnsWarning, DataWarning, HalfGPError, HalfGPWarning, RankError
from halfgp.interruption import leaving_at_once
from halfgp.launcher import is_first

CANNOT, USAGE, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141
# Options whose name is not that of the argument in Python.
OPTIONS = {"random_state": "--seed"}


class Interruption(Exception):
    """Ctrl-C, where there is something to say about what is left of the work."""


@contextmanager
def naming(columns: Sequence[str]) -> Iterator[None]:
    """Within, warnings about columns by number name them instead."""
    show = warnings.showwarning

    def show_named(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if isinstance(message, ConstantColumnsWarning):
            message = DataWarning(f"{message.naming(columns).replace(' of `X`', '')}.")
        show(message, category, *where, **more)

    with warnings.catch_warnings():
        warnings.showwarning = show_named
        yield


# Each is a file, imported when its command is run: most take torch, and the list of them should not.
COMMANDS = {
    "fit": "Fit a model to a table and save it.",
    "predict": "Predict the target for new rows.",
    "evaluate": "Score the predictions for rows whose target is known.",
    "plan": "Tell what a fit would take, without fitting; exits with 1 if it does not fit into memory.",
    "report": "Write one HTML page about a model and its predictions for rows whose target is known.",
    "diagnose": "Tell which precision is safe for your data, what vanishes in it, and which rank pays.",
    "doctor": "Show what this machine has, and which backend would serve it.",
    "paper": "The paper's figures and tables, measured here, with a verdict on each claim.",
}


class Commands(TyperGroup):
    """The commands, imported when they are run, with errors in one line each."""

    _as_json = False
    _listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names, in the order in which they are used."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by its name; in a list of them, its name and first sentence alone."""
        if cmd_name not in COMMANDS:
            return None
        if self._listing:
            return TyperCommand(cmd_name, help=COMMANDS[cmd_name])
        if cmd_name not in self.commands:
            self.commands[cmd_name] = _imported(cmd_name)
        return self.commands[cmd_name]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The list of commands, for which none is imported."""
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and exit with its code."""
        given = list(sys.argv[1:] if args is None else args)
        self._as_json = "--json" in given  # a mistyped command has no options yet that could tell
        try:
            code = super().main(
                given, prog_name, complete_var, standalone_mode=False, windows_expand_args=False, **extra
            )
            sys.stdout.flush()  # a reader that has gone is noticed here and not at exit
        except BrokenPipeError:
            _silence()
            code = BROKEN_PIPE
        except OSError as error:
            code = _of_the_system(error, self._as_json)
        except Exception as error:
            code = _usage(error, self._as_json)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; whatever it raises becomes a line and an exit code."""
        as_json = self._as_json

        def show(message: Warning | str, *where: Any, **more: Any) -> None:
            _show_warning(_in_options(str(message), self._options(ctx)), *where, **more)

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", HalfGPWarning)
                warnings.showwarning = show
                return super().invoke(ctx)
        except RankError as error:  # of any rank, and so to none's standard output
            raise typer.Exit(_cannot(str(error), error, as_json=False)) from None
        except HalfGPError as error:
            if not is_first():
                raise typer.Exit(CANNOT) from None  # who is first comes to the same, or is told of it
            raise typer.Exit(_cannot(_in_options(str(error), self._options(ctx)), error, as_json)) from None
        except MemoryError as error:
            text = "There is not enough memory. Set --memory-limit, or take fewer rows."
            raise typer.Exit(_cannot(text, error, as_json)) from None
        except (KeyboardInterrupt, Interruption) as error:
            if not is_first():
                raise typer.Exit(INTERRUPTED) from None
            _interrupted(str(error) or "Interrupted: nothing was written.", as_json)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _silence()
            raise typer.Exit(BROKEN_PIPE) from None
        except OSError as error:
            raise typer.Exit(_of_the_system(error, as_json)) from None
        except Exception as error:
            if _is_of_typer(error):
                raise
            text = (
                f"{type(error).__name__}: {error} This is a mistake in halfgp: set HALFGP_DEBUG=1 to see"
                " where, and please report it."
            )
            raise typer.Exit(_cannot(" ".join(text.split()), error, as_json)) from None

    def _options(self, ctx: Any) -> dict[str, str]:
        """Python's names of arguments and the options that set them, of the command that runs."""
        command = self.commands.get(ctx.invoked_subcommand or "")
        parameters = [] if command is None else command.params
        named = {p.name: p.opts[0] for p in parameters if p.name and p.opts[0].startswith("--")}
        return {**named, **{name: option for name, option in OPTIONS.items() if option in named.values()}}


def _imported(name: str) -> Any:
    """The command of that name, from its file."""
    with leaving_at_once():  # a second or two, with torch
        module = import_module(f"halfgp.cli.{name}")
    if hasattr(module, "app"):  # with commands of its own
        command: Any = typer.main.get_group(module.app)
    else:
        app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        app.command(name)(module.run)
        command = typer.main.get_command(app)
    command.name = name
    return command


def _cannot(text: str, error: BaseException, as_json: bool) -> int:
    if os.environ.get("HALFGP_DEBUG"):
        traceback.print_exception(error)
    if as_json:
        show_json({"error": text, "kind": type(error).__name__})
    else:
        remark(f"Error: {text}", "bold red")
    return CANNOT


def _interrupted(text: str, as_json: bool) -> None:
    if as_json:
        show_json({"error": text, "kind": "KeyboardInterrupt"})
    else:
        remark(text, "bold yellow")


def _of_the_system(error: OSError, as_json: bool) -> int:
    """What no command foresees: mostly that standard output is on a full disk."""
    if error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        _silence()
        text = f"Standard output cannot be written: {error.strerror}. Make room, or write elsewhere."
        return _cannot(text, error, as_json=False)
    return _cannot(f"{error.filename or type(error).__name__}: {error.strerror or error}.", error, as_json)


def _silence() -> None:
    """Python flushes standard output once more at exit: into nothing, then, instead of into an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(error: Exception, as_json: bool) -> int:
    """Explain a command that was not understood."""
    if not _is_of_typer(error):
        raise error
    shown: Any = error
    if as_json:
        show_json({"error": shown.format_message(), "kind": type(error).__name__})
    else:
        shown.show()
    return int(shown.exit_code)


def _is_of_typer(error: Exception) -> bool:
    """Whether typer raised it to say something itself."""
    # Not by class: depending on its version, typer imports Click's or has its own copy of them.
    return hasattr(error, "exit_code") or type(error).__name__ == "Abort"


def _in_options(text: str, options: Mapping[str, str]) -> str:
    """A message with arguments that it names in Python's way, as `a` or `a="b"`, named as options."""

    def of(match: re.Match[str]) -> str:
        parts = re.findall(r'(\w+)(?:="(\w*)")?(?:, |$)', match[1])
        if not parts or any(name not in options for name, _ in parts):
            return match[0]
        return "`" + " ".join(f"{options[name]} {value}".strip() for name, value in parts) + "`"

    return re.sub(r'`((?:\w+(?:="\w*")?(?:, )?)+)`', of, text)


def _show_warning(
    message: str,
    category: type[Warning],
    filename: str,
    lineno: int,
    _file: TextIO | None = None,
    _line: str | None = None,
) -> None:
    """A line for people; other libraries' warnings only for who looks for mistakes."""
    if issubclass(category, HalfGPWarning):
        if is_first():
            remark(f"Warning: {message}", "bold yellow")
    elif os.environ.get("HALFGP_DEBUG"):
        remark(f"{category.__name__}: {message} ({filename}:{lineno})")

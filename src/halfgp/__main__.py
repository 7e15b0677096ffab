"""`python -m halfgp`, and the `halfgp` command."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Import the command line, which takes a second or two, and run it."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # some who start us want Ctrl-C ignored
        signal.signal(signal.SIGINT, _leave)
    # Threads of dense algebra that wait spin by default: beside other work they take ten times the processor.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch is loaded
    from halfgp.cli import main as run

    signal.signal(signal.SIGINT, handler)
    run()


def _leave(*_: object) -> None:
    """At once: an exception in the middle of an import would come out as something else, with a traceback."""
    os.write(2, b"Interrupted: nothing was written.\n")
    os._exit(130)


if __name__ == "__main__":
    main()

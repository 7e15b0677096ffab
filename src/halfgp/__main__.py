"""`python -m halfgp`, and the `halfgp` command."""

from __future__ import annotations

from halfgp.interruption import leaving_at_once


def main() -> None:
    """Import the command line and run it."""
    with leaving_at_once():
        from halfgp.cli import main as run
    run()


if __name__ == "__main__":
    main()

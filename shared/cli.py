"""What both command lines share: errors become one message and the promised exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from shared.errors import ClipmillError, StoppedEarly


def run_app(app: typer.Typer) -> None:
    """Run a typer application; a ClipmillError ends the process with its message on stderr and its exit code."""
    sys.exit(guarded(lambda: app(standalone_mode=True)))


def guarded(action: Callable[[], object]) -> int:
    """Run `action`; return 0 or the exit code of the ClipmillError it raised, after printing the message."""
    try:
        action()
    except ClipmillError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        stopped = StoppedEarly("interrupted; run the same command again to go on")
        print(f"error: {stopped}", file=sys.stderr)
        return stopped.exit_code
    return 0

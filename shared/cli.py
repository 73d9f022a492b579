"""What both command lines share: errors become one message and the promised exit code."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable

import typer

from shared.errors import ClipmillError, RequestError, StoppedEarly

# Typer catches Ctrl-C itself and exits with this.
_TYPER_INTERRUPTED = 130
_OF_A_PATH = {
    errno.ENAMETOOLONG: "{:.80}... is longer than a path may be; give a shorter one",
    errno.EACCES: "{} may not be read or written: give this user the right to, and to enter the folders above it",
}


def run_app(app: typer.Typer) -> None:
    """Run a typer application; a ClipmillError ends the process with its message on stderr and its exit code."""
    try:
        sys.exit(guarded(lambda: app(standalone_mode=True)))
    except SystemExit as ended:
        if ended.code != _TYPER_INTERRUPTED:
            raise
        sys.exit(guarded(_interrupted))


def _interrupted() -> None:
    raise StoppedEarly("interrupted; run the same command again to go on")


def guarded(action: Callable[[], object]) -> int:
    """Run `action`; return 0 or the exit code of the ClipmillError it raised, after printing the message."""
    try:
        action()
    except ClipmillError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        # Any path that somebody typed may be the one, and no system call but the first to take it tells.
        if error.errno not in _OF_A_PATH or error.filename is None:
            raise
        message = _OF_A_PATH[error.errno].format(error.filename)
        return guarded(lambda: _unusable(message))
    except KeyboardInterrupt:
        return guarded(_interrupted)
    return 0


def _unusable(message: str) -> None:
    raise RequestError(message)

"""Failures as one line on stderr, and an exit code: 2 for what the user can put right, 1 for the rest."""

import os
import sys
import traceback

from cyclopts import CycloptsError

from windlass.cli.mistyped import mistyped
from windlass.cli.text import shortened
from windlass.errors import InvalidOption, InvalidPayload, WindlassError

USAGE, FAILED, INTERRUPTED = 2, 1, 130
DEBUG = "WINDLASS_DEBUG"
LONGEST = 1_000
"""Characters of a message: it may repeat what was typed."""


class UsageError(Exception):
    """A mistake on the command line, said in a line that names its fix."""


class CannotPrint(Exception):
    """The command did its work, and its answer cannot be written."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"it was done, but the answer cannot be printed: {error.strerror or error}")


def report(error: BaseException) -> int:
    """Say what went wrong in one line; return the exit code."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    message, code = _words(error)
    print(f"windlass: {shortened(message, LONGEST)}", file=sys.stderr)  # noqa: T201 - this is the command line
    return code


def _words(error: BaseException) -> tuple[str, int]:
    match error:
        case CycloptsError():
            return mistyped(error), USAGE
        case UsageError() | InvalidOption() | InvalidPayload():
            return str(error), USAGE
        case WindlassError() | CannotPrint():
            return str(error), FAILED
        case OSError():
            where = "" if error.filename is None else f" ({error.filename})"
            return f"{error.strerror or error}{where}", FAILED
        case _:
            hint = "" if os.environ.get(DEBUG) else f"; set {DEBUG}=1 to see where"
            return f"unexpected {type(error).__name__}: {error}{hint}", FAILED

"""Failures as one line on stderr and an exit code: 2 for what the user can correct, 1 for the rest."""

import os
import sys
import traceback

from cyclopts import CycloptsError

from windlass.cli.text import shortened
from windlass.errors import InvalidOption, InvalidPayload, WindlassError

USAGE, FAILED, INTERRUPTED = 2, 1, 130
DEBUG = "WINDLASS_DEBUG"
LONGEST = 1_000
"""The longest message, in characters: it may repeat what the user typed."""


class UsageError(Exception):
    """A mistake on the command line; the message says how to correct it."""


class CannotPrint(Exception):
    """The command did its work, but its answer cannot be printed."""

    def __init__(self, error: OSError) -> None:
        super().__init__(
            f"the command did its work, but its answer cannot be printed: {error.strerror or error}"
        )


def report(error: BaseException) -> int:
    """Print what went wrong in one line; return the exit code."""
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
            from windlass.cli.mistyped import mistyped  # noqa: PLC0415 - most commands are typed well

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

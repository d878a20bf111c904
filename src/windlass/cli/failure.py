"""Failures as one line on stderr, and an exit code: 2 for what the user can put right, 1 for the rest."""

import os
import sys
import traceback

from cyclopts import CycloptsError, MissingArgumentError, UnusedCliTokensError

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
            return _mistyped(error), USAGE
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


def _mistyped(error: CycloptsError) -> str:
    """What the parser says, with the way to the help of the command."""
    command = " ".join(("windlass", *(error.command_chain or ())))
    argument = error.argument
    if isinstance(error, MissingArgumentError) and argument is not None and argument.name == "APP":
        return f"name the app: {command} module:app, or set WINDLASS_APP"
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        said = f'"{error.unused_tokens[0]}" is not expected here'
    else:
        said = str(error).partition(" Available commands:")[0].rstrip(".")
    return f"{said}; see {command} --help"

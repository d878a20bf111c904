"""The command line, `windlass`: it parses the arguments, calls `windlass.admin` and prints the answer."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import cast


def main(tokens: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code. 2: the command line is wrong. 1: the command failed.

    Without `tokens` this is the whole program, and the process exits at once. A thread that the app's module
    has started would otherwise keep the process alive after its answer.
    """
    if tokens is not None:
        return _answered(tokens)
    from windlass.worker.leaving import leave_soon  # noqa: PLC0415 - importing this package costs nothing

    code = _answered(sys.argv[1:])
    leave_soon(code)
    return code


def _answered(tokens: Sequence[str]) -> int:
    from windlass.cli.failure import report  # noqa: PLC0415

    _tolerate_any_text()
    try:
        code = _run(tokens)
        _flush()
    except BrokenPipeError:
        _let_go_of_stdout()
        return 0  # the reader has had enough, as in `| head`
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except BaseException as error:  # noqa: BLE001 - a user is told in one line, whatever it is
        return report(error)
    return code


def _run(tokens: Sequence[str]) -> int:
    from windlass.cli.grammar import APP_VARIABLE, arranged  # noqa: PLC0415
    from windlass.cli.program import build, verbs  # noqa: PLC0415

    program = build(_command(tokens))
    ordered = arranged(tokens, verbs(program), os.environ.get(APP_VARIABLE))
    answer = program(ordered, exit_on_error=False, print_error=False, result_action="return_value")
    return answer if isinstance(answer, int) else 0


def _command(tokens: Sequence[str]) -> str | None:
    """The command that was typed, "" if none was; None if all have to be known, for completion in a shell."""
    if any(token.startswith("--install-completion") for token in tokens):
        return None
    return next((token for token in tokens if not token.startswith("-")), "")


def _flush() -> None:
    from windlass.cli.failure import CannotPrint  # noqa: PLC0415

    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _let_go_of_stdout()
        raise CannotPrint(error) from None


def _tolerate_any_text() -> None:
    """Print characters that the terminal's encoding lacks as escapes, instead of failing.

    A shell may start a program with closed streams (`>&-`). That is no error either.
    """
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - for the rest of the program
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # what a test put in their place
            cast("TextIOWrapper", stream).reconfigure(errors="backslashreplace")


def _let_go_of_stdout() -> None:
    """Otherwise the interpreter flushes it again at exit, and reports an error."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

"""The command line, `windlass`: it reads what was typed, asks `windlass.admin`, and prints the answer."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import cast


def main(tokens: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code. 2: what was typed is wrong. 1: it could not be done.

    Without tokens it is a program of its own, which ends after this: a thread that the app's module has
    started serves the application, and would keep a command that has answered.
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
    from windlass.cli.grammar import arranged  # noqa: PLC0415
    from windlass.cli.loading import APP_VARIABLE  # noqa: PLC0415
    from windlass.cli.program import build, verbs  # noqa: PLC0415

    program = build()
    ordered = arranged(tokens, verbs(program), os.environ.get(APP_VARIABLE))
    answer = program(ordered, exit_on_error=False, print_error=False, result_action="return_value")
    return answer if isinstance(answer, int) else 0


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
    """A lane in a script that the terminal's encoding lacks is shown escaped, and is no error.

    A shell may start a program with closed streams (`>&-`): then nobody reads, and that is no error either.
    """
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - for the rest of the program
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # what a test put in their place
            cast("TextIOWrapper", stream).reconfigure(errors="backslashreplace")


def _let_go_of_stdout() -> None:
    """Else the interpreter flushes it again when it ends, and complains."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

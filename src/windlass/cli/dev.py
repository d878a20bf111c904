"""The HTTP API of `windlass dev`: a second process, which restarts together with the worker."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress

from windlass.cli.failure import UsageError
from windlass.cli.output import say_aside
from windlass.cli.serve import check_installed

VARIABLE = "WINDLASS_DEV_API"
"""Holds the pid of the server. A worker that restarts runs a new program in the same process, so the old
server is still its child.
"""


@contextmanager
def api_beside(app: str, port: int) -> Generator[None]:
    """Serve the API of an app until the worker ends. If that fails, print why and go on without it."""
    _stop_the_last()
    if port:
        try:
            check_installed()
        except UsageError as error:
            say_aside(f"windlass: no HTTP API: {error}")
        else:
            os.environ[VARIABLE] = str(_start(app, port))
    try:
        yield
    finally:
        _stop_the_last()


def _start(app: str, port: int) -> int:
    command = [sys.executable, "-m", "windlass", "serve", app, "--port", str(port)]
    return subprocess.Popen(command).pid  # noqa: S603 - our own program


def _stop_the_last() -> None:
    pid = os.environ.pop(VARIABLE, "")
    if not pid.isdigit():
        return
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(int(pid), signal.SIGTERM)
        os.waitpid(int(pid), 0)

"""Starting processes beside the test, and ending them whatever happens."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[3]


@contextmanager
def child(what: str, path: Path, *numbers: int) -> Iterator[subprocess.Popen[str]]:
    """A process that does one of the things in `children.py`."""
    command = [sys.executable, "-m", "tests.broker.sqlite.children", what, str(path), *map(str, numbers)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line that a process says."""
    assert process.stdout is not None
    return process.stdout.readline().strip()

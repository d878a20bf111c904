"""Run the tests; what failed beside all the others is tried once more, alone.

Hundreds of tests run real workers, servers and signals, three at a time, beside whatever the machine does.
One that fails there and passes alone is printed and does not fail the run; one that fails alone does, and so
does a run with more than a few failures. With arguments there is no second try: who narrows looks for it.
docs/decisions/0017-second-try.md

Stores of a whole run lie in memory, where the machine has enough of it: they sync every commit, and thousands
of tests would wait for a disk that they do not test.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

MOST_TRIED_AGAIN = 5
SOME_FAILED = 1  # pytest's exit code; others mean that not everything ran
ROOM = 8_000_000_000
"""Bytes of memory that must be free for files: a run uses less than a tenth of it."""
_FAILED = Path(".pytest_cache/v/cache/lastfailed")
_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it


def main(arguments: list[str]) -> int:
    """Run them; return the exit code."""
    if arguments:
        return _pytest(os.environ, *arguments)
    _FAILED.unlink(missing_ok=True)  # of an earlier run
    with _files_in_memory() as environment:
        return _with_second_try(environment)


def _with_second_try(environment: Mapping[str, str]) -> int:
    code = _pytest(environment)
    if code != SOME_FAILED:
        return code
    failed = list(json.loads(_FAILED.read_text()))
    if not 0 < len(failed) <= MOST_TRIED_AGAIN:
        return code
    print("\nonce more, alone:", *failed, sep="\n  ", flush=True)
    code = _pytest(environment, "-n", "0", *failed)
    if code == 0:
        print("\nFAILED BESIDE OTHERS, PASSED ALONE (to be looked into):", *failed, sep="\n  ")
    return code


@contextlib.contextmanager
def _files_in_memory() -> Iterator[Mapping[str, str]]:
    """The environment of a run whose temporary files lie in memory, if that is possible, and go with it."""
    if "TMPDIR" in os.environ or not _is_roomy(_MEMORY):
        yield os.environ
        return
    with tempfile.TemporaryDirectory(prefix="wl-", dir=_MEMORY, ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # PostgreSQL does not run as root: another user has to pass
        yield {**os.environ, "TMPDIR": folder}


def _is_roomy(folder: Path) -> bool:
    """Whether there is such a folder with much room, and programs may be run in it."""
    try:
        room, flags = shutil.disk_usage(folder).free, os.statvfs(folder).f_flag
    except OSError:
        return False
    return room >= ROOM and not flags & getattr(os, "ST_NOEXEC", 0)


def _pytest(environment: Mapping[str, str], *arguments: str) -> int:
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

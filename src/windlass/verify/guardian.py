"""The guardian: a process that ends what a run has started, should the run itself be killed.

`python -m windlass.verify.guardian MARK` reads `+ID` and `-ID` lines: process groups that the run has begun,
and has seen end. When its input ends, the run is over: what is left of the groups is killed, frozen or not.
Without it, a worker that was stopped by a signal would outlive the run for ever.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Collection, Iterable
from pathlib import Path

MARK = "WINDLASS_VERIFY_MARK"
"""The variable that every process of a run has: a number may have become another's process, the mark not."""
_DYING = 10.0
"""Seconds that killed processes may take to be gone (one may hang in a write to a slow disk)."""


def members(groups: Collection[int], mark: str) -> list[int]:
    """The living processes of some groups that carry a run's mark, in one pass over all there are."""
    found: list[int] = []
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) not in groups or fields[0] in "ZX":
                continue
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def end_groups(groups: Collection[int], mark: str) -> bool:
    """Kill what is left of some groups of a run; whether nobody is there any more.

    A kill takes effect a moment after it was sent, and until then the killed may still write.
    """
    end = time.monotonic() + _DYING
    while left := members(groups, mark):
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


class Guardian:
    """The run's end of it."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        # A session of its own: Ctrl-C is for the run alone.
        command = [sys.executable, "-m", "windlass.verify.guardian", self.mark]
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter and this module
            command,
            stdin=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def watch(self, group: int) -> None:
        """A group was begun."""
        self._say(f"+{group}")

    def forget(self, group: int) -> None:
        """A group has ended, and its number may be another's soon."""
        self._say(f"-{group}")

    def close(self) -> None:
        """Let it end what is left."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._process.wait(2 * _DYING)

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it was killed; then nobody guards
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()


def groups_left(lines: Iterable[str]) -> set[int]:
    """The groups that were begun and not seen to end, when the run is over."""
    left: set[int] = set()
    for line in lines:
        number = line[1:].strip()
        if not number.isdecimal() or int(number) <= 1:
            continue
        if line.startswith("+"):
            left.add(int(number))
        else:
            left.discard(int(number))
    return left


def main() -> None:
    """Wait for the end of the run."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    end_groups(groups_left(sys.stdin), sys.argv[1])


if __name__ == "__main__":
    main()

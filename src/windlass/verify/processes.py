"""Real processes of a run: started in a group of their own, ended by the number they were started with.

Nothing here looks for processes by name, and nothing is sent to one that the run did not start, or that does
not descend from one it did.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from windlass.verify.guardian import MARK, Guardian, end_groups, members

_PR_SET_PDEATHSIG = 1
_STOPPING = 2.0
"""Seconds that a process may take to stand still."""


def end_with_parent() -> None:
    """Called in a started program: it is killed when the run is (Linux)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _stat(pid: int, *, of: int | None = None) -> list[str]:
    """The fields of `/proc/pid/stat` from the state on, of a process or of a thread of one."""
    path = f"/proc/{pid}/stat" if of is None else f"/proc/{of}/task/{pid}/stat"
    try:
        return Path(path).read_text().rpartition(")")[2].split()
    except OSError:
        return []


def families() -> dict[int, list[int]]:
    """The children that live, oldest first, of every process: one pass over all."""
    found: dict[int, list[tuple[int, int]]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - thousands of names, often
        fields = _stat(int(name)) if name.isdecimal() else []
        if fields and fields[0] not in "ZX":
            found.setdefault(int(fields[1]), []).append((int(fields[19]), int(name)))
    return {parent: [child for _, child in sorted(children)] for parent, children in found.items()}


def children_of(pid: int) -> list[int]:
    """The children of a process that live, oldest first."""
    return families().get(pid, [])


def tree_of(pid: int) -> list[int]:
    """A process and all that descend from it."""
    known, tree = families(), [pid]
    for each in tree:  # grows while it is walked
        tree += known.get(each, [])
    return tree


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; whether there was such a process."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _stands_still(pid: int) -> bool:
    """Whether no thread of a process runs a line of its own: stopped, or in the kernel and then stopped."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - names are all that is wanted
    except OSError:
        return True
    return all(_stat(int(thread), of=pid)[:1] in (["T"], ["D"], ["Z"], ["X"], []) for thread in threads)


def _stop(find: Callable[[], Iterable[int]]) -> list[int]:
    """Stop all that are found, again and again while some are born; who was stopped. They stand still then:
    a signal takes a moment, in which a word could still go out.
    """
    stopped: list[int] = []
    while new := [pid for pid in find() if pid not in stopped]:
        for pid in new:
            send(pid, signal.SIGSTOP)
        stopped += new
        until(lambda new=new: all(map(_stands_still, new)), _STOPPING, every=0.001)
    return stopped


def freeze_tree(pid: int) -> list[int]:
    """Stop a process and its descendants; who was stopped."""
    return _stop(lambda: tree_of(pid))


def freeze_groups(groups: Collection[int], mark: str) -> list[int]:
    """Stop all that belongs to some groups of a run, also the orphans of those who are dead."""
    return _stop(lambda: members(groups, mark))


class Started:
    """A program that the run has started."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", log: Path, guardian: Guardian) -> None:
        self.name = name
        self.process = process
        self.log = log
        self._guardian = guardian
        self.group = process.pid
        guardian.watch(self.group)

    @property
    def pid(self) -> int:
        """Of the program."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    @property
    def children(self) -> list[int]:
        """Its children that live."""
        return children_of(self.pid) if self.is_running else []

    def said(self, text: str) -> bool:
        """Whether its log has a text."""
        return text in self.log.read_text(errors="replace")

    def last_words(self, characters: int = 600) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-characters:].strip()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self.is_running:
            send(self.pid, number)

    def wait(self, seconds: float) -> bool:
        """Whether it ends within so many seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return not self.is_running

    def kill_tree(self) -> None:
        """End it and all that descends from it, at once: nobody says a last word. They are gone then."""
        if self.is_running:
            for pid in freeze_tree(self.pid):
                send(pid, signal.SIGKILL)
        self.kill_group()
        self.process.wait()

    def kill_group(self) -> None:
        """End what is left of its group, also when it has ended itself."""
        if end_groups({self.group}, self._guardian.mark):
            self._guardian.forget(self.group)


class Starter:
    """Starts programs, each with a log and a group of its own."""

    def __init__(self, folder: Path, guardian: Guardian) -> None:
        self.folder = folder
        self._guardian = guardian
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def mark(self) -> str:
        """Of all that it starts."""
        return self._guardian.mark

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        user: int | None = None,
        folder: Path | None = None,
    ) -> Started:
        """Start a program whose output goes to `name.log`."""
        log = self.folder / f"{name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 - programs of this package and of its stores
                list(command),
                env={**(os.environ if environment is None else environment), MARK: self._guardian.mark},
                cwd=folder or self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=user,
            )
        return Started(name, process, log, self._guardian)


def until(condition: Callable[[], bool], seconds: float, *, every: float = 0.02) -> bool:
    """Wait for something that another process brings about; whether it came."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(every)
    return True

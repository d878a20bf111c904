"""One run of a job: what the code that runs can ask of it and say about itself."""

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Protocol

from windlass.core.job import GROUP_JOBS, NewJob
from windlass.core.lease import Lease
from windlass.core.outcome import Verdict
from windlass.core.session import Note
from windlass.errors import InvalidOption
from windlass.worker.program import Program


class Reporter(Protocol):
    """Carries what a run says to the store, fenced."""

    def note(self, note: Note) -> None:
        """Say something that may be lost with the run: progress, log lines. Does not wait."""
        ...

    def confirm(self, note: Note) -> Future[Verdict]:
        """Say something and learn whether the store has kept it."""
        ...


class Run:
    """A job while its code runs."""

    __slots__ = (
        "_lock",
        "cancelled",
        "committed",
        "deadline",
        "is_lost",
        "lease",
        "memos",
        "program",
        "released",
        "reporter",
        "spawned",
        "started",
        "stop",
        "timed_out",
    )

    def __init__(
        self,
        lease: Lease,
        *,
        started: float,
        deadline: float | None,
        reporter: Reporter,
        is_lost: Callable[[], bool],
        program: Program,
    ) -> None:
        self.lease = lease
        self.started = started
        self.deadline = deadline
        """When the task's timeout ends, on the monotonic clock."""
        self.reporter = reporter
        self.is_lost = is_lost
        self.program = program
        self.committed = False
        """Its end is in the store already, with a transaction of its own."""
        self.cancelled = False
        """Somebody asked for the job to be cancelled."""
        self.released = False
        """The worker stops and its grace is over: what the run does from here on does not count."""
        self.timed_out = False
        self.stop: Callable[[], object] | None = None
        """Stops the code, where it can be stopped; called on any thread."""
        self.spawned: list[NewJob] = []
        self.memos: dict[str, bytes] = dict(lease.memos)
        self._lock = threading.Lock()

    def stop_with(self, stop: Callable[[], object]) -> None:
        """From here on the code can be stopped; at once, if that was asked for before."""
        self.stop = stop
        if self.cancelled or self.released:
            self.halt()

    def halt(self) -> None:
        """Stop the code, where it can be stopped; on any thread, any number of times."""
        stop = self.stop
        if stop is not None:
            with contextlib.suppress(RuntimeError):  # its loop has ended, and so has its code
                stop()

    def spawn(self, jobs: Sequence[NewJob]) -> None:
        """Add children, all or none. The code of a run may be on several threads."""
        with self._lock:
            if self.committed:
                raise InvalidOption("this run is over since its transaction was committed: spawn before that")
            if len(self.spawned) + len(jobs) > GROUP_JOBS:
                raise InvalidOption(
                    f"a run spawns at most {GROUP_JOBS:,} jobs; enqueue more from its children"
                )
            self.spawned += jobs


running: ContextVar[Run] = ContextVar("windlass_run")

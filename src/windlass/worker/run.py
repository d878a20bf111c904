"""One run of a job: what the code that runs can ask of it and say about itself."""

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Protocol

import msgspec

from windlass.core.job import GROUP_JOBS, NewJob, check_new_job
from windlass.core.lease import Lease
from windlass.core.outcome import Verdict
from windlass.core.secret import NAMES, Cleaner, secret_texts
from windlass.core.session import Note
from windlass.errors import InvalidOption
from windlass.observe.logs import find_runs_with
from windlass.observe.runs import fields_of
from windlass.worker.program import Program


class Reporter(Protocol):
    """Sends what a run says to the store, with its fence."""

    def note(self, note: Note) -> None:
        """Send progress or log lines, which may be lost with the run. Does not wait."""
        ...

    def confirm(self, note: Note) -> Future[Verdict]:
        """Send a note and learn whether the store has kept it."""
        ...


class Run(msgspec.Struct, eq=False, kw_only=True, gc=False):
    """A job while its code runs. It is a Struct because one is made for each job, and a class with `__init__`
    takes four times as long. The garbage collector does not look at it: hundreds wait for their settlement,
    and only `stop`, which is removed at the end of the run, leads back to it.
    """

    lease: Lease
    started: float
    deadline: float | None
    """When the task's timeout ends, on the monotonic clock."""
    reporter: Reporter
    is_lost: Callable[[], bool]
    program: Program
    memos: dict[str, bytes] = {}
    committed: bool = False
    """Its end is in the store already: the task has committed it with its own transaction."""
    cancelled: bool = False
    """A client or an operator has asked to cancel the job."""
    released: bool = False
    """The worker stops and its grace is over: the job goes back, whatever the run still does."""
    timed_out: bool = False
    stop: Callable[[], object] | None = None
    """Stops the code, where it can be stopped; called on any thread."""
    spawned: tuple[NewJob, ...] = ()
    cleaner: Cleaner | None = None
    """Made when it is first needed: most runs log nothing."""

    def __repr__(self) -> str:
        """Without its arguments."""
        return f"<run of {self.lease.task} {self.lease.job}>"

    @property
    def fields(self) -> Mapping[str, object]:
        """What a log line tells of it."""
        return fields_of(self.lease)

    def stop_with(self, stop: Callable[[], object]) -> None:
        """Take the function that stops the code; stop it at once if that was asked for before."""
        self.stop = stop
        if self.cancelled or self.released:
            self.halt()

    def halt(self) -> None:
        """Stop the code, where it can be stopped; on any thread, any number of times."""
        stop = self.stop
        if stop is not None:
            with contextlib.suppress(RuntimeError):  # its loop has ended, and so has its code
                stop()

    def clean(self, text: str) -> str:
        """A text that is to be kept or logged, without the secrets that the job was called with."""
        if not text:
            return text
        cleaner = self.cleaner
        if cleaner is None:
            signature = self.program.signature_of(self.lease.task)
            names, found = NAMES, frozenset[str]()
            if signature is not None:
                names, found = signature.names, signature.secrets_in(self.lease.payload)
            found |= secret_texts(self.lease.headers, names=names)
            cleaner = self.cleaner = Cleaner(found, self.program.config.private_patterns)
        return cleaner(text)

    def spawn(self, jobs: Sequence[NewJob]) -> None:
        """Add children, all or none. The code of a run may be on several threads."""
        for job in jobs:
            check_new_job(job)
        with _spawning:
            if self.committed:
                raise InvalidOption("this run is over since its transaction was committed: spawn before that")
            if len(self.spawned) + len(jobs) > GROUP_JOBS:
                raise InvalidOption(
                    f"a run spawns at most {GROUP_JOBS:,} jobs; enqueue more from its children"
                )
            self.spawned += tuple(jobs)


_spawning = threading.Lock()
"""One for all runs: it is held for a moment, and by few."""

running: ContextVar[Run] = ContextVar("windlass_run")
find_runs_with(lambda: running.get(None))

"""Jobs that have run when `enqueue` returns."""

import asyncio
import threading
from collections.abc import Sequence

from windlass.broker.contract import Broker
from windlass.client.connection import Connection, Groups, Receipts
from windlass.client.resend import Resend
from windlass.core.job import NewJob, Receipt
from windlass.core.units import JobId
from windlass.testing.invoking import Invoke
from windlass.testing.store import at_once
from windlass.testing.timeline import Timeline
from windlass.testing.worker import TestWorker
from windlass.worker.run import running

__tracebackhide__ = True  # a test that fails is shown without these frames

_TURN = 0.001
"""Seconds between two looks whether it is one's turn; who runs may be on another thread's loop."""


class InlineRuns:
    """Runs all jobs there are, for one caller at a time. Jobs that a run enqueues are left to that caller."""

    def __init__(
        self, timeline: Timeline, worker: TestWorker, in_thread: Invoke, on_loop: Invoke, *, raises: bool
    ) -> None:
        self._timeline = timeline
        self._worker = worker
        self._in_thread = in_thread
        self._on_loop = on_loop
        self._raises = raises
        self._lock = threading.Lock()
        self._again = False

    def run(self, jobs: Sequence[JobId]) -> None:
        """After blocking code has enqueued some jobs. It waits for nobody: what runs now may wait for it."""
        at_once(self._run(self._in_thread, waits=False))
        self._raise_failure(jobs)

    async def arun(self, jobs: Sequence[JobId]) -> None:
        """After async code has enqueued some jobs; it waits for its turn, unless it is part of a run."""
        await self._run(self._on_loop, waits=running.get(None) is None)
        self._raise_failure(jobs)

    async def _run(self, invoke: Invoke, *, waits: bool) -> None:
        self._again = True
        while self._again or waits:
            if not self._lock.acquire(blocking=False):
                if not waits:
                    return  # the caller that runs now looks once more before it ends
                await asyncio.sleep(_TURN)
                continue
            try:
                with self._worker.calling(invoke):
                    while self._again:
                        self._again = False
                        await self._timeline.finish(raises=False, strict=False)
            finally:
                self._lock.release()
            waits = False

    def _raise_failure(self, jobs: Sequence[JobId]) -> None:
        for run in self._timeline.runs if self._raises else ():
            if run.job in jobs and run.failed:
                assert run.exception is not None
                raise run.exception


class InlineConnection(Connection):
    """A connection that lets jobs run before it answers."""

    runs: InlineRuns

    def enqueue(self, groups: Groups) -> Receipts:
        """Send from blocking code."""
        receipts = super().enqueue(groups)
        self.runs.run(_ids(groups))
        return receipts

    async def aenqueue(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]:
        """Send one group from async code."""
        receipts = await super().aenqueue(jobs)
        await self.runs.arun(_ids([jobs]))
        return receipts

    async def send(self, groups: Groups, resend: Resend | None = None) -> Receipts:
        """Send groups from async code. Callers that wait run their own jobs: if one caller ran the jobs of
        all, a job that waits for another caller would keep everybody waiting.
        """
        receipts = await super().send(groups, resend)
        if resend is None:
            await self.runs.arun(_ids(groups))
        return receipts


def inline_connection(own: Connection, broker: Broker, runs: InlineRuns) -> InlineConnection:
    """The connection of an app for a block."""
    connection = own.to(broker, InlineConnection)
    connection.runs = runs
    return connection


def _ids(groups: Groups) -> list[JobId]:
    return [job.id for group in groups for job in group]

"""The store of a test: the reference model, which remembers what it accepted and never makes one wait."""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from windlass.broker.contract import Options, Settled
from windlass.broker.memory import MemoryBroker
from windlass.clock import Clock
from windlass.core.ids import check_job_id
from windlass.core.job import Finished, NewJob, Receipt, Status
from windlass.core.lease import Ask
from windlass.core.outcome import Verdict
from windlass.core.query import Explanation, Why
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.settlement import Settlement
from windlass.core.timetable import Fire, Fired, FireStatus
from windlass.core.units import SECOND, JobId
from windlass.errors import ResultTimeout

__tracebackhide__ = True  # a test that fails is shown without these frames

_T = TypeVar("_T")


def at_once(work: Coroutine[Any, Any, _T]) -> _T:
    """The answer of a coroutine that waits for nothing, as all verbs of a store in memory but the waiting."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    raise RuntimeError("this would have to wait: in an async test, write `async with testing(app)`")


class TestStore(MemoryBroker):
    """A store in memory, for one test."""

    __test__ = False
    """Its name is no test of pytest's."""

    def __init__(self, clock: Clock, options: Options, *, is_elsewhere: Callable[[str], bool]) -> None:
        super().__init__(clock=clock, options=options)
        self._is_elsewhere = is_elsewhere
        self.accepted: dict[JobId, NewJob] = {}
        """Every job it has accepted, in their order, as it was asked for."""

    # --- accepting ------------------------------------------------------------------------------------------

    def _enqueue(self, groups: Sequence[Sequence[NewJob]]) -> Sequence[Sequence[Receipt]]:
        self._declare_elsewhere(job for group in groups for job in group)
        receipts = super()._enqueue(groups)
        for group, answers in zip(groups, receipts, strict=True):
            self._keep(group, answers)
        return receipts

    def _declare_elsewhere(self, jobs: Iterable[NewJob]) -> None:
        """Queues of tasks that live elsewhere are declared there, and there is no such place in a test."""
        if queues := {job.queue for job in jobs if self._is_elsewhere(job.task)}:
            at_once(
                self.declare(
                    [
                        Declaration(subject=Subject(Kind.QUEUE, queue), body=QueueSettings(), app="elsewhere")
                        for queue in sorted(queues)
                    ]
                )
            )

    def _keep(self, jobs: Sequence[NewJob], receipts: Sequence[Receipt]) -> None:
        for job, receipt in zip(jobs, receipts, strict=True):
            if receipt.status is Status.CREATED:
                self.accepted[job.id] = job
            elif receipt.status is Status.REPLACED and receipt.of is not None:
                self.accepted[receipt.of] = msgspec.structs.replace(job, id=receipt.of)

    async def settle(self, items: Sequence[Settlement], ask: Ask | None = None) -> Settled:
        settled = await super().settle(items, ask)
        for item, answer in zip(items, settled.answers, strict=True):
            if answer.verdict is Verdict.APPLIED and item.spawn:
                known = await self.get([child.id for child in item.spawn])
                self.accepted |= {
                    child.id: child for child, found in zip(item.spawn, known, strict=True) if found
                }
        return settled

    async def fire(self, fire: Fire) -> Fired:
        fired = await super().fire(fire)
        if fired.status is FireStatus.FIRED:
            self._keep(fire.jobs, fired.receipts)
        return fired

    # --- waiting --------------------------------------------------------------------------------------------

    async def watch(self, jobs: Sequence[JobId], timeout: float) -> Sequence[Finished]:
        """Those that have finished. Nobody runs the others while a test waits for them: it is told so."""
        if (found := await super().watch(jobs, 0)) or not timeout:
            return found
        job = check_job_id(jobs[0])
        why = in_words(await self.explain(job))
        task = self.accepted[job].task if job in self.accepted else "?"
        raise ResultTimeout(
            f"job {job} ({task}) has not finished: {why}. In a test nothing runs by itself: "
            "t.drain() runs what is ready, t.advance(...) moves the clock"
        )

    async def close(self) -> None:
        """Nothing is closed: an app that closes its connection and opens it anew finds the same store."""


def in_words(explanation: Explanation) -> str:
    """Why a job waits, as part of a sentence."""
    words = str(explanation.why)
    if explanation.why is Why.NEXT:
        words = "it is ready, and nobody has run it yet"
    if explanation.detail and explanation.why is not Why.RUNNING:
        words += f" ({explanation.detail})"
    if explanation.next_in:
        words += f" ({seconds(explanation.next_in)} s left)"
    return words


def seconds(length: int) -> str:
    """A duration in seconds, without zeros that say nothing."""
    whole, rest = divmod(length, SECOND)
    return f"{whole:,}" if not rest else f"{length / SECOND:,.3f}".rstrip("0").rstrip(".")

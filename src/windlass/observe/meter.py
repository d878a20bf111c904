"""The meter: an observer that counts what a broker is asked and answers.

Put around a broker with `windlass.broker.observed.observe`; where there is none, counting costs nothing. Of
what it sees it keeps names, numbers and, while a job is held, its id: no payload, no error text.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from windlass.broker.observed import Observation
from windlass.core.job import Moved, NewJob, Receipt
from windlass.core.lease import Lease
from windlass.core.outcome import Answer, Outcome, Verdict
from windlass.core.session import Swept
from windlass.core.settlement import Settlement
from windlass.core.state import Move, State
from windlass.core.units import SECOND, Fence, JobId
from windlass.observe import measures
from windlass.observe.exposition import Labels, Registry

HELD = 20_000
"""Leases that are remembered until their end is seen: a worker process holds far fewer. A server that hands
out deadline leases may never see the end of some.
"""
_PATIENT = frozenset(("wait", "watch", "events"))
"""Verbs that wait for something to happen: how long they took says nothing of the store."""
_CAUSES = {Move.CRASH: "crash", Move.LOST: "lost", Move.DEADLINE: "deadline"}
_STANDS = (Verdict.APPLIED, Verdict.ALREADY)


class Meter:
    """Counts in a registry."""

    def __init__(self, registry: Registry, *, now: Callable[[], float] = time.monotonic) -> None:
        self.registry = registry
        self._now = now
        self._held: dict[JobId, tuple[Fence, Labels]] = {}
        self._swept_at: float | None = None
        self._verbs: Mapping[str, Callable[[Observation], None]] = {
            "enqueue": self._enqueued,
            "take": self._taken,
            "claim": self._claimed,
            "settle": self._settled,
            "end_session": self._ended,
            "sweep": self._swept,
        }

    def __call__(self, seen: Observation) -> None:
        """After each call of a verb."""
        if seen.error is not None:
            if not isinstance(seen.error, asyncio.CancelledError | GeneratorExit):
                self.registry.count(measures.ERRORS, (seen.verb,))
            return
        if seen.verb not in _PATIENT:
            self.registry.spread(measures.CALLS, seen.seconds, (seen.verb,))
        counted = self._verbs.get(seen.verb)
        if counted is not None:
            counted(seen)

    def refresh(self) -> None:
        """Update what grows by itself, before somebody reads it."""
        if self._swept_at is not None:
            self.registry.set(measures.SWEEP_LAG, self._now() - self._swept_at)

    # --- verbs ----------------------------------------------------------------------------------------------

    def _enqueued(self, seen: Observation) -> None:
        self._receipts(_given(seen, "groups"), seen.answer)

    def _taken(self, seen: Observation) -> None:
        if seen.answer.receipts:
            self._receipts(_given(seen, "take").groups, seen.answer.receipts)

    def _receipts(self, groups: Sequence[Sequence[NewJob]], answers: Sequence[Sequence[Receipt]]) -> None:
        sums: dict[tuple[str, ...], int] = {}
        for group, receipts in zip(groups, answers, strict=True):
            for job, receipt in zip(group, receipts, strict=True):
                labels = (job.queue, job.task, receipt.status.value)
                sums[labels] = sums.get(labels, 0) + 1
        for labels, jobs in sums.items():
            self.registry.count(measures.ENQUEUED, labels, jobs)

    def _claimed(self, seen: Observation) -> None:
        self._take(seen.answer.leases)

    def _take(self, leases: Iterable[Lease]) -> None:
        held, waits = self._held, list[tuple[Labels, float]]()
        for lease in leases:
            known = held.get(lease.job)
            if known is not None and known[0] == lease.fence:
                continue  # the reply was lost and the store says it again
            labels = (lease.queue, lease.task)
            held[lease.job] = (lease.fence, labels)
            waits.append((labels, lease.waited / SECOND))
        self.registry.spread_all(measures.WAIT, waits)
        while len(held) > HELD:
            held.pop(next(iter(held)))

    def _settled(self, seen: Observation) -> None:
        items: Sequence[Settlement] = _given(seen, "items")
        runs, outcomes = list[tuple[Labels, float]](), dict[Labels, int]()
        for settlement, answer in zip(items, seen.answer.answers, strict=True):
            of = self._settle(settlement, answer)
            if of is None:
                continue
            ended = (*of, (answer.outcome or settlement.outcome).value)
            outcomes[ended] = outcomes.get(ended, 0) + 1
            if settlement.runtime is not None:
                runs.append((of, settlement.runtime / SECOND))
        self.registry.spread_all(measures.RUN, runs)
        for labels, ended in outcomes.items():
            self.registry.count(measures.ATTEMPTS, labels, ended)
        if seen.answer.claimed is not None:
            self._take(seen.answer.claimed.leases)

    def _settle(self, settlement: Settlement, answer: Answer) -> Labels | None:
        """The queue and the task of a lease that this word has ended; None: it has ended none."""
        if answer.verdict not in _STANDS:
            self.registry.count(measures.REFUSED, (answer.verdict.value,))
            if answer.verdict is Verdict.REFUSED:
                return None  # the lease is live, and will be settled otherwise
        held = self._held.get(settlement.job)
        if held is None or held[0] != settlement.fence:
            return None  # counted before, or by the process that claimed it
        del self._held[settlement.job]
        return held[1] if answer.verdict in _STANDS else None

    def _ended(self, seen: Observation) -> None:
        self._moved(seen.answer.moved)

    def _swept(self, seen: Observation) -> None:
        swept: Swept = seen.answer
        self._swept_at = self._now()
        if swept.reaped:
            self.registry.count(measures.REAPED, (), len(swept.reaped))
        self._moved(swept.moved)

    def _moved(self, moved: Iterable[Moved]) -> None:
        """Leases that nobody settled."""
        for one in moved:
            if one.before is not State.RUNNING:
                continue
            self._held.pop(one.job, None)
            self.registry.count(measures.ATTEMPTS, (one.queue, one.task, _outcome(one).value))
            cause = _CAUSES.get(one.move)
            if cause is not None:
                self.registry.count(measures.INTERRUPTED, (one.queue, one.task, cause))


def _outcome(moved: Moved) -> Outcome:
    if moved.after is State.DEAD:
        return Outcome.DEAD
    if moved.after is State.CANCELLED:
        return Outcome.CANCELLED
    return Outcome.RELEASE if moved.move is Move.RELEASE else Outcome.RETRY


def _given(seen: Observation, name: str) -> Any:
    """What a verb was asked: its one argument, however it was passed."""
    return seen.args[0] if seen.args else seen.kwargs[name]

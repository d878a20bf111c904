"""Outcomes on their way to the store: collected from every thread, sent in batches, again until answered."""

import logging
from collections import deque
from collections.abc import Callable, Sequence

from windlass.core.bounds import CALL_ITEMS
from windlass.core.job import GROUP_BYTES, GROUP_JOBS
from windlass.core.outcome import Answer, Outcome, Verdict
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.observe.runs import log_correction
from windlass.worker.conclude import Concluder
from windlass.worker.local_leases import Ended, LocalLeases

_log = logging.getLogger("windlass.worker")


class Settler:
    """Holds outcomes until the store has answered them."""

    def __init__(self, local_leases: LocalLeases, conclude: Concluder, *, nudge: Callable[[], None]) -> None:
        self._local_leases = local_leases
        self._conclude = conclude
        self._nudge = nudge
        self._ended: deque[Ended] = deque()
        self._batch: list[Ended] = []
        self.nudge_at: int | None = 1
        """How many outcomes wake the fetcher; None: it is awake."""
        self.settled = 0
        """Runs whose end the store has answered."""

    def put(self, ended: Ended) -> None:
        """Take an outcome, on any thread."""
        self._ended.append(ended)
        at = self.nudge_at
        if at is not None and len(self._ended) >= at:
            self.nudge_at = None
            self._nudge()

    def __len__(self) -> int:
        """Outcomes that the store has not answered."""
        return len(self._ended) + len(self._batch)

    def batch(self) -> Sequence[Ended]:
        """What is to be sent next; the same again until it was answered."""
        batch, waiting, finished = self._batch, self._ended, self._local_leases.finished
        children = sum(len(ended.settlement.spawn) for ended in batch)
        size = sum(_size(ended.settlement) for ended in batch)
        while waiting and len(batch) < CALL_ITEMS:
            settlement = waiting[0].settlement
            if settlement.spawn or settlement.result is not None:
                children += len(settlement.spawn)
                size += _size(settlement)
                if batch and (children > GROUP_JOBS or size > GROUP_BYTES):
                    break
            ended = waiting.popleft()
            if ended.ticket is not None:
                finished(ended.ticket)
            batch.append(ended)
        return batch

    def answered(self, answers: Sequence[Answer]) -> None:
        """Note that the store has answered the whole batch."""
        batch, self._batch = self._batch, []
        done: list[int] = []
        applied = Verdict.APPLIED
        for ended, answer in zip(batch, answers, strict=True):
            ticket = ended.ticket
            if (
                answer.verdict is applied
                and ended.settlement.error is None
                and ended.run is not None
                and ticket is not None
            ):
                done.append(ticket.slot)
            else:
                self._ruled(ended, answer)
        self.settled += len(done)
        self._local_leases.let_go_of(done)

    def answered_one(self, ended: Ended, answer: Answer) -> None:
        """Note that the store has answered one outcome of the batch."""
        self._batch.remove(ended)
        self._ruled(ended, answer)

    def dropped(self, ended: Ended, why: str) -> None:
        """Drop an outcome that the store cannot take at all."""
        self._batch.remove(ended)
        settlement = ended.settlement
        if settlement.outcome is Outcome.DEAD:
            why = why if ended.run is None else ended.run.clean(why)
            _log.error("job %s: the store takes no word on it: %s", settlement.job, why)
            if ended.ticket is not None:
                self._local_leases.let_go(ended.ticket)
            return
        dead = self._conclude.dropped(ended.run, settlement, why)
        self._batch.append(Ended(ended.ticket, dead, ended.run))

    def _ruled(self, ended: Ended, answer: Answer) -> None:
        if answer.verdict is Verdict.REFUSED and ended.run is not None and ended.ticket is not None:
            # The run was done, and what it spawned cannot be: it goes out once more, as a failure.
            again = self._conclude.refused(ended.run, ended.ticket.task, answer.why)
            self._batch.append(Ended(ended.ticket, again, ended.run))
            return
        if ended.run is not None:
            self.settled += 1
        if answer.verdict in (Verdict.STALE, Verdict.GONE) and ended.run is not None:
            said = "ended, but its %s came too late and was refused: the lease was lost"
            log_correction(logging.WARNING, ended.run.lease, said, ended.settlement.outcome)
        elif ended.run is not None and _failed(ended.settlement) and answer.state is State.CANCELLED:
            log_correction(logging.INFO, ended.run.lease, "was cancelled meanwhile: no attempt follows")
        if ended.ticket is not None:
            self._local_leases.let_go(ended.ticket)


def _failed(settlement: Settlement) -> bool:
    """Whether it was reported as a failure. A job that cancels itself has an error, too, which says so."""
    return settlement.error is not None and settlement.outcome is not Outcome.CANCELLED


def _size(settlement: Settlement) -> int:
    return len(settlement.result or b"") + sum(len(child.payload) for child in settlement.spawn)

"""Failures that no run reported, because its process died: the store charged the jobs for it."""

import contextlib
from collections.abc import Mapping, Sequence

from windlass.broker.contract import Broker
from windlass.core.bounds import CALL_ITEMS
from windlass.core.job import JobDetail, Moved
from windlass.core.outcome import Error, Outcome
from windlass.core.state import Move, State
from windlass.core.units import JobId
from windlass.errors import StoreError
from windlass.observe.failures import Failure, report
from windlass.worker.failure import said

_WHAT = {
    Move.CRASH: ("Crashed", "the worker process that ran it died"),
    Move.LOST: ("Lost", "the worker process that had it fell silent"),
    Move.DEADLINE: ("LeaseRanOut", "nobody settled it before its lease ran out"),
}


async def report_charged(broker: Broker, moved: Sequence[Moved], *, cause: str = "") -> None:
    """Report the jobs among these that were charged. The store names them without their attempts, which are
    read here; if the store does not answer, they are left out.
    """
    charged = [each for each in moved if each.move in _WHAT]
    for at in range(0, len(charged), CALL_ITEMS):
        page = charged[at : at + CALL_ITEMS]
        details = await _details(broker, [each.job for each in page])
        for each in page:
            report(_failure(each, details.get(each.job), cause))


async def _details(broker: Broker, jobs: Sequence[JobId]) -> Mapping[JobId, JobDetail]:
    found: Sequence[JobDetail | None] = ()
    with contextlib.suppress(StoreError):
        found = await broker.get(jobs)
    return {each.id: each for each in found if each is not None}


def _failure(moved: Moved, detail: JobDetail | None, cause: str) -> Failure:
    """The charged run is the newest one that its holder did not settle."""
    runs = () if detail is None else [run for run in detail.deliveries if not run.settled]
    run = max(runs, key=lambda run: run.fence, default=None)
    return Failure(
        job=moved.job,
        task=moved.task,
        queue=moved.queue,
        lane=moved.lane,
        attempt=None if run is None else run.attempt,
        max_attempts=None if detail is None else detail.max_attempts,
        fence=None if run is None else run.fence,
        outcome=Outcome.DEAD if moved.after is State.DEAD else Outcome.RETRY,
        error=_error(moved.move, cause),
    )


def _error(move: Move, cause: str) -> Error:
    kind, what = _WHAT[move]
    return said(kind, f"{what}: {cause}" if cause else what, cause=cause)

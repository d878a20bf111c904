"""What history keeps: attempts, and how many slots there were to run them in."""

from collections.abc import Sequence

import msgspec

from windlass.core.event import Event
from windlass.core.intake import intakes_run_by
from windlass.core.outcome import Outcome
from windlass.core.session import SessionView
from windlass.core.state import Move, State
from windlass.core.units import SECOND, Fence, JobId, Micros

SAMPLE: Micros = 5 * SECOND
"""How far apart the slots are counted."""
FAILED = (Outcome.RETRY, Outcome.DEAD)
GIVEN_BACK = (Outcome.SNOOZE, Outcome.RELEASE, Outcome.HOLD)
"""Ends that count as no attempt: they are kept, and are in no rate and no percentile."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One lease and how it ended. `(job, fence)` names it for good: written twice it is one."""

    job: JobId
    fence: Fence
    at: Micros
    """When it ended, on the store's clock."""
    task: str
    queue: str
    lane: str
    outcome: Outcome
    move: Move
    """Why: tells a crash and a lost worker from a failure of its own."""
    attempt: int
    wait: Micros | None
    """From due to handed out."""
    run: Micros | None
    """None: its code never started, or nobody can tell how long it ran."""


class Slots(msgspec.Struct, frozen=True, kw_only=True):
    """The worker processes of a host at one moment; a multiple of `SAMPLE`, so that two readers write one."""

    at: Micros
    host: str
    processes: int
    slots: int
    leases: int


def attempt_of(event: Event) -> Attempt | None:
    """The attempt that an event is the end of; None if it is not the end of one."""
    if event.before is not State.RUNNING or event.outcome is None:
        return None
    return Attempt(
        job=event.job,
        fence=event.fence,
        at=event.at,
        task=event.task,
        queue=event.queue,
        lane=event.lane,
        outcome=event.outcome,
        move=event.move,
        attempt=event.attempt,
        wait=event.waited,
        run=event.runtime,
    )


def slots_at(now: Micros, alive: Sequence[SessionView]) -> list[Slots]:
    """The slots of each host, of processes that run jobs."""
    at = now // SAMPLE * SAMPLE
    by_host: dict[str, list[SessionView]] = {}
    for session in alive:
        if not intakes_run_by(session.info.queues):
            by_host.setdefault(session.info.host, []).append(session)
    return [
        Slots(
            at=at,
            host=host,
            processes=len(sessions),
            slots=sum(session.info.slots for session in sessions),
            leases=sum(session.leases for session in sessions),
        )
        for host, sessions in by_host.items()
    ]

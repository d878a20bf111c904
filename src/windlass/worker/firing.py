"""Firing schedules: what is due becomes jobs, through the contract's `fire`."""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from windlass.broker.management import Plan, Read
from windlass.core.job import Edge, NewJob, OnFailure
from windlass.core.schedule import due_ticks, jitter_of
from windlass.core.specification import Specification, decode_specification
from windlass.core.state import UNFINISHED
from windlass.core.timetable import Fire, FireStatus, ScheduleView
from windlass.core.units import JobId, Micros
from windlass.errors import EnqueueRefused, UnreadablePayload, WindlassError

_log = logging.getLogger("windlass.worker")


class Planner(Plan, Read, Protocol):
    """What firing needs of a broker."""


async def all_schedules(broker: Plan) -> tuple[Micros, list[ScheduleView]]:
    """The store's time, and every schedule."""
    page = await broker.schedules()
    found = list(page.schedules)
    while page.cursor is not None:
        page = await broker.schedules(page.cursor)
        found += page.schedules
    return page.now, found


class Firing:
    """Fires what is due, in workers. One schedule that cannot fire does not stop the others."""

    def __init__(self, broker: Planner, new_id: Callable[[], JobId]) -> None:
        self._broker = broker
        self._new_id = new_id
        self._told: dict[str, str] = {}

    async def due(self) -> None:
        """Fire every schedule that is due."""
        await fire_due(self._broker, self._new_id, refused=self._refused)

    def _refused(self, schedule: ScheduleView, error: WindlassError) -> None:
        """Log it once, not with every pass: the schedule stays due until it can fire."""
        if self._told.get(schedule.name) != str(error):
            self._told[schedule.name] = str(error)
            _log.error("%s", error)


async def fire_due(
    broker: Planner,
    new_id: Callable[[], JobId],
    *,
    refused: Callable[[ScheduleView, WindlassError], None] | None = None,
) -> int:
    """Fire every schedule that is due. Returns how many jobs came of it. Many callers may do so at once."""
    now, schedules = await all_schedules(broker)
    made = 0
    for schedule in schedules:
        if schedule.next_at is None or schedule.next_at > now or schedule.paused:
            continue
        try:
            made += await _fire(broker, schedule, now, new_id)
        except (EnqueueRefused, UnreadablePayload) as error:
            if refused is None:
                raise
            refused(schedule, error)
    return made


async def _fire(broker: Planner, schedule: ScheduleView, now: Micros, new_id: Callable[[], JobId]) -> int:
    specification = decode_specification(schedule.spec)
    due = due_ticks(
        specification.rule,
        schedule.next_at,
        now,
        catch_up=specification.catch_up,
        grace=specification.grace,
        cap=specification.cap,
        end=specification.end,
    )
    assert schedule.next_at is not None
    before = await _unfinished(broker, schedule)
    jobs = _jobs(schedule.name, specification, due.ticks, before, now, new_id)
    fired = await broker.fire(
        Fire(
            name=schedule.name,
            version=schedule.version,
            expect=schedule.next_at,
            then=due.next_at,
            jobs=jobs,
            missed=len(due.ticks) + due.dropped - len(jobs),
            unless_waiting=specification.catch_up != "all",
        )
    )
    if fired.status is FireStatus.REFUSED:
        why = next((receipt.why or str(receipt.refusal) for receipt in fired.receipts), "")
        raise EnqueueRefused(f'schedule "{schedule.name}": its job was refused: {why}')
    return len(jobs) if fired.status is FireStatus.FIRED else 0


async def _unfinished(broker: Read, schedule: ScheduleView) -> list[JobId]:
    """Jobs of earlier ticks that are not finished."""
    ids = [job for fire in schedule.fires for job in fire.jobs]
    return [job.id for job in await broker.get(ids[-1_000:]) if job is not None and job.state in UNFINISHED]


def _jobs(
    name: str,
    specification: Specification,
    ticks: Sequence[Micros],
    before: list[JobId],
    now: Micros,
    new_id: Callable[[], JobId],
) -> tuple[NewJob, ...]:
    """The jobs of some ticks, oldest first, as far as the policy for overlaps allows."""
    jobs: list[NewJob] = []
    for tick in ticks:
        if specification.overlap == "skip" and (before or jobs):
            continue
        job = specification.job(new_id())
        late = tick + jitter_of(name, tick, specification.jitter) - now
        after = job.after
        if specification.overlap == "queue" and (
            last := jobs[-1].id if jobs else before[-1] if before else None
        ):
            # Whatever became of the one before: only its end is waited for.
            after = (Edge(last, OnFailure.RUN),)
        jobs.append(msgspec.structs.replace(job, delay=job.delay + max(0, late), after=after))
    return tuple(jobs)

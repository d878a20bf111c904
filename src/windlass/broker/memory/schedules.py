"""Schedules: documents with a next time, fired by compare-and-set."""

from windlass.broker.memory.enqueue import enqueue_group
from windlass.broker.memory.lifecycle import waits_to_start
from windlass.broker.memory.namespace import Namespace, Schedule
from windlass.core.job import Status
from windlass.core.query import schedule_in
from windlass.core.settings import Change, Changed
from windlass.core.timetable import (
    Fire,
    Fired,
    FireRecord,
    FireStatus,
    NewSchedule,
    Schedules,
    ScheduleView,
    with_fire,
)
from windlass.core.units import Cursor, Micros


def declare_schedule(ns: Namespace, new: NewSchedule) -> Changed:
    """Declare a schedule in code."""
    old = ns.schedules.get(new.name)
    if old is not None and old.declared is not None:
        if old.app != new.app:
            return Changed(Change.OTHER_APP, old.version)
        if old.revision > new.revision:
            return Changed(Change.NEWER_REVISION, old.version)
        if old.declared == new.spec:
            old.revision = new.revision
            return Changed(Change.UNCHANGED, old.version)
    schedule = ns.schedules.setdefault(new.name, Schedule())
    schedule.declared, schedule.app, schedule.revision = new.spec, new.app, new.revision
    if schedule.override is None:
        schedule.next_at = new.next_at
        schedule.version = ns.new_version()
    return Changed(Change.APPLIED, schedule.version)


def override_schedule(
    ns: Namespace, name: str, spec: bytes | None, next_at: Micros | None, expect: int
) -> Changed:
    """Set or reset the operators' specification."""
    schedule = ns.schedules.get(name, Schedule())
    if schedule.version != expect:
        return Changed(Change.CONFLICT, schedule.version)
    if schedule.override == spec:
        return Changed(Change.UNCHANGED, schedule.version)
    schedule.override, schedule.next_at = spec, next_at
    schedule.version = ns.new_version()
    ns.schedules[name] = schedule
    if schedule.declared is None and spec is None:
        del ns.schedules[name]
    return Changed(Change.APPLIED, schedule.version)


def delete_schedule(ns: Namespace, name: str) -> bool:
    """Remove a schedule."""
    return ns.schedules.pop(name, None) is not None


def pause_schedule(ns: Namespace, name: str, *, paused: bool) -> bool:
    """Stop or let go on its firing."""
    schedule = ns.schedules.get(name)
    if schedule is None:
        return False
    schedule.paused = paused
    return True


def fire(ns: Namespace, wish: Fire) -> Fired:
    """Move `next_at` and enqueue the jobs of the tick, or do nothing."""
    now = ns.now()
    schedule = ns.schedules.get(wish.name)
    if schedule is None:
        return Fired(FireStatus.UNKNOWN)
    if schedule.paused:
        return Fired(FireStatus.PAUSED)
    if schedule.version != wish.version or schedule.next_at != wish.expect:
        return Fired(FireStatus.RACED)
    if wish.expect > now:
        return Fired(FireStatus.NOT_DUE)
    if wish.unless_waiting and _waits_to_start(ns, schedule):
        missed = FireRecord(wish.expect, now, (), wish.missed + len(wish.jobs))
        schedule.next_at, schedule.fires = wish.then, with_fire(schedule.fires, missed)
        return Fired(FireStatus.MISSED)
    receipts = enqueue_group(ns, wish.jobs)
    if any(receipt.status is Status.REFUSED for receipt in receipts):
        return Fired(FireStatus.REFUSED, receipts)
    schedule.next_at = wish.then
    jobs = tuple(receipt.of or receipt.job for receipt in receipts)
    schedule.fires = with_fire(schedule.fires, FireRecord(wish.expect, now, jobs, wish.missed))
    return Fired(FireStatus.FIRED, receipts)


def _waits_to_start(ns: Namespace, schedule: Schedule) -> bool:
    jobs = (ns.jobs.get(job) for fire in schedule.fires for job in fire.jobs)
    return any(job is not None and waits_to_start(job, ns.now()) for job in jobs)


def schedules(ns: Namespace, after: Cursor, limit: int) -> Schedules:
    """Schedules by name."""
    last = schedule_in(after)
    names = sorted(name for name in ns.schedules if name > last)
    return Schedules(
        now=ns.now(),
        schedules=tuple(_view(name, ns.schedules[name]) for name in names[:limit]),
        cursor=Cursor(names[limit - 1]) if len(names) > limit else None,
    )


def _view(name: str, schedule: Schedule) -> ScheduleView:
    return ScheduleView(
        name=name,
        declared=schedule.declared,
        override=schedule.override,
        version=schedule.version,
        next_at=schedule.next_at,
        paused=schedule.paused,
        app=schedule.app,
        revision=schedule.revision,
        fires=schedule.fires,
    )

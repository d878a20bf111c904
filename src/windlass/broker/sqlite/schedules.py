"""Schedules: documents with a next time, fired by compare-and-set."""

from dataclasses import dataclass, field

import msgspec

from windlass.broker.sqlite.enqueue import enqueue_group
from windlass.broker.sqlite.handle import Row
from windlass.broker.sqlite.lifecycle import waits_to_start
from windlass.broker.sqlite.records import pack
from windlass.broker.sqlite.snapshot import Snapshot
from windlass.broker.sqlite.statements import statements
from windlass.broker.sqlite.transaction import Transaction
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

SQL = statements("settings")
_fires = msgspec.msgpack.Decoder(tuple[FireRecord, ...])


@dataclass(slots=True)
class Schedule:
    """A schedule: the columns of its row."""

    declared: bytes | None = None
    override: bytes | None = None
    app: str = ""
    revision: int = 0
    version: int = 0
    next_at: Micros | None = None
    paused: int = 0
    fires: bytes = field(default_factory=lambda: pack(()))


def declare_schedule(tx: Transaction, new: NewSchedule) -> Changed:
    """Declare a schedule in code."""
    schedule = _schedule(tx, new.name) or Schedule()
    if schedule.declared is not None:
        if schedule.app != new.app:
            return Changed(Change.OTHER_APP, schedule.version)
        if schedule.revision > new.revision:
            return Changed(Change.NEWER_REVISION, schedule.version)
        if schedule.declared == new.spec:
            schedule.revision = new.revision
            _save(tx, new.name, schedule)
            return Changed(Change.UNCHANGED, schedule.version)
    schedule.declared, schedule.app, schedule.revision = new.spec, new.app, new.revision
    if schedule.override is None:
        schedule.next_at = new.next_at
        schedule.version = tx.new_version()
    _save(tx, new.name, schedule)
    return Changed(Change.APPLIED, schedule.version)


def override_schedule(
    tx: Transaction, name: str, spec: bytes | None, next_at: Micros | None, expect: int
) -> Changed:
    """Set or reset the operators' specification."""
    schedule = _schedule(tx, name) or Schedule()
    if schedule.version != expect:
        return Changed(Change.CONFLICT, schedule.version)
    if schedule.override == spec:
        return Changed(Change.UNCHANGED, schedule.version)
    schedule.override, schedule.next_at = spec, next_at
    schedule.version = tx.new_version()
    if schedule.declared is None and spec is None:
        delete_schedule(tx, name)
    else:
        _save(tx, name, schedule)
    return Changed(Change.APPLIED, schedule.version)


def delete_schedule(tx: Transaction, name: str) -> bool:
    """Remove a schedule."""
    return bool(tx.all(SQL["drop_schedule"], (name,)))


def pause_schedule(tx: Transaction, name: str, *, paused: bool) -> bool:
    """Pause or resume a schedule."""
    schedule = _schedule(tx, name)
    if schedule is None:
        return False
    schedule.paused = int(paused)
    _save(tx, name, schedule)
    return True


def fire(tx: Transaction, wish: Fire, *, full: str | None = None) -> Fired:
    """Move `next_at` and enqueue the jobs of the tick, or do nothing."""
    schedule = _schedule(tx, wish.name)
    if schedule is None:
        return Fired(FireStatus.UNKNOWN)
    if schedule.paused:
        return Fired(FireStatus.PAUSED)
    if schedule.version != wish.version or schedule.next_at != wish.expect:
        return Fired(FireStatus.RACED)
    if wish.expect > tx.now:
        return Fired(FireStatus.NOT_DUE)
    fires = _fires.decode(schedule.fires)
    if wish.unless_waiting and _waits_to_start(tx, fires):
        missed = FireRecord(wish.expect, tx.now, (), wish.missed + len(wish.jobs))
        schedule.next_at, schedule.fires = wish.then, pack(with_fire(fires, missed))
        _save(tx, wish.name, schedule)
        return Fired(FireStatus.MISSED)
    receipts = enqueue_group(tx, wish.jobs, full=full)
    if any(receipt.status is Status.REFUSED for receipt in receipts):
        return Fired(FireStatus.REFUSED, receipts)
    schedule.next_at = wish.then
    jobs = tuple(receipt.of or receipt.job for receipt in receipts)
    schedule.fires = pack(with_fire(fires, FireRecord(wish.expect, tx.now, jobs, wish.missed)))
    _save(tx, wish.name, schedule)
    return Fired(FireStatus.FIRED, receipts)


def _waits_to_start(tx: Snapshot, fires: tuple[FireRecord, ...]) -> bool:
    """Whether a job of these fires waits. The newest are looked at first: they start last."""
    jobs = (tx.job(job) for fire in reversed(fires) for job in fire.jobs)
    return any(job is not None and waits_to_start(job, tx.now) for job in jobs)


def schedules(tx: Snapshot, after: Cursor, limit: int) -> Schedules:
    """Schedules by name."""
    rows = tx.all(SQL["schedules"], (schedule_in(after), limit + 1))
    return Schedules(
        now=tx.now,
        schedules=tuple(_view(row) for row in rows[:limit]),
        cursor=Cursor(rows[limit - 1][0]) if len(rows) > limit else None,
    )


def _view(row: Row) -> ScheduleView:
    name, declared, override, app, revision, version, next_at, paused, fires = row
    return ScheduleView(
        name=name,
        declared=declared,
        override=override,
        version=version,
        next_at=next_at,
        paused=bool(paused),
        app=app,
        revision=revision,
        fires=_fires.decode(fires),
    )


def _schedule(tx: Snapshot, name: str) -> Schedule | None:
    row = tx.one(SQL["schedule"], (name,))
    return None if row is None else Schedule(*row)


def _save(tx: Transaction, name: str, schedule: Schedule) -> None:
    tx.run(
        SQL["save_schedule"],
        (
            name,
            schedule.declared,
            schedule.override,
            schedule.app,
            schedule.revision,
            schedule.version,
            schedule.next_at,
            schedule.paused,
            schedule.fires,
        ),
    )

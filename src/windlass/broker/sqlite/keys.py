"""Unique keys: who holds one, who follows, and when it is free."""

from dataclasses import dataclass

from windlass.broker.sqlite.records import KEYED, Job
from windlass.broker.sqlite.statements import statements
from windlass.broker.sqlite.transaction import Transaction
from windlass.core.dedup import held_until
from windlass.core.job import Mode
from windlass.core.units import JobId, Micros

SQL = statements("jobs")
KeyPlace = tuple[str, int, str, int]
"""Where a key is unique: key, queue, lane, task."""


@dataclass(slots=True)
class Key:
    """A unique key: the job that holds it and, while that runs, the one that follows it."""

    holder: JobId
    mode: Mode
    window: Micros
    accepted_at: Micros
    follower: JobId | None = None
    until: Micros | None = None
    """Once its holder has finished: when it is free."""


def place_of(tx: Transaction, job: Job) -> KeyPlace | None:
    """Where the key of a job is unique; None if it has none."""
    key = tx.body(job).key if job.marks & KEYED else None
    return None if key is None else (key, job.q, job.lane, job.t)


def key_at(tx: Transaction, place: KeyPlace | None) -> Key | None:
    """The record of a key."""
    row = None if place is None else tx.one(SQL["key"], place)
    if row is None:
        return None
    holder, mode, window, accepted_at, follower, until = row
    return Key(holder, Mode(mode), window, accepted_at, follower, until)


def save_key(tx: Transaction, place: KeyPlace, key: Key) -> None:
    """Write the record of a key."""
    columns = (key.holder, key.mode.value, key.window, key.accepted_at, key.follower, key.until)
    tx.run(SQL["save_key"], (*place, *columns))


def held_key(tx: Transaction, job: Job) -> Key | None:
    """The record of the key that a job holds; None if it has none, or another holds it."""
    key = key_at(tx, place_of(tx, job))
    return key if key is not None and key.holder == job.id else None


def release(tx: Transaction, job: Job) -> Job | None:
    """Let go of the key of a finished job: to the follower, which is returned, or once the window is over."""
    place = place_of(tx, job)
    key = key_at(tx, place)
    if place is None or key is None or job.finished_at is None:
        return None
    if key.follower == job.id:
        key.follower = None
        save_key(tx, place, key)
    elif key.holder == job.id and key.follower is not None:
        follower = tx.job(key.follower)
        assert follower is not None
        body = tx.body(follower)
        save_key(tx, place, Key(follower.id, body.mode, body.window, follower.accepted_at))
        return follower
    elif key.holder == job.id:
        key.until = held_until(key.mode, key.window, key.accepted_at, job.finished_at)
        if key.until <= tx.now:
            tx.run(SQL["drop_key"], place)
        else:
            save_key(tx, place, key)
    return None

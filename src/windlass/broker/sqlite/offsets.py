"""Offsets of sources, which move together with the jobs that come of them."""

from windlass.broker.sqlite.enqueue import enqueue_group
from windlass.broker.sqlite.snapshot import Snapshot
from windlass.broker.sqlite.statements import statements
from windlass.broker.sqlite.transaction import Transaction
from windlass.core.job import NewJob
from windlass.core.take import Offset, Source, Take, Taken, TakeStatus, rule_take, taken

SQL = statements("offsets")


def take(tx: Transaction, wish: Take, jobs: list[NewJob], *, full: str | None = None) -> Taken:
    """Move an offset and enqueue the jobs of what lies between, or do nothing. `full` says why nothing can be
    accepted for want of space.
    """
    name = wish.source.name
    row = tx.one(SQL["offset"], (name,))
    stands = None if row is None else Offset(Source(name, row[0]), *row[1:])
    identity, at = (None, None) if stands is None else (stands.source.identity, stands.at)
    status = rule_take(identity, at, wish.source.identity, wish.expect)
    if status is not TakeStatus.TAKEN:
        return Taken(status=status, offset=stands)
    answer = taken(wish, enqueue_group(tx, jobs, full=full, dead=wish.dead), tx.now)
    if answer.status is TakeStatus.TAKEN:
        _move(tx, name, answer.offset)
    return answer


def _move(tx: Transaction, name: str, offset: Offset | None) -> None:
    if offset is None:
        tx.run(SQL["drop_offset"], (name,))
    else:
        tx.run(SQL["save_offset"], (name, offset.source.identity, offset.at, offset.moved_at))


def offsets(tx: Snapshot, after: str, limit: int) -> tuple[Offset, ...]:
    """Offsets by the names of their sources."""
    rows = tx.all(SQL["offsets"], (after, limit))
    return tuple(Offset(Source(name, identity), at, moved_at) for name, identity, at, moved_at in rows)

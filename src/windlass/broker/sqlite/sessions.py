"""Sessions: beats, and what becomes of the leases of a session that ends."""

from collections.abc import Collection, Sequence

import msgspec

from windlass.broker.sqlite import lifecycle
from windlass.broker.sqlite.records import pack
from windlass.broker.sqlite.statements import statements
from windlass.broker.sqlite.transaction import Transaction
from windlass.core.outcome import Cause, CauseKind
from windlass.core.session import END_LEASES, Beat, Ended, Pulse
from windlass.core.settlement import rule_session_end
from windlass.core.units import Fence, JobId, SessionId

SQL = statements("sessions")
CANCELS = 1_000

_cause = msgspec.msgpack.Decoder(Cause)
_started = msgspec.msgpack.Decoder(set[tuple[JobId, Fence]])


def session_id(tx: Transaction, s: int | None) -> SessionId | None:
    """The id of a session."""
    return None if s is None else tx.session(s)[0]


def beat(tx: Transaction, beats: Sequence[Beat]) -> tuple[Pulse, ...]:
    """Take signs of life."""
    return tuple(_beat_one(tx, one) for one in beats)


def _beat_one(tx: Transaction, one: Beat) -> Pulse:
    row = tx.one(SQL["session"], (one.session,))
    if row is None and one.open is not None:
        opened = (one.session, pack(one.open), one.open.ttl, tx.now, tx.liveness())
        row = (tx.value(SQL["open"], opened), tx.liveness(), None, None, None)
    if row is None or row[2] is not None:
        return Pulse(session=one.session, alive=False, settings=tx.version)
    s = row[0]
    tx.run(SQL["beat"], (s, tx.liveness(), one.memory))
    cancel = tuple((job, fence) for job, fence in tx.all(SQL["flagged"], (s, CANCELS)))
    return Pulse(session=one.session, alive=True, cancel=cancel, settings=tx.version)


def end_session(
    tx: Transaction, session: SessionId, cause: Cause, started: Collection[tuple[JobId, Fence]]
) -> Ended:
    """End a session and return its leases, a bounded number at a time."""
    row = tx.one(SQL["session"], (session,))
    if row is None:
        return Ended(known=False)
    s, seen, ended_at, first_cause, first_started = row
    if ended_at is None:
        mark_ended(tx, s, seen, cause, started)
    else:
        cause, started = read_end(first_cause, first_started)
    with tx.recorded() as moved:
        return_leases(tx, s, session, cause, set(started), END_LEASES)
    return Ended(known=True, moved=tuple(moved), more=bool(tx.all(SQL["leases"], (s, 1))))


def read_end(cause: bytes, started: bytes | None) -> tuple[Cause, set[tuple[JobId, Fence]]]:
    """Why a session ended, and what had started then: the first report counts."""
    return _cause.decode(cause), set() if started is None else _started.decode(started)


def mark_ended(
    tx: Transaction, s: int, seen: int, cause: Cause, started: Collection[tuple[JobId, Fence]] = ()
) -> None:
    """End a session: from here on its messages are refused, also about leases that are not returned yet."""
    packed = pack(list(started)) if started else None
    tx.session_changed(s)
    tx.run(SQL["end"], (s, tx.now, max(0, tx.live - seen), pack(cause), packed))


def return_leases(
    tx: Transaction,
    s: int,
    session: SessionId | None,
    cause: Cause,
    started: Collection[tuple[JobId, Fence]],
    limit: int,
) -> int:
    """Give back leases of an ended session, charged by what is known, and say how many."""
    rows = tx.all(SQL["leases"], (s, limit))
    for (n,) in rows:
        job = tx.numbered(n)
        had_started = (job.id, job.fence) in started
        ruling = rule_session_end(lifecycle.facts(tx, job), cause, started=had_started)
        unstarted = cause.kind is not CauseKind.LOST and not had_started
        lifecycle.end_lease(tx, job, ruling, session, unstarted=unstarted, cause=cause)
        lifecycle.drop_if_unkept(tx, job)
    return len(rows)

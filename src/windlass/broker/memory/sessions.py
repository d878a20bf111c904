"""Sessions: beats, and what becomes of the leases of a session that ends."""

from collections.abc import Collection, Sequence

from windlass.broker.memory import lifecycle
from windlass.broker.memory.namespace import Namespace, Session
from windlass.core.outcome import Cause, CauseKind
from windlass.core.session import END_LEASES, Beat, Ended, Pulse, SessionState
from windlass.core.settlement import rule_session_end
from windlass.core.units import Fence, JobId, SessionId

CANCELS = 1_000


def beat(ns: Namespace, beats: Sequence[Beat]) -> tuple[Pulse, ...]:
    """Take signs of life."""
    return tuple(_beat_one(ns, one) for one in beats)


def _beat_one(ns: Namespace, one: Beat) -> Pulse:
    session = ns.sessions.get(one.session)
    if session is None and one.open is not None:
        session = ns.sessions[one.session] = Session(one.open, ns.now(), ns.liveness())
    if session is None or session.state is SessionState.ENDED:
        return Pulse(session=one.session, alive=False, settings=ns.version)
    session.seen = max(session.seen, ns.liveness())
    session.memory = one.memory
    cancel = [(job, fence) for job, fence in session.leases.items() if ns.jobs[job].cancel_requested]
    return Pulse(session=one.session, alive=True, cancel=tuple(cancel[:CANCELS]), settings=ns.version)


def end_session(
    ns: Namespace, session_id: SessionId, cause: Cause, started: Collection[tuple[JobId, Fence]]
) -> Ended:
    """End a session and return its leases, a bounded number at a time."""
    session = ns.sessions.get(session_id)
    if session is None:
        return Ended(known=False)
    mark_ended(ns, session, cause, started)
    with lifecycle.recorded(ns) as moved:
        return_leases(ns, session, END_LEASES)
    return Ended(known=True, moved=tuple(moved), more=bool(session.leases))


def mark_ended(
    ns: Namespace, session: Session, cause: Cause, started: Collection[tuple[JobId, Fence]] = ()
) -> None:
    """From here on none of its words counts, even of leases that are not returned yet. The first cause
    stands.
    """
    if session.state is SessionState.ALIVE:
        session.state = SessionState.ENDED
        session.cause = cause
        session.started = frozenset(started)
        session.ended_at = ns.now()
        session.silent_for = max(0, ns.live - session.seen)


def return_leases(ns: Namespace, session: Session, limit: int) -> int:
    """Give back leases of an ended session, charged by what is known, and say how many."""
    assert session.cause is not None
    leases = list(session.leases.items())[:limit]
    for job_id, fence in leases:
        job = ns.jobs[job_id]
        started = (job_id, fence) in session.started
        ruling = rule_session_end(ns.facts(job), session.cause, started=started)
        unstarted = session.cause.kind is not CauseKind.LOST and not started
        lifecycle.end_lease(ns, job, ruling, unstarted=unstarted, cause=session.cause)
        lifecycle.drop_if_unkept(ns, job)
    return len(leases)

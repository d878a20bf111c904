"""Sessions and sweeps: who is alive, and what became of the leases of those that are not."""

from collections.abc import Collection, Sequence

from windlass.conformance.machine.ledger.lease import end
from windlass.conformance.machine.ledger.records import Entry, Ledger, Lent, Seat
from windlass.conformance.machine.violated import require
from windlass.core.job import Moved
from windlass.core.outcome import Cause, CauseKind, Outcome
from windlass.core.retry import crash_delay
from windlass.core.session import Beat, Ended, Pulse, SessionState, SessionView, Swept
from windlass.core.state import State
from windlass.core.units import HOUR, Fence, JobId, Micros, SessionId


def beaten(ledger: Ledger, beats: Sequence[Beat], pulses: Sequence[Pulse]) -> None:
    """Beats were answered."""
    require("each beat is answered", [b.session for b in beats] == [p.session for p in pulses], beats, pulses)
    for beat, pulse in zip(beats, pulses, strict=True):
        seat = ledger.seats.get(beat.session)
        if seat is None and beat.open is not None:
            now = ledger.time.now
            seat = Seat(id=beat.session, ttl=beat.open.ttl, stamp=ledger.time.liveness_now, opened_at=now)
            ledger.seats[beat.session] = seat
        alive = seat is not None and seat.alive
        require(
            "only an open session is alive, and an ended one never returns", pulse.alive == alive, beat, pulse
        )
        if seat is not None and alive:
            seat.stamp = max(seat.stamp, ledger.time.liveness_now)
        flagged = {
            (lent.job, lent.fence) for lent in ledger.held_by(beat.session) if ledger.entry(lent.job).flagged
        }
        named = set(pulse.cancel)
        require("a pulse names what to cancel", named == (flagged if alive else set()), pulse, flagged)


def ended(
    ledger: Ledger, session: SessionId, cause: Cause, started: Collection[tuple[JobId, Fence]], answer: Ended
) -> None:
    """A session was ended: its leases went back at once."""
    seat = ledger.seats.get(session)
    if seat is None or not seat.alive:
        require(
            "ending a session that is not alive is a no-op", _only_left_over(ledger, answer.moved), answer
        )
        _leases_ended(ledger, answer.moved)
        return
    require("an open session is known", answer.known, session, answer)
    _end_seat(ledger, seat, cause, started)
    _leases_ended(ledger, answer.moved)
    left = ledger.held_by(session)
    require("no lease outlives its session", answer.more or not left, left, answer)


def swept(ledger: Ledger, every: Micros, answer: Swept) -> None:
    """A pass was made."""
    require("a pass says whether it came too early", answer.early == ledger.time.paced(every), answer)
    if answer.early:
        nothing = not (answer.promoted or answer.reaped or answer.moved or answer.pruned)
        require("a pass that comes too early does nothing", nothing, answer)
        return
    behind = ledger.time.behind
    require("only a long step back is followed, and said", answer.stepped_back == behind, answer, behind)
    ledger.time.swept(more=answer.more)
    for session in answer.reaped:
        seat = ledger.seats.get(session)
        silent = seat is not None and seat.alive and ledger.time.liveness - seat.stamp > seat.ttl
        require(
            "only a session silent for longer than its TTL is reaped",
            silent,
            session,
            seat,
            ledger.time.liveness,
        )
        assert seat is not None
        _end_seat(ledger, seat, Cause(CauseKind.LOST), ())
    if not answer.more:
        silent_ones = [s for s in ledger.seats.values() if s.alive and ledger.time.liveness - s.stamp > s.ttl]
        require("a silent session is reaped", not silent_ones, silent_ones, ledger.time.liveness)
    _leases_ended(ledger, answer.moved)
    if not answer.more:
        left = [lent for lent in ledger.live() if _revoked(ledger, lent)]
        require("a lease whose time is over ends with the sweep", not left, left, ledger.time.now)


def sessions_read(ledger: Ledger, views: Sequence[SessionView]) -> None:
    """Sessions were read: all that are alive, and those that ended within the hour."""
    shown = {view.id: view for view in views}
    for seat in list(ledger.seats.values()):
        view = shown.pop(seat.id, None)
        if view is None:
            past = seat.ended_at is not None and ledger.time.now - seat.ended_at >= HOUR
            require("a session is shown while it lives and for an hour after", past, seat, ledger.time.now)
            del ledger.seats[seat.id]
            continue
        alive = (view.state is SessionState.ALIVE) == seat.alive
        require("a session is alive until it is ended or reaped", alive, view, seat)
        require("a session counts its leases", view.leases == len(ledger.held_by(seat.id)), view)
        if seat.alive:
            silent = max(0, ledger.time.liveness - seat.stamp)
            require("silence is counted on the liveness clock", view.silent_for == silent, view, silent)
        else:
            require("an ended session says why", view.cause is not None, view)
    require("only opened sessions are shown", not shown, shown)


def _end_seat(ledger: Ledger, seat: Seat, cause: Cause, started: Collection[tuple[JobId, Fence]]) -> None:
    seat.ended_at, seat.cause = ledger.time.now, cause
    for lent in ledger.held_by(seat.id):
        lent.revoked = True
        lent.had_started = (lent.job, lent.fence) in set(started)


def _revoked(ledger: Ledger, lent: Lent) -> bool:
    return lent.revoked or (lent.deadline is not None and lent.deadline <= ledger.time.now)


def _only_left_over(ledger: Ledger, moved: Sequence[Moved]) -> bool:
    return all(move.before is not State.RUNNING or _holds_revoked(ledger, move.job) for move in moved)


def _holds_revoked(ledger: Ledger, job: JobId) -> bool:
    lent = ledger.entry(job).live
    return lent is not None and lent.revoked


def _leases_ended(ledger: Ledger, moved: Sequence[Moved]) -> None:
    """What the store moved out of running: each lease must have been over, and is charged by its cause."""
    for move in moved:
        if move.before is not State.RUNNING:
            continue
        entry = ledger.entry(move.job)
        lent = entry.live
        require("only a lease that is over is taken away", lent and _revoked(ledger, lent), move, lent)
        assert lent is not None
        seat = None if lent.session is None else ledger.seats[lent.session]
        cause = Cause(CauseKind.DEADLINE) if seat is None or seat.cause is None else seat.cause
        _lease_ended(ledger, entry, cause, move, had_started=lent.had_started)


def _lease_ended(ledger: Ledger, entry: Entry, cause: Cause, move: Moved, *, had_started: bool) -> None:
    unstarted = cause.kind is CauseKind.CRASH and not had_started
    given_back = cause.kind is CauseKind.STOP or unstarted
    crash = cause.kind in (CauseKind.CRASH, CauseKind.LOST) and not given_back
    spent = entry.attempt >= entry.job.max_attempts and not given_back
    outcome, state = (Outcome.RELEASE if given_back else Outcome.RETRY), State.READY
    delay: Micros = 0
    if entry.flagged or ledger.follower(entry) is not None:
        outcome, state, given_back = Outcome.CANCELLED, State.CANCELLED, False
    elif spent:
        outcome, state = Outcome.DEAD, State.DEAD
    elif crash and entry.crashes:
        delay = crash_delay(entry.crashes + 1)
        state = State.SCHEDULED
    require("an ended lease is charged by its cause", move.after is state, move, cause, entry, state)
    # Whether it ended cancelled or not, nobody runs it any more; a crash is counted where it was charged.
    entry.crashes += crash
    entry.due = ledger.time.now + delay if delay else entry.due
    end(
        ledger,
        entry,
        outcome,
        state,
        settled=False,
        charged=not given_back,
        ran=had_started,
        token=not had_started and cause.kind in (CauseKind.STOP, CauseKind.CRASH),
    )

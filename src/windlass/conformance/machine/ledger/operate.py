"""What operators did, and what became of schedules."""

from collections.abc import Iterator, Sequence

import msgspec

from windlass.conformance.machine.ledger.enqueue import enqueued
from windlass.conformance.machine.ledger.records import Entry, Ledger, key_of
from windlass.conformance.machine.violated import require
from windlass.core.operate import Edit, Effect, Operated, Target
from windlass.core.state import TERMINAL, UNFINISHED, WAITING, State
from windlass.core.timetable import Fire, Fired, FireStatus, ScheduleView


def cancelled(ledger: Ledger, targets: Sequence[Target], answers: Sequence[Operated]) -> None:
    """Cancellations were answered."""
    for target, answer, entry in _judged(ledger, targets, answers, WAITING | {State.RUNNING}):
        if entry.live is not None:
            require("a running job is flagged", answer.effect is Effect.FLAGGED, target, answer)
            entry.flagged = True
        else:
            ended = (answer.effect, answer.state) == (Effect.APPLIED, State.CANCELLED)
            require("a waiting job is cancelled at once", ended, target, answer)
            entry.final = State.CANCELLED


def replayed(ledger: Ledger, targets: Sequence[Target], answers: Sequence[Operated]) -> None:
    """Replays were answered."""
    for target, answer, entry in _judged(ledger, targets, answers, frozenset({State.DEAD})):
        if answer.effect is Effect.CONFLICT:
            require("a conflict names who holds the key", _holds_key(ledger, entry, answer), target, answer)
            continue
        ready = (answer.effect, answer.state) == (Effect.APPLIED, State.READY)
        require("a dead letter goes back", ready, target, answer)
        entry.attempt = entry.crashes = 0
        entry.due, entry.expires_at = ledger.time.now, None
        entry.final = entry.first_held = None
        entry.flagged = entry.started = entry.overspent = False
        entry.pristine = entry.placed = entry.keeps_key = False
        entry.memos.clear()


def discarded(ledger: Ledger, targets: Sequence[Target], answers: Sequence[Operated]) -> None:
    """Discards were answered."""
    for target, answer, entry in _judged(ledger, targets, answers, frozenset({State.DEAD})):
        require("a dead letter is discarded", answer.effect is Effect.APPLIED, target, answer)
        ledger.removed.add(entry.id)


def pruned(ledger: Ledger, targets: Sequence[Target], answers: Sequence[Operated]) -> None:
    """Prunes were answered."""
    for target, answer, entry in _judged(ledger, targets, answers, TERMINAL):
        children = [
            ledger.view(other.id)
            for other in ledger.entries.values()
            if any(tie.parent is entry for tie in other.ties.values())
        ]
        if answer.effect is Effect.CONFLICT:
            require("what no job was to wait for is pruned", children, target, answer)
            continue
        require("a finished job is pruned", answer.effect is Effect.APPLIED, target, answer)
        needed = [child.id for child in children if child is not None and child.state in UNFINISHED]
        stays = (
            needed
            and _state(ledger, entry) is not State.DEAD
            and not ledger.removed
            and not ledger.touched - {entry.id}
        )
        require("a job stays while one that has not ended needs it", not stays, target, answer, needed)
        ledger.removed.add(entry.id)


def edited(ledger: Ledger, edits: Sequence[Edit], answers: Sequence[Operated]) -> None:
    """Edits were answered."""
    targets = [Target(edit.job, edit.expect) for edit in edits]
    by_job = {edit.job: edit for edit in edits}
    for target, answer, entry in _judged(ledger, targets, answers, WAITING | {State.DEAD}):
        require("a waiting or dead job is edited", answer.effect is Effect.APPLIED, target, answer)
        edit = by_job[target.job]
        said = {
            name: value
            for name in ("payload", "headers", "tags", "priority", "max_attempts")
            if (value := getattr(edit, name)) is not None
        }
        entry.job = msgspec.structs.replace(entry.job, **said)
        entry.overspent = entry.overspent or entry.attempt >= entry.job.max_attempts
        entry.pristine = False


def purged(ledger: Ledger, queue: str, state: State) -> None:
    """A queue's jobs of a state were purged; which of them, if not all, can only be read."""
    for entry in ledger.entries.values():
        if ledger.kept(entry.id) and entry.job.queue == queue and _state(ledger, entry) is state:
            ledger.touched.add(entry.id)


def unheld(ledger: Ledger, key: str) -> None:
    """Held jobs were freed; which of them, if not all, can only be read."""
    for entry in ledger.entries.values():
        view = ledger.view(entry.id)
        if view is not None and view.held is not None and view.held.key == key:
            ledger.touched.add(entry.id)
            entry.due = min(entry.due, ledger.time.now)


def fired(ledger: Ledger, fire: Fire, answer: Fired) -> None:
    """A wish to fire was answered: one job per tick, and only when it is due."""
    schedule = ledger.last.schedules.get(fire.name)
    stands = schedule is not None and (schedule.version, schedule.next_at) == (fire.version, fire.expect)
    right = stands and schedule is not None and not schedule.paused and ledger.time.now >= fire.expect
    if answer.status not in (FireStatus.FIRED, FireStatus.MISSED):
        require("a due tick fires", not right or answer.status is FireStatus.REFUSED, fire, answer, schedule)
        return
    require("a tick fires when it is due and as it stands", right, fire, answer, schedule)
    assert schedule is not None
    _check_missed(ledger, fire, answer, schedule)
    tick = (fire.name, fire.version, fire.expect)
    require("one job per (schedule, tick)", tick not in ledger.ticks, fire)
    ledger.ticks.add(tick)
    if answer.status is FireStatus.FIRED:
        enqueued(ledger, [fire.jobs], [answer.receipts])


def _check_missed(ledger: Ledger, fire: Fire, answer: Fired, schedule: ScheduleView) -> None:
    """A tick is missed only while an earlier job waits, and always while a due one was never claimed."""
    views = (ledger.view(job) for record in schedule.fires for job in record.jobs)
    waiting = [view for view in views if view is not None and view.state in WAITING]
    if answer.status is FireStatus.MISSED:
        require("a tick is missed while a job waits", fire.unless_waiting and waiting, fire, answer, schedule)
    elif fire.unless_waiting:
        due = [view for view in waiting if not view.fence and view.due_at <= ledger.time.now]
        require("a tick makes no job while a job waits", not due, fire, answer, due)


def _judged(
    ledger: Ledger, targets: Sequence[Target], answers: Sequence[Operated], fit: frozenset[State]
) -> Iterator[tuple[Target, Operated, Entry]]:
    """Those that a verb may act on, one by one; of the others it must have said so, and nothing changes."""
    require("each target is answered", [t.job for t in targets] == [a.job for a in answers], targets, answers)
    for target, answer in zip(targets, answers, strict=True):
        entry = ledger.entries.get(target.job)
        if entry is None or not ledger.kept(target.job) or entry.id in ledger.removed:
            missing = answer.effect in (Effect.NOT_FOUND, Effect.WRONG_STATE)
            require("what is not there is not found", missing, target, answer)
            continue
        state = _state(ledger, entry)
        refused = answer.effect in (Effect.WRONG_STATE, Effect.NOT_FOUND)
        if entry.job.after and ledger.touched:
            # A parent's end in this very call may have ended it, or freed it.
            if refused:
                continue
            if state is State.BLOCKED and target.expect in (State.SCHEDULED, State.READY):
                state = target.expect
        if state not in fit or target.expect not in (None, state):
            # What this very call ended may be gone already, where nothing is kept.
            gone = answer.effect is Effect.NOT_FOUND and entry.id not in ledger.touched
            require("an operation respects the state", refused and not gone, target, answer, state)
            continue
        require("an operation on a fitting job is done", not refused, target, answer)
        ledger.touched.add(entry.id)
        yield target, answer, entry


def _state(ledger: Ledger, entry: Entry) -> State:
    view = ledger.view(entry.id)
    assert view is not None
    if entry.final is not None:
        return entry.final
    return State.READY if view.state in TERMINAL else view.state


def _holds_key(ledger: Ledger, entry: Entry, answer: Operated) -> bool:
    other = None if answer.by is None else ledger.entries.get(answer.by)
    return other is not None and other is not entry and key_of(other.job) == key_of(entry.job)

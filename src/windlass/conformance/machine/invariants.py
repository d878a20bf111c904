"""What must hold after every step: all that can be read, held against the ledger and the step before."""

from collections import Counter
from collections.abc import Collection

import msgspec

from windlass.conformance.machine import arrows
from windlass.conformance.machine.ledger.enqueue import resolve_tentative
from windlass.conformance.machine.ledger.records import Entry, Ledger, Tie, key_of
from windlass.conformance.machine.ledger.session import sessions_read
from windlass.conformance.machine.snapshot import Snapshot
from windlass.conformance.machine.violated import require
from windlass.core.event import Emit, Event
from windlass.core.job import JobDetail, OnFailure
from windlass.core.outcome import Outcome
from windlass.core.query import UnfinishedFlow, Why
from windlass.core.state import TERMINAL, UNFINISHED, WAITING, Reason, State, permitted
from windlass.core.units import JobId

DEAD_REASONS = frozenset(
    {
        *(Reason.GAVE_UP, Reason.EXHAUSTED, Reason.CRASHED, Reason.LOST, Reason.DEADLINE),
        *(Reason.EXPIRED, Reason.HELD_TOO_LONG, Reason.UNFIT),
    }
)
NEVER_STARTED = frozenset({Reason.EXPIRED, Reason.HELD_TOO_LONG, Reason.UNFIT})
CANCELLED_REASONS = frozenset({Reason.CANCELLED, Reason.SUPERSEDED, Reason.PARENT_FAILED, Reason.PURGED})


def check(ledger: Ledger, now: Snapshot, verbs: Collection[str]) -> None:
    """Hold what was read after a step against the ledger, then note it."""
    resolve_tentative(ledger, now)
    allowed = arrows.reachable(arrows.moves(verbs))
    for job, view in now.jobs.items():
        entry = ledger.entries.get(job)
        if entry is None:
            require("nothing exists that was not enqueued", view is None, job, view)
            continue
        _check_move(ledger, entry, view, allowed)
        if view is not None and not view.pruned:
            _check_record(ledger, entry, view)
            _check_reason(entry, view)
            _check_untouched(ledger, entry, view)
        _check_parents(ledger, entry, now)
        _check_explanation(job, now)
    _check_events(ledger, now)
    _note(ledger, now)
    _check_keys(ledger)
    _check_order(ledger, now)
    _check_tallies(ledger, now)
    _check_flows(now)
    same = now.offsets == ledger.offsets
    require("an offset moves by takes alone", same, dict(now.offsets), ledger.offsets)
    sessions_read(ledger, now.sessions)
    ledger.settings.read(now.documents)


def _check_flows(now: Snapshot) -> None:
    """The flows that are listed are those of the unfinished jobs that are."""
    flows: list[UnfinishedFlow] = []
    for flow in sorted({view.flow for view in now.listed if view.flow and view.state in UNFINISHED}):
        jobs = [view for view in now.listed if view.flow == flow]
        held = [view.held is not None and view.state is State.SCHEDULED for view in jobs]
        moving = [view.state in UNFINISHED - {State.BLOCKED} for view in jobs]
        flows.append(
            UnfinishedFlow(
                flow=flow,
                moving=any(goes and not is_held for goes, is_held in zip(moving, held, strict=True)),
                held=any(held),
                dead=any(view.state is State.DEAD for view in jobs),
            )
        )
    require("unfinished flows are listed, as their jobs are", now.flows == tuple(flows), now.flows, flows)


def _kept_state(view: JobDetail | None) -> State | None:
    """The state of a job's record; None where no more than the memory of its end is left."""
    return None if view is None or view.pruned else view.state


def _check_move(
    ledger: Ledger,
    entry: Entry,
    view: JobDetail | None,
    allowed: Collection[tuple[State | None, State | None]],
) -> None:
    before = None if entry.id in ledger.created else _kept_state(ledger.view(entry.id))
    after = _kept_state(view)
    move = (before, after)
    require("states change by the arrows of the verb", before == after or move in allowed, entry.id, move)
    ended = before in TERMINAL or (after is None and (view is None or view.state in TERMINAL))
    if after is None and (before is not None or entry.id in ledger.created):
        require("only what is finished is removed", ended, entry.id, before, view)
    if view is None and (entry.id in ledger.created or ledger.view(entry.id) is not None):
        finished = ledger.finished_at.get(entry.id)
        forgotten = finished is not None and ledger.time.now >= finished + ledger.options.resend_window
        require(
            "an accepted job is there, or remembered for the resend window", forgotten, entry.id, finished
        )


def _check_record(ledger: Ledger, entry: Entry, view: JobDetail) -> None:
    job, lent = entry.job, entry.live
    running = (view.state is State.RUNNING) == (lent is not None)
    require("no lease without a holder, no holder without a lease", running, view, lent)
    asked = (job.task, job.queue, job.lane, job.priority, job.key, job.tags, job.payload, dict(job.headers))
    shown = (
        *(view.task, view.queue, view.lane, view.priority, view.key, view.tags),
        *(view.payload, dict(view.headers)),
    )
    require("what was accepted can be read", asked == shown, asked, shown)
    asked = (job.max_attempts, job.revision, job.flow, entry.parent, entry.accepted_at)
    shown = (view.max_attempts, view.revision, view.flow, view.parent, view.accepted_at)
    require("what was accepted can be read", asked == shown, asked, shown)
    parents = {edge.parent for edge in job.after} == {edge.parent for edge in view.after}
    require("edges can be read", parents and set(view.after) <= set(job.after), job.after, view.after)
    require(
        "attempts are claims less what was given back", view.attempt == entry.attempt, view, entry.attempt
    )
    crashes = view.crashes == entry.crashes or view.state is State.CANCELLED
    require("crashes are counted where they were charged", crashes, view, entry.crashes)
    fence = entry.lent[-1].fence if entry.lent else 0
    require("a job shows its last fence", view.fence == fence, view, fence)
    holder = None if lent is None else lent.session
    require("a job shows who runs it", view.session == holder, view, holder)
    flagged = view.cancel_requested == entry.flagged or view.state is not State.RUNNING
    require("a job shows that it is to be cancelled", flagged, view, entry.flagged)
    before = ledger.view(entry.id)
    if view.state is State.READY and (before is None or before.state is not State.READY):
        require("nothing is ready before it is due", ledger.time.now >= entry.due, view, entry.due)
    _check_deliveries(entry, view)
    _check_result(ledger, entry, view)


def _check_deliveries(entry: Entry, view: JobDetail) -> None:
    ends = [lent for lent in entry.lent if lent.outcome is not None]
    kept = [(each.fence, each.outcome, each.settled, each.session) for each in view.deliveries]
    expected = [(lent.fence, lent.outcome, lent.settled, lent.session) for lent in ends[-10:]]
    require("the last ten ends of leases are kept", kept == expected, kept, expected)


def _check_result(ledger: Ledger, entry: Entry, view: JobDetail) -> None:
    result = entry.results.get(view.fence) if view.state is State.DONE else None
    require("a result belongs to the fence that finished", view.result in (None, result), view, result)
    before = ledger.view(entry.id)
    there = before is None or before.state is not State.DONE or before.result is not None
    if there and result is not None and view.finished_at is not None:
        lasts = ledger.time.now < view.finished_at + ledger.settings.queue(view.queue).result_ttl
        require("a result is kept for its time", view.result is not None or not lasts, view, result)


def _check_reason(entry: Entry, view: JobDetail) -> None:
    unfit = entry.unfit if view.replays == 0 else None
    dead = (view.state, view.reason, view.error) == (State.DEAD, Reason.UNFIT, unfit)
    as_born = dead if unfit else view.reason is not Reason.UNFIT
    require("a job is born dead with its error, or not at all", as_born, view, unfit)
    match view.state:
        case State.DEAD:
            require("no dead letter without a reason", view.reason in DEAD_REASONS, view)
            started = bool(entry.lent) or view.reason in NEVER_STARTED
            require("no dead letter without a start, or a stated reason", started, view)
        case State.CANCELLED:
            require("nothing is cancelled without a reason", view.reason in CANCELLED_REASONS, view)
        case State.DONE:
            last = entry.lent[-1] if entry.lent else None
            done = last is not None and last.outcome is Outcome.DONE and last.fence == view.fence
            require("what is done was done under its last fence", done, view, last)
        case _:
            pass


_STEADY = (
    *("attempt", "max_attempts", "crashes", "fence", "priority", "payload", "headers", "tags", "deliveries"),
    *(
        "due_at",
        "expires_at",
        "finished_at",
        "session",
        "cancel_requested",
        "held",
        "replays",
        "progress",
        "logs",
    ),
)


def _check_untouched(ledger: Ledger, entry: Entry, view: JobDetail) -> None:
    """What no word of this step was about stays as it was, except for what its state says."""
    before = ledger.view(entry.id)
    if before is None or entry.id in ledger.touched or before.state is not view.state:
        return
    for name in _STEADY:
        same = getattr(before, name) == getattr(view, name)
        require("no word changes a job that it does not hold", same, name, before, view)


def _check_parents(ledger: Ledger, entry: Entry, now: Snapshot) -> None:
    """When a job leaves `blocked`, or is born outside of it, each of its edges must have been resolved."""
    view = now.jobs[entry.id]
    before = None if entry.id in ledger.created else ledger.view(entry.id)
    waited = (before is not None and before.state is State.BLOCKED) or entry.id in ledger.created
    if view is None or not waited or not view.after:
        return
    if view.state is State.CANCELLED and view.reason is Reason.PARENT_FAILED:
        failed = any(
            edge.on_failure is OnFailure.CANCEL
            and _fate(ledger, entry.ties[edge.parent], now) == (State.CANCELLED, True)
            for edge in view.after
        )
        require("a job is cancelled by a parent that failed for good", failed, view, now.jobs)
    elif view.state not in (State.BLOCKED, State.CANCELLED, State.DEAD):
        for edge in view.after:
            tie = entry.ties[edge.parent]
            state, sealed = _fate(ledger, tie, now)
            resolved = (
                state is State.DONE
                # One that was replayed since had been dead: its edge was resolved then, another was not yet.
                or (edge.on_failure is OnFailure.RUN and (state in TERMINAL or _replayed_since(tie, now)))
                or (edge.on_failure is OnFailure.IGNORE and sealed)
                or not tie.known
            )
            require("a child waits for its parents", resolved, view, edge, state, tie.replays)


def _replayed_since(tie: Tie, now: Snapshot) -> bool:
    """Whether a parent was replayed after its child was accepted."""
    view = now.jobs.get(tie.parent.id)
    return view is not None and view.replays > tie.replays


def _fate(ledger: Ledger, tie: Tie, now: Snapshot) -> tuple[State | None, bool]:
    """A parent's last state (`cancelled` for one that failed for good); and whether it failed for good."""
    parent = tie.parent
    # Its id may be another job's by now: it is forgotten then, and how it ended is in the ledger alone.
    view = now.jobs.get(parent.id) if ledger.entries.get(parent.id) is parent else None
    state = view.state if view is not None else parent.final
    gone = _kept_state(view) is None
    sealed = state is State.CANCELLED or (state is State.DEAD and gone)
    return (State.CANCELLED if sealed else state), sealed


def _check_explanation(job: JobId, now: Snapshot) -> None:
    view, told = now.jobs[job], now.explained[job]
    if view is not None and view.pruned and told.why is Why.UNKNOWN:
        return  # only the memory of how it ended is left: it may be explained or not
    state = None if view is None else view.state
    blocked = {Why.PARENTS, Why.PARENT_DEAD, Why.FOLLOWS}
    waiting = set(Why) - {Why.UNKNOWN, Why.FINISHED, Why.RUNNING} - blocked
    by_state: dict[State | None, Collection[Why]] = {
        None: {Why.UNKNOWN},
        State.BLOCKED: blocked,
        State.SCHEDULED: waiting,
        State.READY: waiting - {Why.HELD, Why.RETRYING, Why.NOT_DUE},
        State.RUNNING: {Why.RUNNING},
    }
    fits = told.state == state and told.why in by_state.get(state, {Why.FINISHED})
    require("an explanation fits the state", fits, told, view)


def _check_keys(ledger: Ledger) -> None:
    """At most one unfinished job holds a key; besides it, while it runs, one that follows it."""
    holders: dict[tuple[str, str, str, str | None], list[State]] = {}
    for job, view in ledger.last.jobs.items():
        if view is not None and view.key is not None and view.state in UNFINISHED:
            holders.setdefault(key_of(ledger.entries[job].job), []).append(view.state)
    for key, states in holders.items():
        alone = len(states) == 1 or sorted(states) == [State.BLOCKED, State.RUNNING]
        require("one unfinished job per key", alone, key, states)


def _check_order(ledger: Ledger, now: Snapshot) -> None:
    """None was overtaken by what it goes before, as far as the ledger knows their places."""
    waiting = [
        entry
        for entry in ledger.entries.values()
        if (view := now.jobs.get(entry.id)) is not None
        and view.state in (State.READY, State.SCHEDULED)
        and entry.id not in ledger.touched
    ]
    for nth, lent in enumerate(ledger.lent_now):
        taken, policy = ledger.entries[lent.job], ledger.settings.queue(lent.queue)
        later = [(ledger.entries[each.job], each.pristine) for each in ledger.lent_now[nth + 1 :]]
        for left, pristine in (*later, *((entry, entry.pristine) for entry in waiting)):
            if (lent.queue, lent.lane) != (left.job.queue, left.job.lane) or left.order > taken.order:
                continue
            if policy.sequence:
                placed = taken.placed and left.placed
                require("a sequence goes in order of enqueue", not placed, taken, left)
            elif policy.age_step is not None and left.accepted_at > taken.accepted_at:
                continue  # aging goes by time, and the clock was set back between the two
            elif left.job.priority == taken.job.priority:
                require("first in, first out", not (pristine and lent.pristine), taken, left)


def _check_tallies(ledger: Ledger, now: Snapshot) -> None:
    tally = Counter(
        (view.queue, view.task, view.state)
        for view in now.listed
        if view.state not in (State.DONE, State.CANCELLED)
    )
    there = {job for job, view in now.jobs.items() if _kept_state(view) is not None}
    require("a listing shows what is there", {view.id for view in now.listed} == there, now.listed, there)
    require("a listing shows each job once", len(now.listed) == len(there), now.listed)
    counted = Counter({(row.queue, row.task, row.state): row.count for row in now.counts.rows if row.count})
    require("counts are what is there, and what ended", counted == tally + ledger.ends, counted, tally)
    for queue, lanes in now.lanes.items():
        for lane in lanes:
            running = sum(1 for _ in ledger.live(queue, lane.lane))
            require("a lane counts what runs", lane.running == running, lane, running)
            paused = lane.paused == ((queue, lane.lane) in ledger.settings.paused)
            require("a lane shows that it is paused", paused, lane)
            rate = ledger.settings.lane(queue, lane.lane).rate
            tokens = rate and ledger.rates.tokens(queue, lane.lane, rate, ledger.time.now)
            told = tokens is None or lane.tokens == tokens
            require("tokens are taken by claims and come back with unstarted work", told, lane, tokens)


def _check_events(ledger: Ledger, now: Snapshot) -> None:
    """Every event is an arrow of the table; where a queue writes all of them, they lead from then to now."""
    stories: dict[JobId, list[Event]] = {}
    for event in now.events:
        arrow = permitted(event.before, event.move, event.after)
        require("every transition is an arrow of the table", arrow, event)
        stories.setdefault(event.job, []).append(event)
    if now.gap:
        return
    for job, view in now.jobs.items():
        entry = ledger.entries.get(job)
        if entry is None or entry.job.queue in ledger.restated:
            continue
        emit = ledger.settings.queue(entry.job.queue).emit
        story = stories.get(job, [])
        if emit is Emit.NONE:
            require("events are off unless asked for", not story, story)
        elif emit is Emit.ALL:
            before = None if job in ledger.created else _kept_state(ledger.view(job))
            states = [before, *(event.after for event in story)]
            joined = [event.before for event in story] == states[:-1]
            require(
                "events tell the whole story", joined and states[-1] == _kept_state(view), story, states, view
            )
        else:
            ends = all(event.before is State.RUNNING or event.after in TERMINAL for event in story)
            require("final events are ends", ends, story)


def _note(ledger: Ledger, now: Snapshot) -> None:
    """Take over what was read: ends, and what time alone brought about."""
    for job, view in now.jobs.items():
        entry = ledger.entries.get(job)
        if entry is None or view is None:
            continue
        before = None if job in ledger.created else ledger.view(job)
        if view.state in TERMINAL:
            entry.final = view.state
            if view.finished_at is not None:
                ledger.finished_at[job] = view.finished_at
            # A memory that the clock, set back, brings up again is no end either.
            again = job not in ledger.created and (before is None or before.state is view.state)
            if view.state is not State.DEAD and not again:
                ledger.ends[entry.job.queue, entry.job.task, view.state] += 1
        elif view.state is State.READY:
            entry.due = 0  # it stays ready, also when the clock is set back
        elif view.state in WAITING:
            entry.pristine = False
            entry.placed = entry.placed and view.state is not State.BLOCKED
    for job, absorbed in ledger.absorbed.items():
        if ledger.time.now >= absorbed.until:
            ledger.absorbed[job] = msgspec.structs.replace(absorbed, sure=False)
    ledger.last = now

"""Leases: given by claim, ended by a settlement, by the end of their session or by their deadline."""

from collections.abc import Collection, Sequence

from windlass.conformance.machine.ledger.enqueue import known, spawned
from windlass.conformance.machine.ledger.records import Entry, Ledger, Lent
from windlass.conformance.machine.violated import require
from windlass.core.lease import Ask, Asker, Claimed, Lease
from windlass.core.outcome import Answer, Outcome, Verdict
from windlass.core.session import Note
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.units import DAY, SECOND, Fence, JobId

HISTORY = 10
"""Ends of leases that are kept, and answered ALREADY."""
SUSPECT = 2
"""Crashes that make a job a suspect."""
GIVEN_BACK = frozenset({Outcome.RELEASE, Outcome.SNOOZE, Outcome.HOLD})


# claim


def claimed(ledger: Ledger, ask: Ask, answer: Claimed) -> None:
    """An ask was answered."""
    if ask.session is None:
        require("an ask for deadline leases has no session to lose", answer.session is Asker.ALIVE, answer)
        _handed_out(ledger, ask, answer)
        return
    seat = ledger.seats.get(ask.session)
    if seat is None or not seat.alive:
        refused = answer.session is Asker.LOST and not answer.leases
        require("a session that is not open gets nothing", refused, ask, answer)
        return
    assert ask.seq is not None
    if ask.seq < seat.seq:
        outdated = answer.session is Asker.OUTDATED and not answer.leases
        require("an older ask gets nothing", outdated, ask, answer)
        return
    if ask.seq > seat.seq + 1:
        lost = answer.session is Asker.LOST and not answer.leases
        require("an ask behind a forgotten answer gets nothing", lost, ask, answer)
        return
    require("an open session is alive", answer.session is Asker.ALIVE, ask, answer)
    if ask.seq == seat.seq:
        held = [(lent.job, lent.fence) for lent in seat.reply if lent.outcome is None]
        again = [(lease.job, lease.fence) for lease in answer.leases]
        require(
            "a repeated ask gets the leases of its reply that are still held", again == held, held, answer
        )
        return
    seat.ask = ask
    seat.reply = _handed_out(ledger, ask, answer)


def _handed_out(ledger: Ledger, ask: Ask, answer: Claimed) -> list[Lent]:
    leases = answer.leases
    require("a claim stays within its limit", len(leases) <= (1 if ask.alone else ask.limit), ask, answer)
    size = sum(len(lease.payload) for lease in leases)
    require("a claim stays within max_bytes", len(leases) < 2 or size <= ask.max_bytes, ask, answer)
    order = [ask.queues.index(lease.queue) for lease in leases if lease.queue in ask.queues]
    in_order = order == sorted(order) and len(order) == len(leases)
    require("queues are emptied in the order of the ask", in_order, ask, answer)
    return [_lend(ledger, ask, place, lease) for place, lease in enumerate(leases)]


def _lend(ledger: Ledger, ask: Ask, place: int, lease: Lease) -> Lent:
    now = ledger.time.now
    entry = ledger.entry(lease.job)
    require("runs with a live lease never overlap", entry.live is None, lease, entry.live)
    require("what is finished never runs again by itself", entry.final is None, lease, entry.final)
    require("nothing starts before it is due", now >= entry.due, lease, now, entry.due)
    fresh = entry.started or entry.expires_at is None or now <= entry.expires_at
    require("nothing starts first after it expired", fresh, lease, now, entry.expires_at)
    require("suspects run alone, and nothing else does", (entry.crashes >= SUSPECT) == ask.alone, lease, ask)
    _check_fence(ledger, entry, lease.fence)
    entry.attempt += 1
    _check_lease(entry, lease)
    lent = Lent(
        job=lease.job,
        fence=lease.fence,
        session=ask.session,
        deadline=None if ask.visibility is None else now + ask.visibility,
        claimed_at=now,
        queue=lease.queue,
        lane=lease.lane,
        pristine=entry.pristine,
    )
    entry.lent.append(lent)
    entry.pristine = False
    entry.due = 0  # behind it, also when the clock is set back
    ledger.fences[lease.job].append(lease.fence)
    ledger.touched.add(lease.job)
    ledger.lent_now.append(lent)
    _check_limits(ledger, entry, lent, in_a_slot=place < ask.slots, soon=place < ask.soon)
    return lent


def _check_fence(ledger: Ledger, entry: Entry, fence: Fence) -> None:
    now = ledger.time.now
    given = ledger.fences[entry.id]
    if entry.lent:
        require(
            "fences grow: max(last + 1, now)", fence == max(given[-1] + 1, now), entry.id, fence, given, now
        )
    elif given and now > given[-1]:
        # An earlier job under this id is forgotten; a clock that was followed back cannot help.
        require("fences grow, also after a prune", fence > given[-1], entry.id, fence, given)
    require("a fence is not below the clock", fence >= now, entry.id, fence, now)


def _check_lease(entry: Entry, lease: Lease) -> None:
    require(
        "attempts are claims less what was given back", lease.attempt == entry.attempt, lease, entry.attempt
    )
    within = lease.attempt <= lease.max_attempts or entry.overspent
    require("attempts never exceed max_attempts", within, lease)
    job = entry.job
    asked = (job.task, job.queue, job.lane, job.priority, job.payload, dict(job.headers), job.tags, job.flow)
    carried = (
        *(lease.task, lease.queue, lease.lane, lease.priority, lease.payload),
        *(dict(lease.headers), lease.tags, lease.flow),
    )
    require("a lease carries the job that was asked for", asked == carried, asked, carried)
    parents = {edge.parent for edge in job.after}
    require("a lease names its parents", parents == set(lease.parents), lease, job)
    rest = (lease.max_attempts, lease.revision, lease.crashes) == (
        job.max_attempts,
        job.revision,
        entry.crashes,
    )
    require("a lease carries attempts, revision and crashes", rest, lease, entry)
    require("memos reach the next run", dict(lease.memos) == entry.memos, lease, entry.memos)


def _check_limits(ledger: Ledger, entry: Entry, lent: Lent, *, in_a_slot: bool, soon: bool) -> None:
    settings, now = ledger.settings, ledger.time.now
    queue, lane = settings.queue(lent.queue), settings.lane(lent.queue, lent.lane)
    paused = settings.paused & {(lent.queue, None), (lent.queue, lent.lane)}
    require("what is paused hands out nothing", not paused, lent, paused)
    running = sum(1 for _ in ledger.live(lent.queue))
    within = queue.concurrency is None or running <= queue.concurrency
    require("concurrency of a queue holds", within, lent, running, queue)
    running = sum(1 for _ in ledger.live(lent.queue, lent.lane))
    within = lane.concurrency is None or running <= lane.concurrency
    require("concurrency of a lane holds", within, lent, running, lane)
    ledger.rates.took(lent.queue, None, queue.rate, now)
    ledger.rates.took(lent.queue, lent.lane, lane.rate, now)
    limits = (queue.concurrency, queue.rate, lane.concurrency, lane.rate)
    free = soon or all(limit is None for limit in limits)
    prefetched = free and entry.attempt < entry.job.max_attempts and entry.job.task in ledger.timed
    require("only what is free and timed is prefetched", in_a_slot or prefetched, lent, limits, entry.attempt)


# words about a lease


def expected_verdicts(ledger: Ledger, job: JobId, fence: Fence) -> Collection[Verdict]:
    """What a word about a lease may be answered: only the live lease is listened to."""
    entry = ledger.entries.get(job)
    if entry is None or not known(ledger, job):
        return {Verdict.GONE}
    if entry.live is not None and entry.live.fence == fence:
        return {Verdict.STALE if entry.live.revoked else Verdict.APPLIED}
    ends = [lent for lent in entry.lent if lent.outcome is not None]
    settled = [lent.fence for lent in ends[-HISTORY:] if lent.settled]
    last = bool(ends) and ends[-1].fence == fence
    if fence not in settled or not (last or ledger.kept(job)):
        return {Verdict.STALE}
    # Of a job that ended a moment ago, in this very call, no more than the last end may be left.
    ended_now = entry.final is not None and job in ledger.touched
    return {Verdict.ALREADY, Verdict.STALE} if ended_now and not last else {Verdict.ALREADY}


def annotated(ledger: Ledger, notes: Sequence[Note], verdicts: Sequence[Verdict]) -> None:
    """Notes were answered."""
    require("each note is answered", len(notes) == len(verdicts), notes, verdicts)
    for note, verdict in zip(notes, verdicts, strict=True):
        expected = expected_verdicts(ledger, note.job, note.fence)
        require("a note is kept of the live lease alone", verdict in expected, note, verdict, expected)
        if verdict is not Verdict.APPLIED:
            continue
        ledger.touched.add(note.job)
        entry = ledger.entry(note.job)
        lent = entry.live
        assert lent is not None
        if note.extend is not None and lent.deadline is not None:
            lent.deadline = ledger.time.now + note.extend
        if note.memo is not None:
            entry.memos[note.memo[0]] = note.memo[1]


def settled(ledger: Ledger, items: Sequence[Settlement], answers: Sequence[Answer]) -> None:
    """Settlements were answered."""
    require("each settlement is answered", len(items) == len(answers), items, answers)
    for item, answer in zip(items, answers, strict=True):
        expected = expected_verdicts(ledger, item.job, item.fence)
        if answer.verdict is Verdict.REFUSED:
            only = Verdict.APPLIED in expected and item.spawn
            require("only a live lease with children is refused", only, item, answer)
            continue
        right = answer.verdict in expected
        require("nothing but the live lease changes anything", right, item, answer, expected)
        if answer.verdict is Verdict.APPLIED:
            _applied(ledger, item, answer)
        elif answer.verdict is Verdict.ALREADY:
            lent = ledger.entry(item.job).find(item.fence)
            stands = lent is not None and answer.outcome is lent.outcome
            require("ALREADY names the outcome that stands", stands, item, answer, lent)


def _applied(ledger: Ledger, item: Settlement, answer: Answer) -> None:
    entry = ledger.entry(item.job)
    outcome, state = _expected_end(ledger, entry, item)
    too_long = item.outcome is Outcome.HOLD and answer.outcome is Outcome.DEAD and outcome is Outcome.HOLD
    if too_long:
        since = entry.first_held
        require(
            "a job is held for seven days",
            since is not None and ledger.time.now - since >= 7 * DAY,
            item,
            entry,
        )
        outcome, state = Outcome.DEAD, State.DEAD
    ruled = (answer.outcome, answer.state) == (outcome, state)
    require("a settlement leads to the state of its outcome", ruled, item, answer, outcome, state)
    end(
        ledger,
        entry,
        outcome,
        state,
        settled=True,
        charged=outcome not in GIVEN_BACK and not too_long,
        ran=item.runtime is not None,
        token=item.runtime is None and item.outcome in (Outcome.RELEASE, Outcome.HOLD),
    )
    if item.runtime is not None:
        ledger.timed.add(entry.job.task)
    match outcome:
        case Outcome.DONE:
            entry.results[item.fence] = item.result
            spawned(ledger, item.job, item.spawn)
        case Outcome.RETRY | Outcome.SNOOZE:
            entry.due = ledger.time.now + item.delay
        case Outcome.HOLD:
            entry.due = ledger.time.now + SECOND
            entry.first_held = ledger.time.now if entry.first_held is None else entry.first_held
        case _:
            pass


def _expected_end(ledger: Ledger, entry: Entry, item: Settlement) -> tuple[Outcome, State]:
    if item.outcome is Outcome.DONE:
        return Outcome.DONE, State.DONE
    if entry.flagged or ledger.follower(entry) is not None:
        return Outcome.CANCELLED, State.CANCELLED
    later = State.SCHEDULED if item.delay else State.READY
    match item.outcome:
        case Outcome.CANCELLED:
            return Outcome.CANCELLED, State.CANCELLED
        case Outcome.DEAD:
            return Outcome.DEAD, State.DEAD
        case Outcome.RETRY:
            spent = entry.attempt >= entry.job.max_attempts
            return (Outcome.DEAD, State.DEAD) if spent else (Outcome.RETRY, later)
        case Outcome.SNOOZE:
            return Outcome.SNOOZE, later
        case Outcome.HOLD:
            return Outcome.HOLD, State.SCHEDULED
        case Outcome.RELEASE:
            return Outcome.RELEASE, State.READY


def end(
    ledger: Ledger,
    entry: Entry,
    outcome: Outcome,
    state: State,
    *,
    settled: bool,
    charged: bool,
    ran: bool,
    token: bool,
) -> None:
    """A live lease ended: its slot is free, and what was given back is given back."""
    lent = entry.live
    assert lent is not None
    lent.outcome, lent.settled = outcome, settled
    entry.attempt -= not charged
    entry.started = entry.started or charged or ran
    entry.final = state if state in (State.DONE, State.DEAD, State.CANCELLED) else None
    if entry.final is not None:
        entry.memos.clear()
    if outcome is not Outcome.HOLD and (charged or ran):
        entry.first_held = None
    if token:
        settings, now = ledger.settings, ledger.time.now
        ledger.rates.gave_back(lent.queue, None, settings.queue(lent.queue).rate, now, lent.claimed_at)
        lane_rate = settings.lane(lent.queue, lent.lane).rate
        ledger.rates.gave_back(lent.queue, lent.lane, lane_rate, now, lent.claimed_at)
    ledger.touched.add(entry.id)

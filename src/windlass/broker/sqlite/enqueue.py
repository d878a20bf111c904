"""Enqueue: groups that come into being whole or not at all, unique keys, edges."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from windlass.broker.sqlite import filing, flows, keys, lifecycle
from windlass.broker.sqlite.alike import accept_alike
from windlass.broker.sqlite.keys import Key
from windlass.broker.sqlite.records import BLOCKED, HAS_PARENTS, KEYED, STATES, Body, Job
from windlass.broker.sqlite.snapshot import SQL as STORE
from windlass.broker.sqlite.statements import statements
from windlass.broker.sqlite.transaction import Transaction
from windlass.core.dedup import KeyRuling, rule_key
from windlass.core.edge import EdgeRuling, rule_edge
from windlass.core.group import Refusals, in_cycle, refused_whole, too_large
from windlass.core.job import (
    Edge,
    NewJob,
    Receipt,
    Refusal,
    Status,
    due_at,
)
from windlass.core.outcome import Error
from windlass.core.state import Move, Reason, State
from windlass.core.units import JobId

SQL = statements("jobs")
_NOBODY: Mapping[JobId, Error] = MappingProxyType({})


def enqueue(
    tx: Transaction, groups: Sequence[Sequence[NewJob]], *, full: str | None = None
) -> tuple[tuple[Receipt, ...], ...]:
    """Accept groups, each by itself. `full` says why nothing can be accepted for want of space."""
    return tuple(enqueue_group(tx, group, full=full) for group in groups)


def enqueue_group(
    tx: Transaction,
    group: Sequence[NewJob],
    *,
    full: str | None = None,
    dead: Mapping[JobId, Error] = _NOBODY,
) -> tuple[Receipt, ...]:
    """Accept a group, or refuse it whole. `dead` are those that are born dead, and why."""
    full = full or _is_full(tx, group)
    if full is None and not dead and (accepted := accept_alike(tx, group)) is not None:
        return accepted
    refused = refusals(tx, group, full=full)
    if refused:
        return refused_whole(group, refused)
    return accept(tx, group, dead=dead)


def accept(
    tx: Transaction,
    group: Sequence[NewJob],
    parent: JobId | None = None,
    *,
    dead: Mapping[JobId, Error] = _NOBODY,
) -> tuple[Receipt, ...]:
    """Create the jobs of a group that has been found acceptable; receipts in the group's order.

    First every call is answered as its key says, in order; then those that became jobs are tied to their
    parents and placed. So a parent may come after its child, and an edge to an absorbed call leads to the job
    that stands for it.
    """
    created: list[Job] = []
    receipts = tuple(_accept_call(tx, asked, parent, created) for asked in group)
    for job in created:
        _place(tx, job, dead.get(job.id))
    return receipts


# what is refused


def refusals(tx: Transaction, group: Sequence[NewJob], *, full: str | None = None) -> Refusals:
    """The jobs of a group that cannot be accepted, with the reason. `full` says why there is no room."""
    if large := too_large(group):
        return large
    found: dict[JobId, tuple[Refusal, str]] = {}
    ids = {job.id for job in group}
    tx.load(ids)
    new = [job for job in group if _known(tx, job.id) is None]
    cyclic = in_cycle(new) if any(job.after for job in new) else frozenset[JobId]()
    for job in new:
        unknown = next(
            (e.parent for e in job.after if e.parent not in ids and not _is_parent(tx, e.parent)), None
        )
        if tx.queue(job.queue) is None:
            declared = ", ".join(name for (name,) in tx.all(STORE["queue_names"])) or "none"
            why = f'queue "{job.queue}" is not declared; declared queues: {declared}'
            found[job.id] = (Refusal.UNKNOWN_QUEUE, why)
        elif unknown is not None:
            found[job.id] = (Refusal.UNKNOWN_PARENT, f"parent {unknown} is not known")
        elif job.id in cyclic:
            found[job.id] = (Refusal.CYCLE, f"job {job.id} waits for itself through its parents")
        elif full is not None:
            found[job.id] = (Refusal.STORE_FULL, full)
    return found


def _is_full(tx: Transaction, group: Sequence[NewJob]) -> str | None:
    limit = tx.options.max_size
    if limit is None or tx.bytes + sum(len(job.payload) for job in group) <= limit:
        return None
    return f"the store is at its limit of {limit} bytes"


def _is_parent(tx: Transaction, job: JobId) -> bool:
    return _known(tx, job) is not None


# what is accepted


def _known(tx: Transaction, job: JobId) -> Receipt | None:
    """The receipt of an id that was sent before."""
    record = tx.record(job)
    if record is not None and record.pruned_until is None:
        return Receipt(Status.DUPLICATE, job, job)
    if tx.absorbed and (row := tx.one(SQL["absorbed"], (job,))) is not None:
        status, of, until = row
        if tx.now < until:
            return Receipt(Status(status), job, of)
    if record is not None and record.pruned_until is not None and tx.now < record.pruned_until:
        return Receipt(Status.DUPLICATE, job, job)
    return None


def _accept_call(tx: Transaction, asked: NewJob, parent: JobId | None, created: list[Job]) -> Receipt:
    """Answer one call; if it becomes a job, that is in `created` and has yet to be placed."""
    if (receipt := _known(tx, asked.id)) is not None:
        return receipt
    queue = tx.queue(asked.queue)
    assert queue is not None
    place = None if asked.key is None else (asked.key, queue.q, asked.lane, tx.task(asked.task))
    key = keys.key_at(tx, place)
    if key is None or place is None:
        return _create(tx, asked, parent, created)
    # What has the id of a holder that finished may be another job by now.
    holder = tx.job(key.holder) if key.until is None else None
    within = key.until is None or tx.now < key.until
    match rule_key(asked.mode, _state_of_holder(holder), within_window=within):
        case KeyRuling.CREATE:
            return _create(tx, asked, parent, created)
        case KeyRuling.DUPLICATE:
            return _absorb(tx, Receipt(Status.DUPLICATE, asked.id, key.holder))
        case KeyRuling.REPLACE:
            assert holder is not None
            return _replace(tx, holder, asked)
        case KeyRuling.FOLLOW if key.follower is not None:
            follower = tx.job(key.follower)
            assert follower is not None
            return _replace(tx, follower, asked)
        case KeyRuling.FOLLOW:
            key.follower = asked.id
            keys.save_key(tx, place, key)
            return _create(tx, asked, parent, created, follows=True)


def _state_of_holder(holder: Job | None) -> State:
    """A holder that is gone has finished; one of the same group, not placed yet, waits."""
    if holder is None:
        return State.DONE
    return STATES[BLOCKED] if holder.state is None else holder.state


def _absorb(tx: Transaction, receipt: Receipt) -> Receipt:
    until = tx.now + tx.options.resend_window
    tx.run(SQL["absorb"], (receipt.job, receipt.status.value, receipt.of, until))
    tx.absorbed = 1
    return receipt


def _create(
    tx: Transaction, asked: NewJob, parent: JobId | None, created: list[Job], *, follows: bool = False
) -> Receipt:
    queue = tx.queue(asked.queue)
    assert queue is not None
    if asked.lane != "":
        filing.become_laned(tx, queue)
    _forget_id(tx, asked.id)
    job = Job(
        n=tx.number(),
        id=asked.id,
        q=queue.q,
        t=tx.task(asked.task),
        lane=asked.lane,
        accepted_at=tx.now,
        parent=parent,
        flow=asked.flow,
        revision=asked.revision,
        priority=asked.priority,
        max_attempts=asked.max_attempts,
        due_at=due_at(asked, tx.now),
        expires_at=None if asked.expires is None else tx.now + asked.expires,
        waiting_for=int(follows),
        size=len(asked.payload),
        marks=KEYED if asked.key is not None else 0,
    )
    body = Body(
        asked.key, asked.mode, asked.window, dict(asked.headers), asked.tags, asked.after, asked.payload
    )
    tx.add(job, body)
    tx.bytes += job.size
    if asked.key is not None and not follows:
        place = (asked.key, job.q, job.lane, job.t)
        keys.save_key(tx, place, Key(job.id, asked.mode, asked.window, tx.now))
    created.append(job)
    return Receipt(Status.CREATED, asked.id)


def _forget_id(tx: Transaction, job: JobId) -> None:
    """The memory of an earlier job under this id, or call, is over."""
    old = tx.record(job)
    if old is not None:
        lifecycle.remove(tx, old)
    if tx.absorbed:
        tx.run(SQL["drop_absorbed"], (job,))


def _place(tx: Transaction, job: Job, dead: Error | None) -> None:
    """Tie a new job to its parents and let it wait. `dead` says why it is born dead."""
    if _tie(tx, job):
        lifecycle.finish(tx, job, Move.PARENT_FAILED, State.CANCELLED, Reason.PARENT_FAILED)
        lifecycle.drop_if_unkept(tx, job)
    elif dead is not None:
        lifecycle.set_error(tx, job, dead)
        lifecycle.finish(tx, job, Move.ENQUEUE, State.DEAD, Reason.UNFIT)
    elif job.waiting_for:
        lifecycle.transition(tx, job, Move.ENQUEUE, State.BLOCKED)
    else:
        filing.line_up(tx, job)
        lifecycle.make_waiting(tx, job, Move.ENQUEUE)


def _tie(tx: Transaction, job: Job) -> bool:
    """Tie a job to its parents; whether an edge to a parent that has failed cancels it."""
    body = tx.body(job)
    if not body.after:
        return False
    parents = {_stands_for(tx, edge.parent): edge.on_failure for edge in body.after}
    body.after = tuple(Edge(*edge) for edge in parents.items())
    tx.save_body(job, body)
    job.marks |= HAS_PARENTS
    for edge in body.after:
        ruling = rule_edge(edge.on_failure, _fate_of(tx.record(edge.parent)))
        if ruling is EdgeRuling.CANCEL:
            return True
        waits = ruling is EdgeRuling.WAIT
        job.waiting_for += waits
        flows.tie(tx, job, edge, waits=waits)
    tx.touch(job)
    return False


def _stands_for(tx: Transaction, parent: JobId) -> JobId:
    """The job that a call stands for: itself, or the one whose key absorbed it."""
    receipt = _known(tx, parent)
    return parent if receipt is None or receipt.of is None else receipt.of


def _fate_of(record: Job | None) -> State | None:
    """How a parent has ended. One that is not kept counts by its state, and can no longer be replayed."""
    if record is None:
        return State.DONE
    if record.pruned_until is None:
        return record.state
    return State.DONE if record.state is State.DONE else State.CANCELLED


def _replace(tx: Transaction, job: Job, asked: NewJob) -> Receipt:
    """Let a waiting job take over what a newer call asks for; it keeps its id."""
    lifecycle.leave_waiting(tx, job)
    body = tx.body(job)
    tx.bytes += len(asked.payload) - job.size
    job.size = len(asked.payload)
    body.mode, body.window = asked.mode, asked.window
    body.payload, body.headers, body.tags = asked.payload, dict(asked.headers), asked.tags
    tx.save_body(job, body)
    job.priority, job.max_attempts, job.revision = asked.priority, asked.max_attempts, asked.revision
    job.due_at = due_at(asked, tx.now)
    job.expires_at = None if asked.expires is None else tx.now + asked.expires
    job.attempt = job.crashes = job.started = 0
    job.held = None
    lifecycle.forget_words(tx, job)
    tx.touch(job)
    place = keys.place_of(tx, job)
    key = keys.key_at(tx, place)
    if place is not None and key is not None and key.holder == job.id:
        key.mode, key.window = asked.mode, asked.window
        keys.save_key(tx, place, key)
    if job.state is State.BLOCKED:
        lifecycle.transition(tx, job, Move.REPLACE, State.BLOCKED)
    elif job.state is not None:
        lifecycle.make_waiting(tx, job, Move.REPLACE)
    return _absorb(tx, Receipt(Status.REPLACED, asked.id, job.id))

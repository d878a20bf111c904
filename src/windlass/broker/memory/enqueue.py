"""Enqueue: groups that come into being whole or not at all, unique keys, edges."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from windlass.broker.memory import filing, lifecycle
from windlass.broker.memory.namespace import Absorbed, Job, Key, Namespace
from windlass.core.dedup import KeyRuling, rule_key
from windlass.core.edge import EdgeRuling, rule_edge
from windlass.core.group import Refusals, in_cycle, key_place, refused_whole, too_large
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
from windlass.core.units import JobId, Micros

_NOBODY: Mapping[JobId, Error] = MappingProxyType({})


def enqueue(ns: Namespace, groups: Sequence[Sequence[NewJob]]) -> tuple[tuple[Receipt, ...], ...]:
    """Accept groups, each by itself."""
    return tuple(enqueue_group(ns, group) for group in groups)


def enqueue_group(
    ns: Namespace, group: Sequence[NewJob], *, dead: Mapping[JobId, Error] = _NOBODY
) -> tuple[Receipt, ...]:
    """Accept a group, or refuse it whole. `dead` are those that are born dead, and why."""
    refused = refusals(ns, group, may_fill=False)
    if refused:
        return refused_whole(group, refused)
    return accept(ns, group, dead=dead)


def accept(
    ns: Namespace,
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
    receipts = tuple(_accept_call(ns, asked, parent, created) for asked in group)
    for job in created:
        job.error = dead.get(job.id)
        _place(ns, job)
    return receipts


# what is refused


def refusals(ns: Namespace, group: Sequence[NewJob], *, may_fill: bool) -> Refusals:
    """The jobs of a group that cannot be accepted, with the reason. `may_fill`: even beyond `max_size`."""
    if large := too_large(group):
        return large
    size = sum(len(job.payload) for job in group)
    found: dict[JobId, tuple[Refusal, str]] = {}
    ids = {job.id for job in group}
    new = [job for job in group if _known(ns, job.id) is None]
    cyclic = in_cycle(new)
    for job in new:
        unknown = [
            edge.parent for edge in job.after if edge.parent not in ids and not _is_parent(ns, edge.parent)
        ]
        if job.queue not in ns.queues:
            declared = ", ".join(sorted(ns.queues)) or "none"
            found[job.id] = (
                Refusal.UNKNOWN_QUEUE,
                f'queue "{job.queue}" is not declared; declared queues: {declared}',
            )
        elif unknown:
            found[job.id] = (Refusal.UNKNOWN_PARENT, f"parent {unknown[0]} is not known")
        elif job.id in cyclic:
            found[job.id] = (Refusal.CYCLE, f"job {job.id} waits for itself through its parents")
        elif not may_fill and _is_full(ns, size):
            found[job.id] = (Refusal.STORE_FULL, f"the store is at its limit of {ns.options.max_size} bytes")
    return found


def _is_full(ns: Namespace, more: int) -> bool:
    limit = ns.options.max_size
    return limit is not None and sum(job.size for job in ns.jobs.values()) + more > limit


def _is_parent(ns: Namespace, job: JobId) -> bool:
    return _known(ns, job) is not None


# what is accepted


def _known(ns: Namespace, job: JobId) -> Receipt | None:
    """The receipt of an id that was sent before."""
    if job in ns.jobs:
        return Receipt(Status.DUPLICATE, job, job)
    now = ns.now()
    if (absorbed := ns.absorbed.get(job)) is not None and now < absorbed.until:
        return absorbed.receipt
    if (remembered := ns.remembered.get(job)) is not None and now < remembered.until:
        return Receipt(Status.DUPLICATE, job, job)
    return None


def _accept_call(ns: Namespace, asked: NewJob, parent: JobId | None, created: list[Job]) -> Receipt:
    """Answer one call; if it becomes a job, that is in `created` and has yet to be placed."""
    if (receipt := _known(ns, asked.id)) is not None:
        return receipt
    key, holder = _holder(ns, asked)
    if key is None:
        return _create(ns, asked, parent, created)
    within = key.until is None or ns.now() < key.until
    match rule_key(asked.mode, _state_of_holder(holder), within_window=within):
        case KeyRuling.CREATE:
            return _create(ns, asked, parent, created)
        case KeyRuling.DUPLICATE:
            return _absorb(ns, Receipt(Status.DUPLICATE, asked.id, key.holder))
        case KeyRuling.REPLACE:
            assert holder is not None
            return _replace(ns, holder, asked)
        case KeyRuling.FOLLOW if key.follower is not None:
            return _replace(ns, ns.jobs[key.follower], asked)
        case KeyRuling.FOLLOW:
            key.follower = asked.id
            return _create(ns, asked, parent, created, follows=key.holder)


def _state_of_holder(holder: Job | None) -> State:
    """A holder that is gone has finished; one of the same group, not placed yet, waits."""
    if holder is None:
        return State.DONE
    return State.BLOCKED if holder.state is None else holder.state


def _holder(ns: Namespace, asked: NewJob) -> tuple[Key | None, Job | None]:
    place = key_place(asked)
    key = None if place is None else ns.keys.get(place)
    if key is None or key.until is not None:
        return key, None  # what has the id of a holder that finished may be another job by now
    return key, ns.jobs.get(key.holder)


def _absorb(ns: Namespace, receipt: Receipt) -> Receipt:
    ns.absorbed[receipt.job] = Absorbed(receipt, ns.now() + ns.options.resend_window)
    return receipt


def _create(
    ns: Namespace, asked: NewJob, parent: JobId | None, created: list[Job], follows: JobId | None = None
) -> Receipt:
    now = ns.now()
    queue = ns.queues[asked.queue]
    if asked.lane:
        filing.become_laned(ns, queue)
    job = Job(
        asked,
        now,
        ns.number(),
        due_at(asked, now),
        parent,
        expires_at=_expires_at(asked, now),
    )
    ns.jobs[job.id] = job
    ns.remembered.pop(job.id, None)
    ns.absorbed.pop(job.id, None)
    place = key_place(asked)
    if follows is not None:
        job.waiting_for.add(follows)
    elif place is not None:
        ns.keys[place] = Key(job.id, asked.mode, asked.window, now)
    created.append(job)
    return Receipt(Status.CREATED, asked.id)


def _place(ns: Namespace, job: Job) -> None:
    """Tie a new job to its parents and let it wait. One with an error is born dead."""
    parents = {_stands_for(ns, edge.parent): edge.on_failure for edge in job.asked.after}
    job.asked = msgspec.structs.replace(job.asked, after=tuple(Edge(*edge) for edge in parents.items()))
    if _tie(ns, job):
        lifecycle.finish(ns, job, Move.PARENT_FAILED, State.CANCELLED, Reason.PARENT_FAILED)
        lifecycle.drop_if_unkept(ns, job)
    elif job.error is not None:
        lifecycle.finish(ns, job, Move.ENQUEUE, State.DEAD, Reason.UNFIT)
    elif job.waiting_for:
        lifecycle.transition(ns, job, Move.ENQUEUE, State.BLOCKED)
    else:
        filing.line_up(ns, job)
        lifecycle.make_waiting(ns, job, Move.ENQUEUE)


def _tie(ns: Namespace, job: Job) -> bool:
    """Tie a job to its parents; whether an edge to a parent that has failed cancels it."""
    for edge in job.asked.after:
        parent = edge.parent
        lifecycle.need(ns, parent, job)
        match rule_edge(edge.on_failure, _fate_of(ns, parent)):
            case EdgeRuling.CANCEL:
                return True
            case EdgeRuling.WAIT:
                job.waiting_for.add(parent)
                ns.edges.setdefault(parent, {})[job.id] = edge
            case EdgeRuling.FREE:
                pass
    return False


def _stands_for(ns: Namespace, parent: JobId) -> JobId:
    """The job that a call stands for: itself, or the one whose key absorbed it."""
    receipt = _known(ns, parent)
    return parent if receipt is None or receipt.of is None else receipt.of


def _fate_of(ns: Namespace, parent: JobId) -> State | None:
    """How a parent has ended. One that is not kept counts by its state, and can no longer be replayed."""
    job = ns.jobs.get(parent)
    if job is not None:
        return job.state
    remembered = ns.remembered.get(parent)
    return State.DONE if remembered is None or remembered.job.state is State.DONE else State.CANCELLED


def _replace(ns: Namespace, job: Job, asked: NewJob) -> Receipt:
    """Let a waiting job take over what a newer call asks for; it keeps its id."""
    now = ns.now()
    lifecycle.leave_waiting(ns, job)
    job.asked = _merge(job.asked, asked)
    job.due_at = due_at(asked, now)
    job.expires_at = _expires_at(asked, now)
    job.attempt = job.crashes = 0
    job.started = False
    job.held = job.error = job.progress = None
    job.memos.clear()  # what a step recorded was computed from the older payload
    key = ns.held_key(job)
    if key is not None:
        key.mode, key.window = asked.mode, asked.window
    if job.state is State.BLOCKED:
        lifecycle.transition(ns, job, Move.REPLACE, State.BLOCKED)
    elif job.state is not None:
        lifecycle.make_waiting(ns, job, Move.REPLACE)
    return _absorb(ns, Receipt(Status.REPLACED, asked.id, job.id))


def _merge(first: NewJob, newest: NewJob) -> NewJob:
    return NewJob(
        id=first.id,
        task=first.task,
        queue=first.queue,
        lane=first.lane,
        key=first.key,
        after=first.after,
        flow=first.flow,
        priority=newest.priority,
        mode=newest.mode,
        window=newest.window,
        delay=newest.delay,
        run_at=newest.run_at,
        expires=newest.expires,
        payload=newest.payload,
        headers=newest.headers,
        tags=newest.tags,
        max_attempts=newest.max_attempts,
        revision=newest.revision,
    )


def _expires_at(asked: NewJob, now: Micros) -> Micros | None:
    return None if asked.expires is None else now + asked.expires

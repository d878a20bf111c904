"""Journeys: lives of jobs that together walk every arrow of the transition table.

A journey takes jobs of the queue `q` through verb after verb, and after each verb yields the transitions that
it made, each job's in their order. What the event log and the counts must say is the sum of these.
"""

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, TypeAlias

from windlass.conformance.harness import Harness
from windlass.conformance.takes import UNREADABLE, take_of
from windlass.conformance.takes import accepted as taken
from windlass.core.job import Edge, Mode, Status
from windlass.core.lease import Ask, Lease
from windlass.core.operate import Edit
from windlass.core.outcome import CauseKind, Outcome
from windlass.core.settlement import HOLD_LIMIT
from windlass.core.state import TERMINAL, Move, Reason, State
from windlass.core.units import DAY, MINUTE, SECOND, JobId


class Step(NamedTuple):
    """One transition of one job."""

    job: JobId
    before: State | None
    move: Move
    after: State | None
    reason: Reason | None = None
    outcome: Outcome | None = None

    @property
    def is_final(self) -> bool:
        """Whether it ends a lease, or reaches a terminal state."""
        return self.before is State.RUNNING or (self.after in TERMINAL and self.before is not self.after)


Steps: TypeAlias = AsyncIterator[tuple[Step, ...]]
Journey: TypeAlias = Callable[[Harness], Steps]


class _Trail:
    """Remembers where each job is, so that a step need not repeat it."""

    def __init__(self) -> None:
        self._at: dict[JobId, State | None] = {}

    def step(
        self,
        job: JobId,
        move: Move,
        after: State | None,
        reason: Reason | None = None,
        outcome: Outcome | None = None,
    ) -> Step:
        before, self._at[job] = self._at.get(job), after
        return Step(job, before, move, after, reason, outcome)

    def claim(self, lease: Lease) -> tuple[Step]:
        return (self.step(lease.job, Move.CLAIM, State.RUNNING),)


async def accepted(store: Harness) -> Steps:
    """Jobs that are ready, delayed, or wait for a parent."""
    step = (trail := _Trail()).step
    worker = await store.worker()
    later = await store.add(delay=MINUTE)
    yield (step(later, Move.ENQUEUE, State.SCHEDULED),)
    store.advance(MINUTE)
    await store.sweep()
    yield (step(later, Move.DUE, State.READY),)
    await store.done(await worker.one())
    yield (
        step(later, Move.CLAIM, State.RUNNING),
        step(later, Move.DONE, State.DONE, outcome=Outcome.DONE),
    )
    parent = await store.add()
    yield (step(parent, Move.ENQUEUE, State.READY),)
    child = await store.add(after=(Edge(parent),))
    yield (step(child, Move.ENQUEUE, State.BLOCKED),)
    lease = await worker.one()
    yield trail.claim(lease)
    await store.done(lease)
    yield (
        step(parent, Move.DONE, State.DONE, outcome=Outcome.DONE),
        step(child, Move.UNBLOCK, State.READY),
    )
    lease = await worker.one()
    yield trail.claim(lease)
    patient = await store.add(after=(Edge(child),), delay=MINUTE)
    yield (step(patient, Move.ENQUEUE, State.BLOCKED),)
    await store.done(lease)
    yield (
        step(child, Move.DONE, State.DONE, outcome=Outcome.DONE),
        step(patient, Move.UNBLOCK, State.SCHEDULED),
    )
    store.advance(MINUTE)
    lease = await worker.one()
    yield (step(patient, Move.DUE, State.READY), *trail.claim(lease))


async def failed_parents(store: Harness) -> Steps:
    """Children of a cancelled parent, older and younger than its end."""
    step = _Trail().step
    parent = await store.add()
    yield (step(parent, Move.ENQUEUE, State.READY),)
    child = await store.add(after=(Edge(parent),))
    yield (step(child, Move.ENQUEUE, State.BLOCKED),)
    await store.cancel(parent)
    yield (
        step(parent, Move.CANCEL, State.CANCELLED, Reason.CANCELLED),
        step(child, Move.PARENT_FAILED, State.CANCELLED, Reason.PARENT_FAILED),
    )
    late = await store.add(after=(Edge(parent),))
    yield (step(late, Move.PARENT_FAILED, State.CANCELLED, Reason.PARENT_FAILED),)


async def replaced(store: Harness) -> Steps:
    """One key: replaced while it waits, followed while it runs, superseded in the end."""
    step = (trail := _Trail()).step
    worker = await store.worker()
    first = await store.add(key="k", mode=Mode.REPLACE, delay=MINUTE)
    yield (step(first, Move.ENQUEUE, State.SCHEDULED),)
    for delay, after in (
        (MINUTE, State.SCHEDULED),
        (0, State.READY),
        (0, State.READY),
        (MINUTE, State.SCHEDULED),
        (0, State.READY),
    ):
        receipts = await store.enqueue(store.job(key="k", mode=Mode.REPLACE, delay=delay))
        assert receipts[0].status is Status.REPLACED
        yield (step(first, Move.REPLACE, after),)
    lease = await worker.one()
    yield trail.claim(lease)
    follower = await store.add(key="k", mode=Mode.REPLACE)
    yield (step(follower, Move.ENQUEUE, State.BLOCKED),)
    await store.enqueue(store.job(key="k", mode=Mode.REPLACE))
    yield (step(follower, Move.REPLACE, State.BLOCKED),)
    await store.retry(lease)
    yield (
        step(first, Move.SUPERSEDE, State.CANCELLED, Reason.SUPERSEDED, Outcome.CANCELLED),
        step(follower, Move.UNBLOCK, State.READY),
    )


async def settled(store: Harness) -> Steps:
    """Every outcome that a worker can propose."""
    step = (trail := _Trail()).step
    worker = await store.worker()
    job = await store.add(max_attempts=3)
    yield (step(job, Move.ENQUEUE, State.READY),)

    lease = await worker.one()
    yield trail.claim(lease)
    await store.release(lease)
    yield (step(job, Move.RELEASE, State.READY, outcome=Outcome.RELEASE),)

    lease = await worker.one()
    yield trail.claim(lease)
    await store.snooze(lease, MINUTE)
    yield (step(job, Move.SNOOZE, State.SCHEDULED, outcome=Outcome.SNOOZE),)
    store.advance(MINUTE)
    lease = await worker.one()
    yield (step(job, Move.DUE, State.READY), *trail.claim(lease))
    await store.snooze(lease, 0)
    yield (step(job, Move.SNOOZE, State.READY, outcome=Outcome.SNOOZE),)

    lease = await worker.one()
    yield trail.claim(lease)
    await store.hold(lease, "task:t")
    yield (step(job, Move.HOLD, State.SCHEDULED, outcome=Outcome.HOLD),)
    await store.broker.unhold("task:t", 10)
    yield (step(job, Move.UNHOLD, State.READY),)

    lease = await worker.one()
    yield trail.claim(lease)
    await store.retry(lease, MINUTE)
    yield (step(job, Move.RETRY, State.SCHEDULED, outcome=Outcome.RETRY),)
    store.advance(MINUTE)
    await store.sweep()
    yield (step(job, Move.DUE, State.READY),)
    lease = await worker.one()
    yield trail.claim(lease)
    await store.retry(lease)
    yield (step(job, Move.RETRY, State.READY, outcome=Outcome.RETRY),)
    lease = await worker.one()
    yield trail.claim(lease)
    await store.retry(lease)
    yield (step(job, Move.RETRY, State.DEAD, Reason.EXHAUSTED, Outcome.DEAD),)

    await store.replay(job)
    yield (step(job, Move.REPLAY, State.READY),)
    lease = await worker.one()
    yield trail.claim(lease)
    await store.dead(lease)
    yield (step(job, Move.DEAD, State.DEAD, Reason.GAVE_UP, Outcome.DEAD),)

    await store.replay(job)
    yield (step(job, Move.REPLAY, State.READY),)
    lease = await worker.one()
    yield trail.claim(lease)
    await store.cancel(job)
    yield ()
    await store.retry(lease)
    yield (step(job, Move.CANCEL, State.CANCELLED, Reason.CANCELLED, Outcome.CANCELLED),)


async def held_too_long(store: Harness) -> Steps:
    """A job that no worker could run for a week."""
    step = (trail := _Trail()).step
    worker = await store.worker()
    job = await store.add()
    yield (step(job, Move.ENQUEUE, State.READY),)
    lease = await worker.one()
    yield trail.claim(lease)
    await store.hold(lease)
    yield (step(job, Move.HOLD, State.SCHEDULED, outcome=Outcome.HOLD),)
    store.advance(HOLD_LIMIT)
    lease = await worker.one()
    yield (step(job, Move.DUE, State.READY), *trail.claim(lease))
    await store.hold(lease)
    yield (step(job, Move.HOLD, State.DEAD, Reason.HELD_TOO_LONG, Outcome.DEAD),)


async def _lost_sessions(store: Harness, kind: CauseKind, move: Move, reason: Reason) -> Steps:
    step = (trail := _Trail()).step
    job = await store.add(max_attempts=3)
    yield (step(job, Move.ENQUEUE, State.READY),)
    for alone, after, ruled, outcome in (
        (False, State.READY, None, Outcome.RETRY),
        (False, State.SCHEDULED, None, Outcome.RETRY),
        (True, State.DEAD, reason, Outcome.DEAD),
    ):
        worker = await store.worker()
        lease = await worker.one(alone=alone)
        yield trail.claim(lease)
        await worker.end(kind, [lease])
        yield (step(job, move, after, ruled, outcome),)
        if after is State.SCHEDULED:
            store.advance(SECOND)
            await store.sweep()
            yield (step(job, Move.DUE, State.READY),)


async def crashed(store: Harness) -> Steps:
    """A job that kills its worker three times."""
    async for steps in _lost_sessions(store, CauseKind.CRASH, Move.CRASH, Reason.CRASHED):
        yield steps


async def lost(store: Harness) -> Steps:
    """A job whose host is lost three times."""
    async for steps in _lost_sessions(store, CauseKind.LOST, Move.LOST, Reason.LOST):
        yield steps


async def stopped(store: Harness) -> Steps:
    """A worker that stops before its work has."""
    step = (trail := _Trail()).step
    worker = await store.worker()
    job = await store.add()
    yield (step(job, Move.ENQUEUE, State.READY),)
    lease = await worker.one()
    yield trail.claim(lease)
    await worker.end(CauseKind.STOP, [lease])
    yield (step(job, Move.RELEASE, State.READY, outcome=Outcome.RELEASE),)


async def ran_out(store: Harness) -> Steps:
    """A consumer by deadline that is never heard of again."""
    step = (trail := _Trail()).step
    job = await store.add(max_attempts=2)
    yield (step(job, Move.ENQUEUE, State.READY),)
    for after, reason, outcome in (
        (State.READY, None, Outcome.RETRY),
        (State.DEAD, Reason.DEADLINE, Outcome.DEAD),
    ):
        claimed = await store.broker.claim(Ask(queues=("q",), slots=1, limit=1, visibility=MINUTE))
        yield trail.claim(claimed.leases[0])
        store.advance(2 * MINUTE)
        await store.sweep()
        yield (step(job, Move.DEADLINE, after, reason, outcome),)


async def _waiting(store: Harness, trail: _Trail, state: State) -> tuple[JobId, Step]:
    """A job in a waiting state, with the step that brought it there. What it waits for never comes."""
    if state is State.READY:
        job = await store.add()
    elif state is State.SCHEDULED:
        job = await store.add(delay=DAY)
    else:
        job = await store.add(after=(Edge(await store.add(queue="elsewhere")),))
    return job, trail.step(job, Move.ENQUEUE, state)


async def operated(store: Harness) -> Steps:
    """What operators do to jobs in every state."""
    await store.queue("elsewhere")
    step = (trail := _Trail()).step
    worker = await store.worker()
    for state in (State.BLOCKED, State.SCHEDULED, State.READY):
        job, born = await _waiting(store, trail, state)
        yield (born,)
        await store.broker.edit([Edit(job=job, tags=("edited",))])
        yield (step(job, Move.EDIT, state),)
        await store.cancel(job)
        yield (step(job, Move.CANCEL, State.CANCELLED, Reason.CANCELLED),)
        await store.broker.purge("q", State.CANCELLED, 10)
        yield (step(job, Move.PURGE, None),)
        job, born = await _waiting(store, trail, state)
        yield (born,)
        await store.broker.purge("q", state, 10)
        yield (step(job, Move.PURGE, State.CANCELLED, Reason.PURGED),)
        await store.broker.purge("q", State.CANCELLED, 10)
        yield (step(job, Move.PURGE, None),)
    for last in (Move.DISCARD, Move.PURGE):
        job = await store.add()
        yield (step(job, Move.ENQUEUE, State.READY),)
        lease = await worker.one()
        yield trail.claim(lease)
        await store.dead(lease)
        yield (step(job, Move.DEAD, State.DEAD, Reason.GAVE_UP, Outcome.DEAD),)
        await store.broker.edit([Edit(job=job, payload=b"mended")])
        yield (step(job, Move.EDIT, State.DEAD),)
        if last is Move.DISCARD:
            await store.discard(job)
        else:
            await store.broker.purge("q", State.DEAD, 10)
        yield (step(job, last, None),)
    job = await store.add()
    yield (step(job, Move.ENQUEUE, State.READY),)
    lease = await worker.one()
    yield trail.claim(lease)
    await store.done(lease)
    yield (step(job, Move.DONE, State.DONE, outcome=Outcome.DONE),)
    await store.broker.purge("q", State.DONE, 10)
    yield (step(job, Move.PURGE, None),)


async def expired(store: Harness) -> Steps:
    """Jobs that nobody started in time."""
    await store.queue("elsewhere")
    step = _Trail().step
    parent = await store.add(queue="elsewhere")
    for state, options in (
        (State.READY, {}),
        (State.SCHEDULED, {"delay": DAY}),
        (State.BLOCKED, {"after": (Edge(parent),)}),
    ):
        job = await store.add(expires=MINUTE, **options)
        yield (step(job, Move.ENQUEUE, state),)
        store.advance(2 * MINUTE)
        await store.sweep()
        yield (step(job, Move.EXPIRE, State.DEAD, Reason.EXPIRED),)


async def pruned(store: Harness) -> Steps:
    """Finished jobs, a year later."""
    step = (trail := _Trail()).step
    worker = await store.worker()
    for state in (State.DONE, State.DEAD, State.CANCELLED):
        job = await store.add()
        yield (step(job, Move.ENQUEUE, State.READY),)
        if state is State.CANCELLED:
            await store.cancel(job)
            yield (step(job, Move.CANCEL, State.CANCELLED, Reason.CANCELLED),)
        else:
            lease = await worker.one()
            yield trail.claim(lease)
            if state is State.DONE:
                await store.done(lease)
                yield (step(job, Move.DONE, State.DONE, outcome=Outcome.DONE),)
            else:
                await store.dead(lease)
                yield (step(job, Move.DEAD, State.DEAD, Reason.GAVE_UP, Outcome.DEAD),)
        store.advance(365 * DAY)
        await store.sweep()
        yield (step(job, Move.PRUNE, None),)


async def born_dead(store: Harness) -> Steps:
    """An intake takes a message that nobody can run, and a person replays it."""
    step = (trail := _Trail()).step
    worker = await store.worker()
    job = store.job()
    await taken(store, take_of((job,), dead={job.id: UNREADABLE}))
    yield (step(job.id, Move.ENQUEUE, State.DEAD, Reason.UNFIT),)
    await store.replay(job.id)
    yield (step(job.id, Move.REPLAY, State.READY),)
    lease = await worker.one()
    yield trail.claim(lease)
    await store.done(lease)
    yield (step(job.id, Move.DONE, State.DONE, outcome=Outcome.DONE),)


JOURNEYS: tuple[Journey, ...] = (
    accepted,
    born_dead,
    failed_parents,
    replaced,
    settled,
    held_too_long,
    crashed,
    lost,
    stopped,
    ran_out,
    operated,
    expired,
    pruned,
)

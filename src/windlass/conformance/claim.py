"""Claim: what a lease carries, attempts, and which jobs are not handed out."""

from collections.abc import Awaitable, Callable

from windlass.conformance.harness import Harness, Worker, ids
from windlass.core.job import Edge, OnFailure
from windlass.core.lease import Ask, Asker, Lease
from windlass.core.limits import Rate
from windlass.core.outcome import CauseKind, Verdict
from windlass.core.session import Note
from windlass.core.state import Reason, State
from windlass.core.units import HOUR, SECOND, JobId, Micros


def _deadline_ask(*queues: str, visibility: Micros = 30 * SECOND, slots: int = 100) -> Ask:
    return Ask(queues=queues or ("q",), slots=slots, limit=slots, visibility=visibility)


# what a lease carries


async def test_lease_carries_the_job(store: Harness) -> None:
    worker = await store.worker()
    parents = [await store.add(), await store.add()]
    for lease in await worker.take(2):
        await store.done(lease)
    job = await store.add(
        task="report",
        lane="acme",
        priority=7,
        expires=HOUR,
        payload=b"\x00[1]",
        headers={"trace": "abc"},
        tags=("x", "y"),
        after=tuple(Edge(parent) for parent in parents),
        max_attempts=9,
        revision=3,
        flow="f",
    )
    store.advance(2 * SECOND)
    lease = await worker.one()
    assert lease.job == job
    assert (lease.task, lease.queue, lease.lane, lease.priority) == ("report", "q", "acme", 7)
    assert (lease.attempt, lease.max_attempts, lease.crashes) == (1, 9, 0)
    assert (lease.payload, dict(lease.headers), lease.tags) == (b"\x00[1]", {"trace": "abc"}, ("x", "y"))
    assert (lease.parents, lease.revision, lease.flow) == (tuple(parents), 3, "f")
    assert (lease.waited, lease.expires_in) == (2 * SECOND, HOUR - 2 * SECOND)
    assert (dict(lease.memos), lease.visibility) == ({}, None)


async def test_lease_carries_the_job__again(store: Harness) -> None:
    """The second lease knows of the first: attempt, crash, memos. What has started no longer expires."""
    first, second = await store.worker(), await store.worker()
    await store.add(expires=HOUR, payload=b"p")
    lease = await first.one()
    await store.broker.annotate([Note(job=lease.job, fence=lease.fence, memo=("step", b"1"))])
    await first.end(CauseKind.CRASH, started=[lease])
    again = await second.one()
    assert (again.job, again.attempt, again.crashes, again.payload) == (lease.job, 2, 1, b"p")
    assert (dict(again.memos), again.expires_in) == ({"step": b"1"}, None)


async def test_lease_carries_the_job__waited_since_it_was_due(store: Harness) -> None:
    """Not since it was accepted or given back; a retry has waited since its own due time."""
    worker = await store.worker()
    await store.add(delay=10 * SECOND)
    store.advance(13 * SECOND)
    lease = await worker.one()
    assert lease.waited == 3 * SECOND
    await store.release(lease)
    store.advance(SECOND)
    lease = await worker.one()
    assert lease.waited == 4 * SECOND
    await store.retry(lease, 5 * SECOND)
    store.advance(6 * SECOND)
    assert (await worker.one()).waited == SECOND


# attempts


async def test_attempt_is_counted_at_claim(store: Harness) -> None:
    """The count stands while the job runs, so that a worker which never says another word has spent it."""
    worker = await store.worker()
    job = await store.add(max_attempts=2)
    assert (await store.get(job)).attempt == 0
    assert (await worker.one()).attempt == 1
    assert (await store.get(job)).attempt == 1
    await worker.end(CauseKind.LOST)
    assert (await store.get(job)).attempt == 1
    assert (await (await store.worker()).one()).attempt == 2
    assert (await store.get(job)).attempt == 2


# which jobs


async def test_claim_promotes_due_jobs(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add(delay=10 * SECOND)
    store.advance(10 * SECOND - 1)
    assert (await worker.claim()).leases == ()
    store.advance(1)
    assert (await worker.one()).job == job


async def test_claim_promotes_due_jobs__of_the_asked_queues(store: Harness) -> None:
    """Retried, snoozed and held jobs too."""
    await store.queue("other")
    worker = await store.worker()
    await store.add_many(3)
    retried, snoozed, held = await worker.take(3)
    await store.retry(retried, 3 * SECOND)
    await store.snooze(snoozed, 2 * SECOND)
    await store.hold(held)
    elsewhere = await store.add(queue="other", delay=SECOND)
    store.advance(3 * SECOND)
    assert ids((await worker.claim()).leases) == [held.job, snoozed.job, retried.job]
    assert (await worker.one("other")).job == elsewhere


async def _all_that_is_there(worker: Worker) -> list[JobId]:
    """Claim as long as there is more."""
    claimed = await worker.claim(slots=1_000)
    found = ids(claimed.leases)
    while claimed.more:
        claimed = await worker.claim(slots=1_000)
        found += ids(claimed.leases)
    return found


async def test_claim_promotes_due_jobs__a_bounded_number_with_more(store: Harness) -> None:
    jobs = await store.add_many(300, delay=SECOND)
    store.advance(SECOND)
    assert await _all_that_is_there(await store.worker()) == jobs


async def test_claim_empties_queues_in_order(store: Harness) -> None:
    """Whatever the priorities, the times and the names."""
    await store.queue("a")
    await store.queue("b")
    first_of_a = await store.add(queue="a", priority=100)
    of_b = [await store.add(queue="b", priority=priority) for priority in (0, -100)]
    of_a = [first_of_a, await store.add(queue="a")]
    worker = await store.worker()
    assert ids(await worker.take(3, "b", "a")) == [*of_b, of_a[0]]
    assert ids((await worker.claim("b", "q", "a")).leases) == [of_a[1]]


async def test_claim_empties_queues_in_order__and_no_others(store: Harness) -> None:
    """An unknown queue is an empty one."""
    job = await store.add()
    worker = await store.worker()
    assert (await worker.claim("nowhere")).leases == ()
    assert ids((await worker.claim("nowhere", "q")).leases) == [job]


# leases with a deadline


async def test_deadline_lease_needs_no_session(store: Harness) -> None:
    first, second = await store.add(), await store.add()
    claimed = await store.broker.claim(_deadline_ask(slots=1))
    assert claimed.session is Asker.ALIVE
    (lease,) = claimed.leases
    assert (lease.job, lease.attempt, lease.visibility) == (first, 1, 30 * SECOND)
    running = await store.get(first)
    assert (running.state, running.session, running.fence) == (State.RUNNING, None, lease.fence)
    assert (await store.done(lease)).verdict is Verdict.APPLIED
    assert ids((await store.broker.claim(_deadline_ask())).leases) == [second]
    assert list(await store.broker.sessions()) == []


async def test_deadline_lease_needs_no_session__and_has_no_lost_reply(store: Harness) -> None:
    """The same ask again is another ask: there is no `seq` to tell them apart."""
    jobs = await store.add_many(2)
    ask = _deadline_ask(slots=1)
    asked = [await store.broker.claim(ask), await store.broker.claim(ask)]
    assert [ids(claimed.leases) for claimed in asked] == [[job] for job in jobs]


# expiry


async def test_expired_job_is_not_handed_out(store: Harness) -> None:
    worker = await store.worker()
    expired = await store.add(expires=10 * SECOND)
    lasting = await store.add()
    store.advance(10 * SECOND)
    assert ids((await worker.claim()).leases) == [lasting]
    dead = await store.get(expired)
    assert (dead.state, dead.reason, dead.attempt) == (State.DEAD, Reason.EXPIRED, 0)


async def test_expired_job_is_not_handed_out__until_then_it_is(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add(expires=10 * SECOND)
    store.advance(10 * SECOND - 1)
    lease = await worker.one()
    assert (lease.job, lease.expires_in) == (job, 1)


async def test_expired_job_is_not_handed_out__unstarted_is_not_started(store: Harness) -> None:
    """Handed out is not started: given back unstarted, it still expires."""
    worker, stopped = await store.worker(), await store.worker()
    jobs = await store.add_many(3, expires=10 * SECOND)
    await store.release(await worker.one())
    await store.hold(await worker.one())
    await stopped.take(2)
    await stopped.end(CauseKind.CRASH)
    store.advance(10 * SECOND)
    assert (await worker.claim()).leases == ()
    assert [(await store.get(job)).reason for job in jobs] == [Reason.EXPIRED] * 3


async def test_expired_job_is_not_handed_out__a_started_one_is(store: Harness) -> None:
    """Expiry concerns the first start: a lease that ended with a runtime, or that was charged, was one."""
    ends: dict[str, Callable[[Worker, Lease], Awaitable[object]]] = {
        "retried": lambda _, lease: store.retry(lease, runtime=None),
        "snoozed": lambda _, lease: store.snooze(lease, 1),
        "released": lambda _, lease: store.release(lease, runtime=1_000),
        "crashed": lambda worker, lease: worker.end(CauseKind.CRASH, started=[lease]),
        "lost": lambda worker, _: worker.end(CauseKind.LOST),
    }
    for queue, end in ends.items():
        await store.queue(queue)
        await store.add(queue=queue, expires=10 * SECOND)
        worker = await store.worker()
        await end(worker, await worker.one(queue))
    store.advance(10 * SECOND)
    worker = await store.worker()
    assert [(await worker.one(queue)).queue for queue in ends] == list(ends)


async def test_expired_job_is_not_handed_out__and_costs_no_token(store: Harness) -> None:
    await store.queue("rated", concurrency=1, rate=Rate(1, HOUR, 1))
    worker = await store.worker()
    await store.add_many(3, queue="rated", expires=SECOND)
    lasting = await store.add(queue="rated")
    store.advance(SECOND)
    assert ids((await worker.claim("rated")).leases) == [lasting]


async def test_expired_job_is_not_handed_out__but_what_its_end_frees_is(store: Harness) -> None:
    """By the same claim, though nothing else was left."""
    first = await store.add()
    parent = await store.add(expires=SECOND)
    child = await store.add(after=(Edge(parent, OnFailure.RUN),))
    store.advance(SECOND)
    claimed = await (await store.worker()).claim()
    assert ids(claimed.leases) == [first, child]
    assert await store.state(parent) is State.DEAD


async def test_expired_job_is_not_handed_out__however_many_stand_before(store: Harness) -> None:
    expired = await store.add_many(300, expires=SECOND)
    lasting = await store.add()
    store.advance(SECOND)
    assert await _all_that_is_there(await store.worker()) == [lasting]
    assert await store.count(State.DEAD) == len(expired)


# pause


async def test_paused_queue_hands_out_nothing(store: Harness) -> None:
    await store.queue("other")
    worker = await store.worker()
    running = await store.add()
    lease = await worker.one()
    waiting, elsewhere = await store.add(), await store.add(queue="other")
    assert await store.broker.pause("q")
    paused = await worker.claim("q", "other")
    assert ids(paused.leases) == [elsewhere]
    assert (await store.broker.claim(_deadline_ask())).leases == ()
    assert (await store.done(lease)).verdict is Verdict.APPLIED
    assert await store.states([running, waiting]) == [State.DONE, State.READY]
    assert await store.broker.resume("q")
    assert (await worker.one()).job == waiting


async def test_paused_queue_hands_out_nothing__not_what_becomes_due(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add(delay=SECOND)
    await store.broker.pause("q")
    late = await store.add()
    store.advance(SECOND)
    assert (await worker.claim()).leases == ()
    await store.sweep()
    assert (await worker.claim()).leases == ()
    await store.broker.resume("q")
    assert sorted(ids((await worker.claim()).leases)) == sorted([job, late])

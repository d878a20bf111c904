"""Waiting: for work that can be claimed, and for jobs that finish. Timeouts are bounds; no test sleeps."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from windlass.conformance.harness import Harness, new_id
from windlass.core.job import Edge, Finished
from windlass.core.lease import Ask, Lease
from windlass.core.limits import Rate
from windlass.core.outcome import CauseKind, Error
from windlass.core.state import Reason, State
from windlass.core.take import Source, Take
from windlass.core.timetable import Fire, NewSchedule
from windlass.core.units import HOUR, MINUTE, SECOND

_AT_ONCE = 5.0
"""Seconds within which a call must return that has something to return for."""
_LONG = 30.0
_BRIEF = 0.05

_T = TypeVar("_T")


async def _at_once(call: Awaitable[_T]) -> _T:
    return await asyncio.wait_for(call, _AT_ONCE)


async def _is_waiting(task: "asyncio.Task[Any]") -> bool:
    """Whether a call is still waiting a moment later."""
    done, _ = await asyncio.wait({task}, timeout=_BRIEF)
    return not done


@asynccontextmanager
async def _waiter(call: Coroutine[Any, Any, _T]) -> AsyncGenerator["asyncio.Task[_T]", None]:
    """A call that has nothing to return for yet, and waits."""
    task = asyncio.create_task(call)
    try:
        assert await _is_waiting(task), "it did not wait"
        yield task
    finally:
        task.cancel()


async def _use_up_wakes(store: Harness, *queues: str) -> None:
    """Take the wakes that the preparations left behind, until a wait lasts."""
    loop = asyncio.get_running_loop()
    for _ in range(5):
        started = loop.time()
        await _at_once(store.broker.wait(queues or ("q",), _BRIEF))
        if loop.time() - started >= 0.9 * _BRIEF:
            break


async def test_enqueue_wakes_a_waiter(store: Harness) -> None:
    async with _waiter(store.broker.wait(["q"], _LONG)) as waiter:
        await store.add()
        await _at_once(waiter)


async def test_enqueue_wakes_a_waiter__that_comes_later(store: Harness) -> None:
    await store.add()
    await _at_once(store.broker.wait(["q"], _LONG))


async def test_enqueue_wakes_a_waiter__of_that_queue(store: Harness) -> None:
    await store.queue("other")
    async with _waiter(store.broker.wait(["other"], _LONG)) as waiter:
        await store.add(queue="q")
        assert await _is_waiting(waiter)
        await store.add(queue="other")
        await _at_once(waiter)


async def test_enqueue_wakes_a_waiter__of_several_queues(store: Harness) -> None:
    await store.queue("r")
    await store.queue("s")
    for queue in ("q", "r", "s"):
        async with _waiter(store.broker.wait(["q", "r", "s"], _LONG)) as waiter:
            await store.add(queue=queue)
            await _at_once(waiter)
        await (await store.worker()).take(1, queue)
        await _use_up_wakes(store, "q", "r", "s")


async def test_enqueue_wakes_a_waiter__by_a_schedule(store: Harness) -> None:
    due = store.clock.now()
    declared = await store.broker.declare_schedule(NewSchedule(name="nightly", spec=b"spec", next_at=due))
    async with _waiter(store.broker.wait(["q"], _LONG)) as waiter:
        fire = Fire(name="nightly", version=declared.version, expect=due, then=None, jobs=(store.job(),))
        await store.broker.fire(fire)
        await _at_once(waiter)


@pytest.mark.parametrize("options", [{}, {"lane": "a"}, {"key": "k"}], ids=["plain", "laned", "keyed"])
async def test_take_moves_and_enqueues_together__and_wakes(store: Harness, options: dict[str, Any]) -> None:
    async with _waiter(store.broker.wait(["q"], _LONG)) as waiter:
        groups = ((store.job(**options),),)
        await store.broker.take(Take(source=Source("orders"), expect=None, then="1", groups=groups))
        await _at_once(waiter)


async def test_wait_times_out(store: Harness) -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    await _at_once(store.broker.wait(["q"], _BRIEF))
    assert loop.time() - started >= 0.9 * _BRIEF


async def test_wait_times_out__when_all_is_claimed(store: Harness) -> None:
    await store.add_many(2)
    await (await store.worker()).take(2)
    await _use_up_wakes(store)
    await (await store.worker()).claim()
    async with _waiter(store.broker.wait(["q"], _LONG)):
        pass


async def test_wait_times_out__when_the_rest_is_at_its_limit(store: Harness) -> None:
    """Workers that cannot have what is left do not wake each other in a circle."""
    await store.queue("q", concurrency=1)
    await store.add_many(2)
    await (await store.worker()).one()
    await _use_up_wakes(store)
    assert (await (await store.worker()).claim()).leases == ()
    async with _waiter(store.broker.wait(["q"], _LONG)):
        pass


async def test_claim_that_leaves_work_wakes_another(store: Harness) -> None:
    """One wake chains to the next worker, until nothing is left."""
    await store.add_many(3)
    for _ in range(2):
        await _use_up_wakes(store)
        await (await store.worker()).one()
        await _at_once(store.broker.wait(["q"], _LONG))
    await (await store.worker()).one()
    await _use_up_wakes(store)
    async with _waiter(store.broker.wait(["q"], _LONG)):
        pass


async def test_claim_that_leaves_work_wakes_another__who_waits_already(store: Harness) -> None:
    await store.queue("r")
    await store.add_many(2)
    await _use_up_wakes(store)
    async with _waiter(store.broker.wait(["r"], _LONG)) as elsewhere:
        waiter = asyncio.create_task(store.broker.wait(["q", "r"], _LONG))
        await (await store.worker()).one()
        await _at_once(waiter)
        assert await _is_waiting(elsewhere)


async def test_settlement_wakes_a_waiter(store: Harness) -> None:
    """By giving its job back."""
    settlements: list[Callable[[Lease], Awaitable[object]]] = [
        store.release,
        store.retry,
        lambda lease: store.snooze(lease, 0),
    ]
    for settle in settlements:
        job = await store.add()
        lease = await (await store.worker()).one()
        await _use_up_wakes(store)
        async with _waiter(store.broker.wait(["q"], _LONG)) as waiter:
            await settle(lease)
            await _at_once(waiter)
        await store.cancel(job)


async def test_settlement_wakes_a_waiter__by_unblocking(store: Harness) -> None:
    await store.queue("children")
    parent = await store.add()
    await store.add(queue="children", after=(Edge(parent),))
    lease = await (await store.worker()).one()
    await _use_up_wakes(store, "children")
    async with _waiter(store.broker.wait(["children"], _LONG)) as waiter:
        await store.done(lease)
        await _at_once(waiter)


async def test_settlement_wakes_a_waiter__by_spawning(store: Harness) -> None:
    await store.queue("children")
    await store.add()
    lease = await (await store.worker()).one()
    async with _waiter(store.broker.wait(["children"], _LONG)) as waiter:
        await store.done(lease, spawn=(store.job(queue="children"),))
        await _at_once(waiter)


async def test_settlement_wakes_a_waiter__by_freeing_a_slot(store: Harness) -> None:
    await store.queue("q", concurrency=1)
    await store.queue("lanes", lane_concurrency=1)
    await store.queue("sequence", sequence=True)
    for lane in ("", "acme"):
        for queue in ("q", "lanes", "sequence"):
            await store.add_many(2, queue=queue, lane=lane)
            lease = await (await store.worker()).one(queue)
            await _use_up_wakes(store, queue)
            async with _waiter(store.broker.wait([queue], _LONG)) as waiter:
                await store.done(lease)
                await _at_once(waiter)
            await store.done(await (await store.worker()).one(queue))


@pytest.mark.parametrize("lane", ["", "acme"])
@pytest.mark.parametrize("limit", ["rate", "lane_rate"])
async def test_settlement_wakes_a_waiter__by_giving_a_token_back(
    store: Harness, limit: str, lane: str
) -> None:
    await store.queue("q", **{limit: Rate(count=1, per=HOUR)})
    await store.add_many(2, lane=lane)
    lease = await (await store.worker()).one()
    await _use_up_wakes(store)
    async with _waiter(store.broker.wait(["q"], _LONG)) as waiter:
        await store.hold(lease)
        await _at_once(waiter)


async def test_settlement_wakes_a_waiter__only_if_there_is_work(store: Harness) -> None:
    await store.add_many(2)
    later, last = await (await store.worker()).take(2)
    await _use_up_wakes(store)
    async with _waiter(store.broker.wait(["q"], _LONG)) as waiter:
        await store.retry(later, MINUTE)
        await store.done(last)
        assert await _is_waiting(waiter)


async def test_settlement_wakes_a_waiter__as_the_end_of_a_session_does(store: Harness) -> None:
    for kind in (CauseKind.STOP, CauseKind.CRASH, CauseKind.LOST):
        job = await store.add()
        worker = await store.worker()
        lease = await worker.one()
        await _use_up_wakes(store)
        async with _waiter(store.broker.wait(["q"], _LONG)) as waiter:
            await worker.end(kind, [lease])
            await _at_once(waiter)
        await store.cancel(job)


async def test_settlement_wakes_a_waiter__as_operators_do(store: Harness) -> None:
    """By sending a job back, letting a queue or a lane go on, or raising a limit."""
    worker = await store.worker()
    dead = await store.add(lane="acme")
    await store.dead(await worker.one())
    held = await store.add(lane="acme")
    await store.hold(await worker.one(), "task:t")

    async def wakes(*calls: Awaitable[object]) -> None:
        """All but the last call are preparations."""
        for call in calls[:-1]:
            await call
        await _use_up_wakes(store)
        async with _waiter(store.broker.wait(["q"], _LONG)) as waiter:
            await calls[-1]
            await _at_once(waiter)

    await wakes(store.replay(dead))
    await store.cancel(dead)
    await wakes(store.broker.unhold("task:t", 10))
    await wakes(store.broker.pause("q"), store.broker.resume("q"))
    await wakes(store.broker.pause("q", "acme"), store.broker.resume("q", "acme"))
    await wakes(store.queue("q", concurrency=1), store.add(lane="acme"), worker.one(), store.queue("q"))
    assert await store.state(held) is State.RUNNING
    await wakes(store.lane("q", "acme", concurrency=1), store.lane("q", "acme"))


@pytest.mark.parametrize("lane", ["", "acme"])
async def test_settlement_wakes_a_waiter__as_the_cancelled_head_of_a_line_does(
    store: Harness, lane: str
) -> None:
    await store.queue("q", sequence=True)
    head = await store.add(lane=lane, delay=MINUTE)
    await store.add(lane=lane)
    await _use_up_wakes(store)
    async with _waiter(store.broker.wait(["q"], _LONG)) as waiter:
        await store.cancel(head)
        await _at_once(waiter)


async def test_settlement_wakes_a_waiter__as_a_sweep_does(store: Harness) -> None:
    """By making a job ready that is due, and by ending a lease that ran out."""
    await store.add(delay=MINUTE)
    async with _waiter(store.broker.wait(["q"], _LONG)) as waiter:
        store.advance(MINUTE)
        assert await _is_waiting(waiter)
        await store.sweep()
        await _at_once(waiter)
    await store.broker.claim(Ask(queues=("q",), slots=1, limit=1, visibility=MINUTE))
    await _use_up_wakes(store)
    async with _waiter(store.broker.wait(["q"], _LONG)) as waiter:
        store.advance(2 * MINUTE)
        await store.sweep()
        await _at_once(waiter)


async def test_watch_returns_what_finished(store: Harness) -> None:
    worker = await store.worker()
    done, dead, cancelled, waiting = [await store.add() for _ in range(4)]
    error = Error(type="ValueError", message="no such user", traceback="line 1", fingerprint="f")
    await store.done(await worker.one(), result=b"42")
    await store.dead(await worker.one(), error=error)
    await store.cancel(cancelled)
    watched = [waiting, cancelled, new_id(), dead, done]
    finished = await _at_once(store.broker.watch(watched, _LONG))
    assert sorted(finished, key=lambda end: end.job) == [
        Finished(job=done, state=State.DONE, result=b"42"),
        Finished(job=dead, state=State.DEAD, reason=Reason.GAVE_UP, error=error),
        Finished(job=cancelled, state=State.CANCELLED, reason=Reason.CANCELLED),
    ]


async def test_watch_returns_what_finished__also_without_a_timeout(store: Harness) -> None:
    job = await store.add()
    await store.cancel(job)
    assert [end.job for end in await _at_once(store.broker.watch([job], 0))] == [job]


async def test_watch_is_pushed(store: Harness) -> None:
    worker = await store.worker()
    first, second = [await store.add() for _ in range(2)]
    lease = await worker.one()
    async with _waiter(store.broker.watch([second, first], _LONG)) as watcher:
        await store.add()
        await store.done(lease, result=b"ok")
        finished = await _at_once(watcher)
    assert list(finished) == [Finished(job=first, state=State.DONE, result=b"ok")]


async def test_watch_is_pushed__to_every_watcher(store: Harness) -> None:
    job = await store.add()
    async with (
        _waiter(store.broker.watch([job], _LONG)) as one,
        _waiter(store.broker.watch([job, new_id()], _LONG)) as another,
    ):
        await store.cancel(job)
        assert await _at_once(one) == await _at_once(another)
        assert [end.job for end in one.result()] == [job]


async def test_watch_is_pushed__whatever_ends_the_job(store: Harness) -> None:
    """An operator, a crash, an expiry, a parent's fate."""
    parent, expiring = await store.add(priority=1), await store.add(expires=SECOND, priority=-1)
    child = await store.add(after=(Edge(parent),))
    crashing = await store.add(max_attempts=1, priority=2)
    worker = await store.worker()
    lease = await worker.one()
    assert lease.job == crashing
    async with _waiter(store.broker.watch([crashing], _LONG)) as watcher:
        await worker.end(CauseKind.CRASH, [lease])
        assert [(end.state, end.reason) for end in await _at_once(watcher)] == [(State.DEAD, Reason.CRASHED)]
    async with _waiter(store.broker.watch([child], _LONG)) as watcher:
        await store.cancel(parent)
        ended = await _at_once(watcher)
        assert [(end.state, end.reason) for end in ended] == [(State.CANCELLED, Reason.PARENT_FAILED)]
    async with _waiter(store.broker.watch([expiring], _LONG)) as watcher:
        store.advance(MINUTE)
        await store.sweep()
        assert [(end.state, end.reason) for end in await _at_once(watcher)] == [(State.DEAD, Reason.EXPIRED)]


async def test_watch_times_out_empty(store: Harness) -> None:
    loop = asyncio.get_running_loop()
    waiting = await store.add()
    started = loop.time()
    assert list(await _at_once(store.broker.watch([new_id(), waiting], _BRIEF))) == []
    assert loop.time() - started >= 0.9 * _BRIEF


async def test_watch_times_out_empty__after_a_replay(store: Harness) -> None:
    """A dead letter that was sent back is not finished any more; nor is a job that will be retried."""
    worker = await store.worker()
    replayed = await store.add()
    await store.dead(await worker.one())
    await store.replay(replayed)
    async with _waiter(store.broker.watch([replayed], _LONG)) as watcher:
        await store.retry(await worker.one())
        assert await _is_waiting(watcher)
        await store.done(await worker.one())
        assert [end.state for end in await _at_once(watcher)] == [State.DONE]


async def test_watch_sees_what_was_not_kept(store: Harness) -> None:
    brief = await store.fresh(resend_window=10 * SECOND)
    await brief.queue("q", retention=0)
    job = await brief.add()
    lease = await (await brief.worker()).one()
    async with _waiter(brief.broker.watch([job], _LONG)) as watcher:
        await brief.done(lease)
        assert list(await _at_once(watcher)) == [Finished(job=job, state=State.DONE)]
    brief.advance(9 * SECOND)
    await brief.sweep()
    assert (await brief.get(job)).pruned
    assert list(await _at_once(brief.broker.watch([job], _LONG))) == [Finished(job=job, state=State.DONE)]
    brief.advance(2 * SECOND)
    await brief.sweep()
    assert list(await _at_once(brief.broker.watch([job], 0))) == []


async def test_watch_sees_what_was_not_kept__cancelled(store: Harness) -> None:
    await store.queue("q", retention=0)
    job = await store.add()
    await store.cancel(job)
    finished = await _at_once(store.broker.watch([job], _LONG))
    assert list(finished) == [Finished(job=job, state=State.CANCELLED, reason=Reason.CANCELLED)]

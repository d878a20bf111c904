"""The event log: which transitions are written, in which order, and how readers page through them."""

import asyncio
from collections.abc import Iterable

import pytest

from windlass.conformance.harness import Harness
from windlass.conformance.journeys import JOURNEYS, Journey, Step
from windlass.core.event import FROM_NOW, FROM_START, Emit, Event
from windlass.core.outcome import CauseKind, Outcome, Verdict
from windlass.core.settings import Change, Kind, QueueSettings, Subject
from windlass.core.settlement import Settlement
from windlass.core.state import TRANSITIONS, Arrow, Move, State
from windlass.core.units import MINUTE, SECOND, Cursor

_AT_ONCE = 5.0
"""Seconds within which a call must return that has something to return for."""
_LONG = 30.0
_BRIEF = 0.05

_every_journey = pytest.mark.parametrize("journey", JOURNEYS, ids=lambda journey: journey.__name__)


async def _emit(store: Harness, emit: Emit, queue: str = "q") -> None:
    """Set what a queue emits in the operators' layer, where no declaration of a journey undoes it."""
    subject = Subject(Kind.QUEUE, queue)
    document = next(d for d in await store.broker.documents(Kind.QUEUE) if d.subject == subject)
    changed = await store.broker.override(subject, QueueSettings(emit=emit), document.version)
    assert changed.change is Change.APPLIED, changed


async def _log(store: Harness, after: Cursor = FROM_START) -> list[Event]:
    """Everything in the log after a cursor."""
    found: list[Event] = []
    page = await store.broker.events(after, 100, 0)
    while page.items:
        found.extend(page.items)
        page = await store.broker.events(page.cursor, 100, 0)
    return found


async def _end(store: Harness) -> Cursor:
    return (await store.broker.events(FROM_NOW, 100, 0)).cursor


def _step(event: Event) -> Step:
    return Step(event.job, event.before, event.move, event.after, event.reason, event.outcome)


def _by_job(steps: Iterable[Step]) -> list[Step]:
    """The steps of one call: each job's in their order, whatever the order among jobs."""
    return sorted(steps, key=lambda step: step.job)


def _plain(step: Step) -> Step:
    """Without its reason, where the contract does not say whether an old reason is repeated."""
    keeps_reason = step.after is not None and step.move is not Move.EDIT
    return step if keeps_reason else step._replace(reason=None)


@_every_journey
async def test_events_are_off_by_default(store: Harness, journey: Journey) -> None:
    async for _ in journey(store):
        pass
    page = await store.broker.events(FROM_START, 100, 0)
    assert (page.items, page.gap) == ((), False)


async def test_events_are_off_by_default__per_queue(store: Harness) -> None:
    await store.queue("loud", emit=Emit.ALL)
    silent, loud = await store.add(), await store.add(queue="loud")
    await store.cancel(silent)
    await store.cancel(loud)
    assert [event.job for event in await _log(store)] == [loud, loud]


async def test_events_are_off_by_default__switched(store: Harness) -> None:
    """What happened while they were off is not written later, and they can be switched off again."""
    before = await store.add()
    await store.queue("q", emit=Emit.ALL)
    on = await store.add()
    await store.queue("q")
    after = await store.add()
    assert [event.job for event in await _log(store)] == [on]
    assert {before, after}.isdisjoint(event.job for event in await _log(store))


@_every_journey
async def test_all_emits_every_transition(store: Harness, journey: Journey) -> None:
    await _emit(store, Emit.ALL)
    cursor = await _end(store)
    async for steps in journey(store):
        page = await store.broker.events(cursor, 100, 0)
        cursor = page.cursor
        logged = [_plain(_step(event)) for event in page.items]
        assert _by_job(logged) == _by_job(_plain(step) for step in steps)


async def test_all_emits_every_transition__of_the_table(store: Harness) -> None:
    """The journeys walk every arrow of the transition table, and the log knows no other."""
    seen: set[Arrow] = set()
    for journey in JOURNEYS:
        fresh = await store.fresh()
        await _emit(fresh, Emit.ALL)
        async for _ in journey(fresh):
            pass
        seen.update(Arrow(event.before, event.move, event.after) for event in await _log(fresh))
    assert seen == TRANSITIONS


async def test_all_emits_every_transition__with_its_facts(store: Harness) -> None:
    await store.queue("q", emit=Emit.ALL)
    worker = await store.worker()
    start = store.clock.now()
    job = await store.add(task="mail", lane="acme", max_attempts=3)
    store.advance(5 * SECOND)
    first = await worker.one()
    store.advance(2 * SECOND)
    await store.retry(first, runtime=1_500)
    store.advance(SECOND)
    second = await worker.one()
    await store.done(second, runtime=2_500)
    enqueued, claimed, retried, claimed_again, done = await _log(store)
    for event in (enqueued, claimed, retried, claimed_again, done):
        assert (event.job, event.task, event.queue, event.lane) == (job, "mail", "q", "acme")
    assert [event.at - start for event in (enqueued, claimed, retried, claimed_again, done)] == [
        0, 5 * SECOND, 7 * SECOND, 8 * SECOND, 8 * SECOND,
    ]  # fmt: skip
    assert (claimed.fence, claimed.attempt, claimed.waited) == (first.fence, 1, 5 * SECOND)
    assert (retried.fence, retried.attempt, retried.runtime) == (first.fence, 1, 1_500)
    assert (retried.waited, done.waited) == (5 * SECOND, SECOND)
    assert (claimed_again.fence, claimed_again.attempt, claimed_again.waited) == (second.fence, 2, SECOND)
    assert (done.fence, done.attempt, done.runtime) == (second.fence, 2, 2_500)


async def test_all_emits_every_transition__in_the_order_they_happened(store: Harness) -> None:
    """What an earlier call did comes first, in whatever queue; inside a call each job has its own order."""
    await store.queue("q", emit=Emit.ALL)
    await store.queue("r", emit=Emit.ALL)
    worker = await store.worker()
    jobs = [await store.add(queue=queue) for queue in ("q", "r", "q", "r")]
    leases = (await worker.claim("r", "q")).leases
    settlements = [Settlement(job=job.job, fence=job.fence, outcome=Outcome.DONE) for job in leases]
    await store.broker.settle(settlements)
    events = await _log(store)
    assert [event.move for event in events] == [*[Move.ENQUEUE] * 4, *[Move.CLAIM] * 4, *[Move.DONE] * 4]
    assert [event.job for event in events[:4]] == jobs
    assert sorted(event.job for event in events[4:8]) == sorted(jobs)
    assert sorted(event.job for event in events[8:]) == sorted(jobs)


async def test_all_emits_every_transition__of_children(store: Harness) -> None:
    await store.queue("q", emit=Emit.ALL)
    worker = await store.worker()
    await store.add()
    lease, child = await worker.one(), store.job()
    cursor = await _end(store)
    await store.done(lease, spawn=(child,))
    assert {(event.job, event.move, event.after) for event in await _log(store, cursor)} == {
        (lease.job, Move.DONE, State.DONE),
        (child.id, Move.ENQUEUE, State.READY),
    }


async def test_all_emits_every_transition__and_nothing_else(store: Harness) -> None:
    """Calls that change no state write nothing."""
    await store.queue("q", emit=Emit.ALL)
    worker = await store.worker()
    job = store.job()
    await store.enqueue(job)
    stale = await worker.one()
    await worker.end(CauseKind.STOP)
    other = await store.worker()
    lease = await other.one()
    await store.done(lease)
    cursor = await _end(store)
    assert (await store.done(stale)).verdict is Verdict.STALE
    assert (await store.done(lease)).verdict is Verdict.ALREADY
    await store.enqueue(job)
    await store.enqueue(store.job(), store.job(queue="unknown"))
    await store.cancel(job.id)
    await store.replay(job.id)
    await other.claim()
    await store.sweep()
    assert await _log(store, cursor) == []


@_every_journey
async def test_final_emits_every_end(store: Harness, journey: Journey) -> None:
    await _emit(store, Emit.FINAL)
    cursor = await _end(store)
    async for steps in journey(store):
        page = await store.broker.events(cursor, 100, 0)
        cursor = page.cursor
        logged = [_step(event) for event in page.items]
        assert _by_job(logged) == _by_job(step for step in steps if step.is_final)


async def test_final_emits_every_end__with_its_facts(store: Harness) -> None:
    await store.queue("q", emit=Emit.FINAL)
    worker = await store.worker()
    job = await store.add(task="mail", lane="acme")
    store.advance(2 * SECOND)
    lease = await worker.one()
    store.advance(SECOND)
    await store.done(lease, runtime=700)
    (event,) = await _log(store)
    assert event.waited == 2 * SECOND
    assert (event.job, event.task, event.queue, event.lane) == (job, "mail", "q", "acme")
    assert (event.at, event.attempt, event.fence, event.runtime) == (store.clock.now(), 1, lease.fence, 700)


async def test_events_page_by_cursor(store: Harness) -> None:
    await store.queue("q", emit=Emit.ALL)
    jobs = [await store.add() for _ in range(5)]
    cursor, pages = FROM_START, list[list[str]]()
    for _ in range(4):
        page = await store.broker.events(cursor, 2, 0)
        assert not page.gap
        again = await store.broker.events(cursor, 2, 0)
        assert again == page
        pages.append([event.job for event in page.items])
        cursor = page.cursor
    assert pages == [jobs[0:2], jobs[2:4], jobs[4:5], []]
    late = await store.add()
    assert [event.job for event in await _log(store, cursor)] == [late]


async def test_events_page_by_cursor__that_stood_at_an_empty_log(store: Harness) -> None:
    await store.queue("q", emit=Emit.ALL)
    from_start = (await store.broker.events(FROM_START, 10, 0)).cursor
    from_now = await _end(store)
    job = await store.add()
    for cursor in (from_start, from_now):
        page = await store.broker.events(cursor, 10, 0)
        assert ([event.job for event in page.items], page.gap) == ([job], False)


async def test_events_page_by_cursor__from_now(store: Harness) -> None:
    await store.queue("q", emit=Emit.ALL)
    await store.add()
    page = await store.broker.events(FROM_NOW, 10, 0)
    assert (page.items, page.gap) == ((), False)
    late = await store.add()
    assert [event.job for event in await _log(store, page.cursor)] == [late]


async def test_events_page_by_cursor__waiting_for_the_first(store: Harness) -> None:
    await store.queue("q", emit=Emit.ALL)
    await store.add()
    cursor = await _end(store)
    reader = asyncio.create_task(store.broker.events(cursor, 10, _LONG))
    _, pending = await asyncio.wait({reader}, timeout=_BRIEF)
    assert pending, "it returned without an event"
    job = await store.add()
    page = await asyncio.wait_for(reader, _AT_ONCE)
    assert [event.job for event in page.items] == [job]
    assert await _log(store, page.cursor) == []


async def test_events_page_by_cursor__waiting_from_now(store: Harness) -> None:
    """Now is when the store reads the call, so it may miss the first jobs, but not all that come."""
    await store.queue("q", emit=Emit.ALL)
    old = await store.add()
    reader = asyncio.create_task(store.broker.events(FROM_NOW, 10, _LONG))
    _, pending = await asyncio.wait({reader}, timeout=_BRIEF)
    assert pending, "it returned without an event"
    for _ in range(20):
        await store.add()
        if (await asyncio.wait({reader}, timeout=_BRIEF))[0]:
            break
    page = await asyncio.wait_for(reader, _AT_ONCE)
    assert page.items
    assert old not in [event.job for event in page.items]


async def test_events_page_by_cursor__up_to_the_timeout(store: Harness) -> None:
    await store.queue("q", emit=Emit.ALL)
    await store.add()
    cursor = await _end(store)
    page = await asyncio.wait_for(store.broker.events(cursor, 10, _BRIEF), _AT_ONCE)
    assert (page.items, page.gap) == ((), False)
    job = await store.add()
    assert [event.job for event in await _log(store, page.cursor)] == [job]


async def test_dropped_events_are_a_gap(store: Harness) -> None:
    """The log is cut to its cap by a sweep at the latest."""
    capped = await store.fresh(events_kept=10)
    await capped.queue("q", emit=Emit.ALL)
    cursors: list[Cursor] = [await _end(capped)]
    jobs: list[str] = []
    for _ in range(25):
        jobs.append(await capped.add())
        cursors.append(await _end(capped))
    await capped.sweep()

    behind = await capped.broker.events(cursors[3], 4, 0)
    assert ([event.job for event in behind.items], behind.gap) == (jobs[15:19], True)
    onward = await capped.broker.events(behind.cursor, 100, 0)
    assert ([event.job for event in onward.items], onward.gap) == (jobs[19:], False)

    missed_one = await capped.broker.events(cursors[14], 100, 0)
    assert ([event.job for event in missed_one.items], missed_one.gap) == (jobs[15:], True)
    missed_none = await capped.broker.events(cursors[15], 100, 0)
    assert ([event.job for event in missed_none.items], missed_none.gap) == (jobs[15:], False)
    oldest = await capped.broker.events(FROM_START, 100, 0)
    assert ([event.job for event in oldest.items], oldest.gap) == (jobs[15:], False)


async def test_dropped_events_are_a_gap__from_the_first_cursor(store: Harness) -> None:
    """A cursor from before the first event falls behind like any other."""
    capped = await store.fresh(events_kept=2)
    await capped.queue("q", emit=Emit.ALL)
    cursor = (await capped.broker.events(FROM_START, 100, 0)).cursor
    jobs = [await capped.add() for _ in range(3)]
    await capped.sweep()
    page = await capped.broker.events(cursor, 100, 0)
    assert ([event.job for event in page.items], page.gap) == (jobs[1:], True)


async def test_dropped_events_are_a_gap__for_a_reader_that_waits(store: Harness) -> None:
    """It is told at once, not at its timeout."""
    capped = await store.fresh(events_kept=2)
    await capped.queue("q", emit=Emit.ALL)
    cursor = await _end(capped)
    jobs = [await capped.add(delay=MINUTE) for _ in range(5)]
    await capped.sweep()
    page = await asyncio.wait_for(capped.broker.events(cursor, 100, _LONG), _AT_ONCE)
    assert ([event.job for event in page.items], page.gap) == (jobs[3:], True)

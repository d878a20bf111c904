"""Jobs of one bulk call that were claimed together share a row: what becomes of one is as in the model."""

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.contract import Broker, Options
from windlass.broker.memory import MemoryBroker
from windlass.broker.postgres import PostgresBroker
from windlass.broker.postgres.install import quoted
from windlass.clock import ManualClock
from windlass.conformance.harness import APP, Harness, Worker, new_id, same
from windlass.core.job import Edge, NewJob
from windlass.core.lease import Ask, Lease
from windlass.core.operate import Edit
from windlass.core.outcome import Cause, CauseKind, Outcome, Verdict
from windlass.core.session import Beat, Note, SessionInfo
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.units import HOUR, MINUTE, SECOND

__all__ = ["namespaces"]
Seen = list[object]
DAYS = 24 * HOUR
Scenario = Callable[[Harness, list[str]], Awaitable[Seen]]


async def _taken(store: Harness, ids: list[str], count: int, sent: int = 7) -> tuple[Worker, list[Lease]]:
    """Leases of the first jobs of a bulk call; blocks are of three here."""
    await store.queue("q", retention=DAYS)
    worker = await store.worker()
    await store.add(id=ids[-1])
    await store.done(await worker.one())  # from now on runs of the task are timed
    await store.enqueue(*[store.job(id=each, max_attempts=3) for each in ids[:sent]])
    leases = await worker.take(count)
    if isinstance(store.broker, PostgresBroker):
        assert await _blocks(store.broker), "otherwise nothing here tests anything"
    return worker, leases


async def _blocks(broker: PostgresBroker) -> list[int]:
    """How many jobs each row of leases has."""
    query = f"SELECT cardinality(jobs) AS jobs FROM {quoted(broker.namespace)}.lease_block ORDER BY i"  # noqa: S608 - an identifier, quoted
    return [row["jobs"] for row in await broker._pool.call(query)]


async def _seen(store: Harness, jobs: list[str]) -> str:
    """All that can be read, but for the names of sessions."""
    whole = await store.everything(*jobs)
    reasons = [(await store.explain(job)).why for job in jobs]
    running = [view.id for view in await store.listed(states=frozenset({State.RUNNING}))]
    ready = [view.id for view in await store.listed(states=frozenset({State.READY}))]
    return re.sub(r"session-\d+", "session", repr((whole, reasons, running, ready)))


async def _ends_one_by_one(store: Harness, ids: list[str]) -> Seen:
    _, leases = await _taken(store, ids, 5)
    found: Seen = [await _seen(store, ids)]
    found.append(await store.retry(leases[1], MINUTE))
    found.append(await store.done(leases[0], b"r"))
    found.append(await _seen(store, ids))
    found.append(await store.dead(leases[4]))
    found.append(await store.release(leases[3]))
    found.append(await store.snooze(leases[2], MINUTE))
    return [*found, await _seen(store, ids)]


async def _ends_in_parts(store: Harness, ids: list[str]) -> Seen:
    worker, leases = await _taken(store, ids, 6, sent=11)
    found: Seen = []
    for part in (leases[1:3], leases[4:5], [leases[0], leases[3], leases[5]]):
        done = [_done(lease) for lease in part]
        settled = await store.broker.settle(done, worker.ask(slots=1))
        assert settled.claimed is not None
        found += [settled.answers, ids_of(settled.claimed.leases), await _seen(store, ids)]
        found.append((await store.broker.settle(done)).answers)
    return found


async def _ids_in_another_order(store: Harness, ids: list[str]) -> Seen:
    """Than jobs were accepted in: what is said of them comes in the order of ids."""
    worker, leases = await _taken(store, [*ids[6::-1], *ids[7:]], 7)
    found: Seen = [ids_of(leases)]
    for part in (leases[1:6:2], [leases[2], leases[0]], leases[6:3:-2]):
        settled = await store.broker.settle([_done(lease) for lease in part], worker.ask(slots=1))
        found += [settled.answers, await _seen(store, ids)]
    return found


async def _blocks_of_two_bands(store: Harness, ids: list[str]) -> Seen:
    """What came later goes first, in the answer, when it is repeated, and when leases are returned."""
    worker, _ = await _taken(store, ids, 1, sent=4)
    await store.enqueue(*[store.job(id=each, max_attempts=3, priority=5) for each in ids[4:10]])
    ask = worker.ask(slots=8)
    found: Seen = [
        ids_of((await store.broker.claim(ask)).leases),
        ids_of((await store.broker.claim(ask)).leases),
    ]
    ended = await worker.end(CauseKind.CRASH)
    return [*found, ended.moved, await _seen(store, ids)]


async def _one_band_after_the_other(store: Harness, ids: list[str]) -> Seen:
    """An answer has none of the blocks that the session was told of before."""
    worker, _ = await _taken(store, ids, 1, sent=4)
    await store.enqueue(*[store.job(id=each, max_attempts=3, priority=5) for each in ids[4:10]])
    return [ids_of((await worker.claim(slots=slots)).leases) for slots in (3, 3, 1, 2)]


async def _jobs_that_expire(store: Harness, ids: list[str]) -> Seen:
    """Until they start: those are leased one by one."""
    worker, _ = await _taken(store, ids, 3, sent=3)
    await store.enqueue(*[store.job(id=each, expires=MINUTE) for each in ids[3:9]])
    leases = (await worker.claim(slots=4)).leases
    found: Seen = [[lease.expires_in for lease in leases], await _seen(store, ids)]
    for _ in range(10):
        await worker.beat()
        await store.passes(1, 10 * SECOND)
    return [
        *found,
        (await store.broker.settle([_done(lease) for lease in leases])).answers,
        await _seen(store, ids),
    ]


async def _claims_that_are_told(store: Harness, ids: list[str]) -> Seen:
    """In a queue whose claims are events, jobs are leased one by one."""
    worker, _ = await _taken(store, ids, 3, sent=3)
    await store.queue("q", retention=DAYS, emit="all")
    await store.enqueue(*[store.job(id=each) for each in ids[3:9]])
    await worker.claim(slots=4)
    return [await _seen(store, ids)]


async def _with_others(store: Harness, ids: list[str]) -> Seen:
    """Ends of jobs in blocks, of single ones and of a failed one in one call."""
    worker, leases = await _taken(store, ids, 7)
    await store.add(id=ids[8])
    leases.append(await worker.one())
    said = [_done(leases[0]), _done(leases[7]), _done(leases[5])]
    found: Seen = [(await store.broker.settle(said, worker.ask(slots=1))).answers]
    failed = Settlement(job=leases[3].job, fence=leases[3].fence, outcome=Outcome.RETRY, runtime=1)
    found.append((await store.broker.settle([_done(leases[2]), failed, _done(leases[6])])).answers)
    return [*found, await _seen(store, ids)]


async def _late_words(store: Harness, ids: list[str]) -> Seen:
    worker, leases = await _taken(store, ids, 4)
    found: Seen = []
    for fence in (leases[0].fence - 1, leases[0].fence + 1, 0):
        stale = Settlement(job=leases[0].job, fence=fence, outcome=Outcome.DONE)
        found.append((await store.broker.settle([stale], worker.ask(slots=0, limit=0))).answers)
        found.append((await store.broker.settle([_done(leases[1]), stale])).answers)
    never = Settlement(job=ids[6], fence=leases[0].fence, outcome=Outcome.DONE)
    found.append((await store.broker.settle([_done(leases[2]), never], worker.ask(slots=0, limit=0))).answers)
    return [*found, await _seen(store, ids)]


async def _said_by_another_session(store: Harness, ids: list[str]) -> Seen:
    _, leases = await _taken(store, ids, 4)
    other = await store.worker()
    more = await other.take(2)
    said = [_done(lease) for lease in [*leases[:2], more[0]]]
    settled = await store.broker.settle(said, other.ask(slots=1))
    assert settled.claimed is not None
    return [settled.answers, ids_of(settled.claimed.leases), await _seen(store, ids)]


async def _notes(store: Harness, ids: list[str]) -> Seen:
    _, leases = await _taken(store, ids, 5)
    notes = [
        Note(job=leases[2].job, fence=leases[2].fence, permille=500, logs=("half",)),
        Note(job=leases[4].job, fence=leases[4].fence + 1, permille=100),
        Note(job=leases[0].job, fence=leases[0].fence, memo=("step", b"1")),
    ]
    found: Seen = [list(await store.broker.annotate(notes)), await _seen(store, ids)]
    found.append((await store.broker.settle([_done(lease) for lease in leases])).answers)
    return [*found, await _seen(store, ids)]


async def _cancelled(store: Harness, ids: list[str]) -> Seen:
    worker, leases = await _taken(store, ids, 4)
    found: Seen = [await store.cancel(ids[1]), await store.cancel(ids[5])]
    pulse = await worker.beat()
    found += [sorted(map(str, pulse.cancel)), await _seen(store, ids)]
    found.append((await store.broker.settle([_done(lease) for lease in leases])).answers)
    edit = Edit(job=ids[6], priority=3)
    found.append(await store.broker.edit([edit, Edit(job=ids[4], priority=1)]))
    return [*found, await _seen(store, ids)]


async def _the_session_ends(store: Harness, ids: list[str]) -> Seen:
    worker, leases = await _taken(store, ids, 5)
    await store.done(leases[2])
    await worker.end(CauseKind.CRASH, started=leases[:1])
    found: Seen = [await store.broker.settle([_done(leases[0])]), await _seen(store, ids)]
    other = await store.worker()
    found.append(ids_of((await other.claim(slots=7)).leases))
    return [*found, await _seen(store, ids)]


async def _the_session_falls_silent(store: Harness, ids: list[str]) -> Seen:
    _, leases = await _taken(store, ids, 5)
    await store.passes(20, SECOND)
    found: Seen = [await _seen(store, ids), (await store.broker.settle([_done(leases[0])])).answers]
    other = await store.worker()
    return [*found, ids_of((await other.claim(slots=7)).leases), await _seen(store, ids)]


async def _an_ask_is_repeated(store: Harness, ids: list[str]) -> Seen:
    worker, _ = await _taken(store, ids, 2)
    ask = worker.ask(slots=4)
    first = await store.broker.claim(ask)
    again = await store.broker.claim(ask)
    assert list(map(same, again.leases)) == list(map(same, first.leases))
    await store.done(first.leases[1])
    third = await store.broker.claim(ask)
    return [ids_of(first.leases), ids_of(third.leases), await _seen(store, ids)]


async def _somebody_depends_on_one(store: Harness, ids: list[str]) -> Seen:
    _, leases = await _taken(store, ids, 3, sent=6)
    await store.enqueue(store.job(id=ids[7], after=(Edge(parent=ids[1]), Edge(parent=ids[4]))))
    found: Seen = [await _seen(store, ids)]
    found.append((await store.broker.settle([_done(lease) for lease in leases])).answers)
    return [*found, await _seen(store, ids)]


async def _a_limit_comes_later(store: Harness, ids: list[str]) -> Seen:
    worker, leases = await _taken(store, ids, 4)
    await store.queue("q", retention=DAYS, concurrency=5)
    found: Seen = [ids_of((await worker.claim(slots=3)).leases), await _seen(store, ids)]
    await store.done(leases[2])
    return [*found, ids_of((await worker.claim(slots=3)).leases), await _seen(store, ids)]


async def _lanes_come_later(store: Harness, ids: list[str]) -> Seen:
    worker, leases = await _taken(store, ids, 4, sent=6)
    await store.add(id=ids[7], lane="a")
    await store.queue("q", retention=DAYS, lane_concurrency=5)
    found: Seen = [await _seen(store, ids)]
    claimed = await worker.claim(slots=3)
    found += [ids_of(claimed.leases), await _seen(store, ids)]
    await store.broker.settle([_done(lease) for lease in leases])
    return [*found, ids_of((await worker.claim(slots=3)).leases), await _seen(store, ids)]


async def _other_settings_come_later(store: Harness, ids: list[str]) -> Seen:
    worker, leases = await _taken(store, ids, 7)
    by_lane = Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(order="lane"), app=APP)
    found: Seen = [(await store.broker.declare([by_lane]))[0].change]  # refused while any is leased
    await store.queue("q", retention=DAYS, emit="all")
    found.append((await store.broker.settle([_done(leases[0])], worker.ask(slots=1))).answers)
    await store.queue("q", retention=0)
    found.append((await store.broker.settle([_done(lease) for lease in leases[1:3]])).answers)
    return [*found, await _seen(store, ids)]


async def _claimed_with_single_ones(store: Harness, ids: list[str]) -> Seen:
    worker, _ = await _taken(store, ids, 4)
    await store.queue("r")
    await store.add(id=ids[8])
    await store.add(id=ids[9], queue="r")
    leases = list((await worker.claim("q", "r", slots=9)).leases)
    found: Seen = [ids_of(leases), await _seen(store, ids)]
    found.append((await store.broker.settle([_done(lease) for lease in leases])).answers)
    return [*found, await _seen(store, ids)]


async def _claimed_with_another_queue(store: Harness, ids: list[str]) -> Seen:
    """Where there is a single one, in an answer that begins with blocks."""
    worker, _ = await _taken(store, ids, 3, sent=6)
    await store.queue("r")
    await store.add(id=ids[7], queue="r")
    ask = worker.ask("q", "r", slots=9)
    found: Seen = [ids_of((await store.broker.claim(ask)).leases), await _seen(store, ids)]
    return [*found, ids_of((await store.broker.claim(ask)).leases)]


async def _a_lane_gets_settings_later(store: Harness, ids: list[str]) -> Seen:
    """Of its own, in a queue that had lanes before: leases of jobs without one count."""
    worker, leases = await _taken(store, ids, 4, sent=7)
    await store.add(id=ids[7], lane="a")
    await store.lane("q", "", concurrency=5)
    found: Seen = [ids_of((await worker.claim(slots=4)).leases), await _seen(store, ids)]
    await store.done(leases[2])
    return [*found, ids_of((await worker.claim(slots=3)).leases), await _seen(store, ids)]


async def _sent_again_and_purged(store: Harness, ids: list[str]) -> Seen:
    _, leases = await _taken(store, ids, 4)
    found: Seen = [await store.enqueue(*[store.job(id=each, max_attempts=3) for each in ids[:7]])]
    found.append(await store.broker.purge("q", State.READY, 100))
    found.append(await _seen(store, ids))
    await store.broker.settle([_done(lease) for lease in leases])
    return [*found, await _seen(store, ids)]


def ids_of(leases: tuple[Lease, ...] | list[Lease]) -> list[tuple[str, int, int, int]]:
    return [(lease.job, lease.fence, lease.attempt, lease.waited) for lease in leases]


def _done(lease: Lease) -> Settlement:
    return Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE, runtime=1)


@pytest.mark.parametrize(
    "scenario",
    [
        _ends_one_by_one,
        _ends_in_parts,
        _ids_in_another_order,
        _blocks_of_two_bands,
        _one_band_after_the_other,
        _jobs_that_expire,
        _claims_that_are_told,
        _with_others,
        _late_words,
        _said_by_another_session,
        _notes,
        _cancelled,
        _the_session_ends,
        _the_session_falls_silent,
        _an_ask_is_repeated,
        _somebody_depends_on_one,
        _a_limit_comes_later,
        _lanes_come_later,
        _other_settings_come_later,
        _claimed_with_single_ones,
        _claimed_with_another_queue,
        _a_lane_gets_settings_later,
        _sent_again_and_purged,
    ],
)
def test_it_is_as_in_the_reference_model(namespaces: Namespaces, scenario: Scenario) -> None:
    ids = [new_id() for _ in range(12)]

    async def modelled(clock: ManualClock, options: Options) -> Broker:
        return MemoryBroker(clock=clock, options=options)

    async def test() -> None:
        seen: list[Seen] = []
        for opened in (modelled, namespaces.open):
            store = await Harness.open(opened)
            try:
                seen.append(await scenario(store, ids))
            finally:
                await store.close()
        expected, found = seen
        assert len(found) == len(expected)
        for number, (theirs, ours) in enumerate(zip(expected, found, strict=True)):
            assert ours == theirs, f"observation {number}"

    asyncio.run(test())


async def _leases_of(
    broker: PostgresBroker, session: str, count: int, *, in_order: bool = True
) -> list[Lease]:
    """Of one bulk call, in blocks. In order: of ids."""
    await broker.beat([Beat(session=session, open=SessionInfo(queues=("q",)))])
    jobs = [NewJob(id=new_id(), task="t", queue="q") for _ in range(count)]
    await broker.enqueue([jobs if in_order else jobs[::-1]])
    ask = Ask(queues=("q",), slots=count, limit=count, session=session, seq=1)
    leases = list((await broker.claim(ask)).leases)
    assert (len(leases), sum(await _blocks(broker))) == (count, count)
    return leases


def test_ends_and_notes_of_one_block_at_the_same_time(namespaces: Namespaces) -> None:
    """From three processes, again and again: each word counts, and nothing is left."""

    async def test() -> None:
        async with namespaces.several(3, q=QueueSettings()) as (one, two, three):
            for number in range(25):
                session = f"s{number}"
                leases = await _leases_of(one, session, 9)
                first, second, third = leases[::3], leases[1::3], leases[2::3]
                ask = Ask(queues=("q",), slots=0, limit=0, session=session, seq=2)
                failed = Settlement(job=third[0].job, fence=third[0].fence, outcome=Outcome.DEAD, runtime=1)
                noted = [Note(job=lease.job, fence=lease.fence, permille=5) for lease in third]
                said: list[Any] = [
                    one.settle([_done(lease) for lease in first], ask),
                    two.settle([_done(lease) for lease in second]),
                    three.annotate(noted) if number % 2 else three.settle([failed]),
                ]
                random.shuffle(said)
                for answers in await asyncio.gather(*said):
                    words = answers if isinstance(answers, Sequence) else [a.verdict for a in answers.answers]
                    assert set(words) == {Verdict.APPLIED}
                left = third if number % 2 else third[1:]
                for answer in (await three.settle([_done(lease) for lease in left])).answers:
                    assert answer.verdict is Verdict.APPLIED
                assert await _blocks(one) == []
                assert {view.leases for view in await one.sessions()} == {0}

    asyncio.run(test())


@pytest.mark.parametrize("in_order", [True, False])
def test_ends_of_some_leave_the_others_in_their_blocks(namespaces: Namespaces, in_order: bool) -> None:
    """Whatever part of whichever blocks it is, by whoever it is said: opened, each would cost two rows."""

    async def test() -> None:
        async with namespaces.several(2, q=QueueSettings()) as (one, two):
            first = new_id()
            leases = await _leases_of(one, "s", 9, in_order=in_order)
            await one.enqueue([[NewJob(id=first, task="t", queue="q")]])
            single = (await one.claim(Ask(queues=("q",), slots=1, limit=1, session="s", seq=2))).leases[0]
            ask = Ask(queues=("q",), slots=0, limit=0, session="s", seq=3)
            for broker, part, asking, left in (
                (one, [single, leases[1]], ask, [2, 3, 3]),
                (two, leases[2:5], None, [1, 1, 3]),
                (one, [leases[0], leases[7]], None, [1, 2]),
                (two, [leases[5], leases[8], leases[6]], None, []),
            ):
                settled = await broker.settle([_done(lease) for lease in part], asking)
                assert {answer.verdict for answer in settled.answers} == {Verdict.APPLIED}
                assert await _blocks(one) == left

    asyncio.run(test())


def test_single_leases_of_several_sessions_end_in_one_call(namespaces: Namespaces) -> None:
    """Of several tasks: each lease is found by its session."""

    async def test() -> None:
        async with namespaces.several(1, q=QueueSettings()) as (broker,):
            leases: list[Lease] = []
            for session, task in (("a", "t"), ("C", "u"), ("b", "t"), ("B", "u")):
                await broker.beat([Beat(session=session, open=SessionInfo(queues=("q",)))])
                await broker.enqueue([[NewJob(id=new_id(), task=task, queue="q")]])
                ask = Ask(queues=("q",), slots=1, limit=1, session=session, seq=1)
                leases += (await broker.claim(ask)).leases
            settled = await broker.settle([_done(lease) for lease in leases])
            assert [answer.verdict for answer in settled.answers] == [Verdict.APPLIED] * 4
            assert {view.leases for view in await broker.sessions()} == {0}

    asyncio.run(test())


def test_settled_in_a_transaction_of_the_caller(namespaces: Namespaces) -> None:
    """The others of its block end and are returned meanwhile; it is done by the commit, by nobody else."""

    async def test() -> None:
        async with namespaces.several(2, q=QueueSettings()) as (one, two):
            leases = await _leases_of(one, "s", 6)
            mine, *others = leases
            async with one.transaction(30 * SECOND) as connection:
                assert (await one.settle_on(connection, _done(mine))).verdict is Verdict.APPLIED
                for answer in (await two.settle([_done(lease) for lease in others[:2]])).answers:
                    assert answer.verdict is Verdict.APPLIED
                await two.end_session("s", Cause(CauseKind.CRASH, "for the test"), [])
                details = await two.get([lease.job for lease in leases])
                states = [detail and detail.state for detail in details]
                assert states == [State.RUNNING, State.DONE, State.DONE, *[State.READY] * 3]
            again = await two.settle([_done(mine)])
            assert again.answers[0].verdict is Verdict.ALREADY
            assert (await two.get([mine.job]))[0].state is State.DONE  # type: ignore[union-attr]

    asyncio.run(test())


def test_settled_in_a_transaction_while_its_block_stands(namespaces: Namespaces) -> None:
    """What follows from the commit comes with the next step, and leaves the others leased."""

    async def test() -> None:
        async with namespaces.several(2, q=QueueSettings()) as (one, two):
            mine, *others = await _leases_of(one, "s", 6)
            async with one.transaction(30 * SECOND) as connection:
                assert (await one.settle_on(connection, _done(mine))).verdict is Verdict.APPLIED
            found = await two.get([mine.job, *(lease.job for lease in others)])
            assert [detail and detail.state for detail in found] == [State.DONE, *[State.RUNNING] * 5]
            answers = (await one.settle([_done(mine), *map(_done, others)])).answers
            assert [answer.verdict for answer in answers] == [Verdict.ALREADY, *[Verdict.APPLIED] * 5]

    asyncio.run(test())

"""Many at once: short ways share the namespace, everything else has it alone, nothing falls between them."""

import asyncio
import random
from collections import Counter

import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker
from windlass.clock import ManualClock
from windlass.conformance.harness import new_id
from windlass.core.job import GROUP_BYTES, NewJob, Status
from windlass.core.lease import Ask, Lease
from windlass.core.operate import Target
from windlass.core.outcome import Outcome, Verdict
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import QueueSettings
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.units import SECOND

__all__ = ["namespaces"]
_PROCESSES = 4


class _Worker:
    """One session that claims and settles until everything is done."""

    def __init__(self, broker: PostgresBroker, name: str, queues: tuple[str, ...]) -> None:
        self.broker = broker
        self.name = name
        self.queues = queues
        self.done: list[str] = []
        self.most = 0
        self.random = random.Random(name)

    def _settlement(self, lease: Lease) -> Settlement:
        outcome = self.random.choice([Outcome.DONE, Outcome.DONE, Outcome.RETRY, Outcome.RELEASE])
        if lease.attempt == lease.max_attempts:
            outcome = Outcome.DONE
        runtime = None if outcome is Outcome.RELEASE else 1
        return Settlement(job=lease.job, fence=lease.fence, outcome=outcome, runtime=runtime)

    async def run(self, finished: asyncio.Event) -> None:
        await self.broker.beat([Beat(session=self.name, open=SessionInfo(queues=self.queues))])
        leases: tuple[Lease, ...] = ()
        seq = 0
        while not finished.is_set():
            seq += 1
            items = [self._settlement(lease) for lease in leases]
            ask = Ask(queues=self.queues, slots=7, limit=7, session=self.name, seq=seq)
            settled = await self.broker.settle(items, ask)
            assert [answer.verdict for answer in settled.answers] == [Verdict.APPLIED] * len(items)
            self.done += [item.job for item in items if item.outcome is Outcome.DONE]
            assert settled.claimed is not None
            leases = settled.claimed.leases
            if not leases:
                await self.broker.wait(self.queues, 0.1)


def test_every_job_is_done_once(namespaces: Namespaces) -> None:
    """Producers, workers, sweepers and operators, on plain and on laned queues, at the same time."""

    async def test() -> None:
        settings = {"plain": QueueSettings(), "laned": QueueSettings(lane_concurrency=3)}
        async with namespaces.several(_PROCESSES, **settings) as fleet:
            finished = asyncio.Event()
            jobs = [
                NewJob(id=new_id(), task="t", queue="plain", max_attempts=1_000)
                if number % 3
                else NewJob(
                    id=new_id(), task="t", queue="laned", lane=f"lane{number % 4}", max_attempts=1_000
                )
                for number in range(300)
            ]
            cancelled = jobs[::25]

            async def produce(place: int) -> None:
                for start in range(place * 75, place * 75 + 75, 5):
                    receipts = (await fleet[place].enqueue([jobs[start : start + 5]]))[0]
                    assert {receipt.status for receipt in receipts} == {Status.CREATED}

            async def sweep() -> None:
                while not finished.is_set():
                    await fleet[0].sweep(limit=100)
                    await asyncio.sleep(0.01)

            async def cancel() -> None:
                for job in cancelled:
                    await fleet[1].cancel([Target(job.id)])

            workers = [_Worker(broker, f"w{place}", ("plain", "laned")) for place, broker in enumerate(fleet)]
            running = [asyncio.create_task(worker.run(finished)) for worker in workers]
            running.append(asyncio.create_task(sweep()))
            await asyncio.gather(*(produce(place) for place in range(_PROCESSES)), cancel())
            async with asyncio.timeout(60):
                while await _unfinished(fleet[0]):
                    failed = [task for task in running if task.done()]
                    assert not failed, failed[0].exception()
                    await asyncio.sleep(0.02)
            finished.set()
            await asyncio.gather(*running)
            done = Counter(job for worker in workers for job in worker.done)
            details = [detail for detail in await fleet[0].get([job.id for job in jobs]) if detail]
            assert len(details) == len(jobs)
            assert set(done.values()) == {1}
            assert {detail.id for detail in details if detail.state is State.DONE} == set(done)
            rest = {detail.state for detail in details if detail.id not in done}
            assert rest <= {State.CANCELLED}
            counts = {(row.queue, row.state): row.count for row in (await fleet[0].counts()).rows}
            assert sum(counts.values()) == len(jobs)
            assert {state for _, state in counts} <= {State.DONE, State.CANCELLED}

    asyncio.run(test())


async def _unfinished(broker: PostgresBroker) -> int:
    rows = (await broker.counts()).rows
    return sum(row.count for row in rows if row.state not in (State.DONE, State.CANCELLED))


def test_an_id_sent_by_many_is_created_once(namespaces: Namespaces) -> None:
    async def test() -> None:
        async with namespaces.several(_PROCESSES, plain=QueueSettings()) as fleet:
            jobs = [NewJob(id=new_id(), task="t", queue="plain") for _ in range(40)]

            async def send(broker: PostgresBroker) -> list[Status]:
                mine = random.Random(id(broker)).sample(jobs, len(jobs))
                return [receipt.status for receipt in (await broker.enqueue([mine]))[0]]

            statuses = await asyncio.gather(*(send(broker) for broker in fleet for _ in range(3)))
            found = Counter(status for each in statuses for status in each)
            assert found[Status.CREATED] == len(jobs)
            assert found[Status.DUPLICATE] == 11 * len(jobs)

    asyncio.run(test())


@pytest.mark.parametrize("limit", [{"concurrency": 3}, {"lane_concurrency": 3}])
def test_a_limit_holds_among_many(namespaces: Namespaces, limit: dict[str, int]) -> None:
    async def test() -> None:
        async with namespaces.several(_PROCESSES, q=QueueSettings(**limit)) as fleet:
            await fleet[0].enqueue([[NewJob(id=new_id(), task="t", queue="q") for _ in range(20)]])
            asks = [Ask(queues=("q",), slots=2, limit=2, visibility=10**9) for _ in range(8)]
            claimed = await asyncio.gather(
                *(fleet[place % _PROCESSES].claim(ask) for place, ask in enumerate(asks))
            )
            assert sum(len(each.leases) for each in claimed) == 3

    asyncio.run(test())


def test_children_that_are_too_large_are_refused_in_a_plain_queue_too(namespaces: Namespaces) -> None:
    """Nothing of them reaches the server, which could take their parent for one without children."""

    async def test() -> None:
        async with namespaces.several(_PROCESSES, q=QueueSettings()) as fleet:
            await fleet[0].enqueue([[NewJob(id=new_id(), task="t", queue="q")]])
            lease = (await fleet[0].claim(Ask(queues=("q",), slots=1, limit=1, visibility=10**9))).leases[0]
            children = tuple(
                NewJob(id=new_id(), task="t", queue="q", payload=payload)
                for payload in (bytes(GROUP_BYTES), b"x")
            )
            word = Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE, spawn=children)
            answer = (await fleet[0].settle([word])).answers[0]
            assert answer.verdict is Verdict.REFUSED
            detail = (await fleet[0].get([lease.job]))[0]
            assert detail is not None
            assert detail.state is State.RUNNING

    asyncio.run(test())


def test_a_janitor_does_not_stand_in_line_for_long(namespaces: Namespaces) -> None:
    """All later steps would wait behind it, until the longest one before it has ended."""

    async def test() -> None:
        async with namespaces.several(1, q=QueueSettings()) as (broker,):
            await broker.sweep(limit=10)
            busy = await namespaces.connect()
            async with busy, busy.transaction():
                await busy.execute(_shared(broker))
                async with asyncio.timeout(20):
                    assert (await broker.sweep(limit=10, every=1)).early
                waiting = asyncio.create_task(broker.sweep(limit=10))
            assert not (await waiting).early, "one that was asked for by itself waits"
            assert not (await broker.sweep(limit=10, every=1)).early

    asyncio.run(test())


_SILENT = "UPDATE {}.session SET seen = seen - 10^12"
_BEAT = """
    SELECT alive FROM {}.beat(
        NULL, '{{s}}', ARRAY[NULL]::bytea[], ARRAY[NULL]::bigint[], ARRAY[NULL], '{{0}}')
"""
_WAITS = "SELECT FROM pg_locks WHERE pid <> pg_backend_pid() AND NOT granted"


def test_a_beat_that_comes_while_the_janitor_looks_counts(namespaces: Namespaces) -> None:
    """Its sender was told that it lives, and goes on with its jobs."""

    async def test() -> None:
        async with namespaces.several(1, q=QueueSettings()) as (broker,), await namespaces.connect() as other:
            await broker.beat([Beat(session="s", open=SessionInfo(queues=("q",)))])
            await other.execute(_SILENT.format(broker.namespace).encode())
            async with other.transaction():
                beat = await other.execute(_BEAT.format(broker.namespace).encode())
                assert await beat.fetchall() == [(True,)]
                sweep = asyncio.create_task(broker.sweep(limit=10))
                async with asyncio.timeout(20):
                    # Until it has looked: it has ended, or waits for this transaction.
                    while not sweep.done() and not (await other.execute(_WAITS)).rowcount:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
            assert (await sweep).reaped == ()
            assert (await broker.beat([Beat(session="s")]))[0].alive

    asyncio.run(test())


def _shared(broker: PostgresBroker) -> bytes:
    """What a step does that shares the namespace with others."""
    return (
        f"SELECT pg_advisory_xact_lock_shared(1464422980, '{broker.namespace}.job'::regclass::oid::integer)"
    ).encode()


def test_a_janitor_waits_for_a_long_step_once_the_last_pass_is_long_ago(namespaces: Namespaces) -> None:
    """A tenth of the time would be over before the step is."""

    async def test() -> None:
        clock = ManualClock()
        broker = await namespaces.open(clock, Options(session_ttl=60 * SECOND))
        try:
            await broker.sweep(limit=10)
            clock.advance(4 * SECOND)
            async with await namespaces.connect() as busy, busy.transaction():
                await busy.execute(_shared(broker))
                sweep = asyncio.create_task(broker.sweep(limit=10, every=1))
                await busy.execute(b"SELECT pg_sleep(0.8)")
            assert not (await sweep).early
        finally:
            await broker.close()

    asyncio.run(test())


def test_there_is_a_pass_in_time_though_long_steps_leave_no_gap(namespaces: Namespaces) -> None:
    """Else the liveness clock takes it for an outage, and lost hosts are noticed after minutes."""

    async def test() -> None:
        clock = ManualClock()
        ttl = 60 * SECOND
        broker = await namespaces.open(clock, Options(session_ttl=ttl))
        busy = asyncio.Event()
        ended = False

        async def step(begin: float) -> None:
            async with await namespaces.connect() as connection:
                await connection.execute(f"SELECT pg_sleep({begin})".encode())
                while not ended:
                    async with connection.transaction():
                        await connection.execute(_shared(broker))
                        busy.set()
                        await connection.execute(b"SELECT pg_sleep(1.4)")

        turns: list[asyncio.Task[None]] = []
        try:
            await broker.sweep(limit=10)
            turns = [asyncio.create_task(step(begin)) for begin in (0, 0.5, 1)]
            await busy.wait()
            gaps: list[int] = []
            while len(gaps) < 3:
                clock.advance(SECOND)
                swept = await broker.sweep(limit=10, every=SECOND // 4)
                if not swept.early:
                    gaps.append(swept.since)
            assert max(gaps) <= ttl // 5
        finally:
            ended = True
            await asyncio.gather(*turns)
            await broker.close()

    asyncio.run(test())

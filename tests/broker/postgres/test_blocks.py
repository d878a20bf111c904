"""Ready jobs of one bulk call share rows: whatever is done with one of them is done as in the model."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg
import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker
from windlass.broker.postgres.install import quoted
from windlass.clock import ManualClock
from windlass.conformance.harness import Harness, new_id
from windlass.core.job import NewJob
from windlass.core.lease import Ask, Lease
from windlass.core.operate import Target
from windlass.core.outcome import Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.units import HOUR, SECOND, JobId

__all__ = ["namespaces"]


@pytest.fixture(scope="module")
def large(namespaces: Namespaces) -> Namespaces:
    """Namespaces with a hundred jobs to a block, as users have them."""
    return Namespaces(namespaces.server, prefix="blocks", small_blocks=False)


class House(Harness):
    """A store, and a look at its rows."""

    async def rows(self) -> list[int]:
        """How many jobs stand in each row of ready ones, in order; 0: a job by itself."""
        found = await self.call(
            "SELECT coalesce(cardinality(jobs), 0) AS jobs FROM {}.ready ORDER BY queue, lane, band, seq"
        )
        return [row["jobs"] for row in found]

    async def call(self, query: str, *values: Any) -> Sequence[Any]:
        """Ask the database itself; "{}" is the schema."""
        assert isinstance(self.broker, PostgresBroker)
        return await self.broker._pool.call(query.format(quoted(self.broker.namespace)), *values)

    async def sent(self, count: int, **options: Any) -> list[JobId]:
        """Jobs of one bulk call."""
        jobs = [NewJob(id=new_id(), task="t", queue="q", **options) for _ in range(count)]
        await self.broker.enqueue([jobs])
        return [job.id for job in jobs]


@pytest.fixture
def run(large: Namespaces) -> Callable[[Callable[[House], Awaitable[None]]], None]:
    def ran(test: Callable[[House], Awaitable[None]]) -> None:
        async def whole() -> None:
            async def opened(clock: ManualClock, options: Options) -> PostgresBroker:
                return await large.open(clock, options)

            store = await House.open(opened)
            assert isinstance(store, House)
            try:
                await test(store)
            finally:
                await store.close()

        asyncio.run(whole())

    return ran


Run = Callable[[Callable[[House], Awaitable[None]]], None]


def _of(leases: "tuple[Lease, ...] | list[Lease]") -> list[JobId]:
    return [lease.job for lease in leases]


def test_claims_take_from_the_front(run: Run) -> None:
    async def test(store: House) -> None:
        jobs = await store.sent(250)
        assert await store.rows() == [100, 100, 50]
        (single,) = await store.sent(1)
        few = await store.sent(3)
        assert await store.rows() == [100, 100, 50, 0, 0, 0, 0]
        worker = await store.worker()
        assert _of(await worker.take(16)) == jobs[:16]
        assert await store.rows() == [84, 100, 50, 0, 0, 0, 0]
        assert _of(await worker.take(84)) == jobs[16:100]
        assert _of(await worker.take(149)) == jobs[100:249]
        assert await store.rows() == [1, 0, 0, 0, 0]
        assert _of(await worker.take(4)) == [jobs[249], single, *few[:2]]
        assert (await store.count(State.READY), await store.count(State.RUNNING)) == (1, 253)

    run(test)


def test_a_job_that_comes_back_goes_before_what_is_left(run: Run) -> None:
    async def test(store: House) -> None:
        jobs = await store.sent(100)
        worker = await store.worker()
        leases = await worker.take(40)
        await store.settle(leases[7], Outcome.RELEASE)
        assert await store.rows() == [0, 60]
        assert _of(await worker.take(3)) == [jobs[7], jobs[40], jobs[41]]

    run(test)


def test_of_higher_priority_goes_first(run: Run) -> None:
    async def test(store: House) -> None:
        jobs = await store.sent(60)
        urgent = await store.sent(20, priority=5)
        worker = await store.worker()
        assert _of(await worker.take(5)) == urgent[:5]
        assert _of(await worker.take(17)) == [*urgent[5:], *jobs[:2]]

    run(test)


def test_one_of_them_can_be_cancelled_and_explained(run: Run) -> None:
    async def test(store: House) -> None:
        jobs = await store.sent(120)
        assert (await store.broker.explain(jobs[57])).ahead == 57
        assert (await store.broker.explain(jobs[110])).ahead == 110
        assert (await store.lane_view("")).ready == 120
        await store.cancel(jobs[57])
        assert await store.rows() == [0] * 99 + [20]
        await store.cancel(jobs[100])
        assert await store.rows() == [0] * (99 + 19)
        assert (await store.broker.explain(jobs[110])).ahead == 108
        worker = await store.worker()
        left = [job for job in jobs if job not in (jobs[57], jobs[100])]
        assert _of(await worker.take(118)) == left

    run(test)


def test_purge_takes_the_oldest(run: Run) -> None:
    async def test(store: House) -> None:
        jobs = await store.sent(220)
        purged = await store.broker.purge("q", State.READY, 105)
        assert (purged.count, purged.more) == (105, True)
        worker = await store.worker()
        assert _of(await worker.take(115)) == jobs[105:]

    run(test)


def test_they_expire(run: Run) -> None:
    async def test(store: House) -> None:
        await store.sent(30, expires=SECOND)
        jobs = await store.sent(30, expires=HOUR)
        store.advance(SECOND)
        worker = await store.worker()
        assert _of(await worker.take(20)) == jobs[:20]
        assert await store.count(State.DEAD) == 30
        store.advance(HOUR)
        await store.sweep()
        assert (await store.count(State.DEAD), await store.rows()) == (40, [])

    run(test)


def test_a_claim_is_bounded_by_their_bytes(run: Run) -> None:
    async def test(store: House) -> None:
        jobs = await store.sent(40, payload=b"x" * 1000)
        worker = await store.worker()
        ask = Ask(queues=("q",), slots=40, limit=40, session=worker.id, seq=1, max_bytes=7_500)
        assert _of((await store.broker.claim(ask)).leases) == jobs[:7]
        assert await store.rows() == [0] * 33

    run(test)


@pytest.mark.parametrize(
    "body",
    [
        QueueSettings(concurrency=30),
        QueueSettings(lane_concurrency=30),
        QueueSettings(bands={0: 1, 5: 2}),
        QueueSettings(emit="all"),
    ],
    ids=["a limit", "a limit of lanes", "weights", "events"],
)
def test_a_queue_gets_other_settings_while_they_wait(run: Run, body: QueueSettings) -> None:
    async def test(store: House) -> None:
        jobs = await store.sent(60)
        await store.broker.declare(
            [Declaration(subject=Subject(Kind.QUEUE, "q"), body=body, app="conformance", revision=2)]
        )
        worker = await store.worker()
        assert _of(await worker.take(25)) == jobs[:25]
        await store.sent(20, lane="other")  # from now on the queue has lanes
        taken = _of(await worker.take(5))
        assert [job for job in taken if job in jobs] == jobs[25 : 25 + sum(job in jobs for job in taken)]

    run(test)


def test_numbers_that_calls_have_drawn_in_turns(run: Run) -> None:
    """Two calls at the same time: their blocks stand in each other's span, and a job is found in its own."""

    async def test(store: House) -> None:
        one, other = await store.sent(16), await store.sent(16)
        ns = [row["n"] for row in await store.call("SELECT n FROM {}.job ORDER BY n")]
        turns = [*ns[::2], *ns[1::2]]
        renumber = (
            "UPDATE {}.job j SET n = -u.new, seq = -u.new "
            "FROM unnest($1::bigint[], $2::bigint[]) u (old, new) WHERE j.n = u.old"
        )
        await store.call(renumber, ns, turns)
        await store.call("UPDATE {}.job SET n = -n, seq = -seq")
        for first, drawn in ((ns[16], turns[16:]), (ns[0], turns[:16])):
            await store.call(
                "UPDATE {}.ready SET n = $2, seq = $2, jobs = $3 WHERE n = $1", first, drawn[0], drawn
            )
        await store.cancel(one[9])
        assert await store.rows() == [0, 16, *[0] * 14]
        await store.cancel(other[3])
        worker = await store.worker()
        left = {*one, *other} - {one[9], other[3]}
        assert set(_of(await worker.take(30))) == left

    run(test)


def test_what_is_left_of_a_block_has_the_bytes_of_its_own_jobs(run: Run) -> None:
    async def test(store: House) -> None:
        jobs = [
            NewJob(id=new_id(), task="t", queue="q", payload=b"x" * (1_000 if place < 5 else 10))
            for place in range(40)
        ]
        await store.broker.enqueue([jobs])
        worker = await store.worker()
        assert _of(await worker.take(5)) == [job.id for job in jobs[:5]]
        (left,) = await store.call("SELECT size, sizes FROM {}.ready")
        assert (left["size"], left["sizes"]) == (350, [10] * 35)
        claimed = await worker.claim(slots=35, max_bytes=350)
        assert _of(claimed.leases) == [job.id for job in jobs[5:]]
        assert await store.rows() == []

    run(test)


def test_bytes_of_one_queue_count_for_the_next(run: Run) -> None:
    async def test(store: House) -> None:
        await store.queue("r")
        jobs = await store.add_many(20, payload=b"x" * 100)
        others = await store.add_many(20, payload=b"x" * 100, queue="r")
        worker = await store.worker()
        claimed = await worker.claim("q", "r", slots=40, max_bytes=2_500)
        assert _of(claimed.leases) == [*jobs, *others[:5]]

    run(test)


def test_blocks_of_several_tasks_are_counted_apart(run: Run) -> None:
    async def test(store: House) -> None:
        for task, count in (("t", 20), ("u", 30)):
            await store.add_many(count, task=task)
        worker = await store.worker()
        await worker.take(45)
        counts = {(row.task, row.state): row.count for row in (await store.broker.counts()).rows}
        running, ready = State.RUNNING, State.READY
        assert counts == {("t", running): 20, ("u", running): 25, ("u", ready): 5}

    run(test)


def test_slots_bound_what_was_never_timed_and_last_attempts(run: Run) -> None:
    async def test(store: House) -> None:
        jobs = await store.sent(40)
        worker = await store.worker()
        claimed = await worker.claim(slots=3, limit=20)
        assert (_of(claimed.leases), claimed.more) == (jobs[:3], True)
        await store.done(claimed.leases[0])
        assert _of((await worker.claim(slots=3, limit=20)).leases) == jobs[3:23]
        last = await store.sent(20, max_attempts=1, priority=1)
        assert _of((await worker.claim(slots=3, limit=20)).leases) == last[:3]

    run(test)


def test_who_is_far_behind_is_told_so(run: Run) -> None:
    """Blocks are looked at as long as rows are, and no more jobs are told."""

    async def test(store: House) -> None:
        jobs = [job for _ in range(12) for job in await store.sent(100)]
        assert (await store.broker.explain(jobs[640])).ahead == 640
        assert (await store.broker.explain(jobs[1150])).ahead == 1_000

    run(test)


def test_lanes_in_turn_find_a_block_among_them(run: Run) -> None:
    async def test(store: House) -> None:
        worker = await store.worker()
        await store.add()
        await store.done(await worker.one())  # from now on runs of the task are timed
        jobs = await store.sent(20)
        lanes = [await store.add(lane=name) for name in "abc"]
        assert set(_of(await worker.take(4))) == {jobs[0], *lanes}
        assert _of(await worker.take(19)) == jobs[1:]

    run(test)


def test_a_claim_locks_no_more_rows_than_its_jobs_stand_in(run: Run, large: Namespaces) -> None:
    """Others would find nothing else meanwhile."""

    async def test(store: House) -> None:
        assert isinstance(store.broker, PostgresBroker)
        await store.sent(3)
        assert [row["has_blocks"] for row in await store.call("SELECT has_blocks FROM {}.queue")] == [None]
        await store.sent(250, payload=b"x")
        assert [row["has_blocks"] for row in await store.call("SELECT has_blocks FROM {}.queue")] == [True]
        asker = await asyncpg.connect(
            large.server.dsn, server_settings={"search_path": quoted(store.broker.namespace)}
        )
        try:
            rows = [await asker.fetchval("SELECT _rows_of('q', $1)", jobs) for jobs in (2, 4, 103, 104, 999)]
            assert rows == [2, 4, 4, 5, 6]
            assert await asker.fetchval("SELECT _rows_of('r', 5)") == 0
        finally:
            await asker.close()

    run(test)


def test_who_finds_others_before_a_block_waits_for_what_they_leave(run: Run, large: Namespaces) -> None:
    """Somebody takes one of a hundred jobs: for all others nothing is there until it has committed."""

    async def test(store: House) -> None:
        assert isinstance(store.broker, PostgresBroker)
        jobs = await store.sent(40)
        worker = await store.worker()
        other = await asyncpg.connect(large.server.dsn)
        try:
            async with other.transaction():
                await other.execute(f"SELECT FROM {quoted(store.broker.namespace)}.ready FOR UPDATE")
                claim = asyncio.create_task(worker.claim(slots=3))
                async with asyncio.timeout(30):
                    waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"
                    while not await other.fetchval(waits):  # noqa: ASYNC110 - the server tells nobody
                        await asyncio.sleep(0.001)
                (single,) = await store.sent(1)
                # It has one to itself, and does not wait for more: it is told to come again at once.
                partly = await (await store.worker()).claim(slots=3)
                assert (_of(partly.leases), partly.more, partly.next_in) == ([single], False, 0)
            assert _of((await claim).leases) == jobs[:3]
        finally:
            await other.close()

    run(test)


def test_each_is_run_once_by_workers_of_several_processes(large: Namespaces) -> None:
    """While others send, cancel and look."""
    total = 3_000

    async def test() -> None:
        done: Counter[JobId] = Counter()
        cancelled: set[JobId] = set()
        sent: list[JobId] = []

        async def work(broker: PostgresBroker, name: str, slots: int) -> None:
            await broker.beat([Beat(session=name, open=SessionInfo(queues=("q",)))])
            leases: tuple[Lease, ...] = ()
            seq = 0
            while done.total() + len(cancelled) < total:
                seq += 1
                items = [
                    Settlement(job=each.job, fence=each.fence, outcome=Outcome.DONE, runtime=1)
                    for each in leases
                ]
                ask = Ask(queues=("q",), slots=slots, limit=slots * 3, session=name, seq=seq)
                settled = await broker.settle(items, ask)
                done.update(each.job for each in leases)
                assert settled.claimed is not None
                leases = settled.claimed.leases

        async def send(broker: PostgresBroker) -> None:
            while len(sent) < total:
                jobs = [NewJob(id=new_id(), task="t", queue="q") for _ in range(150)]
                sent.extend(job.id for job in jobs)
                await broker.enqueue([jobs])

        async def disturb(broker: PostgresBroker) -> None:
            while len(sent) < total:
                await asyncio.sleep(0.01)
                for job in sent[-1:-20:-7]:
                    (told,) = await broker.cancel([Target(job)])
                    if told.state is State.CANCELLED:
                        cancelled.add(job)

        async with large.several(5, q=QueueSettings()) as (first, second, third, fourth, fifth):
            workers = [work(first, "a", 7), work(second, "b", 40), work(third, "c", 130)]
            async with asyncio.timeout(120):
                await asyncio.gather(*workers, send(fourth), send(fifth), disturb(fifth))
        assert set(done.values()) == {1}
        assert done.keys() | cancelled == set(sent)

    asyncio.run(test())

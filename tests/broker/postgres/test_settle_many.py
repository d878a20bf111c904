"""Many jobs in one exchange: each has its own word and place; who holds a row is not waited for long."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import asyncpg
import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker
from windlass.broker.postgres.install import quoted
from windlass.conformance.harness import APP, new_id
from windlass.core.job import NewJob
from windlass.core.lease import Ask, Lease
from windlass.core.outcome import Outcome, Verdict
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.errors import StoreUnavailable

__all__ = ["namespaces"]
_QUEUES = ("a", "b", "c")


class Store:
    """A broker with three queues, and one session."""

    def __init__(self, broker: PostgresBroker) -> None:
        self.broker = broker
        self._seq = count(1)

    async def add(self, number: int, **options: Any) -> list[str]:
        jobs = [NewJob(**{"id": new_id(), "task": "t", "queue": "a", **options}) for _ in range(number)]
        await self.broker.enqueue([jobs])
        return [job.id for job in jobs]

    def ask(self, limit: int) -> Ask:
        return Ask(queues=_QUEUES, slots=limit, limit=limit, session="s", seq=next(self._seq))

    async def take(self, limit: int) -> tuple[Lease, ...]:
        return (await self.broker.claim(self.ask(limit))).leases

    async def jobs_in_past(self) -> int:
        query = f"SELECT count(*) FROM {quoted(self.broker.namespace)}.past"  # noqa: S608 - an identifier, quoted
        return (await self.broker._pool.fetch(query.encode(), named=False))[0][0]

    async def states(self, jobs: Sequence[str]) -> set[State | None]:
        return {None if job is None else job.state for job in await self.broker.get(jobs)}


def _done(lease: Lease, **more: Any) -> Settlement:
    return Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE, **more)


@asynccontextmanager
async def _opened(namespaces: Namespaces, **settings: Any) -> AsyncIterator[Store]:
    broker = await namespaces.open(None, Options())
    await broker.declare(
        [
            Declaration(subject=Subject(Kind.QUEUE, name), body=QueueSettings(**settings), app=APP)
            for name in _QUEUES
        ]
    )
    await broker.beat([Beat(session="s", open=SessionInfo(queues=_QUEUES))])
    try:
        yield Store(broker)
    finally:
        await broker.close()


@pytest.mark.parametrize("settings", [{}, {"lane_concurrency": 100}], ids=["plain", "limited"])
def test_one_exchange_over_several_queues(namespaces: Namespaces, settings: dict[str, Any]) -> None:
    async def test() -> None:
        async with _opened(namespaces, **settings) as store:
            jobs = [job for queue in ("c", "a", "b", "c") for job in await store.add(5, queue=queue)]
            leases = await store.take(50)
            assert len(leases) == 20
            settled = await store.broker.settle([_done(lease, runtime=1) for lease in leases], store.ask(50))
            assert {answer.verdict for answer in settled.answers} == {Verdict.APPLIED}
            assert settled.claimed is not None
            assert settled.claimed.leases == ()
            assert await store.states(jobs) == {State.DONE}
            (session,) = await store.broker.sessions()
            assert session.leases == 0

    asyncio.run(test())


def test_each_job_has_its_own_result_and_time(namespaces: Namespaces) -> None:
    """In whatever order they are told; also where only some have a result."""

    async def test() -> None:
        async with _opened(namespaces) as store:
            await store.add(40)
            leases = (await store.take(40))[::-1]
            words = [
                _done(lease, runtime=place + 1, result=str(place).encode() if place % 2 else None)
                for place, lease in enumerate(leases)
            ]
            await store.broker.settle(words)
            for word, found in zip(words, await store.broker.get([w.job for w in words]), strict=True):
                assert found is not None
                assert (found.result, found.deliveries[-1].runtime) == (word.result, word.runtime)

    asyncio.run(test())


def test_a_job_that_is_told_twice_is_done_once(namespaces: Namespaces) -> None:
    async def test() -> None:
        async with _opened(namespaces) as store:
            await store.add(3)
            first, second, third = await store.take(3)
            settled = await store.broker.settle([_done(lease) for lease in (second, first, second, third)])
            verdicts = [answer.verdict for answer in settled.answers]
            assert verdicts == [Verdict.APPLIED, Verdict.APPLIED, Verdict.ALREADY, Verdict.APPLIED]

    asyncio.run(test())


def test_a_wrong_fence_among_right_ones_is_stale(namespaces: Namespaces) -> None:
    async def test() -> None:
        async with _opened(namespaces) as store:
            await store.add(5)
            leases = await store.take(5)
            words = [_done(lease) for lease in leases]
            words[2] = Settlement(job=leases[2].job, fence=leases[2].fence - 1, outcome=Outcome.DONE)
            settled = await store.broker.settle(words)
            verdicts = [answer.verdict for answer in settled.answers]
            assert verdicts == [Verdict.APPLIED] * 2 + [Verdict.STALE] + [Verdict.APPLIED] * 2
            assert await store.states([leases[2].job]) == {State.RUNNING}

    asyncio.run(test())


def test_a_failure_among_many_keeps_nobody_from_the_short_way(namespaces: Namespaces) -> None:
    """Each has its own answer, and what is done is in the past at once, as without it."""

    async def test() -> None:
        async with _opened(namespaces) as store:
            await store.add(20)
            leases = await store.take(20)
            words = [_done(lease, runtime=1) for lease in leases]
            for place in (3, 11):
                lease = leases[place]
                words[place] = Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DEAD, runtime=1)
            settled = await store.broker.settle(words, store.ask(5))
            states = [answer.state for answer in settled.answers]
            assert [place for place, state in enumerate(states) if state is State.DEAD] == [3, 11]
            assert states.count(State.DONE) == 18
            assert await store.jobs_in_past() == 18
            again = await store.broker.settle(words)
            assert {answer.verdict for answer in again.answers} == {Verdict.ALREADY}

    asyncio.run(test())


def test_told_as_done_and_as_failed(namespaces: Namespaces) -> None:
    """The first word counts, though those that are done go before the others."""

    async def test() -> None:
        async with _opened(namespaces) as store:
            await store.add(12)
            leases = await store.take(12)
            dead = Settlement(job=leases[5].job, fence=leases[5].fence, outcome=Outcome.DEAD, runtime=1)
            settled = await store.broker.settle([dead, *[_done(lease, runtime=1) for lease in leases]])
            verdicts = [answer.verdict for answer in settled.answers]
            assert [place for place, each in enumerate(verdicts) if each is not Verdict.APPLIED] == [6]
            assert await store.states([leases[5].job]) == {State.DEAD}

    asyncio.run(test())


def test_leases_come_in_the_order_of_their_bands(namespaces: Namespaces) -> None:
    """Not in that of their arrival, in which their rows are found."""

    async def test() -> None:
        async with _opened(namespaces) as store:
            expected: list[str] = []
            for priority in (-5, 0, 7):
                expected = await store.add(10, priority=priority) + expected
            assert [lease.job for lease in await store.take(30)] == expected

    asyncio.run(test())


def test_a_row_that_somebody_holds_is_waited_for_only_for_a_moment(namespaces: Namespaces) -> None:
    """As by a job's own transaction: the others are not held up, and the word is good afterwards."""

    async def test() -> None:
        async with _opened(namespaces) as store:
            jobs = await store.add(4)
            leases = await store.take(4)
            words = [_done(lease, runtime=1) for lease in leases]
            holder: Any = await asyncpg.connect(namespaces.server.dsn)
            schema = store.broker.namespace
            async with holder.transaction():
                await holder.execute(f"SELECT FROM {schema}.job WHERE id = $1 FOR KEY SHARE", jobs[2])
                with pytest.raises(StoreUnavailable, match="could not serialize"):
                    await store.broker.settle(words)
                assert await store.states(jobs) == {State.RUNNING}
            await holder.close()
            settled = await store.broker.settle(words)
            assert {answer.verdict for answer in settled.answers} == {Verdict.APPLIED}

    asyncio.run(test())

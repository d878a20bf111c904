"""Lanes among many: jobs end beside others, and what is done with lanes is done by one at a time."""

import asyncio
from collections import Counter

import asyncpg
import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.postgres import PostgresBroker
from windlass.broker.postgres.install import quoted
from windlass.conformance.harness import new_id
from windlass.core.job import NewJob
from windlass.core.lease import Ask, Lease
from windlass.core.outcome import Outcome, Verdict
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import QueueSettings
from windlass.core.settlement import Settlement
from windlass.core.state import State

__all__ = ["namespaces"]


def _done(leases: list[Lease] | tuple[Lease, ...]) -> list[Settlement]:
    return [Settlement(job=each.job, fence=each.fence, outcome=Outcome.DONE, runtime=1) for each in leases]


def _job(lane: str, queue: str = "q") -> NewJob:
    return NewJob(id=new_id(), task="t", queue=queue, lane=lane)


@pytest.mark.parametrize(
    "limits",
    [{"lane_concurrency": 3}, {"lane_concurrency": 6, "concurrency": 30}, {"concurrency": 9}],
    ids=str,
)
def test_limits_hold_and_every_job_is_done_once(namespaces: Namespaces, limits: dict[str, int]) -> None:
    """Workers of several processes, of which each settles and asks, while others enqueue."""
    total, lanes = 800, 24
    running: Counter[str] = Counter()
    done: Counter[str] = Counter()

    def began(leases: tuple[Lease, ...]) -> None:
        """Later than in the store, as ends are earlier: whoever is counted here does run."""
        running.update(lease.lane for lease in leases)
        assert max(running.values(), default=0) <= limits.get("lane_concurrency", total)
        assert running.total() <= limits.get("concurrency", total)

    async def work(broker: PostgresBroker, name: str) -> None:
        await broker.beat([Beat(session=name, open=SessionInfo(queues=("q",)))])
        leases: tuple[Lease, ...] = ()
        seq = 0
        while done.total() < total:
            seq += 1
            ask = Ask(queues=("q",), slots=2, soon=2 + 33 * (seq % 4), limit=120, session=name, seq=seq)
            items = _done(leases)
            running.subtract(lease.lane for lease in leases)
            done.update(lease.job for lease in leases)
            settled = await broker.settle(items, ask)
            assert [answer.verdict for answer in settled.answers] == [Verdict.APPLIED] * len(items)
            assert settled.claimed is not None
            leases = settled.claimed.leases
            began(leases)
            if not leases and done.total() < total:
                await broker.wait(("q",), 0.05)

    async def produce(broker: PostgresBroker) -> None:
        for start in range(0, total, 40):
            await broker.enqueue([[_job(f"l{number % lanes}") for number in range(start, start + 40)]])

    async def test() -> None:
        async with namespaces.several(4, q=QueueSettings(**limits)) as fleet, asyncio.timeout(60):
            await asyncio.gather(
                produce(fleet[0]), *(work(broker, f"w{place}") for place, broker in enumerate(fleet))
            )
            assert set(done.values()) == {1}
            counts = {row.state: row.count for row in (await fleet[0].counts()).rows}
            assert counts == {State.DONE: total}

    asyncio.run(test())


def test_who_waits_for_lanes_has_ended_its_jobs_and_keeps_nobody_else(namespaces: Namespaces) -> None:
    async def test() -> None:
        limited = QueueSettings(lane_concurrency=1)
        async with (
            namespaces.several(2, q=limited, plain=QueueSettings()) as (one, other),
            asyncio.timeout(30),
        ):
            await one.enqueue([[_job(lane) for lane in "aaab"]])
            await one.enqueue([[_job("", "plain")]])
            leases = (await one.claim(_ask(1))).leases
            await one.settle(_done(leases), _ask(1))  # timed, and known to have lanes
            leases = (await one.claim(_ask(1))).leases
            link = await asyncpg.connect(namespaces.server.dsn)
            held = link.transaction()
            await held.start()
            await link.execute(f"SET LOCAL search_path = {quoted(one.namespace)}, pg_catalog")
            await link.execute("SELECT _lock_lanes(ARRAY['q'])")
            settling = asyncio.create_task(one.settle(_done(leases), _ask(4)))
            while not await link.fetchval(_WAITING):
                assert not settling.done()
                await asyncio.sleep(0.01)
            plain = (await other.claim(_ask(1, "plain"))).leases
            answers = (await other.settle(_done(plain), _ask(1, "plain"))).answers
            assert [answer.verdict for answer in answers] == [Verdict.APPLIED]
            assert not settling.done()
            await held.rollback()
            await link.close()
            settled = await settling
            assert [answer.verdict for answer in settled.answers] == [Verdict.APPLIED] * len(leases)
            assert settled.claimed is not None
            assert len(settled.claimed.leases) == 1

    asyncio.run(test())


_WAITING = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)"


def _ask(slots: int, queue: str = "q") -> Ask:
    return Ask(queues=(queue,), slots=slots, limit=slots, visibility=10**9)

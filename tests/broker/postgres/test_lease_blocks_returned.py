"""Lease blocks of sessions that have ended: their jobs come back step by step, as much as a step may do."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.postgres import PostgresBroker
from windlass.broker.postgres.install import quoted
from windlass.conformance.harness import Harness
from windlass.core.lease import Lease
from windlass.core.outcome import CauseKind, Outcome, Verdict
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.units import SECOND

__all__ = ["namespaces"]
_LEASED = "SELECT (SELECT count(*) FROM {0}.lease_block), (SELECT count(*) FROM {0}.lease)"
_DAYS = 3 * 86_400 * SECOND


async def _leased(store: Harness) -> tuple[int, int]:
    """How many blocks there are, and how many single leases."""
    assert isinstance(store.broker, PostgresBroker)
    ((blocks, single),) = await store.broker._pool.call(_LEASED.format(quoted(store.broker.namespace)))
    return blocks, single


async def _states(store: Harness, leases: Sequence[Lease]) -> list[State]:
    return await store.states([lease.job for lease in leases])


@pytest.mark.parametrize("lost", [True, False])
def test_a_step_opens_as_many_as_it_returns(namespaces: Namespaces, lost: bool) -> None:
    async def test() -> None:
        store = await Harness.open(namespaces.open)
        await store.queue("q", retention=_DAYS)
        jobs = await store.add_many(9)
        worker = await store.worker()
        leases = await worker.take(9)
        assert (await _leased(store), [lease.job for lease in leases]) == ((3, 0), jobs)
        if lost:
            while not (await store.broker.sweep(limit=1)).reaped:
                store.advance(SECOND)
            assert await _leased(store) == (3, 0)
            late = Settlement(job=jobs[8], fence=leases[8].fence, outcome=Outcome.DONE, runtime=1)
            assert (await store.broker.settle([late])).answers[0].verdict is Verdict.STALE
            assert await _leased(store) == (2, 3), "opened by who asked for one of its jobs"
            assert await _states(store, leases) == [State.RUNNING] * 9
            assert (await store.broker.sweep(limit=4)).more
            assert await _leased(store) == (0, 5)
            await store.sweep()
        else:
            await worker.end(CauseKind.STOP)
        assert await _leased(store) == (0, 0)
        assert await _states(store, leases) == [State.READY] * 9
        other = await store.worker()
        assert await other.drain() == jobs
        await store.close()

    asyncio.run(test())

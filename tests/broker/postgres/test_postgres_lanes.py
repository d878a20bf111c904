"""Lanes: what is done for many jobs at once, and for a queue's first lane, is as in the reference model."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.contract import Broker, Options, Settled
from windlass.broker.memory import MemoryBroker
from windlass.clock import ManualClock
from windlass.conformance.harness import Harness, new_id
from windlass.core.outcome import Outcome
from windlass.core.settlement import Settlement
from windlass.core.state import State

__all__ = ["namespaces"]


async def _the_first_lane_is_declared(store: Harness, ids: list[str]) -> list[object]:
    """A job that waits has its place by the weight that counted when it came."""
    await store.add(id=ids[0])
    await store.lane("q", "", weight=5)
    await (await store.worker()).one()
    return [await store.broker.lanes("q")]


async def _a_batch_of_many_lanes(store: Harness, ids: list[str]) -> list[object]:
    """One call settles jobs of several lanes, and one of them with a stale fence too."""
    await store.queue("q", lane_concurrency=2)
    await store.lane("q", "b", weight=3)
    for number, job in enumerate(ids):
        await store.add(id=job, lane="abc"[number % 3])
    worker = await store.worker()
    found: list[object] = []
    leases = (await worker.claim(slots=10)).leases
    while leases:
        items = [
            Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE, runtime=1) for lease in leases
        ]
        stale = Settlement(job=items[0].job, fence=items[0].fence + 1, outcome=Outcome.DONE, runtime=1)
        for batch in (items[:3], [*items[3:], stale]):
            settled: Settled = await store.broker.settle(batch)
            found.append([(answer.verdict, answer.outcome, answer.state) for answer in settled.answers])
            found.append((await store.broker.lanes("q")).lanes)
        leases = (await worker.claim(slots=4)).leases
        found.append([lease.job for lease in leases])
    found.append([await store.count(state) for state in State])
    return found


@pytest.mark.parametrize("scenario", [_the_first_lane_is_declared, _a_batch_of_many_lanes])
def test_it_is_as_in_the_model(
    namespaces: Namespaces, scenario: Callable[[Harness, list[str]], Awaitable[list[object]]]
) -> None:
    ids = [new_id() for _ in range(24)]

    async def modelled(clock: ManualClock, options: Options) -> Broker:
        return MemoryBroker(clock=clock, options=options)

    async def test() -> None:
        seen: list[list[object]] = []
        for opened in (modelled, namespaces.open):
            harness = await Harness.open(opened, Options())
            try:
                seen.append(await scenario(harness, ids))
            finally:
                await harness.close()
        for number, (expected, found) in enumerate(zip(*seen, strict=True)):
            assert found == expected, f"observation {number}"

    asyncio.run(test())

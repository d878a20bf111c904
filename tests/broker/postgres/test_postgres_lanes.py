"""Lanes: what is done for many jobs at once, and for a queue's first lane, is as in the reference model."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.contract import Broker, Options, Settled
from windlass.broker.memory import MemoryBroker
from windlass.clock import ManualClock
from windlass.conformance.harness import Harness, new_id
from windlass.core.lease import Lease
from windlass.core.outcome import Outcome
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.units import SECOND

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


def _a_busy_hour(seed: int, **settings: Any) -> Callable[[Harness, list[str]], Awaitable[list[object]]]:
    """Jobs come in groups, are handed out to whoever asks, and end, many at a time: as drawn by lot."""

    async def scenario(store: Harness, ids: list[str]) -> list[object]:
        lot = random.Random(seed)
        await store.queue("q", **settings)
        await store.lane("q", "b", weight=3)
        await store.lane("q", "c", concurrency=1)
        await store.lane("q", "d", concurrency=None, weight=2)
        workers = [await store.worker(), await store.worker()]
        held: list[Lease] = []
        found: list[object] = []
        left = list(ids)
        for step in range(40):
            drawn = lot.random()
            if drawn < 0.3 and left:
                group = [left.pop() for _ in range(min(len(left), lot.randint(1, 8)))]
                lanes = lot.choices(("", "a", "b", "c", "d", "e"), k=len(group))
                urgent = lot.choices((0, 0, 5), k=len(group)) if lot.random() < 0.5 else [0] * len(group)
                jobs = [
                    store.job(id=job, lane=lane, priority=priority, max_attempts=lot.choice((1, 5)))
                    for job, lane, priority in zip(group, lanes, urgent, strict=True)
                ]
                found.append([receipt.status for receipt in await store.enqueue(*jobs)])
            elif drawn < 0.65:
                slots = lot.randint(0, 6)
                soon = slots + lot.choice((0, 0, 32, 96))
                claimed = await lot.choice(workers).claim(
                    slots=slots,
                    soon=soon,
                    limit=soon + lot.randint(0, 4),
                    max_bytes=lot.choice((10, 200, 100_000)),
                )
                held.extend(claimed.leases)
                found.append(([lease.job for lease in claimed.leases], claimed.more, claimed.next_in))
            elif held:
                lot.shuffle(held)
                ended = [held.pop() for _ in range(lot.randint(1, len(held)))]
                outcome = Outcome.DONE if lot.random() < 0.8 else Outcome.RETRY
                items = [
                    Settlement(job=lease.job, fence=lease.fence, outcome=outcome, runtime=1)
                    for lease in ended
                ]
                settled = await store.broker.settle(items)
                found.append([(answer.verdict, answer.outcome, answer.state) for answer in settled.answers])
            if step % 5 == 0:
                found.append(await store.broker.lanes("q"))
        return found

    return scenario


def _many_lanes_alike(seed: int, **settings: Any) -> Callable[[Harness, list[str]], Awaitable[list[object]]]:
    """Lanes without settings of their own, of which a claim looks at many: most have one turn, some several,
    some leave. Tasks are timed, so that more is handed out than there are slots.
    """

    async def scenario(store: Harness, ids: list[str]) -> list[object]:
        lot = random.Random(seed)
        await store.queue("q", **settings)
        workers = [await store.worker(), await store.worker()]
        await store.add(id=ids[0])
        await store.done(await workers[0].one())
        held: list[list[Lease]] = [[], []]
        found: list[object] = []
        left = ids[1:]
        while left or any(held):
            if left and lot.random() < 0.4:
                group = [left.pop() for _ in range(min(len(left), lot.randint(1, 60)))]
                urgent = lot.choices((0, 0, 0, 5), k=len(group)) if lot.random() < 0.3 else [0] * len(group)
                lanes = [f"l{int(lot.triangular(0, 20, 3))}" for _ in group]
                expires = lot.choices((None, SECOND), (9, 1), k=len(group)) if lot.random() < 0.2 else [None]
                jobs = [
                    store.job(id=job, lane=lane, priority=priority, expires=expires[place % len(expires)])
                    for place, (job, lane, priority) in enumerate(zip(group, lanes, urgent, strict=True))
                ]
                found.append([receipt.status for receipt in await store.enqueue(*jobs)])
            store.advance(lot.choice((0, 0, 0, SECOND // 4)))
            who = lot.randrange(2)
            lot.shuffle(held[who])
            keep = lot.choice((0, 0, len(held[who]) // 2))
            ended, held[who] = held[who][keep:], held[who][:keep]
            soon = lot.choice((lot.randint(2, 33), lot.randint(34, 130)))
            ask = workers[who].ask(slots=2, soon=soon, limit=soon + lot.randint(0, 5))
            items = [
                Settlement(job=each.job, fence=each.fence, outcome=Outcome.DONE, runtime=1) for each in ended
            ]
            settled = await store.broker.settle(items, ask) if items else None
            claimed = await store.broker.claim(ask) if settled is None else settled.claimed
            assert claimed is not None
            held[who].extend(claimed.leases)
            found.append(([each.job for each in claimed.leases], claimed.more, claimed.next_in))
            found.append((await store.broker.lanes("q")).lanes)
        return found

    return scenario


def _more_than_soon(seed: int, **settings: Any) -> Callable[[Harness, list[str]], Awaitable[list[object]]]:
    """Some lanes have no limit, so that an ask gets more of them than starts soon."""

    async def scenario(store: Harness, ids: list[str]) -> list[object]:
        lot = random.Random(seed)
        await store.queue("q", **settings)
        await store.lane("q", "a", concurrency=None)
        await store.lane("q", "b", concurrency=None, weight=3)
        worker = await store.worker()
        await store.add(id=ids[0])
        await store.done(await worker.one())
        for job in ids[1:]:
            await store.add(id=job, lane=lot.choice("aaabbcd"), priority=lot.choice((0, 0, 0, 5)))
        found: list[object] = []
        for _ in range(8):
            soon = 2 + lot.choice((2, 33, 40, 70))
            claimed = await worker.claim(
                slots=2, soon=soon, limit=soon + lot.randint(0, 60), max_bytes=lot.choice((300, 100_000))
            )
            found.append(([lease.job for lease in claimed.leases], claimed.more))
            found.append((await store.broker.lanes("q")).lanes)
            for lease in claimed.leases[::2]:
                await store.done(lease)
        return found

    return scenario


_KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"lane_concurrency": 2},
    {"lane_concurrency": 2, "concurrency": 5},
    {"concurrency": 3, "order": "lane"},
    {"lane_concurrency": 3, "order": "lane"},
    {"emit": "all", "lane_concurrency": 2},
    {"age_step": 1_000_000},
    {"sequence": True},
)


@pytest.mark.parametrize("kind", _KINDS, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_a_busy_hour_is_as_in_the_model(namespaces: Namespaces, seed: int, kind: dict[str, Any]) -> None:
    _compare(namespaces, _a_busy_hour(seed, **kind), [new_id() for _ in range(60)])


@pytest.mark.parametrize("kind", _KINDS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_many_lanes_are_as_in_the_model(namespaces: Namespaces, seed: int, kind: dict[str, Any]) -> None:
    _compare(namespaces, _many_lanes_alike(seed, **kind), [new_id() for _ in range(200)])


@pytest.mark.parametrize("kind", _KINDS[1:5], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_more_than_starts_soon_is_as_in_the_model(
    namespaces: Namespaces, seed: int, kind: dict[str, Any]
) -> None:
    _compare(namespaces, _more_than_soon(seed, **kind), [new_id() for _ in range(200)])


@pytest.mark.parametrize("scenario", [_the_first_lane_is_declared, _a_batch_of_many_lanes])
def test_it_is_as_in_the_model(
    namespaces: Namespaces, scenario: Callable[[Harness, list[str]], Awaitable[list[object]]]
) -> None:
    _compare(namespaces, scenario, [new_id() for _ in range(24)])


def _compare(
    namespaces: Namespaces, scenario: Callable[[Harness, list[str]], Awaitable[list[object]]], ids: list[str]
) -> None:
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

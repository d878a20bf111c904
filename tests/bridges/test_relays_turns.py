"""Relays take turns: one of many publishes, and who has lost its turn moves nothing."""

import asyncio
from typing import Any

import pytest
from tests.bridges.relaying import Around, Bench, Taken
from tests.bridges.stores import namespaces, open_broker, redis_server

from windlass.conformance.harness import Harness
from windlass.core.units import MINUTE
from windlass.errors import StoreUnavailable
from windlass.worker import relays
from windlass.worker.turn import HELD, LATER, SOON

__all__ = ["namespaces", "open_broker", "redis_server"]


async def test_one_of_many_publishes_and_another_takes_over_when_it_is_gone(store: Harness) -> None:
    bench = await Bench(store).prepare()
    first, second = bench.relay(), bench.relay()
    assert await first.step() == SOON
    jobs = await bench.done(2)
    assert await second.step() == LATER
    assert bench.taken.got == []
    store.advance(HELD + MINUTE)
    assert await second.step() == SOON
    assert bench.taken.jobs == jobs
    assert await first.step() == LATER


async def test_a_worker_that_stops_leaves_its_turn_at_once(store: Harness) -> None:
    bench = await Bench(store).prepare()
    jobs = await bench.done(1)
    bench.taken.hangs = True
    running = asyncio.create_task(bench.relay().run())
    await bench.taken.hung.wait()
    other = Taken()
    second = bench.relay(other)
    assert await second.step() == LATER
    running.cancel()
    await asyncio.wait([running])
    assert bench.taken.closed == 1
    assert await second.step() == SOON
    assert other.jobs == jobs


async def test_who_loses_the_turn_while_publishing_moves_nothing(
    store: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was frozen: another has told of the page, and of more."""
    monkeypatch.setattr(relays, "MOST_BYTES", 1)
    monkeypatch.setattr(relays, "DETAILS", 2)
    bench = await Bench(store).prepare()
    jobs = await bench.done(4)
    bench.taken.hangs = True
    other = Taken()
    frozen, second = bench.relay(), bench.relay(other)
    publishing = asyncio.create_task(frozen.step())
    await bench.taken.hung.wait()
    store.advance(HELD + MINUTE)
    assert await second.step() == SOON
    jobs += await bench.done(1)
    assert await second.step() == SOON
    assert other.jobs == jobs
    kept = await bench.reading()
    bench.taken.goes_on.set()
    assert await publishing == LATER
    assert bench.taken.jobs == jobs[:2], "nothing after the call that was under way"
    assert bench.taken.ids == other.ids[:2]
    after = await bench.reading()
    assert (after.cursor, after.sent) == (kept.cursor, kept.sent)


async def test_who_has_lost_the_turn_when_it_keeps_the_place_stops(store: Harness) -> None:
    bench = await Bench(store).prepare()
    jobs = await bench.done(2)
    bench.taken.hangs = True
    other = Taken()
    frozen, second = bench.relay(), bench.relay(other)
    publishing = asyncio.create_task(frozen.step())
    await bench.taken.hung.wait()
    store.advance(HELD + MINUTE)
    await second.step()
    kept = await bench.reading()
    bench.taken.goes_on.set()
    await publishing
    assert await bench.reading() == kept
    bench.taken.hangs = False
    await bench.done(1)
    assert await frozen.step() == LATER
    assert bench.taken.jobs == jobs


async def test_who_finds_the_turn_free_again_does_not_take_the_place_back(
    store: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another has had the turn meanwhile, has gone on, and has left."""
    monkeypatch.setattr(relays, "MOST_BYTES", 1)
    monkeypatch.setattr(relays, "DETAILS", 2)
    bench = await Bench(store).prepare()
    jobs = await bench.done(4)
    bench.taken.hangs = True
    other = Taken()
    frozen, second = bench.relay(), bench.relay(other)
    publishing = asyncio.create_task(frozen.step())
    await bench.taken.hung.wait()
    store.advance(HELD + MINUTE)
    await second.step()
    store.advance(HELD + MINUTE)
    bench.taken.goes_on.set()
    assert await publishing == LATER
    assert bench.taken.jobs == jobs[:2]
    later = await bench.done(1)
    bench.taken.hangs = False
    await frozen.step()
    assert bench.taken.jobs == jobs[:2] + later


async def test_a_store_that_goes_away_before_the_place_is_kept_is_a_repeat(store: Harness) -> None:
    bench = await Bench(store).prepare()
    await bench.done(3)
    away = False

    async def override(*given: Any) -> Any:
        if bench.taken.got and away:
            raise StoreUnavailable("gone")
        return await store.broker.override(*given)

    away = True
    relay = bench.relay(broker=Around(store.broker, override=override))  # type: ignore[arg-type]
    assert 0 < await relay.tried() < SOON
    away = False
    await relay.tried()
    assert bench.taken.ids[:3] == bench.taken.ids[3:]
    assert (await bench.reading()).sent == 3


async def test_a_place_that_was_kept_without_an_answer_is_no_repeat(store: Harness) -> None:
    bench = await Bench(store).prepare()
    jobs = await bench.done(2)
    lost = 0

    async def override(*given: Any) -> Any:
        nonlocal lost
        changed = await store.broker.override(*given)
        if bench.taken.got and not lost:
            lost += 1
            raise StoreUnavailable("the answer was lost")
        return changed

    relay = bench.relay(broker=Around(store.broker, override=override))  # type: ignore[arg-type]
    for _ in range(3):
        await relay.tried()
    assert lost == 1
    assert bench.taken.jobs == jobs

"""Waking idle workers by the server: at once, seldom, after the commit, and never relied on."""

import asyncio
import time
from typing import Any

import asyncpg
import pytest
from tests.broker.postgres.namespaces import namespaces
from tests.broker.postgres.waking import ASK, HELD, NEVER, House, Run, no_floor, only_told, run

from windlass.broker.postgres import listening
from windlass.broker.postgres.listening import COOLDOWN, ROOM, Listener
from windlass.broker.postgres.url import Location, read_url
from windlass.conformance.harness import new_id
from windlass.core.job import NewJob
from windlass.core.units import MINUTE
from windlass.errors import InvalidOption

__all__ = ["namespaces", "no_floor", "only_told", "run"]
_END = f"SELECT pg_terminate_backend(pid) {HELD}"


@pytest.mark.usefixtures("only_told")
def test_a_job_of_another_process_wakes_a_waiter(run: Run) -> None:
    async def test(house: House) -> None:
        waiter = asyncio.create_task(house.waiting.wait(["q"], NEVER))
        await house.until_listened_to()
        await house.send("other")
        await house.send()
        await asyncio.wait_for(waiter, 20)

    run(test)


@pytest.mark.usefixtures("only_told")
def test_a_commit_of_a_callers_own_wakes_a_waiter(run: Run) -> None:
    async def test(house: House) -> None:
        waiter = asyncio.create_task(house.waiting.wait(["q"], NEVER))
        await house.until_listened_to()
        async with house.connection.transaction():
            await house.sending.enqueue_on(house.connection, [[NewJob(id=new_id(), task="t", queue="q")]])
        await asyncio.wait_for(waiter, 20)

    run(test)


@pytest.mark.usefixtures("no_floor")
def test_what_came_too_soon_to_be_told_is_seen(run: Run) -> None:
    """Within a cooldown of another ring, and committed after it: who was woken looks again."""

    async def test(house: House) -> None:
        taken = 0

        async def work() -> None:
            nonlocal taken
            while True:
                leases = (await house.waiting.claim(ASK)).leases
                taken += len(leases)
                if not leases:
                    await house.waiting.wait(["q"], NEVER)

        working = asyncio.create_task(work())
        await house.until_listened_to()
        sent, took = 0, NEVER
        while sent < 60 or took > COOLDOWN / 2:  # one that was committed that late is left to the floor
            began = time.monotonic()
            await house.send()
            took = time.monotonic() - began
            sent += 1
            await asyncio.sleep(COOLDOWN / 8)
        async with asyncio.timeout(20):
            while taken < sent:  # noqa: ASYNC110 - of a store
                await asyncio.sleep(0.01)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    run(test)


@pytest.fixture
def looks_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was told looks again and again, so that nothing depends on how soon something is sent."""
    monkeypatch.setattr(listening, "_LOOKS_FOR", NEVER)


@pytest.mark.usefixtures("no_floor", "looks_for_long")
@pytest.mark.parametrize("waited_for", ["q", "other"])
def test_what_came_too_soon_after_a_ring_that_found_nobody_waiting_is_seen(run: Run, waited_for: str) -> None:
    """It was at work just then, or waits for that queue for the first time."""

    async def test(house: House) -> None:
        await house.waiting.wait([waited_for], 0.05)
        (await house.listening_one())._told_at = 0.0  # it opened long ago
        await house.until_heard(house.send())
        assert (await house.sending.claim(ASK)).leases
        await house.deafen()
        waiter = asyncio.create_task(house.waiting.wait(["q"], NEVER))
        await asyncio.sleep(COOLDOWN)
        await house.send()
        await asyncio.wait_for(waiter, 20)

    run(test)


@pytest.mark.usefixtures("no_floor", "looks_for_long")
def test_what_came_too_soon_after_a_ring_that_only_others_heard_is_seen(run: Run) -> None:
    async def test(house: House) -> None:
        waiter = asyncio.create_task(house.waiting.wait(["q"], NEVER))
        await house.until_listened_to()
        await house.deafen()
        await asyncio.sleep(COOLDOWN)
        assert not waiter.done()
        await house.send()
        await asyncio.wait_for(waiter, 20)

    run(test)


def test_who_waits_looks_often_for_a_cooldown_and_the_time_to_commit() -> None:
    assert listening._LOOKS_FOR >= 2 * COOLDOWN


def test_what_came_while_a_look_was_long_in_coming_is_seen(run: Run) -> None:
    async def test(house: House) -> None:
        looks = 0

        async def look() -> bool:
            nonlocal looks
            looks += 1
            if looks == 1:
                await asyncio.sleep(3 * COOLDOWN)  # it saw what there was before that
            return looks > 1

        await house.waiting.wait(["q"], 0.05)
        await house.deafen()
        listener = house.waiting._listener
        Listener._told(listener, "q")
        async with asyncio.timeout(20):
            await house.waiting._polling.until(look, bool, NEVER, NEVER, listener)

    run(test)


def test_told_after_the_commit_and_not_of_what_was_rolled_back(run: Run) -> None:
    async def test(house: House) -> None:
        await house.listen()
        other: Any = await asyncpg.connect(house.waiting._pool.location.dsn)
        job = [[NewJob(id=new_id(), task="t", queue="q")]]
        for commits in (False, True):
            transaction = other.transaction()
            await transaction.start()
            await house.sending.enqueue_on(other, job)
            assert await house.caught_up() == []
            await (transaction.commit() if commits else transaction.rollback())
        assert await house.caught_up() == ["q"]
        await other.close()

    run(test)


def test_told_once_per_queue_and_cooldown(run: Run) -> None:
    async def test(house: House) -> None:
        await house.listen()
        began = time.monotonic()
        for number in range(120):
            await house.send("q" if number % 2 else "other")
        cooldowns = (time.monotonic() - began) / COOLDOWN
        told = await house.caught_up()
        assert set(told) == {"q", "other"}
        assert max(told.count("q"), told.count("other")) <= cooldowns + 1
        assert len(told) < 120 or cooldowns > 60  # else it proves nothing

    run(test)


def test_nothing_is_sent_where_nobody_listens(run: Run) -> None:
    async def test(house: House) -> None:
        await house.listen(known=False)
        await house.waiting.wait(["q"], 0.05)
        assert not await house.is_listened_to()
        await house.send()
        assert await house.caught_up() == []

    run(test, wake=False)


@pytest.mark.parametrize("options", [{"wake": False}, {"pooled": True}, {"connections": 2}])
def test_it_can_do_without(run: Run, options: dict[str, Any]) -> None:
    async def test(house: House) -> None:
        waiter = asyncio.create_task(house.waiting.wait(["q"], NEVER))
        await asyncio.sleep(0)
        assert not await house.is_listened_to()
        await house.send()
        await asyncio.wait_for(waiter, 20)

    run(test, **options)


def test_a_pooler_that_drops_listen_costs_no_more_than_the_floor(run: Run) -> None:
    """Fault 23: the connection is there and says nothing."""

    async def test(house: House) -> None:
        waiter = asyncio.create_task(house.waiting.wait(["q"], NEVER))
        await house.until_listened_to()
        await house.deafen()
        await house.send()
        await asyncio.wait_for(waiter, 20)

    run(test)


def test_a_listener_that_was_ended_is_replaced(run: Run) -> None:
    async def test(house: House) -> None:
        waiter = asyncio.create_task(house.waiting.wait(["q"], NEVER))
        await house.until_listened_to()
        await house.connection.execute(_END, ROOM)
        async with asyncio.timeout(20):
            while await house.is_listened_to():  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.01)
        await house.until_listened_to()
        assert not waiter.done()
        await house.send()
        await asyncio.wait_for(waiter, 20)

    run(test)


def test_a_process_has_four_connections_at_the_most(run: Run) -> None:
    async def test(house: House) -> None:
        broker = house.waiting
        before = await _connections(house)
        waiter = asyncio.create_task(broker.wait(["q"], NEVER))
        await house.until_listened_to()
        held = asyncio.Event()

        async def hold() -> None:
            async with broker.transaction(MINUTE):
                await held.wait()

        holding = [asyncio.create_task(hold()) for _ in range(4)]
        await asyncio.gather(*(broker.counts() for _ in range(20)))
        assert await _connections(house) - before <= 4 - 1  # it had one
        held.set()
        await asyncio.gather(*holding)
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)

    run(test)


async def _connections(house: House) -> int:
    return await house.connection.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'windlass'"
    )


def test_it_is_an_option_of_the_url() -> None:
    assert read_url("postgres://h/d?wake=poll") == Location("postgres://h/d", wake=False)
    assert read_url("postgres://h/d?wake=notify").listens
    with pytest.raises(InvalidOption, match='wake must be "notify" or "poll", not "x"'):
        read_url("postgres://h/d?wake=x")

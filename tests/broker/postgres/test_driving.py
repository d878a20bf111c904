"""A coroutine run without a task: its answer, its errors, and a loop that an interruption leaves in order."""

import asyncio
from collections.abc import Iterator

import pytest

from windlass.broker.postgres.driving import driven


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


async def _sum_of(*waiters: asyncio.Future[int]) -> int:
    return sum([await waiter for waiter in waiters])


def test_it_waits_for_one_future_after_the_other(loop: asyncio.AbstractEventLoop) -> None:
    first, second = loop.create_future(), loop.create_future()
    loop.call_later(0.001, second.set_result, 2)
    loop.call_later(0.002, first.set_result, 1)
    assert driven(loop, _sum_of(first, second)) == 3


def test_what_it_raises_is_raised_and_the_loop_goes_on(loop: asyncio.AbstractEventLoop) -> None:
    waiter = loop.create_future()
    loop.call_soon(waiter.set_exception, LookupError("gone"))
    with pytest.raises(LookupError, match="gone"):
        driven(loop, _sum_of(waiter))
    assert loop.run_until_complete(asyncio.sleep(0.001, "on")) == "on"


@pytest.mark.parametrize("answered", [False, True])
def test_an_interruption_ends_the_coroutine_and_stops_no_later_run(
    loop: asyncio.AbstractEventLoop, *, answered: bool
) -> None:
    ended: list[str] = []
    waiter: asyncio.Future[int] = loop.create_future()

    async def work() -> int:
        try:
            return await waiter
        finally:
            ended.append("work")

    def interrupt() -> None:
        if answered:  # in the same moment: the stop of this run is on its way
            waiter.set_result(1)
        raise KeyboardInterrupt

    loop.call_soon(interrupt)
    with pytest.raises(KeyboardInterrupt):
        driven(loop, work())
    assert ended == ["work"]
    if not answered:
        waiter.set_result(1)
    assert loop.run_until_complete(asyncio.sleep(0.001, "on")) == "on"

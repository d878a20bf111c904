"""Doing something to many at a rate: never faster, in constant steps, nothing saved up."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence

from windlass.admin.pacing import at_rate
from windlass.core.limits import parse_rate


class Run:
    """A clock that only sleeping and working move."""

    def __init__(self, *, work: float = 0.0) -> None:
        self.now = 0.0
        self.work = work
        self.done: list[tuple[float, int]] = []

    async def sleep(self, length: float) -> None:
        self.now += length

    async def verb(self, batch: Sequence[int]) -> int:
        self.done.append((self.now, len(batch)))
        self.now += self.work
        return len(batch)

    def go(self, rate: str | None, *sizes: int) -> int:
        async def batches() -> AsyncIterator[Sequence[int]]:
            for size in sizes:
                yield range(size)

        async def all_() -> int:
            parsed = None if rate is None else parse_rate(rate)
            steps = at_rate(batches(), parsed, self.verb, clock=lambda: self.now, sleep=self.sleep)
            return sum([count async for count in steps])

        return asyncio.run(all_())


def test_without_a_rate_batches_go_through_as_they_are() -> None:
    run = Run()
    assert run.go(None, 1_000, 500) == 1_500
    assert run.done == [(0.0, 1_000), (0.0, 500)]


def test_in_no_second_more_than_the_rate() -> None:
    run = Run()
    assert run.go("50/s", 1_000, 7, 300) == 1_307
    for start, _ in run.done:
        assert sum(count for at, count in run.done if start <= at < start + 1) <= 50 + 10
    assert 25 < run.now < 27


def test_a_slow_store_is_not_made_up_for() -> None:
    run = Run(work=2.0)
    run.go("10/s", 100)
    times = [at for at, _ in run.done]
    assert all(after - before >= 2.0 for before, after in itertools.pairwise(times))


def test_a_rate_below_one_a_second() -> None:
    run = Run()
    run.go("6/m", 3)
    assert run.done == [(0.0, 1), (10.0, 1), (20.0, 1)]


def test_who_is_stopped_in_the_middle_of_a_step_is_told_what_it_did() -> None:
    """The store does it all the same: what was done to jobs must not be counted as not done."""

    async def story(rate: str | None) -> list[int]:
        begun, go_on = asyncio.Event(), asyncio.Event()
        told: list[int] = []

        async def batches() -> AsyncIterator[Sequence[int]]:
            for _ in range(3):
                yield range(2)

        async def verb(batch: Sequence[int]) -> int:
            begun.set()
            await go_on.wait()
            return len(batch)

        async def work() -> None:
            async for count in at_rate(batches(), None if rate is None else parse_rate(rate), verb):
                told.append(count)  # noqa: PERF401 - what was told before the end counts

        task = asyncio.create_task(work())
        await begun.wait()
        task.cancel()
        asyncio.get_running_loop().call_soon(go_on.set)
        await asyncio.wait({task})
        assert task.cancelled()
        return told

    assert asyncio.run(story(None)) == [2]
    assert asyncio.run(story("10/s")) == [2]

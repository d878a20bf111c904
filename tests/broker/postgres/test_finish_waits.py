"""Everybody in a process who waits for jobs shares one look at the store."""

import asyncio
from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest

from windlass.broker.postgres.bells import Bell
from windlass.broker.postgres.finish_waits import FinishWaits
from windlass.conformance.harness import new_id
from windlass.core.job import Finished
from windlass.core.state import State
from windlass.errors import StoreUnavailable


class _Store:
    """What has finished, and how often somebody looked."""

    def __init__(self) -> None:
        self.bell = Bell()
        self.ended: set[str] = set()
        self.looks: list[int] = []
        self.away = False

    async def read(self, jobs: Sequence[UUID]) -> Mapping[UUID, Finished]:
        self.looks.append(len(jobs))
        if self.away:
            raise StoreUnavailable("away")
        return {job: Finished(job=str(job), state=State.DONE) for job in jobs if str(job) in self.ended}

    async def looked(self, often: int) -> None:
        while len(self.looks) < often:  # noqa: ASYNC110 - every turn of the loop counts
            await asyncio.sleep(0)

    def finish(self, job: str) -> None:
        self.ended.add(job)
        self.bell.ring()


def test_many_watchers_share_one_look() -> None:
    async def test() -> None:
        store = _Store()
        watching = FinishWaits(store.read, store.bell)
        jobs = [new_id() for _ in range(50)]
        watchers = [asyncio.create_task(watching.watch([job], 30)) for job in jobs]
        await store.looked(len(jobs))
        for job in jobs:
            store.ended.add(job)
        store.bell.ring()
        found = await asyncio.gather(*watchers)
        assert [each[0].job for each in found] == jobs
        assert store.looks[len(jobs) :].count(len(jobs)) >= 1
        assert len(store.looks) < len(jobs) + 10

    asyncio.run(test())


def test_a_job_that_is_named_twice_is_answered_twice() -> None:
    async def test() -> None:
        store = _Store()
        watching = FinishWaits(store.read, store.bell)
        one, other = new_id(), new_id()
        store.ended = {one, other}
        found = await watching.watch([one, other, one], 0)
        assert [each.job for each in found] == [one, other, one]

    asyncio.run(test())


def test_each_is_told_of_its_own() -> None:
    async def test() -> None:
        store = _Store()
        watching = FinishWaits(store.read, store.bell)
        one, other = new_id(), new_id()
        both = asyncio.create_task(watching.watch([one, other], 30))
        second = asyncio.create_task(watching.watch([other], 30))
        await asyncio.sleep(0)
        store.finish(one)
        assert [end.job for end in await both] == [one]
        assert not second.done()
        store.finish(other)
        assert [end.job for end in await second] == [other]

    asyncio.run(test())


def test_an_error_reaches_those_who_wait() -> None:
    async def test() -> None:
        store = _Store()
        watching = FinishWaits(store.read, store.bell)
        watcher = asyncio.create_task(watching.watch([new_id()], 30))
        await store.looked(1)
        store.away = True
        with pytest.raises(StoreUnavailable):
            await watcher

    asyncio.run(test())


def test_closing_lets_everybody_go() -> None:
    async def test() -> None:
        store = _Store()
        watching = FinishWaits(store.read, store.bell)
        watcher = asyncio.create_task(watching.watch([new_id()], 30))
        await store.looked(1)
        await asyncio.sleep(0)
        watching.close()
        assert await asyncio.wait_for(watcher, 5) == ()

    asyncio.run(test())

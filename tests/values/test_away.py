"""Object storage that is away is not a store that is away, and costs no job an attempt."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from tests.bridges.doors import Doored
from tests.values.seen import is_held, seen

from windlass import Windlass
from windlass.core.job import JobDetail
from windlass.core.query import Why
from windlass.core.state import State
from windlass.errors import StoreError, ValueMissing, ValuesUnavailable
from windlass.worker import carrying, value_sweeping


@pytest.fixture(autouse=True)
def _sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Object storage is asked again after a moment."""
    monkeypatch.setattr(value_sweeping, "LOOK", 0.1)
    monkeypatch.setattr(carrying, "LONGEST_PAUSE", 0.2)


class Away:
    """An app with a bucket behind a door, and how often its task has run."""

    def __init__(self, app: Windlass, door: Doored) -> None:
        self.app = app
        self.door = door
        self.runs = 0

        @app.task
        def length(text: str) -> int:
            self.runs += 1
            return len(text)

        def make(count: int) -> str:
            self.runs += 1
            self.door_shuts()
            return "m" * count

        async def amake(count: int) -> str:
            return make(count)

        self.length = length
        self.makes = {
            "thread": app.task(name="in_thread")(make),
            "inline": app.task(name="inline", run="inline")(make),
            "loop": app.task(name="in_loop")(amake),
        }
        self.shuts = False
        self.loop = asyncio.get_running_loop()

    def door_shuts(self) -> None:
        if self.shuts:
            self.shuts = False
            self.loop.call_soon_threadsafe(self.door.shut)

    async def job(self, job: str) -> JobDetail:
        found = (await (await self.app.broker()).get([job]))[0]
        assert found is not None
        return found

    async def until(self, job: str, condition: Callable[[JobDetail], object]) -> JobDetail:
        return await seen(self.app, job, condition)


@asynccontextmanager
async def away(bucket: str, port: int) -> AsyncIterator[Away]:
    door = Doored(port)
    url = f"s3://{bucket}?region=us-east-1&endpoint=http://{await door.host()}"
    app = Windlass("memory://", values=url, grace=1)
    yield Away(app, door)
    await app.aclose()
    await door.close()


def test_enqueueing_says_that_it_is_not_the_store(bucket: str, s3_port: int) -> None:
    async def main() -> None:
        async with away(bucket, s3_port) as it:
            it.door.shut()
            with pytest.raises(ValuesUnavailable, match="object storage s3://values-") as caught:
                await it.length.aenqueue("p" * 100_000)
            assert not isinstance(caught.value, StoreError)
            with pytest.raises(ValuesUnavailable):
                await asyncio.to_thread(it.length.enqueue, "p" * 100_000)
            assert await it.length.aenqueue("small"), "the store takes what does not need it"

    asyncio.run(main())


def test_a_payload_that_cannot_be_read_is_waited_for_and_charges_nobody(bucket: str, s3_port: int) -> None:
    async def main() -> None:
        async with away(bucket, s3_port) as it:
            job = await it.length.aenqueue("p" * 100_000)
            it.door.shut()
            async with it.app.worker():
                held = await it.until(job.id, is_held)
                assert held.held is not None
                assert held.held.reason.startswith(f"object storage s3://{bucket} does not do it:")
                assert (held.attempt, held.crashes) == (0, 0)
                explained = await (await it.app.broker()).explain(job.id)
                assert explained.why is Why.HELD
                small = await it.length.aenqueue("small")
                assert await small.aresult(20) == 5, "other jobs run meanwhile"
                it.door.open()
                assert await job.aresult(20) == 100_000
            done = await it.job(job.id)
            assert done.attempt == 1
            assert it.runs == 2

    asyncio.run(main())


@pytest.mark.parametrize("where", ["thread", "loop", "inline"])
def test_a_result_that_cannot_be_put_waits_and_its_code_does_not_run_again(
    bucket: str, s3_port: int, where: str
) -> None:
    async def main() -> None:
        async with away(bucket, s3_port) as it:
            it.shuts = True
            async with it.app.worker():
                job = await it.makes[where].aenqueue(100_000)
                await it.until(job.id, lambda _: it.runs == 1)
                small = await it.length.aenqueue("small")
                assert await small.aresult(20) == 5, "other jobs run meanwhile"
                assert (await it.job(job.id)).state is State.RUNNING
                it.door.open()
                assert await job.aresult(20) == "m" * 100_000
            assert it.runs == 2
            assert (await it.job(job.id)).attempt == 1

    asyncio.run(main())


@pytest.mark.parametrize("where", ["thread", "loop"])
def test_a_worker_that_stops_meanwhile_gives_the_job_back_uncharged(
    bucket: str, s3_port: int, where: str
) -> None:
    async def main() -> None:
        async with away(bucket, s3_port) as it:
            it.shuts = True
            async with it.app.worker():
                job = await it.makes[where].aenqueue(100_000)
                await it.until(job.id, lambda _: it.runs == 1)
            back = await it.job(job.id)
            assert (back.state, back.attempt, back.crashes) == (State.READY, 0, 0)
            it.door.open()
            async with it.app.worker():
                assert await job.aresult(20) == "m" * 100_000

    asyncio.run(main())


def test_a_result_that_cannot_be_read_is_there_when_the_bucket_is_back(bucket: str, s3_port: int) -> None:
    async def main() -> None:
        async with away(bucket, s3_port) as it:
            async with it.app.worker():
                job = await it.makes["loop"].aenqueue(100_000)
                assert await job.aresult(20) == "m" * 100_000
            it.door.shut()
            with pytest.raises(ValuesUnavailable):
                await job.aresult(20)
            with pytest.raises(ValuesUnavailable):
                await asyncio.to_thread(job.result, 20)
            it.door.open()
            assert await job.aresult(20) == "m" * 100_000

    asyncio.run(main())


def test_a_payload_that_somebody_has_removed_holds_its_job(values_url: str) -> None:
    """It is not lost, and no attempt is spent: the object may be put back, or the setting corrected."""

    async def main() -> None:
        app = Windlass("memory://", values=values_url)

        @app.task
        def length(text: str) -> int:
            return len(text)

        job = await length.aenqueue("p" * 100_000)
        assert app.values is not None
        key = f"p/windlass/{job.id}"
        document = await app.values.bucket.get(key, blocking=False)
        assert document is not None
        await app.values.remove_payload(job.id)
        async with app.worker():
            found = await seen(app, job.id, is_held)
            assert found.held is not None
            assert key in found.held.reason
            assert found.attempt == 0
            await app.values.bucket.put(key, document, blocking=False)
            assert await job.aresult(30) == 100_000
        await app.values.remove_results(job.id)
        await app.aclose()

    asyncio.run(main())


def test_a_result_that_somebody_has_removed_is_missing(values_url: str) -> None:
    async def main() -> None:
        app = Windlass("memory://", values=values_url)

        @app.task
        def make() -> str:
            return "m" * 100_000

        async with app.worker():
            job = await make.aenqueue()
            assert await job.aresult(20)
        assert app.values is not None
        await app.values.remove_results(job.id)
        with pytest.raises(ValueMissing, match="it was removed, or values= is another one here"):
            await job.aresult(20)
        await app.aclose()

    asyncio.run(main())


def test_a_worker_without_object_storage_leaves_such_a_job_to_others(values_url: str) -> None:
    async def main() -> None:
        app = Windlass("memory://", values=values_url)

        @app.task
        def length(text: str) -> int:
            return len(text)

        job = await length.aenqueue("p" * 100_000)
        values, app.connection.values = app.connection.values, None
        async with app.worker():
            found = await seen(app, job.id, is_held)
            assert found.held is not None
            assert "give its app the same values=" in found.held.reason
        app.connection.values = values
        async with app.worker():
            assert await job.aresult(20) == 100_000
        await app.aclose()

    asyncio.run(main())

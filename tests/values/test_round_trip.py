"""Large payloads and results go round, on every store, in a folder and in a bucket."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tests.values.seen import unknown

from windlass import Windlass, chain, current, group
from windlass.core.codec import is_reference
from windlass.core.job import JobDetail
from windlass.errors import PayloadTooLarge

LARGE = 10 * 2**20


def tasks_of(app: Windlass) -> dict[str, Any]:
    @app.task
    def make(count: int) -> str:
        return "m" * count

    @app.task
    async def amake(count: int) -> str:
        return "a" * count

    @app.task
    def length(text: str) -> int:
        return len(text)

    @app.task(run="inline")
    def inline(text: str) -> str:
        return text

    @app.task
    def together() -> int:
        return sum(len(result) for result in current.results())

    @app.task
    async def atogether() -> int:
        return sum([len(result) for result in await current.aresults()])

    @app.task
    def spawn(count: int) -> str:
        return current.spawn(length.call("s" * count))

    return {
        task.name.rpartition(".")[2]: task
        for task in (make, amake, length, inline, together, atogether, spawn)
    }


async def kept(app: Windlass, job: str) -> JobDetail:
    found = (await (await app.broker()).get([job]))[0]
    assert found is not None
    return found


def test_ten_mebibytes_go_round_on_every_store(store: Mapping[str, str], values_url: str) -> None:
    app = Windlass(**store, values=values_url)
    tasks = tasks_of(app)

    async def main() -> None:
        async with app.worker():
            made = await tasks["make"].aenqueue(LARGE)
            amade = await tasks["amake"].aenqueue(LARGE)
            measured = await tasks["length"].aenqueue("p" * LARGE)
            assert await made.aresult(60) == "m" * LARGE
            assert await amade.aresult(60) == "a" * LARGE
            assert await measured.aresult(60) == LARGE
            for job, large in ((made, "result"), (amade, "result"), (measured, "payload")):
                document = getattr(await kept(app, job.id), large)
                assert is_reference(document)
                assert len(document) < 200
        await app.aclose()

    asyncio.run(main())


def test_blocking_code_sends_and_reads_them(store: Mapping[str, str], values_url: str) -> None:
    app = Windlass(**store, values=values_url)
    tasks = tasks_of(app)

    async def main() -> None:
        async with app.worker():
            job = await asyncio.to_thread(tasks["inline"].enqueue, "x" * 1_000_000)
            assert await asyncio.to_thread(job.result, 60) == "x" * 1_000_000
        await app.aclose()

    asyncio.run(main())


def test_small_ones_stay_in_the_store(values_url: str) -> None:
    app = Windlass("memory://", values=values_url, values_over=1_000)
    tasks = tasks_of(app)

    async def main() -> None:
        async with app.worker():
            job = await tasks["inline"].aenqueue("x" * 900)
            assert await job.aresult(60) == "x" * 900
            assert (await kept(app, job.id)).result == b'{"v":1,"r":"' + b"x" * 900 + b'"}'
            assert await app.values.bucket.page("p/", "", 10) == []
            assert await app.values.bucket.page("r/", "", 10) == []
        await app.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("name", ["together", "atogether"])
def test_a_flow_reads_large_results_of_parents(values_url: str, name: str) -> None:
    app = Windlass("memory://", values=values_url)
    tasks = tasks_of(app)

    async def main() -> None:
        async with app.worker():
            makes = [tasks["make"].call(100_000) for _ in range(25)]  # more than one page of parents
            flow = await chain(group(makes), tasks[name].call()).aenqueue()
            assert await flow.jobs[-1].aresult(60) == 2_500_000
        await app.aclose()

    asyncio.run(main())


def test_children_may_have_large_payloads(values_url: str) -> None:
    app = Windlass("memory://", values=values_url)
    tasks = tasks_of(app)

    async def main() -> None:
        async with app.worker():
            parent = await tasks["spawn"].aenqueue(200_000)
            child = app.job(await parent.aresult(60))
            assert await child.aresult(60) == 200_000
            assert is_reference((await kept(app, child.id)).payload)
        await app.aclose()

    asyncio.run(main())


def test_many_calls_of_one_task_may_be_large(values_url: str) -> None:
    app = Windlass("memory://", values=values_url)
    length = tasks_of(app)["length"]

    async def main() -> None:
        async with app.worker():
            jobs = await app.aenqueue_many(length.call("x" * (100_000 if n % 2 else 10)) for n in range(60))
            assert [await job.aresult(60) for job in jobs] == [10, 100_000] * 30
        await app.aclose()

    asyncio.run(main())


def test_there_is_a_limit_with_object_storage_too(values_url: str) -> None:
    app = Windlass("memory://", values=values_url, max_value=2_000_000)
    tasks = tasks_of(app)
    assert tasks["length"].call("x" * 1_900_000)
    with pytest.raises(PayloadTooLarge, match="the limit is 2,000,000"):
        tasks["length"].call("x" * 2_000_000)
    app.close()


def test_what_stays_in_the_store_has_the_limit_of_the_store(values_url: str) -> None:
    """The payload of a schedule is no job's yet, and that of a replacing call may become another job's."""
    app = Windlass("memory://", values=values_url)
    length = tasks_of(app)["length"]
    with pytest.raises(PayloadTooLarge, match="payload of a schedule is kept in the store"):
        app.schedule("hourly", length.call("x" * 2_000_000), every="1h")
    with pytest.raises(PayloadTooLarge, match='mode="replace" is kept in the store'):
        length.using(key="one", mode="replace").enqueue("x" * 2_000_000)

    async def main() -> None:
        async with app.worker(concurrency=1):
            sender = length.using(key="one", delay=0.2)
            first = await sender.aenqueue("x" * 500_000)
            second = await sender.using(mode="replace").aenqueue("y" * 600_000)
            assert second.id == first.id
            assert await first.aresult(60) == 600_000
        await app.aclose()

    asyncio.run(main())


def test_a_resend_of_the_same_id_writes_the_same_bytes(values_url: str) -> None:
    app = Windlass("memory://", values=values_url)
    call = tasks_of(app)["length"].call("x" * 500_000)

    async def main() -> None:
        async with app.worker():
            first = (await app.asend((call,)))[0]
            second = (await app.asend((call,)))[0]
            assert second.id == first.id
            assert await first.aresult(60) == 500_000
            objects = await app.values.bucket.page("p/", "", 10)
            assert [stored.key for stored in objects] == [f"p/windlass/{first.id}"]
        await app.aclose()

    asyncio.run(main())


def test_a_front_door_carries_references(values_url: str) -> None:
    """What goes through a message broker is small: the payload is put before."""
    app = Windlass("memory://", values=values_url)
    job = tasks_of(app)["length"].call("x" * 500_000).job

    async def main() -> None:
        ((sent,),) = await app.values.sent([[job]], unknown)
        assert is_reference(sent.payload)
        assert await app.values.payload(job.id, sent.payload) == job.payload
        await app.aclose()

    asyncio.run(main())

"""Another object under the name of a payload or a result: it is not an outage, and nothing is replaced."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from tests.api.house import House
from tests.values.seen import seen

from windlass import Windlass, current
from windlass.admin.leases import Ending, Leases
from windlass.completed import complete
from windlass.core.job import NewJob, Receipt
from windlass.core.lease import Ask
from windlass.core.outcome import Outcome, Verdict
from windlass.core.state import State
from windlass.errors import ValueConflict
from windlass.values.values import Values

PLANTED = b"something else"


class Shop:
    """An app, and ways to send one of its jobs."""

    def __init__(self, values_url: str) -> None:
        self.app = Windlass("memory://", values=values_url)
        self.runs = 0

        @self.app.task
        async def repeat(text: str) -> str:
            self.runs += 1
            return text * 2

        self.repeat = repeat
        assert self.app.values is not None
        self.values: Values = self.app.values

    def job(self, text: str, like: NewJob | None = None) -> NewJob:
        job = self.repeat.call(text).job
        return job if like is None else msgspec.structs.replace(job, id=like.id)

    async def blocking(self, job: NewJob) -> Receipt:
        return (await asyncio.to_thread(self.app.connection.enqueue, [[job]]))[0][0]

    async def coalesced(self, job: NewJob) -> Receipt:
        return (await self.app.connection.aenqueue([job]))[0]

    async def sent(self, job: NewJob) -> Receipt:
        return (await self.app.connection.send([[job]]))[0][0]

    async def plant(self, key: str) -> None:
        assert await self.values.bucket.put(key, PLANTED, blocking=False)


@pytest.mark.parametrize("how", ["blocking", "coalesced", "sent"])
def test_another_payload_of_a_known_job_gets_the_answer_of_the_store(values_url: str, how: str) -> None:
    async def main() -> None:
        shop = Shop(values_url)
        send: Callable[[NewJob], Awaitable[Receipt]] = getattr(shop, how)
        small, large = shop.job("small"), shop.job("x" * 100_000)
        await send(small)
        wanted = await send(shop.job("other", like=small))
        await send(large)
        found = await send(shop.job("y" * 100_000, like=large))
        assert (found.status, found.of) == (wanted.status, large.id if wanted.of else None)
        async with shop.app.worker():
            assert await shop.app.job(large.id).aresult(20) == "x" * 200_000, "the first one counts"
        await shop.app.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("how", ["blocking", "coalesced", "sent"])
def test_another_payload_under_an_id_that_the_store_does_not_know_is_a_conflict(
    values_url: str, how: str
) -> None:
    async def main() -> None:
        shop = Shop(values_url)
        send: Callable[[NewJob], Awaitable[Receipt]] = getattr(shop, how)
        job = shop.job("x" * 100_000)
        await shop.plant(f"p/windlass/{job.id}")
        with pytest.raises(ValueConflict, match="has something else under p/windlass/"):
            await send(job)
        assert (await (await shop.app.broker()).get([job.id]))[0] is None
        assert await shop.values.bucket.get(f"p/windlass/{job.id}", blocking=False) == PLANTED
        await shop.app.aclose()

    asyncio.run(main())


def test_a_producer_behind_a_front_door_is_told_of_a_conflict_and_asks_no_store(values_url: str) -> None:
    app = Windlass("redis://127.0.0.1:1", front="kafka://127.0.0.1:1/front", values=values_url)

    @app.task
    def repeat(text: str) -> str:
        return text * 2

    async def main() -> None:
        assert app.values is not None
        job = repeat.call("x" * 100_000).job
        await app.values.bucket.put(f"p/windlass/{job.id}", PLANTED, blocking=False)
        with pytest.raises(ValueConflict):
            await app.connection.send([[job]])
        with pytest.raises(ValueConflict):
            await asyncio.to_thread(app.connection.enqueue, [[job]])
        await app.aclose()

    asyncio.run(main())


def test_over_http_a_conflict_is_no_outage_and_the_next_request_goes_through(values_url: str) -> None:
    house = House("memory://", values=values_url)
    assert house.app.values is not None
    bucket = house.app.values.bucket

    async def story() -> None:
        planted = house.app.new_id()
        await bucket.put(f"p/windlass/{planted}", PLANTED, blocking=False)
        ids, house.app.new_id = house.app.new_id, lambda: planted  # type: ignore[method-assign,assignment]
        body = {"task": "send", "payload": {"to": "x" * 100_000}}
        async with house.open() as client:
            how = {"json": body, "headers": {"Idempotency-Key": "once"}}
            for key in ("once", "twice"):
                answer = await client.post("/v1/jobs", json=body, headers={"Idempotency-Key": key})
                assert (answer.status_code, answer.json()["type"]) == (
                    409,
                    "urn:windlass:object-storage-conflict",
                )
                assert "retry-after" not in answer.headers
            house.app.new_id = ids  # type: ignore[method-assign]
            assert (await client.post("/v1/jobs", **how)).status_code == 201

    house.run(story)


def test_over_http_another_result_under_the_fence_of_a_run_charges_nobody(values_url: str) -> None:
    house = House("memory://", values=values_url)
    assert house.app.values is not None
    bucket = house.app.values.bucket

    async def story() -> None:
        jobs = {(await house.send.aenqueue("ada")).id for _ in range(2)}
        broker = await house.app.broker()
        leases = Leases(house.app, broker)
        ask = Ask(queues=("mail",), slots=2, limit=2, visibility=60_000_000)

        async def settled() -> list[Verdict]:
            handed = (await leases.claim(ask)).handed
            if not taken:
                job, fence = handed[0].lease.job, handed[0].lease.fence
                await bucket.put(f"r/windlass/{job}/{fence}", PLANTED, blocking=False)
            taken.extend(each.lease.job for each in handed)
            endings = [
                Ending(
                    job=each.lease.job,
                    fence=each.lease.fence,
                    outcome=Outcome.DONE,
                    result="m" * 100_000,
                    has_result=True,
                )
                for each in handed
            ]
            return [answer.verdict for answer in await leases.settle(endings)]

        taken: list[str] = []
        assert await settled() == [Verdict.STALE, Verdict.APPLIED]
        (back,) = await broker.get(taken[:1])
        assert back is not None
        assert (back.state, back.attempt) == (State.READY, 0)
        assert await settled() == [Verdict.APPLIED]
        assert (set(taken), len(taken)) == (jobs, 3)
        for job in jobs:
            assert await house.app.job(job).aresult(20) == "m" * 100_000

    house.run(story)


@pytest.mark.parametrize("where", ["loop", "thread"])
def test_another_result_under_the_fence_of_a_run_charges_nobody(values_url: str, where: str) -> None:
    """As after a store was restored from a backup: its fences come again."""

    async def main() -> None:
        shop = Shop(values_url)
        fences: list[int] = []

        def key() -> str:
            fences.append(current.fence)
            return f"r/windlass/{current.job.id}/{current.fence}"

        def make(text: str) -> str:
            if not fences:
                assert complete(shop.values.bucket.put(key(), PLANTED, blocking=True))
            else:
                key()
            return text * 2

        async def amake(text: str) -> str:
            if not fences:
                await shop.plant(key())
            else:
                key()
            return text * 2

        task = shop.app.task(name="make")(amake if where == "loop" else make)
        async with shop.app.worker():
            job = await task.aenqueue("x" * 100_000)
            assert await job.aresult(20) == "x" * 200_000
        done = await seen(shop.app, job.id, lambda job: job.state is State.DONE)
        assert (done.attempt, done.crashes, done.error) == (1, 0, None)
        assert fences == [fences[0], done.fence]
        await shop.app.aclose()

    asyncio.run(main())

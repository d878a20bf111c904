"""The reader of the log: one at a time, nothing left out and nothing twice when one dies in between."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from windlass import Windlass
from windlass.admin.webhooks import Webhooks as Hooks
from windlass.broker.contract import Broker
from windlass.clock import ManualClock
from windlass.core.lease import Ask
from windlass.core.outcome import Error, Outcome
from windlass.core.query import JobQuery
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Kind, Subject
from windlass.core.settlement import Settlement
from windlass.core.units import MINUTE, SECOND
from windlass.core.webhook import QUEUE
from windlass.errors import StoreUnavailable
from windlass.worker.turn import HELD, LATER, SOON
from windlass.worker.webhooks import Webhooks


class Bench:
    """An app, a worker's part by hand, and readers that are stepped by hand."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.app = Windlass("memory://", webhooks=True, namespace="hooks", clock=self.clock)

        @self.app.task
        def add(a: int) -> int:
            return a

        self.add = add
        self.tags: tuple[str, ...] = ()
        self._seq = 0

    def run(self, story: Callable[[Broker], Awaitable[None]]) -> None:
        async def whole() -> None:
            try:
                async with asyncio.timeout(30):
                    await story(await self.app.broker())
            finally:
                await self.app.aclose()

        asyncio.run(whole())

    async def hook(self, broker: Broker, **options: Any) -> None:
        given: dict[str, Any] = {"queue": "default", "url": "https://example.com/", "on": ["done", "dead"]}
        await Hooks(self.app, broker).put("all", **given | options, by="me")

    async def end(self, broker: Broker, count: int, outcome: Outcome = Outcome.DONE) -> list[str]:
        add = self.add.using(tags=self.tags)
        jobs = await self.app.aenqueue_many(add.call(number) for number in range(count))
        await broker.beat([Beat(session="s", open=SessionInfo(queues=("default",), slots=count))])
        self._seq += 1
        ask = Ask(session="s", seq=self._seq, queues=("default",), slots=count, limit=count)
        leases = (await broker.claim(ask)).leases
        assert len(leases) == count
        error = Error(type="ValueError", message="x" * 5_000) if outcome is Outcome.DEAD else None
        await broker.settle(
            [Settlement(job=each.job, fence=each.fence, outcome=outcome, error=error) for each in leases]
        )
        return [job.id for job in jobs]

    async def told(self, broker: Broker) -> list[str]:
        """The jobs of which messages were made, in order of their ids."""
        page = await broker.list(JobQuery(queue=QUEUE), limit=1_000)
        found = [job for job in await broker.get([job.id for job in page.jobs]) if job is not None]
        return sorted(msgspec.json.decode(job.payload)["k"]["event"]["job"]["id"] for job in found)

    def reader(self, broker: Any) -> Webhooks:
        return Webhooks(broker, self, "hooks")

    # the pace of readers: that of the store

    def now(self) -> float:
        return self.clock.now() / SECOND

    def jitter(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nobody waits here, not {seconds} s")


def test_every_end_is_told_once_over_many_pages() -> None:
    bench = Bench()

    async def story(broker: Broker) -> None:
        await bench.hook(broker)
        jobs = await bench.end(broker, 450)
        reader = bench.reader(broker)
        pauses = [await reader.step() for _ in range(4)]
        assert pauses == [0.0, 0.0, SOON, SOON]
        assert await bench.told(broker) == sorted(jobs)

    bench.run(story)


def test_without_anybody_to_tell_nothing_is_read() -> None:
    bench = Bench()

    async def story(broker: Broker) -> None:
        await bench.end(broker, 3)
        assert await bench.reader(broker).step() == LATER
        assert not await broker.documents(Kind.READER)

    bench.run(story)


def test_one_of_many_reads_and_another_takes_over_when_it_is_gone() -> None:
    bench = Bench()

    async def story(broker: Broker) -> None:
        await bench.hook(broker)
        first, second = bench.reader(broker), bench.reader(broker)
        assert await first.step() == SOON
        jobs = await bench.end(broker, 2)
        assert await second.step() == LATER
        assert await bench.told(broker) == []
        bench.clock.advance(HELD + MINUTE)
        assert await second.step() == SOON
        assert await bench.told(broker) == sorted(jobs)
        assert await first.step() == LATER  # it comes back and leaves it alone

    bench.run(story)


def test_a_reader_that_dies_before_it_has_kept_its_place_is_repeated_without_a_second_message() -> None:
    bench = Bench()

    class Dying:
        """Enqueues, and is then gone."""

        def __init__(self, broker: Broker) -> None:
            self._broker = broker
            self._enqueued = False

        def __getattr__(self, name: str) -> Any:
            return getattr(self._broker, name)

        async def enqueue(self, groups: Any) -> Any:
            self._enqueued = True
            return await self._broker.enqueue(groups)

        async def override(self, subject: Subject, body: Any, expect: int) -> Any:
            if self._enqueued:
                raise StoreUnavailable("gone")
            return await self._broker.override(subject, body, expect)

    async def story(broker: Broker) -> None:
        await bench.hook(broker)
        jobs = await bench.end(broker, 5)
        with pytest.raises(StoreUnavailable):
            await bench.reader(Dying(broker)).step()
        bench.clock.advance(HELD + MINUTE)
        await bench.reader(broker).step()
        assert await bench.told(broker) == sorted(jobs)

    bench.run(story)


def test_who_asks_while_a_page_is_read_is_told_of_what_happens_after() -> None:
    """Those who are to be told are read after the events, not before."""
    bench = Bench()

    class Late:
        """Between its look at the log and its look at the webhooks one more is added, and something ends."""

        def __init__(self, broker: Broker) -> None:
            self._broker = broker
            self.jobs: list[str] = []

        def __getattr__(self, name: str) -> Any:
            return getattr(self._broker, name)

        async def events(self, after: Any, limit: int, timeout: float) -> Any:
            if not self.jobs:
                await Hooks(bench.app, self._broker).put(
                    "new", queue="default", url="https://example.org/", on=["done"], by="me"
                )
                self.jobs = await bench.end(self._broker, 1)
            return await self._broker.events(after, limit, timeout)

    async def story(broker: Broker) -> None:
        bench.app.queue("other")
        await (await bench.app.broker()).counts()
        await bench.hook(broker, queue="other")
        late = Late(broker)
        await bench.reader(late).step()
        assert await bench.told(broker) == late.jobs

    bench.run(story)


def test_what_was_dropped_from_the_log_is_said(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()

    class Trimmed:
        def __init__(self, broker: Broker) -> None:
            self._broker = broker

        def __getattr__(self, name: str) -> Any:
            return getattr(self._broker, name)

        async def events(self, after: Any, limit: int, timeout: float) -> Any:
            return msgspec.structs.replace(await self._broker.events(after, limit, timeout), gap=True)

    async def story(broker: Broker) -> None:
        await bench.hook(broker)
        jobs = await bench.end(broker, 1)
        await bench.reader(Trimmed(broker)).step()
        assert await bench.told(broker) == jobs

    with caplog.at_level(logging.WARNING, "windlass.worker"):
        bench.run(story)
    assert any("dropped from the log" in record.message for record in caplog.records)


def test_an_older_end_and_one_that_was_not_asked_for_are_not_told() -> None:
    bench = Bench()

    async def story(broker: Broker) -> None:
        await bench.end(broker, 1)
        bench.clock.advance(1_000)
        await bench.hook(broker, on=["dead"])
        await bench.end(broker, 1)
        dead = await bench.end(broker, 1, Outcome.DEAD)
        await bench.reader(broker).step()
        assert await bench.told(broker) == dead
        page = await broker.list(JobQuery(queue=QUEUE))
        (job,) = await broker.get([page.jobs[0].id])
        assert job is not None
        error = msgspec.json.decode(job.payload)["k"]["event"]["job"]["error"]
        assert len(error["message"]) == 2_000

    bench.run(story)


def test_a_message_has_the_tags_of_the_job_whose_error_it_tells() -> None:
    """Who forgets a tag forgets it, too."""
    bench = Bench()
    bench.tags = ("user:42", "eu")

    async def story(broker: Broker) -> None:
        await bench.hook(broker)
        await bench.end(broker, 1, Outcome.DEAD)
        await bench.reader(broker).step()
        (message,) = (await broker.list(JobQuery(queue=QUEUE))).jobs
        assert message.tags == ("user:42", "eu")

    bench.run(story)


def test_a_replayed_job_is_told_of_again_under_another_id() -> None:
    bench = Bench()

    async def story(broker: Broker) -> None:
        from windlass.core.operate import Target  # noqa: PLC0415

        await bench.hook(broker)
        (job,) = await bench.end(broker, 1, Outcome.DEAD)
        reader = bench.reader(broker)
        await reader.step()
        await broker.replay([Target(job)])
        ask = Ask(session="s", seq=2, queues=("default",), slots=1, limit=1)
        (lease,) = (await broker.claim(ask)).leases
        await broker.settle([Settlement(job=job, fence=lease.fence, outcome=Outcome.DONE)])
        await reader.step()
        assert await bench.told(broker) == [job, job]

    bench.run(story)


def test_a_store_that_is_full_keeps_the_place_until_it_is_not(caplog: pytest.LogCaptureFixture) -> None:
    from windlass.core.job import Receipt, Refusal, Status  # noqa: PLC0415
    from windlass.errors import StoreError  # noqa: PLC0415

    bench = Bench()

    class Full:
        def __init__(self, broker: Broker) -> None:
            self._broker = broker

        def __getattr__(self, name: str) -> Any:
            return getattr(self._broker, name)

        async def enqueue(self, groups: Any) -> Any:
            return [
                [Receipt(Status.REFUSED, job.id, None, Refusal.STORE_FULL) for job in group]
                for group in groups
            ]

    async def story(broker: Broker) -> None:
        await bench.hook(broker)
        jobs = await bench.end(broker, 2)
        with pytest.raises(StoreError, match="store full"):
            await bench.reader(Full(broker)).step()
        bench.clock.advance(HELD + MINUTE)
        await bench.reader(broker).step()
        assert await bench.told(broker) == sorted(jobs)

    bench.run(story)

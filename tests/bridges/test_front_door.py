"""The front door: `enqueue` is answered by the message broker, and what went through it is taken once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.bridges.fake_sources import FakeLogSource, Topic, TopicSink

from windlass import Windlass, chain
from windlass.admin.service import Service
from windlass.bridges import addresses
from windlass.bridges.front import FrontMapper, front_message
from windlass.bridges.message import Message
from windlass.core.bridging import decoded
from windlass.core.intake import FRONT, PLACE_HEADER, IntakeStatus, status_of
from windlass.core.job import Edge, NewJob, Refusal, Status
from windlass.core.outcome import Error
from windlass.core.query import FIRST_PAGE, JobQuery
from windlass.core.state import State
from windlass.core.take import Source, Take, jobs_of
from windlass.core.units import HOUR, SECOND
from windlass.errors import BridgeUnavailable, EnqueueRefused, InvalidOption, JobNotFound, ResultTimeout
from windlass.pace import MachinePace
from windlass.worker.documents import document_of
from windlass.worker.host import Machine
from windlass.worker.intakes import Intakes

URL = "kafka://localhost/front"
AWAY = "postgresql://nobody@127.0.0.1:1/nothing"


class Door:
    """A topic that front doors publish to, and that intakes read."""

    def __init__(self) -> None:
        self.topic = Topic("0", "1", "2")
        self.sink = TopicSink(self.topic)

    async def open_sink(self, _address: object) -> TopicSink:
        if self.topic.away:
            raise BridgeUnavailable("the message broker is away")
        self.sink.closed = False
        return self.sink

    async def open_source(self, _address: object) -> FakeLogSource:
        return FakeLogSource(self.topic, MachinePace())

    @property
    def messages(self) -> list[Message]:
        return [message for part in self.topic.kept.values() for message in part]


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Door:
    door = Door()
    adapter = SimpleNamespace(open_sink=door.open_sink, open_source=door.open_source)
    monkeypatch.setattr(addresses, "_adapter", lambda _address: adapter)
    return door


@pytest.fixture
def app(door: Door, tmp_path: Any) -> Iterator[Windlass]:
    app = Windlass(f"sqlite:///{tmp_path / 'windlass.db'}", front=URL, namespace="doors")

    @app.task(queue="work")
    def double(n: int) -> int:
        return 2 * n

    @app.task(queue="work")
    def add(a: int, b: int) -> int:
        return a + b

    yield app
    app.close()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await holds():  # noqa: ASYNC110 - it is the store that is asked
            await asyncio.sleep(0.01)


def test_a_producer_does_not_notice_that_the_store_is_away(door: Door) -> None:
    app = Windlass(AWAY, front=URL, namespace="doors")

    @app.task
    def double(n: int) -> int:
        return 2 * n

    job = double.enqueue(1)
    assert job.created
    app.enqueue_many(double.call(n) for n in range(2_500))
    asyncio.run(_async_too(double))
    assert len(door.messages) == 1 + 3 + 50
    assert {message.headers["windlass-namespace"] for message in door.messages} == {"doors"}
    app.close()
    assert door.sink.closed
    double.enqueue(2)  # opened anew
    app.close()


async def _async_too(double: Any) -> None:
    jobs = await asyncio.gather(*(double.aenqueue(n) for n in range(50)))
    assert len({job.id for job in jobs}) == 50


def test_what_went_through_it_is_run_and_handles_follow(app: Windlass) -> None:
    double = app.tasks["double"]
    job = double.enqueue(4)
    assert job.state() is Status.ACCEPTED
    with pytest.raises(ResultTimeout):
        job.result(timeout=0.05)
    with pytest.raises(JobNotFound, match="still at the front door"):
        job.cancel()

    async def work() -> None:
        async with app.worker():
            assert await job.aresult(timeout=30) == 8
            assert await job.astate() is State.DONE
            late = await double.aenqueue(5)
            assert await late.aresult(timeout=30) == 10

    asyncio.run(work())
    assert job.state() is State.DONE


def test_a_flow_goes_through_it_whole_and_parents_outside_of_it_are_refused(
    app: Windlass, door: Door
) -> None:
    double, add = app.tasks["double"], app.tasks["add"]
    first = double.enqueue(1)
    with pytest.raises(EnqueueRefused, match="own group"):
        add.using(after=[first]).enqueue(1, 2)
    flow = chain(double.call(1), add.call(1, 2)).enqueue()
    assert len(door.messages) == 2

    async def work() -> None:
        async with app.worker():
            assert (await flow.afinish(30)).finished == 2

    asyncio.run(work())


def test_a_lost_acknowledgement_makes_no_second_job(app: Windlass, door: Door) -> None:
    double = app.tasks["double"]
    door.sink.loses = 2
    job = double.enqueue(4)
    assert len(door.messages) == 3
    other = double.enqueue(5)

    async def work() -> None:
        async with app.worker():
            assert await other.aresult(timeout=30) == 10
            assert await job.aresult(timeout=30) == 8
            broker = await app.broker()

            async def all_taken() -> bool:
                return sum(int(offset.at) for offset in await broker.offsets()) == 4

            await until(all_taken)
            assert len((await broker.list(JobQuery(), FIRST_PAGE, 100)).jobs) == 2

    asyncio.run(work())


def test_a_message_broker_that_is_away_is_tried_again_and_then_told(door: Door) -> None:
    app = Windlass(AWAY, front=URL, resend_window=0.4)

    @app.task
    def double(n: int) -> int:
        return 2 * n

    door.topic.away = True
    with pytest.raises(BridgeUnavailable, match="front door kafka://localhost/front did not take the jobs"):
        double.enqueue(1)
    door.topic.away = False
    assert double.enqueue(1).created
    app.close()


def test_large_groups_stop_at_the_backlog_of_the_intake(app: Windlass, door: Door) -> None:
    """Each message is a thousand jobs, and all of them could be read at once."""
    double = app.tasks["double"]
    for _ in range(30):
        app.enqueue_many(double.call(n) for n in range(1_000))

    async def work() -> None:
        broker = await app.broker()

        async def ready() -> int:
            return sum(row.count for row in (await broker.counts()).rows if row.state is State.READY)

        async def waits() -> bool:
            document = await document_of(broker, status_of(FRONT))
            status = None if document is None else decoded(document.override, IntakeStatus)
            return status is not None and any(
                "reading waits" in each.waits_for for each in status.partitions.values()
            )

        intakes = Intakes(
            app,
            broker,
            declare=lambda: app.declare(broker),
            pace=MachinePace(),
            host=Machine(),
            open_source=door.open_source,
        )
        running = asyncio.create_task(intakes.run())
        await until(waits)
        assert 10_000 <= await ready() <= 13_000  # one more from each partition
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await app.aclose()

    asyncio.run(work())


def test_what_is_too_large_is_refused_at_the_door_and_the_rest_is_sent(app: Windlass, door: Door) -> None:
    door.sink.largest = 10_000

    @app.task
    def keep(text: str) -> None: ...

    with pytest.raises(EnqueueRefused, match="the front door takes 10,000"):
        keep.enqueue("x" * 20_000)
    receipts = app.connection.enqueue(
        [[keep.call("x" * 20_000).job], [keep.call("x").job], [keep.call("y" * 9_999).job]]
    )
    assert [group[0].status for group in receipts] == [Status.REFUSED, Status.ACCEPTED, Status.REFUSED]
    assert len(door.messages) == 1


def test_a_group_that_no_store_would_take_in_one_step_is_refused_at_the_door(
    app: Windlass, door: Door
) -> None:
    """Some message brokers would take it, and it could never be taken from there."""
    door.sink.largest = 64 << 20
    large = NewJob("", "double", payload=b"x" * (1 << 20))
    for group in (
        [msgspec.structs.replace(large, id=app.new_id()) for _ in range(9)],
        [NewJob(app.new_id(), "double", payload=b"{}") for _ in range(1_001)],
    ):
        (receipts,) = app.connection.enqueue([group])
        assert {(receipt.status, receipt.refusal) for receipt in receipts} == {
            (Status.REFUSED, Refusal.GROUP_TOO_LARGE)
        }
    assert door.messages == []


def test_a_front_door_is_for_one_namespace_and_its_url_is_checked(door: Door) -> None:
    app = Windlass("memory://", front=URL)
    with pytest.raises(InvalidOption, match="front door serves one namespace"):
        app.queue("mail", namespace="other")
    with pytest.raises(InvalidOption, match=r"front: no message broker is known by \"carrier://\""):
        Windlass("memory://", front="carrier://pigeon")
    assert app.config.broker_options().resend_window == HOUR
    assert "secret" not in repr(Windlass("memory://", front="kafka://me:secret@localhost/front").config)


def test_a_job_for_a_queue_that_nobody_declared_is_a_dead_letter_with_its_options(
    app: Windlass, door: Door
) -> None:
    job = app.tasks["double"].using(queue="nowhere", lane="acme").enqueue(1)

    async def taken() -> bool:
        return await job.astate() is not Status.ACCEPTED

    async def work() -> None:
        async with app.worker():
            await until(taken)
            (detail,) = await (await app.broker()).get([job.id])
            assert detail is not None
            assert (detail.state, detail.queue, detail.lane) == (State.DEAD, "work", "acme")
            assert detail.error is not None
            assert "nowhere" in detail.error.message

    asyncio.run(work())


def mapper(now: int) -> FrontMapper:
    return FrontMapper("doors", {}, lambda message: message.id or "fresh", lambda: now)


JOB = "0192e4a0-5b3c-7abc-8def-000000000001"


def arrived(at: int | None, namespace: str = "doors", **options: Any) -> Message:
    return message_of(
        NewJob(**{"id": JOB, "task": "double", "payload": b"{}", **options}), namespace=namespace, at=at
    )


def message_of(*jobs: NewJob, namespace: str = "doors", at: int | None = 1) -> Message:
    sent = front_message(namespace, jobs)
    return Message(body=sent.body, headers=sent.headers, id=sent.id, place="0/7", at=at)


def test_durations_count_from_when_the_message_broker_took_the_message() -> None:
    now = 1_000 * SECOND
    (job,) = mapper(now).map(arrived(now - 10 * SECOND, delay=60 * SECOND, expires=90 * SECOND)).jobs
    assert (job.delay, job.run_at, job.expires) == (0, now + 50 * SECOND, 80 * SECOND)
    (job,) = mapper(now).map(arrived(now - 100 * SECOND, expires=90 * SECOND)).jobs
    assert job.expires == 1  # over, and the store says so
    (job,) = mapper(now).map(arrived(now + 5 * SECOND, delay=60 * SECOND)).jobs
    assert job.run_at == now + 60 * SECOND  # a message broker whose clock is ahead
    (job,) = mapper(now).map(arrived(now + SECOND // 2, delay=60 * SECOND, expires=9 * SECOND)).jobs
    assert (job.run_at, job.expires) == (now + 60 * SECOND + SECOND // 2, 9 * SECOND)
    (job,) = mapper(now).map(arrived(None, delay=60 * SECOND)).jobs
    assert job.run_at == now + 60 * SECOND
    assert job.headers == {"windlass-intake": FRONT, PLACE_HEADER: "0/7"}


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Message(body=b"{}", id="m"), "no message of a front door"),
        (arrived(1, namespace="others"), "another namespace"),
        (Message(body=b"\xc1", id="m", headers=arrived(1).headers), "no jobs"),
        (Message(body=None, id="m", headers=arrived(1).headers), "no jobs"),
        (arrived(1, priority=5_000), "priority"),
        (arrived(1, task="windlass.webhook"), "reserved"),
        (arrived(1, id="j1"), "job id"),
        (arrived(1, task="no\x00name"), "task name"),
        (arrived(1, lane="\x00"), "control character"),
        (arrived(1, key="k" * 1_000), "200"),
        (arrived(1, headers={"a": "\x00"}), "control character"),
        (arrived(1, tags=("",)), "tag"),
        (arrived(1, flow="\x00"), "flow name"),
        (arrived(1, after=(Edge("x"),)), "job id"),
        (arrived(1, delay=2**63), "delay"),
        (arrived(1, expires=2**63), "expires"),
        (arrived(1, run_at=-1), "run_at"),
        (arrived(1, revision=2**63), "revision"),
        (arrived(1, key="k", window=2**63), "window"),
        (message_of(*[NewJob(JOB, "double", payload=b"x" * (5 << 20))] * 2), "8388608 bytes"),
        (message_of(*[NewJob(JOB, "double")] * 1_001), "1000 jobs"),
    ],
)
def test_what_no_producer_of_this_app_has_sent_is_a_dead_letter(message: Message, why: str) -> None:
    mapped = mapper(1).map(message)
    assert isinstance(mapped.error, Error)
    assert why in mapped.error.message
    (job,) = mapped.jobs
    assert not job.task.startswith("windlass.webhook")
    taken = jobs_of(
        Take(
            source=Source("front/0"), expect=None, then="1", groups=[mapped.jobs], dead={job.id: mapped.error}
        )
    )
    assert len(taken) == 1  # a store takes it


def test_the_service_says_that_a_job_may_still_be_at_the_front_door(app: Windlass) -> None:
    async def ask() -> None:
        service = await Service.of(app)
        accepted = await service.enqueueing.call("double", b'{"n": 1}', {})
        assert accepted.created
        with pytest.raises(JobNotFound, match="still at the front door"):
            await service.jobs.one(accepted.id)
        await app.aclose()

    asyncio.run(ask())

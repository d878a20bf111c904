"""Tasks that Celery workers run: a run hands its job over, and is done when the message broker has it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from tests.bridges.relaying import Taken

from windlass import RetryPolicy, Windlass
from windlass.bridges import celery
from windlass.bridges.addresses import Address, address_of
from windlass.bridges.message import Message, Outgoing
from windlass.core.state import State
from windlass.errors import BridgeRefused, BridgeUnavailable, InvalidOption
from windlass.worker import forwarding
from windlass.worker.forwarding import celery_queue

URL = "amqp://user:secret@host/celery"
QUICK = RetryPolicy(max_attempts=3, base=0, jitter="none")


class Brokers:
    """Message brokers by address, opened as tasks open them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened: list[str] = []
        self.taken = Taken()
        self.fails: list[Exception] = []
        monkeypatch.setattr(forwarding, "open_sink", self._open)

    async def _open(self, address: Address) -> Taken:
        self.opened.append(address.shown)
        if self.fails:
            raise self.fails.pop()
        return self.taken

    @property
    def calls(self) -> list[celery.CeleryCall]:
        """What a Celery worker would read."""
        return [celery.read(_arrived(each)) for each in self.taken.got]


def _arrived(message: Outgoing) -> Message:
    return Message(
        body=message.body,
        headers=message.headers,
        table={**message.headers, **message.table},
        properties=message.properties,
        priority=message.priority,
    )


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    return Brokers(monkeypatch)


def with_worker(app: Windlass, story: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        try:
            async with asyncio.timeout(30), app.worker(concurrency=4):
                await story()
        finally:
            await app.aclose()

    asyncio.run(whole())


def test_a_job_is_done_when_its_message_was_taken(brokers: Brokers) -> None:
    app = Windlass("memory://")
    add = app.celery_task("proj.tasks.add", URL)

    async def story() -> None:
        job = await add.using(
            lane="acme", priority=7, headers={"traceparent": "00-1", "windlass-x": "y"}
        ).aenqueue(2, b=[3, "x"])
        assert await job.aresult(timeout=20) is None
        (message,) = brokers.taken.got
        assert (message.id, message.to, message.key) == (job.id, "celery", "acme")
        (call,) = brokers.calls
        assert (call.id, call.task, call.args, call.kwargs) == (
            job.id,
            "proj.tasks.add",
            [2],
            {"b": [3, "x"]},
        )
        assert (call.priority, call.expires, call.eta, call.retries) == (7, None, None, 0)
        assert call.headers == {"traceparent": "00-1"}

    with_worker(app, story)


def test_all_tasks_of_one_url_share_a_connection_which_is_closed_in_the_end(brokers: Brokers) -> None:
    app = Windlass("memory://")
    tasks = [app.celery_task(f"proj.tasks.{name}", URL) for name in "abc"]
    other = app.celery_task("proj.tasks.d", "amqp://user@host/other")

    async def story() -> None:
        jobs = [await task.aenqueue() for task in (*tasks, *tasks, other)]
        for job in jobs:
            await job.aresult(timeout=20)
        assert sorted(brokers.opened) == ["amqp://host/celery", "amqp://host/other"]
        assert sorted({each.to for each in brokers.taken.got}) == ["celery", "other"]

    with_worker(app, story)
    assert brokers.taken.closed == 2


def test_while_the_message_broker_is_away_a_job_is_tried_again_under_its_id(brokers: Brokers) -> None:
    app = Windlass("memory://")
    add = app.celery_task("proj.tasks.add", URL, retry=QUICK)
    brokers.fails = [BridgeUnavailable("away")]
    troubles = [BridgeRefused("there is no queue")]
    brokers.taken.after = lambda _: troubles.pop() if troubles else None

    async def story() -> None:
        job = await add.using(expires=3600).aenqueue(1)
        await job.aresult(timeout=20)
        (detail,) = await (await app.broker()).get([job.id])
        assert detail is not None
        assert detail.attempt == 3
        first, second = brokers.calls
        assert (first.id, second.id) == (job.id, job.id)
        assert second.expires == detail.expires_at
        assert first.expires == second.expires

    with_worker(app, story)


def test_a_first_try_says_when_the_job_expires(brokers: Brokers) -> None:
    app = Windlass("memory://")
    add = app.celery_task("proj.tasks.add", URL, expires=3600)

    async def story() -> None:
        job = await add.aenqueue(1)
        await job.aresult(timeout=20)
        (detail,) = await (await app.broker()).get([job.id])
        (call,) = brokers.calls
        assert detail is not None
        assert call.expires is not None
        assert detail.expires_at is not None
        assert call.priority is None
        assert abs(call.expires - detail.expires_at) < 10_000_000  # by the clocks of two

    with_worker(app, story)


def test_what_the_message_broker_can_never_take_is_a_dead_letter(brokers: Brokers) -> None:
    app = Windlass("memory://")
    add = app.celery_task("proj.tasks.add", URL)
    brokers.taken.trouble = lambda _: BridgeRefused("the message is too large", (0,))

    async def story() -> None:
        job = await add.aenqueue(1)
        while await job.astate() is not State.DEAD:  # noqa: ASYNC110 - bounded by the timeout around it
            await asyncio.sleep(0.01)
        (detail,) = await (await app.broker()).get([job.id])
        assert detail is not None
        assert detail.error is not None
        assert detail.error.message == "the message is too large"
        assert detail.attempt == 1

    with_worker(app, story)


@pytest.mark.parametrize(
    ("url", "to"),
    [
        ("amqp://host/celery", "celery"),
        ("amqp://host/vhost/mail", "mail"),
        ("amqp://host/tasks?key=mail.high", ""),
        ("redis://host:6379/0?list=celery", ""),
    ],
)
def test_the_queue_is_that_of_the_url(url: str, to: str) -> None:
    assert celery_queue(address_of(url), "add").to == to


def test_its_document_tells_where_it_goes_without_secrets() -> None:
    app = Windlass("memory://")
    add = app.celery_task("proj.tasks.add", URL, name="add", queue="sums")
    assert (add.name, add.options.queue) == ("add", "sums")
    assert add.__doc__ == "Hands its jobs to Celery workers, as proj.tasks.add, by amqp://host/celery."
    assert "secret" not in repr(add)


def test_what_goes_to_celery_is_not_taken_from_there() -> None:
    app = Windlass("memory://")
    app.celery_task("proj.tasks.add", URL)
    with pytest.raises(InvalidOption, match="would come back"):
        app.intake(URL, format="celery", tasks=["proj.tasks.add"])


@pytest.mark.parametrize(
    ("name", "url"),
    [("add up", URL), ("windlass.add", URL), ("add", "http://host/celery"), ("add", "amqp")],
)
def test_names_and_urls_that_cannot_be_are_refused(name: str, url: str) -> None:
    with pytest.raises(InvalidOption):
        Windlass("memory://").celery_task(name, url)


def test_a_body_is_what_celery_writes_itself(brokers: Brokers) -> None:
    from celery import Celery  # noqa: PLC0415 - only here

    app = Windlass("memory://")
    add = app.celery_task("proj.tasks.add", URL)
    peer = Celery("proj", broker="memory://")
    theirs: Any = peer.amqp.as_task_v2("an-id", "proj.tasks.add", args=(1,), kwargs={"b": "x"})

    async def story() -> None:
        await (await add.aenqueue(1, b="x")).aresult(timeout=20)
        (ours,) = brokers.taken.got
        args, kwargs, embed = msgspec.json.decode(ours.body or b"")
        assert (args, kwargs, embed) == (list(theirs.body[0]), theirs.body[1], theirs.body[2])
        needed = {
            "lang",
            "task",
            "id",
            "root_id",
            "parent_id",
            "group",
            "eta",
            "expires",
            "retries",
            "timelimit",
        }
        assert needed <= ours.table.keys() & theirs.headers.keys()

    with_worker(app, story)

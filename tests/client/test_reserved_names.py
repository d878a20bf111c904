"""Names that begin with "windlass." are Windlass's own: no program registers or enqueues them."""

from types import SimpleNamespace
from typing import Any

import pytest

from windlass import Windlass, chain, current
from windlass.client.task import Call
from windlass.core.job import NewJob, check_new_job
from windlass.core.webhook import QUEUE, TASK
from windlass.errors import InvalidOption

REFUSED = 'begin with "windlass."'


@pytest.fixture
def app() -> Windlass:
    return Windlass("memory://", webhooks=True)


def nothing() -> None:
    """Do nothing."""


@pytest.mark.parametrize("name", [TASK, "windlass.mine", "windlass."])
def test_no_task_takes_a_reserved_name(app: Windlass, name: str) -> None:
    with pytest.raises(InvalidOption, match=REFUSED):
        app.task(name=name)(nothing)
    with pytest.raises(InvalidOption, match=REFUSED):
        app.external(name)
    with pytest.raises(InvalidOption, match=REFUSED):
        app.task(name=name, concurrency=1)(nothing)


@pytest.mark.parametrize("webhooks", [True, False])
@pytest.mark.parametrize("name", [QUEUE, "windlass.mine"])
def test_no_queue_takes_a_reserved_name(name: str, webhooks: bool) -> None:
    app = Windlass("memory://", webhooks=webhooks)
    send = app.task(name="send")(nothing)
    attempts: list[Any] = [
        lambda: app.queue(name),
        lambda: app.queue(name, namespace="other"),
        lambda: app.lane(name, "a", weight=2),
        lambda: app.task(name="other", queue=name)(nothing),
        lambda: app.external("other", queue=name),
        lambda: send.using(queue=name),
        lambda: send.call().using(queue=name),
        lambda: send.using(callback="https://example.com", queue=name),
    ]
    for attempt in attempts:
        with pytest.raises(InvalidOption, match=REFUSED):
            attempt()
    assert [queue for queue in app.queues if queue != QUEUE] == ["default"]
    assert list(app.tasks) == ["send"]


def test_an_alert_may_watch_the_deliveries_where_there_are_some(app: Windlass) -> None:
    app.alert("hooks", queue=QUEUE, dead=1)
    with pytest.raises(InvalidOption, match=REFUSED):
        Windlass("memory://").alert("hooks", queue=QUEUE, dead=1)


def test_the_task_that_delivers_is_none_that_can_be_sent(app: Windlass) -> None:
    assert TASK not in app.tasks
    assert TASK in app.runnable
    assert not hasattr(app.runnable[TASK], "enqueue")
    assert app.signature_of(TASK) is not None  # its secrets are masked all the same


def test_every_door_checks_a_new_job() -> None:
    for job in (NewJob(id="", task=TASK), NewJob(id="", task="send", queue=QUEUE)):
        with pytest.raises(InvalidOption, match=REFUSED):
            check_new_job(job)


def test_no_run_spawns_one(app: Windlass) -> None:
    refusals: list[str] = []

    @app.task
    def parent() -> None:
        for job in (
            NewJob(id=app.new_id(), task=TASK),
            NewJob(id=app.new_id(), task="parent", queue=QUEUE),
        ):
            try:
                current.spawn(SimpleNamespace(job=job, namespace=None))  # type: ignore[arg-type]
            except InvalidOption as error:
                refusals.append(str(error))

    async def story() -> None:
        async with app.worker(concurrency=1):
            await (await parent.aenqueue()).aresult(timeout=30)
        await app.aclose()

    import asyncio  # noqa: PLC0415

    asyncio.run(story())
    assert len(refusals) == 2
    assert all(REFUSED in each for each in refusals)


def test_no_schedule_has_one(app: Windlass) -> None:
    send = app.task(name="send")(nothing)
    for job in (NewJob(id="", task=TASK), NewJob(id="", task="send", queue=QUEUE)):
        with pytest.raises(InvalidOption, match=REFUSED):
            app.schedule("s", Call(send, job), every=60)


def test_no_flow_has_one(app: Windlass) -> None:
    send = app.task(name="send")(nothing)
    with pytest.raises(InvalidOption, match=REFUSED):
        chain(send.call(), send.using(queue=QUEUE).call())

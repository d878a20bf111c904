"""What an app declares is told to the store once, and what is not in force is said in one line."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from windlass import Rate, Windlass
from windlass.broker.contract import Broker
from windlass.broker.observed import Observation
from windlass.core.job import NewJob
from windlass.core.settings import Declaration, Kind, LaneSettings, QueueSettings, Subject
from windlass.errors import InvalidOption

DECLARES = [Declaration(subject=Subject(Kind.QUEUE, "theirs"), body=QueueSettings(), app="other")]


def documents(app: Windlass, kind: Kind) -> dict[str, Any]:
    async def read() -> dict[str, Any]:
        found = await (await app.connection.broker()).documents(kind)
        return {f"{one.subject.name}/{one.subject.lane}".rstrip("/"): one.declared for one in found}

    return app.connection.run(read())


def declared(app: Windlass) -> list[list[str]]:
    """Notes what is declared from now on."""
    noted: list[list[str]] = []

    @app.observe
    def _(seen: Observation) -> None:
        if seen.verb == "declare":
            noted.append([one.subject.name for one in seen.args[0]])

    return noted


def another_app_declares(app: Windlass, *declarations: Declaration) -> None:
    """Before this app does, whatever the store."""

    async def declare(broker: Broker) -> None:
        await broker.declare(declarations)

    tell = app._declared.tell

    async def told(broker: Broker, *, since: int) -> None:
        await declare(broker)
        await tell(broker, since=since)

    app._declared.tell = told


def test_it_is_told_once_and_again_when_there_is_more(app: Windlass) -> None:
    noted = declared(app)

    @app.task(queue="mail")
    def first() -> None: ...

    for _ in range(3):
        first.enqueue()
        asyncio.run(first.aenqueue())
    assert noted == [["default", "mail"]]

    @app.task(queue="late")
    def second() -> None: ...

    app.queue("mail", concurrency=3)
    asyncio.run(second.aenqueue())
    first.enqueue()
    assert noted == [["default", "mail"], ["late", "mail"]]
    assert documents(app, Kind.QUEUE)["mail"] == QueueSettings(concurrency=3)


def test_saying_the_same_again_tells_nothing(app: Windlass) -> None:
    noted = declared(app)
    for _ in range(2):
        app.queue("mail", rate="5/s")
        documents(app, Kind.QUEUE)
    assert noted == [["default", "mail"]]


def test_everything_that_can_be_said_of_queues_and_lanes(app: Windlass) -> None:
    app.queue(
        "mail",
        concurrency=50,
        rate="100/s",
        lane_concurrency=2,
        lane_rate=Rate(5),
        order="lane",
        bands={10: 80, 0: 20},
        sequence=False,
        emit="all",
        retention="1h",
        retention_count=10,
        result_ttl=0,
        dead_retention=60,
    )
    app.queue("old", age_step="1m", concurrency=None)
    app.lane("mail", "acme", weight=3, concurrency=1, rate="1/s")
    mail = documents(app, Kind.QUEUE)["mail"]
    assert (mail.concurrency, mail.rate, mail.lane_rate, mail.bands) == (
        50,
        Rate(100),
        Rate(5),
        {10: 80, 0: 20},
    )
    assert (mail.retention, mail.result_ttl, mail.dead_retention) == (3_600_000_000, 0, 60_000_000)
    assert documents(app, Kind.QUEUE)["old"] == QueueSettings(age_step=60_000_000)
    assert documents(app, Kind.LANE) == {"mail/acme": LaneSettings(weight=3, concurrency=1, rate=Rate(1))}


def test_a_task_s_queue_may_be_given_a_layout_when_it_has_jobs_already(app: Windlass) -> None:
    """As when a second process starts: on the way there is never a queue without it."""

    @app.task(queue="mail")
    def send() -> None: ...

    app.queue("mail", sequence=True)
    send.enqueue()
    app.connection._process.shared.told = 0  # tell all of it again, to a queue that is in use
    assert send.enqueue().created


def test_a_layout_that_cannot_change_is_said_at_every_call_until_it_can(app: Windlass) -> None:
    @app.task(queue="mail")
    def send() -> None: ...

    job = send.enqueue()
    app.queue("mail", sequence=True)
    for _ in range(2):
        with pytest.raises(InvalidOption, match=r'^queue "mail": order, age_step and sequence cannot change'):
            send.enqueue()
        with pytest.raises(InvalidOption, match='queue "mail"'):
            asyncio.run(send.aenqueue())
    app.queue("mail")
    assert job.cancel()
    app.queue("mail", sequence=True)
    assert send.enqueue().created


def test_a_queue_of_another_app_can_be_used_and_not_changed(new_app: Callable[..., Windlass]) -> None:
    app = new_app()

    @app.task(queue="theirs")
    def send() -> None: ...

    another_app_declares(app, *DECLARES)
    assert send.enqueue().created
    app.queue("theirs", concurrency=2)
    for _ in range(2):
        with pytest.raises(
            InvalidOption, match=r'^queue "theirs" belongs to another app; give this one a queue'
        ):
            send.enqueue()


def test_a_lane_of_another_app_cannot_be_changed(app: Windlass) -> None:
    lane = Declaration(subject=Subject(Kind.LANE, "theirs", "acme"), body=LaneSettings(weight=2), app="other")
    another_app_declares(app, *DECLARES, lane)
    app.lane("theirs", "acme", weight=3)
    with pytest.raises(InvalidOption, match='lane "acme" of queue "theirs" belongs to another app'):
        documents(app, Kind.QUEUE)


def test_a_second_app_on_the_same_store(new_app: Callable[..., Windlass], url: str) -> None:
    if url.startswith("memory"):
        pytest.skip("each app in memory has a store of its own")
    first, second = new_app(name="first"), new_app(name="second")
    for app in (first, second):
        app.task(queue="mail", name="send")(print)
    first.queue("mail", concurrency=2)
    job = first.tasks["send"].enqueue()
    assert second.tasks["send"].enqueue().created
    assert second.job(job.id).state() == "ready"
    assert documents(second, Kind.QUEUE)["mail"] == QueueSettings(concurrency=2)


def test_an_older_revision_changes_nothing_and_says_nothing(app: Windlass) -> None:
    newer = Declaration(
        subject=Subject(Kind.QUEUE, "mail"), body=QueueSettings(concurrency=9), app="app", revision=5
    )
    another_app_declares(app, newer)
    app.queue("mail", concurrency=1)
    assert documents(app, Kind.QUEUE)["mail"] == QueueSettings(concurrency=9)


def test_a_store_that_fails_to_declare_is_told_again(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task(queue="mail")
    def send() -> None: ...

    tell, failures = app._declared.tell, [RuntimeError("torn wire")]

    async def failing(broker: Broker, *, since: int) -> None:
        if failures:
            raise failures.pop()
        await tell(broker, since=since)

    monkeypatch.setattr(app._declared, "tell", failing)
    with pytest.raises(RuntimeError, match="torn wire"):
        send.enqueue()
    assert send.enqueue().created


# --- limits of a task ---------------------------------------------------------------------------------------


def test_limits_of_a_task_are_those_of_its_queue(app: Windlass) -> None:
    app.task(name="fetch", concurrency=2, rate="5/s", lane_concurrency=1, lane_rate="1/s")(print)
    said = QueueSettings(concurrency=2, rate=Rate(5), lane_concurrency=1, lane_rate=Rate(1))
    assert documents(app, Kind.QUEUE)["fetch"] == said
    with pytest.raises(InvalidOption, match='queue "fetch" belongs to task "fetch"; set its limits there'):
        app.queue("fetch", concurrency=9)


def test_limits_of_a_task_do_not_replace_those_of_a_queue(app: Windlass) -> None:
    app.queue("fetch", concurrency=9)
    with pytest.raises(InvalidOption, match=r'task "fetch": its limits .* set them with app.queue\(\)'):
        app.task(name="fetch", rate="5/s")(print)
    with pytest.raises(InvalidOption, match=r'on queue "mail" instead'):
        app.task(name="send", queue="mail", rate="5/s")(print)
    assert "fetch" not in app.tasks


def test_a_task_that_is_refused_leaves_no_queue_behind(app: Windlass) -> None:
    def bad(number: type[NewJob]) -> None: ...

    with pytest.raises(InvalidOption, match='parameter "number"'):
        app.task(bad, concurrency=3)  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert set(documents(app, Kind.QUEUE)) == {"default"}
    assert not app.tasks

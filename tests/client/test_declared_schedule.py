"""Schedules are declared in code, with the store's time and the whole call."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from windlass import Windlass
from windlass.broker.contract import Broker
from windlass.clock import ManualClock
from windlass.core.cron import Cron
from windlass.core.schedule import Every, Once
from windlass.core.specification import Specification, decode_specification
from windlass.core.timetable import NewSchedule, ScheduleView
from windlass.core.units import MINUTE, SECOND
from windlass.errors import InvalidOption

NOW = 1_800_000_000 * SECOND  # 2027-01-15 08:00 UTC


@pytest.fixture
def app(new_app: Callable[..., Windlass]) -> Windlass:
    return new_app(clock=ManualClock(NOW))


def kept(app: Windlass) -> dict[str, ScheduleView]:
    async def read() -> dict[str, ScheduleView]:
        page = await (await app.connection.broker()).schedules()
        return {view.name: view for view in page.schedules}

    return app.connection.run(read())


def test_a_schedule_holds_its_rule_and_its_call(app: Windlass) -> None:
    @app.task(queue="mail", priority=3)
    def send(to: str) -> None: ...

    call = send.using(lane="acme", tags=["nightly"]).call("ops")
    app.schedule(
        "nightly", call, cron="0 3 * * *", tz="Europe/Paris", jitter="1m", catch_up="one", overlap="skip"
    )
    app.schedule("often", call, every="5m", start=datetime(2027, 2, 1, tzinfo=UTC))
    app.schedule("once", call, at=datetime(2027, 1, 16, tzinfo=UTC))
    found = {name: decode_specification(view.spec) for name, view in kept(app).items()}
    assert found["nightly"].rule == Cron("0 3 * * *", "Europe/Paris")
    assert (found["nightly"].jitter, found["nightly"].catch_up, found["nightly"].overlap) == (
        MINUTE,
        "one",
        "skip",
    )
    assert found["often"].rule == Every(5 * MINUTE)
    assert found["once"].rule == Once(NOW + 16 * 3_600 * SECOND)
    job = found["often"].job("the id")
    assert (job.id, job.task, job.queue, job.lane, job.priority) == ("the id", "send", "mail", "acme", 3)
    assert (job.payload, job.tags) == (call.job.payload, ("nightly",))


def test_the_first_tick_is_counted_by_the_store_s_clock(app: Windlass) -> None:
    send: Any = app.task(name="send")(print)
    app.schedule("often", send.call(), every="7m")
    app.schedule("later", send.call(), every="7m", start=datetime(2027, 2, 1, tzinfo=UTC))
    app.schedule("past", send.call(), at=datetime(2020, 1, 1, tzinfo=UTC))
    found = {name: view.next_at for name, view in kept(app).items()}
    assert found["often"] == NOW - NOW % (7 * MINUTE) + 7 * MINUTE
    assert found["later"] is not None
    assert found["later"] >= 1_801_440_000 * SECOND
    assert found["past"] is None


def test_the_same_schedule_again_keeps_its_tick(app: Windlass) -> None:
    send: Any = app.task(name="send")(print)
    app.schedule("often", send.call(1, sep="-"), every="7m")
    before = kept(app)
    clock: Any = app.connection._clock
    clock.advance(20 * MINUTE)
    app.connection._process.shared.told = 0
    assert kept(app) == before


def test_a_schedule_of_another_app(app: Windlass) -> None:
    send: Any = app.task(name="send")(print)
    app.schedule("nightly", send.call(), every=60)
    tell = app._declared.tell

    async def told(broker: Broker, *, since: int) -> None:
        await broker.declare_schedule(NewSchedule(name="nightly", spec=b"x", next_at=None, app="other"))
        await tell(broker, since=since)

    app._declared.tell = told
    for _ in range(2):
        with pytest.raises(
            InvalidOption, match='schedule "nightly" belongs to another app; give this one another'
        ):
            send.enqueue()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "a schedule takes one of cron=, every= and at=, got none of them"),
        ({"cron": "@daily", "every": 5}, "a schedule takes one of cron=, every= and at=, got cron and every"),
        ({"cron": "61 * * * *"}, "cron expression"),
        ({"cron": "@daily", "tz": "Mars/Olympus"}, "Mars/Olympus"),
        ({"cron": 5}, "a cron rule takes text"),
        ({"every": 60, "tz": "UTC"}, "tz is the zone of a cron rule; every= has none, got 'UTC'"),
        ({"every": 0.1}, "every must be at least 1 second, got 0.1"),
        ({"every": -1}, "every must not be negative"),
        ({"at": "tomorrow"}, "at must be a datetime that says its zone"),
        ({"at": datetime(2030, 1, 1)}, "at must be a datetime that says its zone"),  # noqa: DTZ001
        ({"every": 60, "start": 5}, "start must be a datetime"),
        ({"every": 60, "jitter": "much"}, "jitter must be seconds"),
        ({"every": 60, "catch_up": "some"}, 'catch_up must be one of "skip", "one", "all"'),
        ({"every": 60, "overlap": "no"}, 'overlap must be one of "allow", "skip", "queue"'),
        ({"every": 60, "cap": 0}, "cap must be a whole number"),
        ({"every": 60, "colour": "red"}, "unknown option 'colour'; options are: at, cap, catch_up, cron"),
    ],
    ids=str,
)
def test_a_bad_schedule_is_refused_in_one_line(options: dict[str, Any], words: str) -> None:
    app = Windlass("memory://")
    send: Any = app.task(name="send")(print)
    with pytest.raises(InvalidOption) as caught:
        app.schedule("nightly", send.call(), **options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert kept(app) == {}
    app.close()


def test_what_cannot_be_scheduled() -> None:
    app = Windlass("memory://")
    send: Any = app.task(name="send")(print)
    soon = datetime.now(UTC) + timedelta(hours=1)
    for call, words in (
        (send, r"a schedule takes a call, as in send.call\(...\), not <Task send>"),
        (send.using(run_at=soon).call(), "cannot have run_at"),
        (send.using(after="0190163d-8694-739b-aea5-966c26f8ad91").call(), "cannot have parents"),
    ):
        with pytest.raises(InvalidOption, match=words):
            app.schedule("nightly", call, every=60)
    with pytest.raises(InvalidOption, match="must end after it starts"):
        app.schedule("nightly", send.call(), every=60, start=soon, end=soon)
    app.schedule("nightly", send.call(), every=60)
    with pytest.raises(InvalidOption, match='two schedules called "nightly"'):
        app.schedule("nightly", send.call(), every=90)
    with pytest.raises(InvalidOption, match="schedule name"):
        app.schedule("a b", send.call(), every=90)


def test_a_specification_that_is_not_one() -> None:
    for document in (b"", b"{}", b"\xff", b'{"rule":{"rule":"every","interval":1},"call":{"task":"t"}}'):
        with pytest.raises(Exception, match="the specification of a schedule is not readable"):
            decode_specification(document)
    assert Specification.__struct_fields__[:2] == ("rule", "call")

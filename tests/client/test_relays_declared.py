"""Relays as an app declares them."""

import asyncio
from typing import Any

import msgspec
import pytest

from windlass import Windlass
from windlass.client import namespaces
from windlass.config import EVENTS_KEPT_FOR_RELAYS
from windlass.core.event import FROM_START
from windlass.core.operate import Target
from windlass.core.relay import RelaySettings, declared_as
from windlass.core.settings import Kind
from windlass.errors import InvalidOption

URL = "amqp://user:secret@host/ends?key=jobs.{queue}.{state}"


def settings_of(**options: Any) -> RelaySettings:
    app = Windlass("memory://")
    app.relay(URL, **options)
    (relay,) = app.relays.values()
    return relay.settings


def test_a_relay_is_declared_without_its_secrets() -> None:
    app = Windlass("memory://")

    @app.task
    def ship() -> None: ...

    app.relay(URL, queues=["mail"], tasks=[ship], on=["dead", "done"], name="out", start="last")

    async def story() -> None:
        (document,) = await (await app.broker()).documents(Kind.RELAY)
        assert document.subject == declared_as("out")
        assert isinstance(document.declared, bytes)
        assert b"secret" not in document.declared
        assert msgspec.json.decode(document.declared, type=RelaySettings) == RelaySettings(
            name="out",
            url="amqp://host/ends",
            queues=("mail",),
            tasks=(ship.name,),
            on=("dead", "done"),
            to="jobs.{queue}.{state}",
            start="last",
        )
        await app.aclose()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on": "lost"}, "on"),
        ({"on": []}, "names no end"),
        ({"start": "now"}, "start"),
        ({"payload": "no"}, "payload must be True or False"),
        ({"to": "jobs.{secret}"}, "{secret} is no place"),
        ({"format": "celery"}, "format"),
    ],
    ids=str,
)
def test_a_relay_that_has_no_meaning_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        settings_of(**options)
    assert words in str(caught.value)


def test_two_relays_of_one_name_are_refused() -> None:
    app = Windlass("memory://")
    app.relay(URL)
    with pytest.raises(InvalidOption, match='two relays called "ends"'):
        app.relay(URL, on="done")


# --- the event log of an app with relays --------------------------------------------------------------------


async def ends_kept(app: Windlass, count: int, queue: str = "default") -> int:
    """How many of so many ends are in the event log of a namespace."""
    add = app.tasks["add"].using(queue=queue)
    place = app.place_of(queue)
    broker = await place.broker()
    jobs = [job.id for job in await place.aenqueue_many(add.call() for _ in range(count))]
    await broker.cancel([Target(job) for job in jobs])
    await broker.sweep(limit=1_000)
    found = len((await broker.events(FROM_START, 1_000, 0.0)).items)
    await app.aclose()
    return found


def app_with_add(**settings: Any) -> Windlass:
    app = Windlass("memory://", **settings)
    app.task(name="add")(lambda: None)
    return app


def test_queues_write_events_for_a_relay_which_may_be_far_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    assert EVENTS_KEPT_FOR_RELAYS == 1_000_000
    monkeypatch.setattr(namespaces, "EVENTS_KEPT_FOR_RELAYS", 20)
    app = app_with_add()
    assert asyncio.run(ends_kept(app, 30)) == 0
    app.relay(URL)
    assert asyncio.run(ends_kept(app, 30)) == 20


def test_what_was_said_of_the_event_log_counts() -> None:
    app = app_with_add(events_kept=7)
    app.relay(URL)
    assert asyncio.run(ends_kept(app, 30)) == 7


def test_the_event_log_of_another_namespace_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "EVENTS_KEPT_FOR_RELAYS", 7)
    app = app_with_add()
    app.relay(URL)
    app.queue("hot", namespace="hot", emit="final")
    assert asyncio.run(ends_kept(app, 30, "hot")) == 30
    app.relay(URL, queues=["hot"])
    assert asyncio.run(ends_kept(app, 30, "hot")) == 7

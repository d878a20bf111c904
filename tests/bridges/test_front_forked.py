"""Front doors of programs that fork: all that was accepted is in the message broker."""

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.bridges.kafka_ground import Kafka
from tests.bridges.nats_server import jetstream, make_stream
from tests.bridges.rabbits import Client, new_name
from tests.bridges.sqs_server import make_queue
from tests.client.test_dropped import ran
from tests.client.test_forked import Place, program

from windlass import Windlass
from windlass.bridges.kafka.sink import ID_HEADER
from windlass.errors import InvalidOption
from windlass.verify.brokers.elasticmq import OwnElasticMQ
from windlass.verify.brokers.nats import OwnNats
from windlass.verify.brokers.rabbitmq import Rabbit


class Door(NamedTuple):
    """A message broker, and the ids of the messages in it, of which there must be so many at least."""

    url: str
    ids: Callable[[int], set[str]]


async def _ids_in_stream(server: OwnNats, stream: str) -> set[str]:
    async with jetstream(server) as js:
        last = (await js.stream_info(stream)).state.last_seq
        found = [await js.get_msg(stream, number) for number in range(1, last + 1)]
    return {(message.headers or {})["Nats-Msg-Id"] for message in found}


@pytest.fixture(params=["nats", "kafka"])
def door(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Door:
    if request.param == "nats":
        server: OwnNats = request.getfixturevalue("nats_server")
        stream = asyncio.run(make_stream(server))
        url = f"{server.url()}/{stream}?subject={stream}.jobs"
        door = Door(url, lambda _: asyncio.run(_ids_in_stream(server, stream)))
    else:
        kafka: Kafka = request.getfixturevalue("kafka")
        topic = kafka.topic()
        door = Door(
            kafka.url(topic), lambda count: {each.headers[ID_HEADER] for each in kafka.read(topic, count)}
        )
    monkeypatch.setenv("WINDLASS_FRONT", door.url)
    return door


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Nobody opens it."""
    return Place(f"sqlite:///{tmp_path / 'windlass.db'}", "forked")


def test_a_parent_that_stays(door: Door, place: Place) -> None:
    with program(place, "stays") as running:
        running.hear("ready", 2)
        running.tell_children()
        assert running.end() == 0
        ids = running.ids()
        assert len(ids) == 1 + 2 + 41 + 41 + 2 * 40
        assert door.ids(len(ids)) == set(ids)


@pytest.mark.parametrize("what", ["closes", "exits", "is_killed", "forks_in_a_thread"])
def test_a_parent_that_goes(door: Door, place: Place, what: str) -> None:
    with program(place, what) as running:
        running.hear("ready", 2)
        running.tell_parent()
        if what == "closes":
            running.hear("closed")
        else:
            assert running.end_of_parent() == (-signal.SIGKILL if what == "is_killed" else 0)
        before = running.ids()
        running.tell_children()
        assert running.end() in (0, -signal.SIGKILL)
        ids = running.ids()
        assert len(ids) == len(before) + 2 * 40
        assert door.ids(len(ids)) == set(ids)


def test_forks_while_threads_send_and_connect(door: Door, place: Place) -> None:
    with program(place, "forks_meanwhile", "10", "no") as running:
        assert running.end() == 0
        ids = running.ids()
        assert door.ids(len(ids)) >= set(ids)


def test_a_first_use_imports_nothing(door: Door) -> None:
    """The child of a fork in the middle of an import would wait for that module without end."""
    assert imported(door.url) == "[]\n"


def test_a_first_use_of_sqs_imports_nothing(sqs: OwnElasticMQ) -> None:
    queue = asyncio.run(make_queue(sqs))
    assert imported(sqs.url().format(queue=queue)) == "[]\n"


def test_a_first_use_of_rabbitmq_imports_nothing(rabbit: Rabbit) -> None:
    async def made() -> str:
        client = Client(rabbit)
        name = await client.queue(new_name("imports"))
        await client.close()
        return name

    queue = asyncio.run(made())
    assert imported(f"{rabbit.url()}/{queue}") == "[]\n"


def imported(front: str) -> str:
    """What a program imports when it sends its first jobs through a front door."""
    script = """
    import asyncio, sys
    from windlass import Windlass
    app = Windlass("sqlite:///windlass.db", namespace="imports", front=sys.argv[1])

    @app.task
    def send(number: int) -> None: ...

    async def on_loop():
        await send.aenqueue(2)

    known = set(sys.modules)
    send.enqueue(1)
    asyncio.run(on_loop())
    print(sorted(set(sys.modules) - known))
    app.close()
    """
    return ran(script, front)


def test_a_missing_extra_is_told_when_the_app_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "windlass.bridges.nats.adapter", raising=False)
    monkeypatch.delitem(sys.modules, "windlass.bridges.nats.link", raising=False)
    monkeypatch.setitem(sys.modules, "nats", None)
    with pytest.raises(InvalidOption, match="nats:// needs the package nats: pip install"):
        Windlass("memory://", front="nats://localhost/JOBS")

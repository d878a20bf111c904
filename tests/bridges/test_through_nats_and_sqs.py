"""A job goes in by the front door, runs, and its end comes out by a relay: through NATS, and through SQS."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from tests.bridges.nats_server import make_stream, reading
from tests.bridges.sqs_server import make_queue
from tests.bridges.sqs_server import reading as receiving

from windlass.bridges.message import Message
from windlass.config import PREFIX
from windlass.loading import load_app
from windlass.verify.brokers.elasticmq import OwnElasticMQ
from windlass.verify.brokers.nats import OwnNats

APP = """
from windlass import Windlass

app = Windlass("sqlite:///through.db", front={front!r})

@app.task
def ship(order: int) -> str:
    return f"order {{order}} is shipped"

app.relay({relay!r}, on="done", name="ends")
"""


def write_app(folder: Path, front: str, relay: str) -> None:
    (folder / "through.py").write_text(APP.format(front=front, relay=relay))


async def told(folder: Path, read: Callable[[], Awaitable[Message]]) -> Message:
    """Enqueue while no worker runs, start one, and wait for the end of the job."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    app = load_app("through:app")
    job = await app.tasks["ship"].aenqueue(7)
    assert await job.astate() == "accepted"
    command = [sys.executable, "-m", "windlass", "worker", "through:app", "--processes", "1"]
    worker = await asyncio.create_subprocess_exec(*command, cwd=folder, env=environment)
    try:
        message = await read()
        assert await job.aresult(timeout=10) == "order 7 is shipped"
    finally:
        worker.terminate()
        await worker.wait()
        await app.aclose()
    end = msgspec.json.decode(message.body or b"")
    assert (end["type"], end["job"]["id"], end["job"]["state"]) == ("job.done", job.id, "done")
    assert message.id is not None
    assert message.id.startswith(job.id)
    return message


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "through", raising=False)


def test_through_nats(nats_server: OwnNats, tmp_path: Path) -> None:
    async def story() -> None:
        front = await make_stream(nats_server, subjects=["front.door"])
        ends = await make_stream(nats_server)
        url = nats_server.url()
        write_app(tmp_path, f"{url}/{front}", f"{url}/{ends}?key={ends}.{{queue}}.{{state}}")

        async def read() -> Message:
            async with reading(nats_server, ends) as source:
                log = await source.open(ends)
                for _ in range(60):
                    if found := await log.read("1", 10, 1):
                        return found[0]
            raise AssertionError("nothing was told")

        message = await told(tmp_path, read)
        assert message.subject == f"{ends}.default.done"

    asyncio.run(story())


def test_through_sqs(sqs: OwnElasticMQ, tmp_path: Path) -> None:
    async def story() -> None:
        front, ends = await make_queue(sqs), await make_queue(sqs, fifo=True)
        write_app(tmp_path, sqs.url().format(queue=front), sqs.url().format(queue=ends))

        async def read() -> Message:
            async with receiving(sqs, ends) as queue:
                for _ in range(60):
                    if found := await queue.receive(10, 1):
                        return found[0]
            raise AssertionError("nothing was told")

        await told(tmp_path, read)

    asyncio.run(story())

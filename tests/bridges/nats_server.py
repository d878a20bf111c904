"""A real NATS for tests, and what tests do to its streams with the client of NATS itself."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js import JetStreamContext
from tests.bridges.servers import without

from windlass.bridges.addresses import address_of
from windlass.bridges.nats.adapter import open_sink, open_source
from windlass.bridges.source import LogSource, QueueSource
from windlass.verify.brokers.nats import OwnNats
from windlass.verify.brokers.places import Missing
from windlass.verify.processes import Starter


@pytest.fixture(scope="session")
def nats_server(starter: Starter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnNats]:
    """One node. A test that stops it starts it again."""
    try:
        server = OwnNats(starter, tmp_path_factory.mktemp("nats"))
    except Missing as missing:
        without(missing)
    server.start()
    yield server
    server.close()


@contextlib.asynccontextmanager
async def jetstream(server: OwnNats, **options: Any) -> AsyncGenerator[JetStreamContext]:
    """A client of the test's own."""
    client = await nats.connect(server.url(), allow_reconnect=False, **options)
    try:
        yield client.jetstream()
    finally:
        await client.close()


async def make_stream(server: OwnNats, name: str = "", **settings: Any) -> str:
    """Make a stream that takes the subjects below its name; its name."""
    name = name or f"S{uuid.uuid4().hex[:12]}"
    async with jetstream(server) as js:
        await js.add_stream(name=name, **{"subjects": [f"{name}.>"]} | settings)
    return name


async def put(
    server: OwnNats, subject: str, bodies: Sequence[bytes], headers: Mapping[str, str] | None = None
) -> None:
    """Publish messages, one after the other, and wait for each."""
    async with jetstream(server) as js:
        for body in bodies:
            await js.publish(subject, body, headers=dict(headers) if headers else None)


@contextlib.asynccontextmanager
async def reading(server: OwnNats, stream: str, options: str = "") -> AsyncGenerator[Any]:
    """A source."""
    source: LogSource | QueueSource = await open_source(address_of(f"{server.url()}/{stream}{options}"))
    try:
        yield source
    finally:
        await source.close()


@contextlib.asynccontextmanager
async def writing(server: OwnNats, stream: str, options: str = "") -> AsyncGenerator[Any]:
    """A sink."""
    sink = await open_sink(address_of(f"{server.url()}/{stream}{options}"))
    try:
        yield sink
    finally:
        await sink.close()


def in_loop(story: Any) -> Any:
    """Run a story to its end."""
    return asyncio.run(story)


def folder(tmp_path: Path, name: str) -> Path:
    """One that is there."""
    (tmp_path / name).mkdir(exist_ok=True)
    return tmp_path / name

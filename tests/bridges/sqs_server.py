"""A stand-in for SQS, and what tests do to its queues with a client of their own."""

import contextlib
import uuid
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any

import pytest
from aiobotocore.session import get_session
from tests.bridges.servers import without

from windlass.bridges.addresses import Address, address_of
from windlass.bridges.sqs.adapter import open_sink, open_source
from windlass.bridges.sqs.queue import Queue
from windlass.bridges.sqs.sink import QueueSink
from windlass.verify.brokers.elasticmq import OwnElasticMQ
from windlass.verify.brokers.places import Missing
from windlass.verify.processes import Starter

_SESSION = get_session()  # it remembers what it has read of SQS


@pytest.fixture(scope="session")
def sqs(starter: Starter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnElasticMQ]:
    """ElasticMQ. A test that stops it starts it again."""
    try:
        server = OwnElasticMQ(starter, tmp_path_factory.mktemp("elasticmq"))
    except Missing as missing:
        without(missing)
    server.start()
    yield server
    server.close()


@contextlib.asynccontextmanager
async def client(endpoint: str) -> AsyncGenerator[Any]:
    """A client of the test's own."""
    making = _SESSION.create_client(
        "sqs",
        region_name="elasticmq",
        endpoint_url=endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    async with making as it:
        yield it


async def make_queue(server: OwnElasticMQ, name: str = "", *, fifo: bool = False, **attributes: str) -> str:
    """Make a queue; its name."""
    name = (name or f"q{uuid.uuid4().hex[:12]}") + (".fifo" if fifo and not name else "")
    if fifo:
        attributes["FifoQueue"] = "true"
    async with client(server.endpoint) as it:
        await it.create_queue(QueueName=name, Attributes=attributes)
    return name


async def put(
    server: OwnElasticMQ, queue: str, bodies: Sequence[str], group: str = "", **more: Mapping[str, Any]
) -> list[str]:
    """Send messages, one after the other; their ids."""
    ids: list[str] = []
    async with client(server.endpoint) as it:
        url = (await it.get_queue_url(QueueName=queue))["QueueUrl"]
        for body in bodies:
            fifo = {"MessageGroupId": group, "MessageDeduplicationId": uuid.uuid4().hex} if group else {}
            sent = await it.send_message(QueueUrl=url, MessageBody=body, **fifo, **more)
            ids.append(sent["MessageId"])
    return ids


def url_of(server: OwnElasticMQ, queue: str, more: str = "") -> Address:
    """The address of a queue."""
    return address_of(server.url().format(queue=queue) + more)


@contextlib.asynccontextmanager
async def reading(server: OwnElasticMQ, queue: str, more: str = "") -> AsyncGenerator[Queue]:
    """A source."""
    source = await open_source(url_of(server, queue, more))
    try:
        yield source
    finally:
        await source.close()


@contextlib.asynccontextmanager
async def writing(server: OwnElasticMQ, queue: str) -> AsyncGenerator[QueueSink]:
    """A sink."""
    sink = await open_sink(url_of(server, queue))
    try:
        yield sink
    finally:
        await sink.close()

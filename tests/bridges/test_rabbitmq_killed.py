"""Intakes of a queue are killed, its message broker is, and the store goes away: each message with an id is
one job, none is lost and none is two.
"""

import asyncio
import contextlib
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import aiormq
import pytest
from tests.bridges.killed_intakes import PATIENCE, Intakes, SomeStore, any_store, store_of_kind
from tests.bridges.rabbits import QUORUM, Client, new_name

from windlass.conformance.bridges.ground import Sent
from windlass.verify.brokers.rabbitmq import Rabbit

__all__ = ["any_store"]


def messages_of(count: int, draw: random.Random) -> list[Sent]:
    """Messages with numbers, of which some are sent twice: their producer had lost the answer."""
    numbers = [*range(count), *draw.sample(range(count), count // 10)]
    draw.shuffle(numbers)
    return [Sent(b'{"n": %d}' % number, id=f"m{number}") for number in numbers]


def sent(rabbit: Rabbit, queue: str, messages: Sequence[Sent]) -> None:
    async def all_of_them() -> None:
        client = Client(rabbit)
        for first in range(0, len(messages), 500):
            await client.send_together(queue, messages[first : first + 500])
        await client.close()

    asyncio.run(all_of_them())


def sent_in_spite_of_all(rabbit: Rabbit, queue: str, messages: Sequence[Sent]) -> None:
    """What was not confirmed is sent again, by its id, by way of another node if there is one."""

    async def one(message: Sent, clients: deque[Client]) -> None:
        while True:
            with contextlib.suppress(aiormq.AMQPError, OSError, RuntimeError, TimeoutError):
                async with asyncio.timeout(5):
                    await clients[0].send(queue, [message])
                return
            await clients[0].close()  # a channel of before may be refused for ever
            clients.rotate()  # the next message begins with the one that works
            await asyncio.sleep(0.05)

    async def all_of_them() -> None:
        clients = deque(Client(rabbit, node) for node in range(len(rabbit.ports)))
        async with asyncio.timeout(PATIENCE):
            for message in messages:
                await one(message, clients)
        for client in clients:
            await client.close()

    asyncio.run(all_of_them())


def made(rabbit: Rabbit, arguments: dict[str, str]) -> str:
    async def queue() -> str:
        client = Client(rabbit)
        name = await client.queue(new_name("killed"), arguments)
        await client.close()
        return name

    return asyncio.run(queue())


def left(rabbit: Rabbit, queue: str) -> int:
    """How many messages the queue has, which nobody reads any more."""

    async def counted() -> int:
        client = Client(rabbit)
        declared = await (await client.channel()).queue_declare(queue, passive=True)
        await client.close()
        return int(declared.message_count)

    return asyncio.run(counted())


@contextmanager
def intakes(folder: Path, store: str, url: str, processes: int, form: str = "messages") -> Iterator[Intakes]:
    running = Intakes(folder, store, url, form)
    try:
        for _ in range(processes):
            running.start()
        yield running
    finally:
        running.stop()


def test_messages_are_jobs_once_each_although_intakes_are_killed(tmp_path: Path, rabbit: Rabbit) -> None:
    draw, count = random.Random(1), 3_000
    queue = made(rabbit, QUORUM)
    with (
        store_of_kind("sqlite", tmp_path) as store,
        intakes(tmp_path, store.url, rabbit.url(queue), 2) as running,
    ):
        sent(rabbit, queue, messages_of(count, draw))
        for part in (1, count // 3, count // 2):
            running.wait_for(part)
            running.kill_one(draw)
        running.wait_for(count)
        assert running.numbers() == Counter(range(count))
        running.until(lambda: left(rabbit, queue) == 0)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [{}, QUORUM], ids=["classic", "quorum"])
def test_through_a_hundred_kills_of_intakes(
    any_store: SomeStore, tmp_path: Path, rabbit: Rabbit, arguments: dict[str, str]
) -> None:
    draw, kills, each = random.Random(2), 100, 100
    messages = messages_of(kills * each, draw)
    queue = made(rabbit, arguments)
    with intakes(tmp_path, any_store.url, rabbit.url(queue), 3) as running:
        running.wait_until_they_read()
        for first in range(0, len(messages), len(messages) // kills):
            sent(rabbit, queue, messages[first : first + len(messages) // kills])
            time.sleep(draw.random() / 2)
            running.kill_one(draw)
        assert running.kills >= kills
        running.wait_for(kills * each)
        assert running.numbers() == Counter(range(kills * each))
        running.until(lambda: left(rabbit, queue) == 0)


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "arguments"), [(1, {}), (3, QUORUM)], ids=["classic", "quorum"])
def test_through_thirty_kills_of_nodes(
    any_store: SomeStore, tmp_path: Path, nodes: int, arguments: dict[str, str]
) -> None:
    """A quorum queue is served by the others meanwhile. A classic one waits for its node."""
    draw, kills, each = random.Random(3), 30, 100
    messages = messages_of(kills * each, draw)
    cluster = Rabbit(nodes)

    def killed(node: int, after: float, down: float) -> None:
        time.sleep(after)
        cluster.kill(node)
        time.sleep(down)
        cluster.restart(node)

    try:
        cluster.start()
        queue = made(cluster, arguments)
        with intakes(tmp_path, any_store.url, cluster.url(queue), 2) as running:
            running.wait_until_they_read()
            for first in range(0, len(messages), len(messages) // kills):
                killing = threading.Thread(
                    target=killed, args=(draw.randrange(nodes), draw.random() / 5, draw.random())
                )
                killing.start()
                sent_in_spite_of_all(cluster, queue, messages[first : first + len(messages) // kills])
                killing.join()
            running.wait_for(kills * each)
            assert running.numbers() == Counter(range(kills * each))
            running.until(lambda: left(cluster, queue) == 0)
    finally:
        cluster.close()


@pytest.mark.slow
def test_while_the_store_is_away_messages_stay_with_their_broker(
    any_store: SomeStore, tmp_path: Path, rabbit: Rabbit
) -> None:
    draw, outages, each = random.Random(4), 3, 2_000
    messages = messages_of(outages * each, draw)
    queue = made(rabbit, QUORUM)
    with intakes(tmp_path, any_store.url, rabbit.url(queue), 2) as running:
        running.wait_until_they_read()
        for first in range(0, len(messages), len(messages) // outages):
            with any_store.away():
                sent(rabbit, queue, messages[first : first + len(messages) // outages])
                time.sleep(3)
        running.wait_for(outages * each)
        assert running.numbers() == Counter(range(outages * each))
        running.until(lambda: left(rabbit, queue) == 0)

"""Relays with a real NATS: repeats have an id, by which JetStream itself leaves them out."""

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import pytest
from tests.bridges.ends import Ends, kill
from tests.bridges.nats_server import jetstream, make_stream, nats_server

from windlass.verify.brokers.nats import OwnNats

__all__ = ["nats_server"]


async def stored(server: OwnNats, stream: str) -> list[Any]:
    """All messages of a stream."""
    async with jetstream(server) as js:
        info = await js.stream_info(stream)
        count = info.state.messages
        reader = await js.pull_subscribe(f"{stream}.>", stream=stream)
        found: list[Any] = []
        while len(found) < count:
            for message in await reader.fetch(min(500, count - len(found)), timeout=10):
                await message.ack()
                found.append(message)
        await reader.unsubscribe()
        return found


def wait_for(server: OwnNats, stream: str, count: int) -> None:
    async def waiting() -> None:
        async with asyncio.timeout(60), jetstream(server) as js:
            while (await js.stream_info(stream)).state.messages < count:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.05)

    asyncio.run(waiting())


def test_what_a_kill_repeats_is_in_the_stream_once(tmp_path: Path, nats_server: OwnNats) -> None:
    """The server goes away, too, and comes back."""
    stream = asyncio.run(make_stream(nats_server))
    ends = Ends(tmp_path, f"{nats_server.url()}/{stream}?subject={stream}.end")
    ends.end(100)
    running = ends.start(20)
    try:
        wait_for(nats_server, stream, 20)
        kill(running)
        nats_server.kill()
        running = ends.start(20)
        ends.end(100)
        nats_server.start()
        wait_for(nats_server, stream, 200)
    finally:
        kill(running)
        ends.app.close()
    found = asyncio.run(stored(nats_server, stream))
    assert [message.headers["windlass-job"] for message in found] == ends.jobs
    assert [message.headers["Nats-Msg-Id"] for message in found] == [f"{job}:0:cancel" for job in ends.jobs]


@pytest.mark.slow
def test_a_hundred_kills_leave_nothing_out(tmp_path: Path, nats_server: OwnNats) -> None:
    stream = asyncio.run(make_stream(nats_server))
    ends = Ends(tmp_path, f"{nats_server.url()}/{stream}?subject={stream}.end")
    drawn = random.Random(13)
    running = [ends.start(20) for _ in range(2)]
    try:
        for round_ in range(100):
            ends.end(100)
            time.sleep(drawn.random() / 2)
            victim = drawn.randrange(2)
            kill(running[victim])
            running[victim] = ends.start(20)
            if round_ % 10 == 9:
                nats_server.kill()
                ends.end(100)
                nats_server.start()
        wait_for(nats_server, stream, len(ends.jobs))
    finally:
        kill(*running)
        ends.app.close()
    found = asyncio.run(stored(nats_server, stream))
    assert [message.headers["windlass-job"] for message in found] == ends.jobs

"""Intakes as users run them (`windlass intake`), killed while messages come; and who counts the jobs."""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from tests.broker.postgres.servers import Server, programs
from tests.broker.redis.servers import redis_binary, running

from windlass.bridges.addresses import address_of, open_sink
from windlass.bridges.message import Outgoing
from windlass.bridges.sink import Sink
from windlass.broker.contract import Broker, Options
from windlass.broker.registry import open_broker
from windlass.core.job import JobId
from windlass.core.query import FIRST_PAGE, JobQuery
from windlass.core.units import Cursor
from windlass.errors import BridgeError

NAMESPACE = "killed"
PATIENCE = 60.0
APP = """
import os
from windlass import Windlass

app = Windlass(os.environ["STORE"], namespace={namespace!r})

@app.task
def ship(n: int) -> None: ...

app.intake(os.environ["MESSAGES"], task=ship, name="orders", backlog=1_000_000)
"""


@contextmanager
def store_of(kind: str, folder: Path) -> Iterator[str]:
    """The URL of a store of its own."""
    if kind == "sqlite":
        yield f"sqlite:///{folder}/killed.db"
    elif kind == "redis":
        with running(redis_binary(), "--appendonly", "yes") as server:
            yield server.url
    else:
        server = Server(programs())
        try:
            yield server.dsn
        finally:
            server.remove()


class Killing:
    """Two processes that take the messages of one source, and a sink that messages are sent through."""

    def __init__(self, folder: Path, store: str, messages: str, sink: str, *, seed: int = 1) -> None:
        self._folder = folder
        self._store = store
        self._messages = messages
        self._sink = sink
        self._running: list[subprocess.Popen[bytes]] = []
        self._sent = 0
        self.chance = random.Random(seed)
        (folder / "bridged.py").write_text(APP.format(namespace=NAMESPACE))

    def play(
        self, rounds: int, blow: Callable[[], Awaitable[None]] | None = None, *, burst: int = 150
    ) -> None:
        """Send a burst, strike while it is taken, and send the next one; at the end there is a job for each.
        `blow`: what is struck; None: one of the intakes.
        """
        asyncio.run(self._play(rounds, blow or self.kill_an_intake, burst))

    async def _play(self, rounds: int, blow: Callable[[], Awaitable[None]], burst: int) -> None:
        self._running = [self._start() for _ in range(2)]
        broker: Broker | None = None
        try:
            broker = await open_broker(self._store, options=Options(namespace=NAMESPACE))
            sink = await open_sink(address_of(self._sink))
            for number in range(rounds):
                sending = asyncio.create_task(self._send(sink, burst))
                # Of the first burst something is taken before anybody is struck: all have begun by then.
                least = self._sent - burst + self.chance.randrange(1, burst) if number else 1
                await self._until(broker, least)
                await blow()
                await sending
            await self._until(broker, self._sent)
            await sink.close()
            found = Counter(await numbers_of(broker))
            lost = [number for number in range(self._sent) if number not in found]
            twice = [number for number, times in found.items() if times > 1]
            assert (lost, twice) == ([], []), f"of {self._sent}: lost {lost}, twice {twice}"
        finally:
            if broker is not None:
                await broker.close()
            for process in self._running:
                process.kill()
                process.wait()

    async def kill_an_intake(self) -> None:
        """Kill one, and start another in its place."""
        place = self.chance.randrange(2)
        self._running[place].kill()
        self._running[place].wait()
        self._running[place] = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        # A dead one's partitions are free after three of its beats.
        quick = {"WINDLASS_BEAT": "0.4", "WINDLASS_SESSION_TTL": "3"}
        with (self._folder / "intake.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "windlass", "intake", "bridged:app"],
                cwd=self._folder,
                env={**os.environ, **quick, "STORE": self._store, "MESSAGES": self._messages},
                stdout=log,
                stderr=log,
            )

    async def _send(self, sink: Sink, count: int) -> None:
        """Send messages until all are acknowledged, under the same ids."""
        numbers = range(self._sent, self._sent + count)
        self._sent += count
        for first in range(0, count, 30):
            messages = [
                Outgoing(id=f"message-{number}", body=b'{"n": %d}' % number, key=str(number % 3))
                for number in numbers[first : first + 30]
            ]
            until = time.monotonic() + PATIENCE
            while True:
                try:
                    await sink.publish(messages)
                    break
                except BridgeError:  # a server that begins may not know its queues yet
                    assert time.monotonic() < until, "the message broker does not come back"
                    await asyncio.sleep(0.1)

    async def _until(self, broker: Broker, jobs: int) -> None:
        """Wait until there are so many jobs."""
        until = time.monotonic() + PATIENCE
        while (there := sum(row.count for row in (await broker.counts()).rows)) < jobs:
            if time.monotonic() > until:
                log = (self._folder / "intake.log").read_text()[-2_000:]
                pytest.fail(f"of {jobs} jobs {there} are there, of {self._sent} that were sent; {log}")
            await asyncio.sleep(0.02)


async def numbers_of(broker: Broker) -> list[int]:
    jobs: list[JobId] = []
    after: Cursor | None = FIRST_PAGE
    while after is not None:
        page = await broker.list(JobQuery(), after, 1_000)
        jobs += [view.id for view in page.jobs]
        after = page.cursor
    found: list[int] = []
    for start in range(0, len(jobs), 1_000):
        details = await broker.get(jobs[start : start + 1_000])
        found += [msgspec.json.decode(job.payload)["k"]["n"] for job in details if job is not None]
    return found

"""streaQ over Redis: streams, and functions of the server, which came with Redis 7."""

import asyncio
import os
import sys

from bench_peer import TASK, URL, Peer, mark, ping
from streaq import Worker

worker = Worker(redis_url=URL, concurrency=100, anyio_kwargs={"use_uvloop": True})

if TASK == "def":

    @worker.task(name="noop", ttl=0, silent=True)
    def noop(text: str) -> None:  # noqa: ARG001 - the payload
        """Note the start."""
        mark()

else:

    @worker.task(name="noop", ttl=0, silent=True)
    async def noop(text: str) -> None:  # noqa: ARG001 - the payload
        """Note the start."""
        mark()


@worker.task(name="pinged", ttl=0, silent=True)
async def pinged(sent: float) -> None:
    """Note how long it took to start."""
    ping(sent)


class StreaqPeer(Peer):
    """Two processes of its command."""

    uvloop = True

    async def open(self) -> None:
        """Connect: by a task that stays, as it wants to be closed by the one that opened it."""
        self._opened, self._done = asyncio.Event(), asyncio.Event()
        self._holder = asyncio.create_task(self._hold())
        await self._opened.wait()

    async def _hold(self) -> None:
        async with worker:
            self._opened.set()
            await self._done.wait()

    async def close(self) -> None:
        """Close the connections."""
        self._done.set()
        await self._holder

    async def enqueue(self, text: str) -> None:
        """One task."""
        await noop.enqueue(text)

    async def bulk(self, texts: list[str]) -> None:
        """A thousand tasks."""
        await worker.enqueue_many([noop.enqueue(text) for text in texts])

    async def ping(self, sent: float, priority: int) -> None:  # noqa: ARG002 - priorities are of streams
        """A task that notes its start."""
        await pinged.enqueue(sent)

    def work(self) -> None:
        """Become the command that a user runs."""
        command = [sys.executable, "-m", "streaq", "run", "peer:worker", "-w", "2"]
        os.execv(command[0], command)  # noqa: S606


PEER = StreaqPeer()

"""PgQueuer over PostgreSQL, by its Python interface."""

import asyncio
import json

import asyncpg
from bench_peer import TASK, URL, Peer, in_processes, mark, ping
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries


class PgQueuerPeer(Peer):
    """Batches of 100 in each process."""

    uvloop = True

    async def prepare(self) -> None:
        """Make the tables."""
        await self.open()
        await self.queries.install()
        await self.close()

    async def open(self) -> None:
        """Connect."""
        self.connection = await asyncpg.connect(URL)
        self.queries = Queries(AsyncpgDriver(self.connection))

    async def close(self) -> None:
        """Close the connection."""
        await self.connection.close()

    async def enqueue(self, text: str) -> None:
        """One job."""
        await self.queries.enqueue("noop", text.encode())

    async def bulk(self, texts: list[str]) -> None:
        """A thousand jobs."""
        await self.queries.enqueue(["noop"] * len(texts), [text.encode() for text in texts], [0] * len(texts))

    async def ping(self, sent: float, priority: int) -> None:
        """A job that notes its start."""
        await self.queries.enqueue("ping", json.dumps(sent).encode(), priority)

    def work(self) -> None:
        """Two processes."""
        in_processes(self, _serve)


async def _serve() -> None:
    queue = PgQueuer.from_asyncpg_connection(await asyncpg.connect(URL))
    if TASK == "def":

        @queue.entrypoint("noop")
        async def noop(_job: Job) -> None:
            await asyncio.to_thread(mark)  # it takes no plain functions

    else:

        @queue.entrypoint("noop")
        async def noop(_job: Job) -> None:
            mark()

    @queue.entrypoint("ping")
    async def pinged(job: Job) -> None:
        ping(json.loads(job.payload or b"0"))

    await queue.run(batch_size=100)


PEER = PgQueuerPeer()

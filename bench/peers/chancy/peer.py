"""Chancy over PostgreSQL."""

import logging

from bench_peer import TASK, URL, Peer, in_processes, mark, ping
from chancy import Chancy, Job, Queue, Worker

QUIET = logging.getLogger("quiet")
QUIET.setLevel(logging.ERROR)

if TASK == "def":

    def noop(*, text: str) -> None:  # noqa: ARG001 - the payload
        """Note the start."""
        mark()

    def pinged(*, sent: float) -> None:
        """Note how long it took to start."""
        ping(sent)

else:

    async def noop(*, text: str) -> None:  # noqa: ARG001 - the payload
        """Note the start."""
        mark()

    async def pinged(*, sent: float) -> None:
        """Note how long it took to start."""
        ping(sent)


async def _serve() -> None:
    async with Chancy(URL, log=QUIET) as chancy, Worker(chancy) as worker:
        await worker.wait_for_shutdown()


class ChancyPeer(Peer):
    """Two workers of 100 jobs: coroutines on the loop, functions in threads."""

    async def prepare(self) -> None:
        """Make the tables and the queue."""
        executor = Chancy.Executor.Threaded if TASK == "def" else Chancy.Executor.Async
        async with Chancy(URL, log=QUIET) as chancy:
            await chancy.migrate()
            # Of this name, as else a worker adds a queue of it that has processes.
            queue = Queue(
                "default", concurrency=100, executor=executor, polling_interval=1, eager_polling=True
            )
            await chancy.declare(queue, upsert=True)

    async def open(self) -> None:
        """Connect."""
        self.chancy = await Chancy(URL, log=QUIET).__aenter__()

    async def close(self) -> None:
        """Close the connections."""
        await self.chancy.__aexit__(None, None, None)

    async def enqueue(self, text: str) -> None:
        """One job."""
        await self.chancy.push(_job("noop", 0, text=text))

    async def bulk(self, texts: list[str]) -> None:
        """A thousand jobs."""
        async for _ in self.chancy.push_many([_job("noop", 0, text=text) for text in texts]):
            pass

    async def ping(self, sent: float, priority: int) -> None:
        """A job that notes its start."""
        await self.chancy.push(_job("pinged", priority, sent=sent))

    def work(self) -> None:
        """Two processes."""
        in_processes(self, _serve)


def _job(name: str, priority: int, **arguments: object) -> Job:
    return Job(func=f"peer.{name}", kwargs=arguments, max_attempts=3, priority=priority)


PEER = ChancyPeer()

"""SAQ over Redis or PostgreSQL. It has no call for many jobs."""

from bench_peer import TASK, URL, Peer, in_processes, mark, ping
from saq import Queue, Worker

RETRIES = 3  # with its default of one, what a killed worker had is given up

if TASK == "def":

    def noop(_context: dict[str, object], *, text: str) -> None:  # noqa: ARG001 - the payload
        """Note the start."""
        mark()

else:

    async def noop(_context: dict[str, object], *, text: str) -> None:  # noqa: ARG001 - the payload
        """Note the start."""
        mark()


async def pinged(_context: dict[str, object], *, sent: float) -> None:
    """Note how long it took to start."""
    ping(sent)


async def _serve() -> None:
    queue = Queue.from_url(URL)
    await queue.connect()
    worker = Worker(queue, functions=[("noop", noop), ("pinged", pinged)], concurrency=20)
    await worker.start()


class SaqPeer(Peer):
    """Jobs are fetched one by one, by as many fetchers as may run at once."""

    async def prepare(self) -> None:
        """Make the tables, where there are any."""
        await self.open()
        await self.close()

    async def open(self) -> None:
        """Connect."""
        self.queue = Queue.from_url(URL)
        await self.queue.connect()

    async def close(self) -> None:
        """Close the connections."""
        await self.queue.disconnect()

    async def enqueue(self, text: str) -> None:
        """One job."""
        await self.queue.enqueue("noop", text=text, retries=RETRIES)

    async def ping(self, sent: float, priority: int) -> None:  # noqa: ARG002 - Redis has none
        """A job that notes its start."""
        await self.queue.enqueue("pinged", sent=sent, retries=RETRIES)

    def work(self) -> None:
        """Two processes."""
        in_processes(self, _serve)


PEER = SaqPeer()

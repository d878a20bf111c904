"""Docket over Redis, by its Python interface. It takes coroutines only."""

from datetime import timedelta

from bench_peer import URL, Peer, in_processes, mark, ping
from docket import Docket, Worker


async def noop(text: str) -> None:  # noqa: ARG001 - the payload
    """Note the start."""
    mark()


async def pinged(sent: float) -> None:
    """Note how long it took to start."""
    ping(sent)


def _docket() -> Docket:
    docket = Docket(name="bench", url=URL, execution_ttl=timedelta(0))
    docket.register(noop)
    docket.register(pinged)
    return docket


async def _serve() -> None:
    often = timedelta(milliseconds=10)
    async with _docket() as docket, Worker(docket, concurrency=40, minimum_check_interval=often) as worker:
        await worker.run_forever()


class DocketPeer(Peer):
    """Two workers of 40 tasks."""

    async def open(self) -> None:
        """Connect."""
        self.docket = await _docket().__aenter__()

    async def close(self) -> None:
        """Close the connections."""
        await self.docket.__aexit__(None, None, None)

    async def enqueue(self, text: str) -> None:
        """One task."""
        await self.docket.add(noop)(text)

    async def bulk(self, texts: list[str]) -> None:
        """A thousand tasks."""
        await self.docket.add_many([self.docket.call(noop)(text) for text in texts])

    async def ping(self, sent: float, priority: int) -> None:  # noqa: ARG002 - it has none
        """A task that notes its start."""
        await self.docket.add(pinged)(sent)

    def work(self) -> None:
        """Two processes."""
        in_processes(self, _serve)


PEER = DocketPeer()

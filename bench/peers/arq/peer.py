"""arq over Redis."""

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func
from bench_peer import URL, Peer, in_processes, mark, ping

SETTINGS = RedisSettings.from_dsn(URL)


async def noop(_context: dict[str, object], _text: str) -> None:
    """Note the start."""
    mark()


async def pinged(_context: dict[str, object], sent: float) -> None:
    """Note how long it took to start."""
    ping(sent)


async def _serve() -> None:
    worker = Worker(
        functions=[func(noop, name="noop"), func(pinged, name="pinged")],
        redis_settings=SETTINGS,
        max_jobs=100,
        keep_result=0,
        poll_delay=0.01,
        handle_signals=False,
    )
    await worker.async_run()


class ArqPeer(Peer):
    """Polls every 10 ms."""

    async def open(self) -> None:
        """Connect."""
        self.pool = await create_pool(SETTINGS)

    async def close(self) -> None:
        """Close the connections."""
        await self.pool.aclose()

    async def enqueue(self, text: str) -> None:
        """One job."""
        await self.pool.enqueue_job("noop", text)

    async def ping(self, sent: float, priority: int) -> None:  # noqa: ARG002 - it has none
        """A job that notes its start."""
        await self.pool.enqueue_job("pinged", sent)

    def work(self) -> None:
        """Two processes."""
        in_processes(self, _serve)


PEER = ArqPeer()

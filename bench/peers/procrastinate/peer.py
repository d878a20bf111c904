"""Procrastinate over PostgreSQL. What a killed worker had is found, but not started anew by itself."""

from bench_peer import TASK, URL, Peer, in_processes, mark, ping
from procrastinate import App, PsycopgConnector

app = App(connector=PsycopgConnector(conninfo=URL))

if TASK == "def":

    @app.task(name="noop")
    def noop(text: str) -> None:  # noqa: ARG001 - the payload
        """Note the start."""
        mark()

else:

    @app.task(name="noop")
    async def noop(text: str) -> None:  # noqa: ARG001 - the payload
        """Note the start."""
        mark()


@app.task(name="pinged")
async def pinged(sent: float) -> None:
    """Note how long it took to start."""
    ping(sent)


async def _serve() -> None:
    async with app.open_async():
        await app.run_worker_async(concurrency=10, delete_jobs="successful", install_signal_handlers=False)


class ProcrastinatePeer(Peer):
    """Two workers of 10 jobs."""

    async def prepare(self) -> None:
        """Make the tables."""
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        """Connect."""
        await app.open_async()

    async def close(self) -> None:
        """Close the connections."""
        await app.close_async()

    async def enqueue(self, text: str) -> None:
        """One job."""
        await noop.defer_async(text=text)

    async def bulk(self, texts: list[str]) -> None:
        """A thousand jobs."""
        await noop.batch_defer_async(*({"text": text} for text in texts))

    async def ping(self, sent: float, priority: int) -> None:
        """A job that notes its start."""
        await pinged.configure(priority=priority).defer_async(sent=sent)

    def work(self) -> None:
        """Two processes."""
        in_processes(self, _serve)


PEER = ProcrastinatePeer()

"""Repid over a Redis stream. It has no call for many messages."""

from bench_peer import TASK, URL, Peer, in_processes, mark, ping
from repid import RedisServer, Repid, Router

app = Repid()
# Messages of a killed worker are claimed again only where an interval says so.
app.servers.register_server("default", RedisServer(URL, claim_interval=30), is_default=True)
router = Router()

if TASK == "def":

    @router.actor(channel="bench")
    def noop(text: str) -> None:  # noqa: ARG001 - the payload
        """Note the start."""
        mark()

else:

    @router.actor(channel="bench")
    async def noop(text: str) -> None:  # noqa: ARG001 - the payload
        """Note the start."""
        mark()


@router.actor(channel="bench")
async def pinged(sent: float) -> None:
    """Note how long it took to start."""
    ping(sent)


app.include_router(router)


async def _serve() -> None:
    async with app.servers.default.connection():
        await app.run_worker()


class RepidPeer(Peer):
    """Messages go to one channel and are told apart by their topic."""

    async def open(self) -> None:
        """Connect."""
        await app.servers.default.connect()

    async def close(self) -> None:
        """Close the connections."""
        await app.servers.default.disconnect()

    async def enqueue(self, text: str) -> None:
        """One message."""
        await app.send_message_json(channel="bench", payload={"text": text}, headers={"topic": "noop"})

    async def ping(self, sent: float, priority: int) -> None:  # noqa: ARG002 - it has none on Redis
        """A message that notes its start."""
        await app.send_message_json(channel="bench", payload={"sent": sent}, headers={"topic": "pinged"})

    def work(self) -> None:
        """Two processes."""
        in_processes(self, _serve)


PEER = RepidPeer()

"""Windlass, at its defaults."""

import os
import random
import sys

from bench_peer import DEALT, LANES, TASK, URL, Peer, mark, ping

from windlass import Windlass

app = Windlass(URL)
if os.environ.get("BENCH_LANE_LIMIT"):
    app.queue("default", lane_concurrency=int(os.environ["BENCH_LANE_LIMIT"]))

if TASK == "def":

    @app.task(name="noop")
    def noop(text: str) -> None:  # noqa: ARG001 - the payload
        """Note the start."""
        mark()

    @app.task(name="ping")
    def pinged(sent: float) -> None:
        """Note how long it took to start."""
        ping(sent)

else:

    @app.task(name="noop")
    async def noop(text: str) -> None:  # noqa: ARG001 - the payload
        """Note the start."""
        mark()

    @app.task(name="ping")
    async def pinged(sent: float) -> None:
        """Note how long it took to start."""
        ping(sent)


class WindlassPeer(Peer):
    """Blocking calls one by one, as most programs make them; coroutines for many callers."""

    def prepare(self) -> None:
        """Make the tables and declare the queue, by the first look at the store."""
        app.run(app.broker())
        app.close()

    def open(self) -> None:
        """Connect, as the others do: else the first ping counts it."""
        app.run(app.broker())

    def close(self) -> None:
        """Close the connections."""
        app.close()

    def enqueue(self, text: str) -> None:
        """One job."""
        noop.enqueue(text)

    def bulk(self, texts: list[str]) -> None:
        """A thousand jobs."""
        if LANES == 1:
            app.enqueue_many(noop.call(text) for text in texts)
        elif DEALT == "turn":
            turns = enumerate(texts)
            app.enqueue_many(noop.using(lane=str(number % LANES)).call(text) for number, text in turns)
        else:
            app.enqueue_many(noop.using(lane=str(random.randrange(LANES))).call(text) for text in texts)

    async def concurrent(self, text: str) -> None:
        """One job beside others."""
        await noop.aenqueue(text)

    def ping(self, sent: float, priority: int) -> None:
        """A job that notes its start."""
        pinged.using(priority=priority).enqueue(sent)

    def work(self) -> None:
        """Become the command that a user runs."""
        command = [sys.executable, "-m", "windlass", "worker", "peer:app", "--log-level", "warning"]
        os.execv(command[0], command)  # noqa: S606


PEER = WindlassPeer()

"""Taskiq over a Redis stream, acknowledged when executed."""

import os
import sys

from bench_peer import URL, Peer, mark, ping
from taskiq_redis import RedisStreamBroker

broker = RedisStreamBroker(url=URL)


@broker.task(task_name="noop")
async def noop(_text: str) -> None:
    """Note the start."""
    mark()


@broker.task(task_name="pinged")
async def pinged(sent: float) -> None:
    """Note how long it took to start."""
    ping(sent)


class TaskiqPeer(Peer):
    """Two processes with uvloop."""

    async def open(self) -> None:
        """Connect."""
        await broker.startup()

    async def close(self) -> None:
        """Close the connections."""
        await broker.shutdown()

    async def enqueue(self, text: str) -> None:
        """One message."""
        await noop.kiq(text)

    async def ping(self, sent: float, priority: int) -> None:  # noqa: ARG002 - queues of their own, as run
        """A message that notes its start."""
        await pinged.kiq(sent)

    def work(self) -> None:
        """Become the command that a user runs."""
        command = [sys.executable, "-m", "taskiq", "worker", "peer:broker", "-w", "2", "--log-level", "ERROR"]
        command += ["--max-async-tasks", "100", "--max-prefetch", "100", "--ack-type", "when_executed"]
        os.execv(command[0], command)  # noqa: S606


PEER = TaskiqPeer()

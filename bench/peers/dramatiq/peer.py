"""Dramatiq over Redis. It has no call for many messages."""

import os
import sys

import dramatiq
from bench_peer import URL, Peer, mark, ping
from dramatiq.brokers.redis import RedisBroker

broker = RedisBroker(url=URL)
dramatiq.set_broker(broker)


@dramatiq.actor(max_retries=3)
def noop(_text: str) -> None:
    """Note the start."""
    mark()


@dramatiq.actor(max_retries=3)
def pinged(sent: float) -> None:
    """Note how long it took to start."""
    ping(sent)


class Dramatiq(Peer):
    """Actors run in threads: as they do best, for both kinds of task."""

    def enqueue(self, text: str) -> None:
        """One message."""
        noop.send(text)

    def ping(self, sent: float, priority: int) -> None:  # noqa: ARG002 - priorities are of actors
        """A message that notes its start."""
        pinged.send(sent)

    def work(self) -> None:
        """Become the command that a user runs."""
        os.environ["dramatiq_queue_prefetch"] = "1000"  # noqa: SIM112 - its name
        command = [sys.executable, "-m", "dramatiq", "-p", "2", "-t", "4", "peer"]
        os.execv(command[0], command)  # noqa: S606


PEER = Dramatiq()

"""RQ over Redis: two SimpleWorkers, which do not fork for each job."""

import os
import subprocess
import sys

import redis
from bench_peer import URL, Peer, mark, ping
from rq import Queue


def noop(_text: str) -> None:
    """Note the start."""
    mark()


def pinged(sent: float) -> None:
    """Note how long it took to start."""
    ping(sent)


class RqPeer(Peer):
    """A job at a time in each of two processes."""

    def open(self) -> None:
        """Connect."""
        self.queue = Queue("bench", connection=redis.Redis.from_url(URL))

    def enqueue(self, text: str) -> None:
        """One job."""
        self.queue.enqueue(noop, text, result_ttl=0)

    def bulk(self, texts: list[str]) -> None:
        """A thousand jobs."""
        self.queue.enqueue_many([Queue.prepare_data(noop, (text,), result_ttl=0) for text in texts])

    def ping(self, sent: float, priority: int) -> None:  # noqa: ARG002 - priorities are of queues
        """A job that notes its start."""
        self.queue.enqueue(pinged, sent, result_ttl=0)

    def work(self) -> None:
        """Two of the commands that a user runs."""
        command = [
            sys.executable,
            "-m",
            "rq.cli",
            "worker",
            "-q",
            "-w",
            "rq.SimpleWorker",
            "-u",
            URL,
            "bench",
        ]
        workers = [subprocess.Popen(command) for _ in range(2)]  # noqa: S603
        for worker in workers:
            worker.wait()
        os._exit(0)


PEER = RqPeer()

"""Celery over Redis, late acknowledgement, two solo workers. A group sends one message after the other."""

import os
import subprocess
import sys

from bench_peer import URL, Peer, mark, ping
from celery import Celery

app = Celery("peer", broker=URL)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=64,
    broker_connection_retry_on_startup=True,
)


@app.task(name="noop")
def noop(_text: str) -> None:
    """Note the start."""
    mark()


@app.task(name="ping")
def pinged(sent: float) -> None:
    """Note how long it took to start."""
    ping(sent)


class CeleryPeer(Peer):
    """A task at a time in each of two processes."""

    def enqueue(self, text: str) -> None:
        """One message."""
        noop.delay(text)

    def ping(self, sent: float, priority: int) -> None:  # noqa: ARG002 - queues of their own, as run
        """A message that notes its start."""
        pinged.delay(sent)

    def work(self) -> None:
        """Two of the commands that a user runs."""
        command = [sys.executable, "-m", "celery", "-A", "peer:app", "worker", "-P", "solo", "-l", "error"]
        command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        workers = [subprocess.Popen([*command, "-n", f"w{number}"]) for number in range(2)]  # noqa: S603
        for worker in workers:
            worker.wait()
        os._exit(0)


PEER = CeleryPeer()

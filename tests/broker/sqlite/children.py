"""Processes beside the test: `python -m tests.broker.sqlite.children <what> <file> [count]`. They print what
is done.
"""

import os
import sys
import time
from pathlib import Path

from tests.broker.sqlite.blocking import run

from windlass.broker.sqlite import SqliteBroker
from windlass.core.ids import new_job_id
from windlass.core.job import NewJob
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject

QUEUE = Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(), app="test")


def new_job(task: str = "t") -> NewJob:
    """A job with an id of its own."""
    identity = new_job_id(time.time_ns() // 1_000_000, os.urandom(10))
    return NewJob(id=identity, task=task, queue="q", payload=b"x" * 200)


def enqueue(path: Path, count: int, group: int) -> None:
    """Enqueue groups one after the other, and print the ids of each once it is accepted."""
    broker = SqliteBroker(path)
    for _ in range(count):
        jobs = [new_job() for _ in range(group)]
        say(*(job.id for job in jobs), prefix="?")
        receipts = broker.blocking.enqueue([jobs])[0]
        say(*(receipt.job for receipt in receipts))
    run(broker).close()


def hold(path: Path) -> None:
    """Take the lock, say so, and keep it until the end of the input."""
    store = SqliteBroker(path).store
    store.lock.acquire()
    say("held")
    sys.stdin.read()


def open_only(path: Path) -> None:
    """Open the file as soon as told to."""
    say("ready")
    sys.stdin.readline()
    run(SqliteBroker(path)).close()
    say("opened")


def say(*words: str, prefix: str = "!") -> None:
    """One line to the test, whole or not at all."""
    os.write(1, f"{prefix} {' '.join(words)}\n".encode())


if __name__ == "__main__":
    what, file, *numbers = sys.argv[1:]
    {"enqueue": enqueue, "hold": hold, "open": open_only}[what](Path(file), *map(int, numbers))

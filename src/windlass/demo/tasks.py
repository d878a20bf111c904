"""The tasks of the demo: quick ones, slow ones, and those that misbehave."""

import asyncio
import os
import signal
import time
from pathlib import Path

from windlass import GiveUp, RetryPolicy, Windlass, current
from windlass.demo.ledger import FOLDER, written_down

BLOCKED = 5
"""Seconds for which a task blocks its event loop: longer than the session's TTL."""
SESSION_TTL = 3
DELAY = 1.5
"""Seconds."""


def _url() -> str:
    folder = os.environ.get(FOLDER)
    return "memory://" if folder is None else f"sqlite:///{Path(folder) / 'windlass.db'}"


# A short TTL, so that a task can outlast it within the demo; everything else as anybody has it.
app = Windlass(_url(), name="demo", session_ttl=SESSION_TTL, beat=1, grace=2)
app.queue("default", emit="final")
app.queue("mail", emit="final")

_QUICK = RetryPolicy(max_attempts=3, base=0.5)


@app.task(run="inline")
def instant(number: int) -> int:
    """Take no time at all."""
    with written_down():
        return number


@app.task(queue="mail")
async def mail() -> None:
    """Send a mail for a tenant."""
    with written_down():
        await asyncio.sleep(0.03)


@app.task
def urgent() -> None:
    """Go first."""
    with written_down():
        time.sleep(0.01)


@app.task
async def slow() -> None:
    """Take a second."""
    with written_down():
        await asyncio.sleep(1)


@app.task
def delayed() -> None:
    """Start when it is time, and not before."""
    with written_down():
        pass


@app.task(retry=_QUICK)
def flaky() -> None:
    """Fail at first."""
    with written_down():
        if current.attempt == 1:
            raise ConnectionError("the other side does not answer")


@app.task(retry=_QUICK)
def broken() -> None:
    """Fail each time."""
    with written_down():
        raise ValueError("this never works")


@app.task
def hopeless() -> None:
    """Say that trying again is no use."""
    with written_down():
        raise GiveUp("no such customer")


@app.task
async def blocking() -> None:
    """Block the event loop for longer than a session lives without a sign of life."""
    with written_down():
        time.sleep(BLOCKED)  # noqa: ASYNC251 - that is the point


@app.task
def killer() -> None:
    """Kill the worker, the first time."""
    with written_down():
        if current.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)


@app.task(retry=RetryPolicy(max_attempts=3))
def poison() -> None:
    """Kill the worker, each time."""
    with written_down():
        os.kill(os.getpid(), signal.SIGKILL)

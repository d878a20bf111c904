"""An app whose tasks fail in every way, for a worker with processes."""

import asyncio
import os
import signal
import threading
from typing import Annotated

import sentry_sdk

from windlass import RetryPolicy, Secret, Windlass
from windlass.sentry import WindlassIntegration

sentry_sdk.init(integrations=[WindlassIntegration()])  # the address is in $SENTRY_DSN

app = Windlass(name="shop", beat="0.5s")
once = RetryPolicy(max_attempts=1)


def fails(card: Annotated[str, Secret]) -> None:
    seen = f"seen {card}"  # a local variable, which Sentry would send
    try:
        _ = {}[card]
    except KeyError as error:
        error.add_note(f"note with {card}")
        raise ValueError(f"declined: {card}, {len(seen)}") from error


async def afails(card: Annotated[str, Secret]) -> None:
    fails(card)


app.task(name="fails_loop", retry=once)(afails)
app.task(name="fails_thread", retry=once)(fails)
app.task(name="fails_inline", run="inline", retry=once)(fails)
app.task(name="fails_process", run="process", retry=once)(fails)


@app.task(retry=RetryPolicy(max_attempts=2, base=0.01, jitter="none"))
def fails_twice(card: Annotated[str, Secret]) -> None:
    fails(card)


@app.task(run="process", retry=once)
def kills_its_process(card: Annotated[str, Secret]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(retry=once)
def kills_its_worker(card: Annotated[str, Secret]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(run="process", retry=once, hard_timeout=0.3)
def outlasts_its_process(card: Annotated[str, Secret]) -> None:
    threading.Event().wait()


@app.task(retry=once, hard_timeout=0.3)
def outlasts_its_worker(card: Annotated[str, Secret]) -> None:
    threading.Event().wait()


@app.task(retry=once, timeout=0.05)
async def is_too_slow(card: Annotated[str, Secret]) -> None:
    await asyncio.Event().wait()


@app.task
def reads_a_number(card: int) -> None:
    raise AssertionError("it never starts")

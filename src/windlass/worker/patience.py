"""Waiting for something or for a time, and asking a store again until it answers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from windlass.errors import StoreError
from windlass.worker.pace import Pace

_log = logging.getLogger("windlass.worker")
_T = TypeVar("_T")

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0


class Backoff:
    """Pauses between tries: doubling, and spread so that a fleet does not come back all at once."""

    def __init__(self, pace: Pace, *, first: float = FIRST_PAUSE, most: float = LONGEST_PAUSE) -> None:
        self._pace = pace
        self._first = first
        self._most = most
        self._tries = 0

    @property
    def tries(self) -> int:
        """How often it has failed since it last worked."""
        return self._tries

    def worked(self) -> None:
        """Begin anew."""
        self._tries = 0

    def failed(self) -> float:
        """How long to wait before the next try."""
        length = min(self._most, self._first * 2 ** min(self._tries, 30))
        self._tries += 1
        return length * (0.5 + self._pace.jitter() / 2)


async def insist(pace: Pace, what: str, call: Callable[[], Awaitable[_T]]) -> _T:
    """Ask a store until it answers. `what` is done, for the log, when it does not."""
    backoff = Backoff(pace)
    while True:
        try:
            answer = await call()
        except StoreError as error:
            if not backoff.tries:
                _log.warning("%s: %s; trying until it works", what, error)
            await pace.sleep(backoff.failed())
        else:
            if backoff.tries:
                _log.info("%s: done", what)
            return answer


async def until(pace: Pace, event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, at most so long; whether it has come."""
    if event.is_set() or seconds <= 0:
        return event.is_set()
    both = (asyncio.ensure_future(event.wait()), asyncio.ensure_future(pace.sleep(seconds)))
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in both:
            one.cancel()
    return event.is_set()


async def either(*events: asyncio.Event) -> None:
    """Wait for the first of some events."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waits:
            one.cancel()


async def finished(tasks: Collection["asyncio.Task[None]"]) -> None:
    """Wait until all of them have ended, however they did."""
    if tasks:
        await asyncio.wait(set(tasks))


async def cancelled(tasks: Collection["asyncio.Task[None]"]) -> None:
    """End them all."""
    for task in tasks:
        task.cancel()
    await finished(tasks)

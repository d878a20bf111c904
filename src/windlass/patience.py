"""Waiting for something or for a time, and asking a store again until it answers."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Generator
from typing import Any, TypeVar

from windlass.errors import DescriptorClosed, StoreError, StoreReplaced
from windlass.pace import Pace

_log = logging.getLogger("windlass.worker")
_T = TypeVar("_T")

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
QUIET = 60.0
"""Seconds after which the same trouble is logged once more; each time twice as long."""
LONGEST_QUIET = 3600.0
MOST_WORDS = 5
"""Different errors of one trouble that are logged at once."""


class Backoff:
    """Pauses between tries: doubling, and spread so that a fleet does not come back all at once."""

    def __init__(self, pace: Pace, *, first: float = FIRST_PAUSE, most: float = LONGEST_PAUSE) -> None:
        self._pace = pace
        self._first = first
        self._most = most
        self._tries = 0
        self._said: set[str] = set()
        self._quiet = QUIET
        self._say_at = 0.0

    @property
    def tries(self) -> int:
        """How often it has failed since it last worked."""
        return self._tries

    def worked(self) -> None:
        """Begin anew."""
        self._tries = 0
        self._said.clear()

    @contextlib.contextmanager
    def trying(self) -> Generator[None]:
        """Note that what goes on for longer than the longest pause has worked, however it ends."""
        began = self._pace.now()
        try:
            yield
        finally:
            if self._pace.now() - began > self._most:
                self.worked()

    def tell(self, words: str, error: Exception) -> None:
        """Log an error, before `failed`: when it is new, and from then on ever more seldom, with a count.

        `words` has a place for the error.
        """
        text, now = str(error), self._pace.now()
        if not self._said:
            self._quiet, self._say_at = QUIET, now + QUIET
        if text not in self._said and len(self._said) < MOST_WORDS:
            self._said.add(text)
            _log.warning(words, error)
        elif now >= self._say_at:
            self._quiet = min(2 * self._quiet, LONGEST_QUIET)
            self._say_at = now + self._quiet
            _log.warning(f"{words} (tried %d times)", error, self._tries + 1)

    def failed(self) -> float:
        """How long to wait before the next try."""
        length = min(self._most, self._first * 2 ** min(self._tries, 30))
        self._tries += 1
        return length * (0.5 + self._pace.jitter() / 2)


def never_answers(error: StoreError) -> bool:
    """Whether it is of no use to ask again: the store is not there for this process any more."""
    return isinstance(error, StoreReplaced | DescriptorClosed)


async def insist(
    pace: Pace,
    what: str,
    call: Callable[[], Awaitable[_T]],
    *,
    gives_up: Callable[[StoreError], bool] = never_answers,
) -> _T:
    """Ask a store until it answers. `what` is done, for the log, when it does not. An error is raised if
    `gives_up` says so.
    """
    backoff = Backoff(pace)
    while True:
        try:
            answer = await call()
        except StoreError as error:  # also a disk that is full: work goes on when there is space again
            if gives_up(error):
                raise
            backoff.tell(f"{what.replace('%', '%%')}: %s; trying until it works", error)
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


async def finished(tasks: Collection["asyncio.Task[Any]"]) -> None:
    """Wait until all of them have ended, however they did."""
    if tasks:
        await asyncio.wait(set(tasks))


async def cancelled(tasks: Collection["asyncio.Task[Any]"]) -> None:
    """End them all."""
    for task in tasks:
        task.cancel()
    await finished(tasks)

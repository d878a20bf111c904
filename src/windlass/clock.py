"""Where a broker gets the time from: the store itself, or in tests a clock that the test moves."""

import time
from typing import Protocol

from windlass.core.units import Micros


class Clock(Protocol):
    """Anything that tells the time of the store."""

    def now(self) -> Micros:
        """Microseconds since the epoch."""
        ...


class SystemClock:
    """The clock of this machine: for stores that live inside the process (memory, SQLite)."""

    def now(self) -> Micros:
        """Microseconds since the epoch."""
        return time.time_ns() // 1_000


class ManualClock:
    """A clock that stands still until it is moved, for tests. It may also be moved back."""

    def __init__(self, now: Micros = 1_800_000_000_000_000) -> None:
        self._now = now

    def now(self) -> Micros:
        """The time it was last set to."""
        return self._now

    def advance(self, by: Micros) -> Micros:
        """Move it by so much (negative: back) and return the new time."""
        self._now += by
        return self._now

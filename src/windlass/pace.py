"""How workers tell the time and wait. A simulator brings its own."""

import asyncio
import random
import time
from typing import Protocol


class Pace(Protocol):
    """A monotonic clock that one can wait on."""

    def now(self) -> float:
        """Seconds, on a clock that every process of the machine shares."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    def jitter(self) -> float:
        """A number from [0, 1): spreads what many would do at once."""
        ...


class MachinePace:
    """The machine's monotonic clock."""

    now = staticmethod(time.monotonic)
    """Seconds since some fixed moment, the same for all processes of the machine."""

    async def sleep(self, seconds: float) -> None:
        """Wait on the running loop."""
        await asyncio.sleep(seconds)

    def jitter(self) -> float:
        """From the interpreter's own source; nothing depends on its quality."""
        return random.random()  # noqa: S311

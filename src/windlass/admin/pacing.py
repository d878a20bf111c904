"""Doing something to many jobs at a rate, so that what follows from it does not come as a flood."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from windlass.core.limits import Rate
from windlass.core.units import SECOND

T = TypeVar("T")
R = TypeVar("R")

_STEPS = 5
"""Steps a second into which a rate is cut, where it is high enough."""


async def at_rate(
    batches: AsyncIterator[Sequence[T]],
    rate: Rate | None,
    verb: Callable[[Sequence[T]], Awaitable[R]],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[R]:
    """Apply a verb to everything in the batches, never faster than the rate; what it answered, as it comes.

    Nothing is saved up: after a slow step the next ones come no faster than before.
    """
    if rate is None:
        async for batch in batches:
            yield await verb(batch)
        return
    each = rate.per / SECOND / rate.count
    size = max(1, int(1 / each / _STEPS))
    next_at = clock()
    async for batch in batches:
        for start in range(0, len(batch), size):
            part = batch[start : start + size]
            if (early := next_at - clock()) > 0:
                await sleep(early)
            next_at = max(next_at, clock()) + each * len(part)
            yield await verb(part)

"""Doing something to many jobs at a rate, so that what follows from it does not come as a flood."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from windlass.core.bounds import CALL_ITEMS
from windlass.core.ids import check_job_id
from windlass.core.limits import Rate
from windlass.core.operate import Target
from windlass.core.state import State
from windlass.core.units import SECOND

T = TypeVar("T")
R = TypeVar("R")

_STEPS = 5
"""Steps a second into which a rate is cut, where it is high enough."""
_PATIENCE = 5.0
"""Seconds that a step under way is waited for when it is to stop."""


async def at_rate(
    batches: AsyncIterator[Sequence[T]],
    rate: Rate | None,
    verb: Callable[[Sequence[T]], Awaitable[R]],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[R]:
    """Apply a verb to everything in the batches, never faster than the rate; what it answered, as it comes.

    Nothing is saved up: after a slow step the next ones come no faster than before. A caller that is
    cancelled in the middle of a step still gets its answer, because the store carries it out anyway.
    """
    if rate is None:
        async for batch in batches:
            answer, cut = await _whole(verb(batch))
            yield answer
            if cut is not None:
                raise cut
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
            answer, cut = await _whole(verb(part))
            yield answer
            if cut is not None:
                raise cut


async def by_ids(
    verb: Callable[[Sequence[Target]], Awaitable[R]],
    ids: Sequence[str],
    *,
    expect: State | None,
    rate: Rate | None = None,
) -> AsyncIterator[R]:
    """Apply a verb to jobs by their ids, each once; what it answered, batch by batch. `InvalidOption`: one of
    them is no id, and nothing was done.
    """
    targets = [Target(job, expect) for job in dict.fromkeys(check_job_id(job) for job in ids)]

    async def batches() -> AsyncIterator[Sequence[Target]]:
        for start in range(0, len(targets), CALL_ITEMS):
            yield targets[start : start + CALL_ITEMS]

    async for answers in at_rate(batches(), rate, verb):
        yield answers


async def _whole(step: Awaitable[R]) -> tuple[R, asyncio.CancelledError | None]:
    """What a step answered, and the cancellation that came meanwhile, to be raised when that is told."""
    task = asyncio.ensure_future(step)
    try:
        return await asyncio.shield(task), None
    except asyncio.CancelledError as cut:
        await asyncio.wait({task}, timeout=_PATIENCE)
        if not task.done() or task.cancelled():
            task.cancel()
            raise
        return task.result(), cut

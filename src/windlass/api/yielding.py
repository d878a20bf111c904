"""Long lists in a request: others have their turn in between."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

ITEMS_PER_YIELD = 50
"""Items that are looked at before others have their turn: 1,000 jobs with options would take 50 to 100 ms,
in which nobody else is answered.
"""


async def enumerate_yielding(items: Iterable[T]) -> AsyncIterator[tuple[int, T]]:
    """The items with their numbers."""
    for number, item in enumerate(items):
        if number and number % ITEMS_PER_YIELD == 0:
            await asyncio.sleep(0)
        yield number, item

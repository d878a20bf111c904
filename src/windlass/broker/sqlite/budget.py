"""What one pass of sweep may still do."""

from typing import TypeVar

_T = TypeVar("_T")


class Budget:
    """Items that a pass may still work on. A pass that used all of it may have left some."""

    def __init__(self, limit: int) -> None:
        self.left = limit

    def spend(self, items: int) -> int:
        """Take off the items that were worked on, and return their number."""
        self.left -= items
        return items

    def cut(self, items: list[_T]) -> list[_T]:
        """The first items, as many as the pass may still work on."""
        chosen = items[: self.left]
        self.left -= len(chosen)
        return chosen

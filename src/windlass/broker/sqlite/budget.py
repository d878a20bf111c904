"""What one pass of sweep may still do."""

from typing import TypeVar

_T = TypeVar("_T")


class Budget:
    """Items that a pass may still work on. A pass that used all of it may have left some."""

    def __init__(self, limit: int) -> None:
        self.left = limit

    def spend(self, items: int) -> int:
        """So many were worked on."""
        self.left -= items
        return items

    def cut(self, items: list[_T]) -> list[_T]:
        """As many as fit."""
        chosen = items[: self.left]
        self.left -= len(chosen)
        return chosen

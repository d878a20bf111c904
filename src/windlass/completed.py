"""Running a coroutine that never suspends, without an event loop: blocking and async code share it so."""

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def complete(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, without an event loop."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    raise RuntimeError("a call that has no event loop waited for one")

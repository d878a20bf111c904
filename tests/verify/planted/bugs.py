"""The list of planted bugs, and how one is planted."""

import contextlib
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

Plant = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Bug:
    """A defect: what it does, in a line, which invariants must find it, and the patch."""

    name: str
    description: str
    by: tuple[str, ...]
    seed: int
    """Of the simulator, in which it shows. When the code under test changes it may be another."""
    plant: Plant


BUGS: dict[str, Bug] = {}


def bug(
    description: str, *, by: tuple[str, ...], seed: int
) -> Callable[[Callable[[], Generator[None]]], Plant]:
    """Register a generator that plants a bug, yields and takes it out again."""

    def register(plant: Callable[[], Generator[None]]) -> Plant:
        planted = contextlib.contextmanager(plant)
        BUGS[plant.__name__] = Bug(plant.__name__, description, by, seed, planted)
        return planted

    return register


@contextlib.contextmanager
def swapped(owner: Any, name: str, value: Any) -> Generator[Any]:
    """Replace an attribute for a while; gives what was there."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield before
    finally:
        setattr(owner, name, before)

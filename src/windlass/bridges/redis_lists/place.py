"""What the URL of a list of Redis's names: server, database, list, and the steps of priority that it has."""

from bisect import bisect_right
from typing import Final

import msgspec

from windlass.bridges.addresses import Address
from windlass.core.option import shown, whole
from windlass.errors import InvalidOption

_OPTIONS = ("list", "steps", "hold", "cafile", "certfile", "keyfile")
_STEPS = "0,3,6,9"
"""Those of Celery, unless it is told otherwise (`priority_steps`)."""
_SEPARATOR: Final = "\x06\x16"
_LOWEST = 9
HOLD = 60
"""Seconds after which others have what a reader has taken and not said more of: it may be gone."""


class RedisList(msgspec.Struct, frozen=True):
    """A list, and those beside it."""

    database: int
    list: str
    steps: tuple[int, ...]
    hold: int

    @property
    def lists(self) -> tuple[str, ...]:
        """The list of each step; the first one is read first."""
        return tuple(self._of_step(step) for step in self.steps)

    def of_priority(self, priority: int | None) -> str:
        """Where a message of a priority goes, in which the highest is first: Celery counts the other way."""
        return self._of_step(self.steps[max(0, bisect_right(self.steps, turned(priority or 0)) - 1)])

    def named(self, name: str) -> "RedisList":
        """The list of this name on the same server; without a name, this list."""
        return msgspec.structs.replace(self, list=name) if name else self

    @property
    def held(self) -> str:
        """Where those are that a reader has taken: a hash from its receipt to the message."""
        return f"windlass:{self.list}:held"

    @property
    def until(self) -> str:
        """Until when: a sorted set of receipts."""
        return f"windlass:{self.list}:until"

    def _of_step(self, step: int) -> str:
        return f"{self.list}{_SEPARATOR}{step}" if step else self.list


def turned(priority: int) -> int:
    """A priority of which the highest goes first, as Celery has it in Redis: 0 goes first, 9 last."""
    return min(max(-priority, 0), _LOWEST)


def place_of(address: Address) -> RedisList:
    """Take the path and the options of a URL apart, or refuse them."""
    address.refuse_unknown(*_OPTIONS)
    if len(address.hosts) != 1 or len(address.path) > 1:
        raise InvalidOption(f"{address.shown} is not like redis://host:6379/0?list=celery")
    name = address.options.get("list", "")
    if not name:
        raise InvalidOption(f"{address.shown} names no list: add ?list=celery")
    database = _number("the database", address.path[0] if address.path else "0", most=1_000_000)
    hold = _number("hold", address.options.get("hold", str(HOLD)), least=1, most=86_400)
    steps = sorted(
        {_number("steps", step, most=_LOWEST) for step in address.options.get("steps", _STEPS).split(",")}
    )
    return RedisList(database, name, tuple(steps), hold)


def _number(name: str, text: str, *, least: int = 0, most: int) -> int:
    if not text.isdecimal():
        raise InvalidOption(f"{name}={shown(text)} is not a whole number")
    return whole(int(text), name=name, least=least, most=most)

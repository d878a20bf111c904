"""Which way a call goes: the short one that most calls are, beside others, or alone in the namespace."""

import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final

from windlass.broker.postgres.driver import Refused, Row, code_of

_ALONE: Final = True
_MUST_BE_ALONE: Final = "WL001"
"""What `_must_be_alone` says."""
_NOT_SHORT: Final = "WL005"
"""What `settle_done` says of a queue that keeps its finished jobs in another way."""
_NOT_PLAIN: Final = frozenset({_MUST_BE_ALONE, _NOT_SHORT, "WL004", "23505"})
"""What short ways say when the long one has to be gone; the others concern one call, as an id sent twice."""
_REMEMBERED: Final = 5.0
"""Seconds. Laned and limited queues stay so: nobody tries in vain every time."""


class Ways:
    """Remembers which queues need which way."""

    def __init__(self, step: Callable[..., Awaitable[Sequence[Row]]]) -> None:
        self._step = step
        self._alone: dict[str, float] = {}
        """Queues whose jobs need the namespace to themselves, and for how long that is believed."""
        self._long: dict[str, float] = {}
        """Queues whose settlements cannot go the short way, likewise."""

    async def beside(self, function: str, queues: Collection[str], *arguments: Any) -> Sequence[Row]:
        """Call a function that can run beside others; alone, if that turns out not to be enough."""
        now = time.monotonic()
        if not _among(self._alone, queues, now):
            try:
                return await self._step(function, not _ALONE, *arguments)
            except Refused as error:
                if code_of(error) != _MUST_BE_ALONE:
                    raise
            self._alone.update(dict.fromkeys(queues, now + _REMEMBERED))
        return await self._step(function, _ALONE, *arguments)

    async def short(self, function: str, queues: Collection[str], *arguments: Any) -> Sequence[Row] | None:
        """Call a function that does what most calls are; None if this one is not."""
        now = time.monotonic()
        if _among(self._alone, queues, now) or _among(self._long, queues, now):
            return None
        try:
            return await self._step(function, *arguments)
        except Refused as error:
            code = code_of(error)
            if code not in _NOT_PLAIN:
                raise
        for known, said in ((self._alone, _MUST_BE_ALONE), (self._long, _NOT_SHORT)):
            if code == said:
                known.update(dict.fromkeys(queues, now + _REMEMBERED))
        return None


def _among(known: dict[str, float], queues: Collection[str], now: float) -> bool:
    return bool(known) and any(known.get(queue, now) > now for queue in queues)

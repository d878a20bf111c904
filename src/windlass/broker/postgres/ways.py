"""Which way a call goes: the short one that most calls are, beside others, or alone in the namespace."""

import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final

from windlass.broker.postgres.copying import COPIED
from windlass.broker.postgres.driver import Row, code_of
from windlass.broker.postgres.trouble import Refusal

_ALONE: Final = True
_MUST_BE_ALONE: Final = "WL001"
"""What `_must_be_alone` says."""
_NOT_SHORT: Final = "WL005"
"""What short ways say of queues that they will not do."""
_OF_ONE_CALL: Final = frozenset({"WL004", "23505"})
"""What they say of one call, as of an id that was sent twice."""
_NOT_PLAIN: Final = frozenset({_MUST_BE_ALONE, _NOT_SHORT, *_OF_ONE_CALL})
"""What short ways say when the long one has to be gone."""
_REMEMBERED: Final = 5.0
"""Seconds. Laned and limited queues stay so: nobody tries in vain every time."""


class Ways:
    """Remembers which queues need which way."""

    def __init__(self, step: Callable[..., Awaitable[Sequence[Row]]]) -> None:
        self._step = step
        self._alone: dict[str, float] = {}
        """Queues whose jobs need the namespace to themselves, and for how long that is believed."""
        self._long: dict[tuple[str, str], float] = {}
        """Functions and queues of which such a call cannot go the short way, likewise."""

    async def beside(self, function: str, queues: Collection[str], *arguments: Any) -> Sequence[Row]:
        """Call a function that can run beside others; alone, if that turns out not to be enough."""
        if not self._need_to_be_alone(queues):
            try:
                return await self._step(function, not _ALONE, *arguments)
            except Refusal as error:
                if code_of(error) != _MUST_BE_ALONE:
                    raise
            self._remember_alone(queues)
        return await self._step(function, _ALONE, *arguments)

    async def short(
        self, function: str, queues: Collection[str], *arguments: Any, laned: bool = False
    ) -> Sequence[Row] | None:
        """Call a function that does what most calls are; None if this one is not."""
        if self._needs_the_long(function, queues):
            return None
        try:
            return await self._shortly(function, queues, arguments, alone=laned)
        except Refusal as error:
            code = code_of(error)
            if code not in _NOT_PLAIN:
                raise
        if code == _NOT_SHORT:
            self._remember_long(function, queues)
        return None

    async def _shortly(
        self, function: str, queues: Collection[str], arguments: Sequence[Any], *, alone: bool
    ) -> Sequence[Row]:
        if not alone and not self._need_to_be_alone(queues):
            try:
                return await self._step(function, not _ALONE, *arguments)
            except Refusal as error:
                if code_of(error) != _MUST_BE_ALONE:
                    raise
            self._remember_alone(queues)
        return await self._step(function, _ALONE, *arguments)

    async def plain(self, function: str, queues: Collection[str], *arguments: Any) -> bool:
        """Call a function that does what most calls are, and only beside others; whether it has."""
        if self._need_to_be_alone(queues) or self._needs_the_long(function, queues):
            return False
        try:
            await self._step(function, not _ALONE, *arguments)
        except Refusal as error:
            code = code_of(error)
            if code not in _NOT_PLAIN:
                raise
            if code == _MUST_BE_ALONE:
                self._remember_alone(queues)
            elif code == _NOT_SHORT:
                self._remember_long(function, queues)
            return False
        return True

    async def one(self, function: str, queue: str, *arguments: Any) -> bool:
        """Call a function that does what most calls are, in one queue and beside others; whether it has."""
        if not self.may_be_beside(queue):
            return False
        try:
            await self._step(function, *arguments)
        except Refusal as error:
            if not self.was_not_plain(queue, error):
                raise
            return False
        return True

    def may_be_beside(self, queue: str) -> bool:
        """Whether a call for this queue need not have the namespace to itself, as far as is known."""
        return not self._alone or not self._need_to_be_alone((queue,))

    def may_copy(self, queue: str) -> bool:
        """Whether jobs of this queue may be sent as rows, as far as is known."""
        return not self._long or self._long.get((COPIED, queue), 0.0) <= time.monotonic()

    def was_not_copied(self, queue: str, error: BaseException) -> None:
        """Take note that rows were refused: mostly those of the next call will be, too; also if others keep
        the namespace to themselves for longer than rows wait for it.
        """
        if code_of(error) not in _OF_ONE_CALL:
            self._long[COPIED, queue] = time.monotonic() + _REMEMBERED

    def was_not_plain(self, queue: str, error: BaseException) -> bool:
        """Whether a short way has given up, and a longer one has to be gone."""
        code = code_of(error)
        if code == _MUST_BE_ALONE:
            self._remember_alone((queue,))
        return code in _NOT_PLAIN

    def _need_to_be_alone(self, queues: Collection[str]) -> bool:
        if not self._alone:
            return False
        now = time.monotonic()
        return any(self._alone.get(queue, now) > now for queue in queues)

    def _needs_the_long(self, function: str, queues: Collection[str]) -> bool:
        if not self._long:
            return False
        now = time.monotonic()
        return any(self._long.get((function, queue), now) > now for queue in queues)

    def _remember_long(self, function: str, queues: Collection[str]) -> None:
        until = time.monotonic() + _REMEMBERED
        self._long.update({(function, queue): until for queue in queues})

    def _remember_alone(self, queues: Collection[str]) -> None:
        self._alone.update(dict.fromkeys(queues, time.monotonic() + _REMEMBERED))

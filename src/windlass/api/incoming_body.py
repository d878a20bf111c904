"""A body as it arrives: read no further than its limit, and not for ever."""

import asyncio
import time
from typing import Any

from litestar.types import Receive

from windlass.api.problems import Refusal

_LONGEST_LENGTH = 15
"""Digits of a length: with more, Python would not even read it."""


class IncomingBody:
    """The body of a request, as a route receives it: a route never sees the connection itself."""

    def __init__(self, receive: Receive, announced: bytes, *, most: int, within: float) -> None:
        """`announced` is the length that the request says, "0" for none; 413 if that is too much."""
        self._receive = receive
        self._most = most
        self._within = within
        self._until = time.monotonic() + within
        if announced.isdigit() and (len(announced) > _LONGEST_LENGTH or int(announced) > most):
            raise _too_large(most)
        self._read = 0
        self._ended = False

    async def __call__(self) -> Any:
        """The next word of the connection."""
        if self._ended:
            return await self._receive()
        return self._counted(await self._in_time())

    async def _in_time(self) -> Any:
        try:
            async with asyncio.timeout(max(0.0, self._until - time.monotonic())):
                return await self._receive()
        except TimeoutError:
            raise Refusal(
                408,
                "timeout",
                f"the body did not arrive within {self._within:g} s",
                headers={"connection": "close"},
            ) from None

    def _counted(self, message: Any) -> Any:
        if message["type"] != "http.request":
            return message
        self._read += len(message.get("body", b""))
        self._ended = not message.get("more_body", False)
        if self._read > self._most:
            self._ended = True
            raise _too_large(self._most)
        return message


def _too_large(most: int) -> Refusal:
    return Refusal(
        413, "too-large", f"the body has more than {most:,} bytes", headers={"connection": "close"}
    )

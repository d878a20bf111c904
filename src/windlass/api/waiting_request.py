"""Waiting on behalf of a caller, for as long as it is there and the server is not about to stop."""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from litestar import Request

T = TypeVar("T")


class WaitingRequest:
    """One request that waits. The connection is listened to once: a word from it that is missed is lost."""

    def __init__(self, request: Request[Any, Any, Any], stopping: asyncio.Event) -> None:
        self._request = request
        self._stopping = stopping
        self._ends: list[asyncio.Future[Any]] = []

    async def __aenter__(self) -> Self:
        """Begin to listen."""
        self._ends = [asyncio.ensure_future(self._left()), asyncio.ensure_future(self._stopping.wait())]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop listening."""
        await _cancelled(self._ends)

    @property
    def is_gone(self) -> bool:
        """Whether the caller has left: nobody would get an answer."""
        return self._ends[0].done()

    async def wait(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Wait for something; None if the caller leaves before it comes, or the server is about to stop."""
        wanted = asyncio.ensure_future(work)
        try:
            await asyncio.wait([wanted, *self._ends], return_when=asyncio.FIRST_COMPLETED)
            return wanted.result() if wanted.done() else None
        finally:
            await _cancelled([wanted])

    async def _left(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass


async def _cancelled(futures: "list[asyncio.Future[Any]]") -> None:
    for future in futures:
        future.cancel()
    await asyncio.wait(futures)

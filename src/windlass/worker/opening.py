"""Opening a store when a program starts: one that is down is waited for, unless the program is to exit."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from typing import TypeVar

from windlass.errors import StoreError, StoreUnavailable
from windlass.pace import MachinePace
from windlass.patience import insist

_log = logging.getLogger("windlass.worker")
_T = TypeVar("_T")


async def when_store_answers(call: Callable[[], Awaitable[_T]], *, waits: bool) -> _T | None:
    """Call until the store answers; returns None if a signal told the program to stop before that.

    A login or a database that the server refuses is an error at once: it does not pass by itself. Without
    `waits`, so is a store that does not answer.
    """

    def gives_up(error: StoreError) -> bool:
        return not (waits and isinstance(error, StoreUnavailable))

    opening = asyncio.ensure_future(insist(MachinePace(), "opening the store", call, gives_up=gives_up))
    told = asyncio.Event()

    def stop() -> None:
        told.set()
        opening.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):  # process 1 of a container would not end of them
        loop.add_signal_handler(number, stop)
    try:
        await asyncio.wait({opening})
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    if not told.is_set():
        return opening.result()
    if not opening.cancelled() and (error := opening.exception()) is not None:
        _log.warning("told to stop; opening the store had failed: %s", error)
    _log.info("stopped")
    return None

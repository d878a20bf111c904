"""Opening stores when a program starts: one that is down is waited for, unless the program is to exit."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeVar

from windlass.broker.contract import Broker
from windlass.broker.registry import open_broker
from windlass.errors import InvalidOption, StoreError, StoreUnavailable
from windlass.observe.failures import flush_all
from windlass.pace import MachinePace
from windlass.patience import insist
from windlass.worker.program import Program
from windlass.worker.registration import declare_all

_log = logging.getLogger("windlass.worker")
_T = TypeVar("_T")

CLOSING = 3.0
"""Seconds that a store is given to let go of its connections."""


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


@contextlib.asynccontextmanager
async def opened(programs: Sequence[Program], code: Callable[[], int]) -> AsyncGenerator[list[Broker]]:
    """The store of each program, with everything declared; closed in the end. `code` is what the process
    exits with if a store does not let it go.
    """
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(_open(program, code)) for program in programs]


@contextlib.asynccontextmanager
async def _open(program: Program, code: Callable[[], int]) -> AsyncGenerator[Broker]:
    broker = await open_broker(program.config.url, options=program.config.broker_options())
    try:
        if not broker.capabilities.shared:
            raise InvalidOption(
                f"a {broker.capabilities.store} store lives in one process: worker processes would each have "
                "their own; use another store, or `async with app.worker()` in the process that has it"
            )
        for warning in await broker.warnings():
            _log.warning("%s", warning)
        await declare_all(broker, program)
        yield broker
    finally:
        await _close(broker, code())


async def _close(broker: Broker, code: int) -> None:
    """A store that does not answer would keep a process that has nothing left to do."""
    try:
        async with asyncio.timeout(CLOSING):
            await broker.close()
    except TimeoutError:
        _log.warning("the store is away: left without closing it")
        flush_all()
        os._exit(code)

"""What a server does besides answering: it sweeps the store, as workers do, and serves readers of events."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from windlass.admin import maintenance
from windlass.api.server_state import ServerState
from windlass.observe.together import folder_from_environment
from windlass.pace import MachinePace
from windlass.patience import Backoff

_log = logging.getLogger("windlass.api")

Duty = Callable[[ServerState], Awaitable[None]]
"""Runs until it is cancelled. One that fails is started again."""


async def sweep(server_state: ServerState) -> None:
    """Sweep the namespace in turn with its workers."""
    await maintenance.sweep(server_state.app)


async def history(server_state: ServerState) -> None:
    """Keep finished attempts, where the app says so."""
    await maintenance.keep_history(server_state.app)


async def share_metrics(server_state: ServerState) -> None:
    """Tell the other processes of this server what this one has counted."""
    await server_state.watch.keep_telling()


def duties(server_state: ServerState) -> Sequence[Duty]:
    """What this server has to do, one line for each."""
    return [
        *([sweep] if server_state.options.sweep else []),
        *([history] if server_state.app.config.history is not None else []),
        *([share_metrics] if folder_from_environment() is not None else []),
    ]


@asynccontextmanager
async def serving(server_state: ServerState) -> AsyncGenerator[None]:
    """Do all of it for as long as the server runs."""
    tasks = [asyncio.create_task(_kept(duty, server_state)) for duty in duties(server_state)]
    try:
        yield
    finally:
        server_state.stopping.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server_state.close()
        await server_state.app.connection.leave()


async def _kept(duty: Duty, server_state: ServerState) -> None:
    """One that fails is logged and started again: the others, and the requests, do not depend on it."""
    pace = MachinePace()
    backoff = Backoff(pace, most=30.0)
    while True:
        try:
            await duty(server_state)
        except Exception:  # noqa: BLE001 - whatever it is
            _log.exception("%s has failed; it starts again", getattr(duty, "__qualname__", duty))
        await pace.sleep(backoff.failed())

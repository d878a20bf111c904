"""What a server does besides answering: it sweeps the store, as workers do, and serves readers of events."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from windlass.admin import maintenance
from windlass.api.running import Running
from windlass.observe.together import folder_from_environment
from windlass.worker.pace import MachinePace
from windlass.worker.patience import Backoff

_log = logging.getLogger("windlass.api")

Duty = Callable[[Running], Awaitable[None]]
"""Runs until it is cancelled. One that fails is started again."""


async def sweep(running: Running) -> None:
    """Sweep the namespace in turn with its workers."""
    await maintenance.sweep(running.app)


async def history(running: Running) -> None:
    """Keep finished attempts, where the app says so."""
    await maintenance.keep_history(running.app)


async def share_metrics(running: Running) -> None:
    """Tell the other processes of this server what this one has counted."""
    await running.watch.keep_telling()


def duties(running: Running) -> Sequence[Duty]:
    """What this server has to do, one line for each."""
    return [
        *([sweep] if running.options.sweep else []),
        *([history] if running.app.config.history is not None else []),
        *([share_metrics] if folder_from_environment() is not None else []),
    ]


@asynccontextmanager
async def serving(running: Running) -> AsyncGenerator[None]:
    """Do all of it for as long as the server runs."""
    tasks = [asyncio.create_task(_kept(duty, running)) for duty in duties(running)]
    try:
        yield
    finally:
        running.stopping.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await running.close()
        await running.app.connection.leave()


async def _kept(duty: Duty, running: Running) -> None:
    """One that fails is logged and started again: the others, and the requests, do not depend on it."""
    pace = MachinePace()
    backoff = Backoff(pace, most=30.0)
    while True:
        try:
            await duty(running)
        except Exception:  # noqa: BLE001 - whatever it is
            _log.exception("%s has failed; it starts again", getattr(duty, "__qualname__", duty))
        await pace.sleep(backoff.failed())

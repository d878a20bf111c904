"""What a server does besides answering: it sweeps the store, as workers do, and serves readers of events."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from windlass.api import background
from windlass.api.running import Running
from windlass.observe.history.reader import keep_history
from windlass.observe.together import folder_from_environment
from windlass.worker.alerting import look_and_tell
from windlass.worker.firing import Firing
from windlass.worker.janitor import Janitor
from windlass.worker.pace import MachinePace
from windlass.worker.patience import Backoff

_log = logging.getLogger("windlass.api")

Service = Callable[[Running], Awaitable[None]]
"""Runs until it is cancelled. One that fails is started again."""


async def sweep(running: Running) -> None:
    """Sweep the namespace, in step with its workers; fire what is due, and look at alerts."""
    config = running.app.config
    broker = await running.app.connection.broker()
    janitor = Janitor(
        broker,
        MachinePace(),
        config,
        fire=Firing(broker, running.app.new_id).due,
        look=lambda: look_and_tell(broker, namespace=config.namespace),
    )
    await janitor.run()


async def history(running: Running) -> None:
    """Keep finished attempts, where the app says so."""
    config = running.app.config
    if config.history is not None:
        await keep_history(config.history, await running.app.connection.broker(), config.namespace)


async def share_metrics(running: Running) -> None:
    """Tell the other processes of this server what this one has counted."""
    await running.watch.keep_telling()


def services(running: Running) -> Sequence[Service]:
    """What this server is to do, one line for each."""
    return [
        *([sweep] if running.options.sweep else []),
        *([history] if running.app.config.history is not None else []),
        *([share_metrics] if folder_from_environment() is not None else []),
        background.run,
    ]


@asynccontextmanager
async def serving(running: Running) -> AsyncGenerator[None]:
    """Run the services for as long as the server runs."""
    tasks = [asyncio.create_task(_kept(service, running)) for service in services(running)]
    try:
        yield
    finally:
        running.stopping.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await running.app.connection.leave()


async def _kept(service: Service, running: Running) -> None:
    """A service that fails is logged and started again: the others, and the requests, do not depend on it."""
    pace = MachinePace()
    backoff = Backoff(pace, most=30.0)
    while True:
        try:
            await service(running)
        except Exception:  # noqa: BLE001 - whatever it is
            _log.exception("%s has failed; it starts again", getattr(service, "__qualname__", service))
        await pace.sleep(backoff.failed())

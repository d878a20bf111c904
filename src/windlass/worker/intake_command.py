"""The command `windlass intake`: the intakes of an app in a process of their own, which runs no job."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Coroutine, Sequence
from typing import Any

from windlass.broker.contract import Broker
from windlass.core.units import SECOND
from windlass.errors import InvalidOption, StoreError
from windlass.observe.failures import flush_listeners
from windlass.observe.logs import begin_logging
from windlass.pace import MachinePace, Pace
from windlass.patience import cancelled
from windlass.worker.endings import Orphans
from windlass.worker.guarding import guarded
from windlass.worker.host import Machine
from windlass.worker.intakes import Intakes
from windlass.worker.janitor import Janitor
from windlass.worker.opening import opened, when_store_answers
from windlass.worker.program import Application, Program
from windlass.worker.pruning import Pruning
from windlass.worker.registration import declare_anew

_log = logging.getLogger("windlass.worker")


def programs_with_intakes(app_name: str, app: Application) -> list[Program]:
    """The namespace that the name ends with, else all in which the app has intakes."""
    programs: list[Program] = [app] if "@" in app_name else list(app.namespaces.values())
    found = [program for program in programs if program.intakes]
    if not found:
        raise InvalidOption(
            f"{app_name} has no intakes: declare one with app.intake(...), or name a queue of Celery's with "
            "--celery"
        )
    return found


def take_in(programs: Sequence[Program], *, exit_if_store_is_down: bool) -> int:
    """Run intakes until told to stop; the exit code. 1: a store cannot be used, the log says why."""
    begin_logging()
    code = asyncio.run(_take_in(programs, waits=not exit_if_store_is_down))
    flush_listeners()
    return code


async def _take_in(programs: Sequence[Program], *, waits: bool) -> int:
    code = 1
    async with contextlib.AsyncExitStack() as stack:
        try:
            brokers = await when_store_answers(
                lambda: stack.enter_async_context(opened(programs, lambda: 1)), waits=waits
            )
            if brokers is None:
                return 0
            await _until_stopped(list(zip(programs, brokers, strict=True)))
            code = 0
        except StoreError as error:
            _log.error("the intakes cannot run: %s", error)
    return code


async def _until_stopped(served: Sequence[tuple[Program, Broker]]) -> None:
    """Run them until a signal comes. `StoreReplaced`: a store was taken away."""
    pace, told = MachinePace(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    services = [
        asyncio.create_task(service)
        for program, broker in served
        for service in _services(program, broker, pace)
    ]
    for program, _ in served:
        _log.info("intakes started: %s", ", ".join(program.intakes))
    stopping = asyncio.create_task(told.wait())
    try:
        done, _ = await asyncio.wait({stopping, *services}, return_when=asyncio.FIRST_COMPLETED)
        for task in done - {stopping}:
            task.result()
    finally:
        stopping.cancel()
        await cancelled(services)
    _log.info("stopped")


def _services(program: Program, broker: Broker, pace: Pace) -> list[Coroutine[Any, Any, None]]:
    """As a supervisor has them: somebody has to notice which sessions have ended, if no worker runs."""
    host = Machine()
    intakes = Intakes(
        program, broker, declare=lambda: declare_anew(broker, program, pace), pace=pace, host=host
    )
    janitor = Janitor(broker, pace, program.config, pruning=Pruning(broker, program, pace))
    orphans = Orphans(broker, pace, host)

    async def end_orphans() -> None:
        while True:
            await orphans.end()
            await pace.sleep(program.config.session_ttl / SECOND)

    return [
        guarded("intakes", intakes.run, pace),
        guarded("janitor", janitor.run, pace),
        guarded("search for orphans", end_orphans, pace),
    ]

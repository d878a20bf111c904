"""The command `windlass worker`: a supervisor with real processes, a real clock, and signals."""

import asyncio
import logging
import os
import signal
from pathlib import Path

from windlass.broker.contract import Broker
from windlass.broker.registry import open_broker
from windlass.errors import InvalidOption, StoreError
from windlass.loading import load_app
from windlass.worker.alerting import look_and_tell
from windlass.worker.children import ProcessSpawner
from windlass.worker.firing import Firing
from windlass.worker.holds import Holds, own_tasks
from windlass.worker.host import Machine
from windlass.worker.options import WorkerOptions
from windlass.worker.pace import MachinePace
from windlass.worker.plan import Plan, described, plan_of
from windlass.worker.program import Program
from windlass.worker.registration import declare_all, declare_anew
from windlass.worker.reload import changed, start_anew, start_anew_on_change
from windlass.worker.supervisor import Supervisor

_log = logging.getLogger("windlass.worker")

CLOSING = 3.0
"""Seconds that a store is given to let go of its connections."""
RELOAD_GRACE = 5.0
"""Seconds: who changes the code wants to see it run."""


def supervise(app_name: str, options: WorkerOptions) -> int:
    """Run a worker until it is told to stop; its exit code. 0: stopped as asked. 1: it could not start, the
    log says why. `InvalidOption`: the options or the app have no meaning.
    """
    try:
        program: Program = load_app(app_name)
        plan = plan_of(app_name, program, options)
    except InvalidOption as error:
        if not options.reload:
            raise
        _log.error("%s; waiting for a change", error)
        start_anew_on_change()
        return 1
    code, anew = asyncio.run(_opened(plan, program, reload=options.reload))
    if anew and code:
        start_anew_on_change()
    elif anew:
        start_anew()
    return code


async def _opened(plan: Plan, program: Program, *, reload: bool) -> tuple[int, bool]:
    """Open the store and work; the exit code, and whether to start anew instead."""
    config = program.config
    broker: Broker | None = None
    ended = (1, False)
    try:
        broker = await open_broker(config.url, options=config.broker_options())
        if not broker.capabilities.shared:
            raise InvalidOption(
                f"a {broker.capabilities.store} store lives in one process: worker processes would each have "
                "their own; use another store, or `async with app.worker()` in the process that has it"
            )
        for warning in await broker.warnings():
            _log.warning("%s", warning)
        await declare_all(broker, program)
        ended = await _supervised(plan, broker, program, reload=reload)
    except StoreError as error:
        _log.error("the worker cannot start: %s", error)
    finally:
        if broker is not None:
            await _close(broker, ended[0])
    return ended


async def _close(broker: Broker, code: int) -> None:
    """A store that does not answer would keep a process that has nothing left to do."""
    try:
        async with asyncio.timeout(CLOSING):
            await broker.close()
    except TimeoutError:
        _log.warning("the store is away: left without closing it")
        logging.shutdown()
        os._exit(code)


async def _supervised(plan: Plan, broker: Broker, program: Program, *, reload: bool) -> tuple[int, bool]:
    config, pace = program.config, MachinePace()

    async def once_started() -> None:
        _log.info("worker started: %s", described(plan, broker, config))
        await Holds(broker, pace, own_tasks(program)).run()

    supervisor = Supervisor(
        plan,
        broker=broker,
        spawner=ProcessSpawner(),
        pace=pace,
        host=Machine(),
        config=config,
        once_started=once_started,
        fire=Firing(broker, program.new_id).due,
        look=lambda: look_and_tell(broker),
        declare=lambda: declare_anew(broker, program, pace),
    )
    asked = asyncio.Event()

    def stop() -> None:
        asked.set()
        supervisor.stop()

    async def stop_on_change() -> None:
        path = await changed(pace, Path.cwd())
        _log.info("%s has changed: starting anew", path)
        supervisor.stop(grace=min(plan.grace, RELOAD_GRACE))

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop)
    loop.add_signal_handler(signal.SIGINT, stop)
    loop.add_signal_handler(signal.SIGHUP, supervisor.restart)
    watching = asyncio.create_task(stop_on_change()) if reload else None
    code = await supervisor.run()
    if watching is not None:
        watching.cancel()
    return code, reload and not asked.is_set()

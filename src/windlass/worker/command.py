"""The command `windlass worker`: a supervisor with real processes, a real clock, and signals."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from windlass.broker.contract import Broker
from windlass.errors import InvalidOption, StoreError
from windlass.loading import in_namespace, load_app
from windlass.observe.failures import flush_listeners
from windlass.observe.logs import begin_logging
from windlass.observe.watch import Watch
from windlass.pace import MachinePace, Pace
from windlass.worker.alerting import look_and_tell
from windlass.worker.beside import beside
from windlass.worker.children import ProcessSpawner
from windlass.worker.firing import Firing
from windlass.worker.health import Health, health_served
from windlass.worker.holds import Holds, own_tasks
from windlass.worker.host import Machine
from windlass.worker.measuring import look_at, metrics_served
from windlass.worker.opening import opened, when_store_answers
from windlass.worker.options import WorkerOptions
from windlass.worker.plan import Plan, described, plan_of
from windlass.worker.program import Application, Program
from windlass.worker.pruning import Pruning
from windlass.worker.registration import declare_anew
from windlass.worker.reload import changed, start_anew, start_anew_on_change
from windlass.worker.several import shared_out
from windlass.worker.supervisor import Supervisor

_log = logging.getLogger("windlass.worker")

RELOAD_GRACE = 5.0
"""Seconds: a developer who changes the code wants to see it run."""


class Service(NamedTuple):
    """One namespace that is to be served."""

    plan: Plan
    program: Program


def services_of(app_name: str, app: Application, options: WorkerOptions) -> list[Service]:
    """What is to be served: the namespace that the name ends with, else all in which the app has queues."""
    if "@" in app_name or len(app.namespaces) == 1:
        return [Service(plan_of(app_name, app, options), app)]
    shares = shared_out(options, app.namespaces, lambda queue: app.place_of(queue).config.namespace)
    return [
        Service(plan_of(in_namespace(app_name, name), app.within(name), share), app.within(name))
        for name, share in shares.items()
    ]


def supervise(
    app_name: str, options: WorkerOptions, *, once_open: Callable[[], Awaitable[None]] | None = None
) -> int:
    """Run a worker until it is told to stop; its exit code. 0: stopped as asked. 1: it could not start, the
    log says why. `InvalidOption`: the options or the app have no meaning. `once_open` is called when the
    stores have answered, and may raise it, too.
    """
    try:
        app = load_app(app_name)
        begin_logging()  # by now the app has set up what it wants
        services = services_of(app_name, app, options)
    except InvalidOption as error:
        if not options.reload:
            raise
        begin_logging()
        _log.error("%s; waiting for a change", error)
        start_anew_on_change()
        return 1
    code, anew = asyncio.run(_opened(services, options, once_open))
    flush_listeners()
    if anew and code:
        start_anew_on_change()
    elif anew:
        start_anew()
    return code


async def _opened(
    services: Sequence[Service], options: WorkerOptions, once_open: Callable[[], Awaitable[None]] | None
) -> tuple[int, bool]:
    """Open the stores and work; the exit code, and whether to start anew instead."""
    ended = (1, False)
    health = Health()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(health_served(options.health, health))
        try:
            brokers = await when_store_answers(
                lambda: stack.enter_async_context(
                    opened([service.program for service in services], lambda: ended[0])
                ),
                waits=not options.exit_if_store_is_down,
            )
            if brokers is None:
                return (0, False)
            if once_open is not None:
                await once_open()
            watches = [_watch_of(service) for service in services]
            if options.metrics is not None:
                brokers = [watch.over(broker) for watch, broker in zip(watches, brokers, strict=True)]
            await stack.enter_async_context(
                metrics_served(options.metrics, list(zip(watches, brokers, strict=True)))
            )
            ended = await _supervised(
                list(zip(services, brokers, watches, strict=True)), health, reload=options.reload
            )
        except StoreError as error:
            _log.error("the worker cannot start: %s", error)
    return ended


def _watch_of(service: Service) -> Watch:
    return Watch(service.program.config.namespace)


def _supervisor(service: Service, broker: Broker, watch: Watch, pace: Pace, *, of: int) -> Supervisor:
    plan, program = service
    config = program.config

    async def once_started() -> None:
        where = f"namespace {config.namespace}: " if of > 1 else ""
        _log.info(
            "worker started: %s%s",
            where,
            described(plan, broker, config, program.intakes if plan.intakes else ()),
        )
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
        look=lambda: look_and_tell(broker, namespace=config.namespace),
        pruning=Pruning(broker, program, pace),
        declare=lambda: declare_anew(broker, program, pace),
        watch=watch,
        beside=beside(program, broker, pace, intakes=plan.intakes),
    )
    look_at(watch, supervisor)
    return supervisor


async def _run(supervisor: Supervisor, all_of_them: Sequence[Supervisor]) -> int:
    """One that ends by itself could not start: a worker serves all of its namespaces or none."""
    code = await supervisor.run()
    for other in all_of_them if code else ():
        if other is not supervisor:
            other.stop()
    return code


async def _supervised(
    served: Sequence[tuple[Service, Broker, Watch]], health: Health, *, reload: bool
) -> tuple[int, bool]:
    pace = MachinePace()
    supervisors = [
        _supervisor(service, broker, watch, pace, of=len(served)) for service, broker, watch in served
    ]
    health.supervisors = supervisors
    asked = asyncio.Event()

    def stop() -> None:
        asked.set()
        for supervisor in supervisors:
            supervisor.stop()

    def restart() -> None:
        for supervisor in supervisors:
            supervisor.restart()

    async def stop_on_change() -> None:
        path = await changed(pace, Path.cwd())
        _log.info("%s has changed: starting anew", path)
        for supervisor, (service, _, _) in zip(supervisors, served, strict=True):
            supervisor.stop(grace=min(service.plan.grace, RELOAD_GRACE))

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop)
    loop.add_signal_handler(signal.SIGINT, stop)
    loop.add_signal_handler(signal.SIGHUP, restart)
    watching = asyncio.create_task(stop_on_change()) if reload else None
    codes = await asyncio.gather(*(_run(supervisor, supervisors) for supervisor in supervisors))
    if watching is not None:
        watching.cancel()
    return max(codes), reload and not asked.is_set()

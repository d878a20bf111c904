"""What runs beside the tasks of a program, once for each supervisor and each worker inside an application."""

from collections.abc import Awaitable, Callable

from windlass.broker.contract import Broker
from windlass.observe.history.reader import keep_history
from windlass.pace import Pace
from windlass.worker.host import Machine
from windlass.worker.intakes import Intakes
from windlass.worker.program import Program
from windlass.worker.registration import declare_anew
from windlass.worker.relays import Relays
from windlass.worker.webhooks import Webhooks


def beside(
    program: Program, broker: Broker, pace: Pace, *, intakes: bool
) -> dict[str, Callable[[], Awaitable[None]]]:
    """By name: each runs for as long as the worker does, and waits for a store that is away by itself."""
    config = program.config
    services: dict[str, Callable[[], Awaitable[None]]] = {}
    if (history := config.history) is not None:
        services["history"] = lambda: keep_history(
            history, broker, config.namespace, patterns=config.private_patterns, sleep=pace.sleep
        )
    if config.webhooks:
        services["webhooks"] = Webhooks(broker, pace, config.namespace, config.private_patterns).run
    if program.relays:
        services["relays"] = Relays(
            program.relays,
            broker,
            pace,
            config.namespace,
            signature_of=program.signature_of,
            patterns=config.private_patterns,
        ).run
    if (values := program.values) is not None:
        from windlass.worker.value_sweeping import ValueSweeping  # noqa: PLC0415 - most have no such package

        services["values"] = ValueSweeping(broker, values, config, pace).run
    if intakes and program.intakes:
        services["intakes"] = Intakes(
            program, broker, declare=lambda: declare_anew(broker, program, pace), pace=pace, host=Machine()
        ).run
    return services

"""`windlass queues`: list and show queues, pause and resume them, override their settings."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from windlass.admin.service import Service
from windlass.admin.views import QueueShown
from windlass.cli import parameters as given
from windlass.cli.effects import put_on_record
from windlass.cli.failure import UsageError
from windlass.cli.opening import with_service
from windlass.cli.output import Column, each, say, say_json, show
from windlass.cli.text import age
from windlass.client.settings import QueueOptions, queue_settings
from windlass.core.settings import QueueSettings
from windlass.core.state import State

NO_LIMIT = "none"
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_LIMITS = ("concurrency", "rate", "lane_concurrency", "lane_rate")


def _limit(what: str) -> Any:
    return Parameter(help=f'{what}; "{NO_LIMIT}" for no limit.')


def list_queues(app: given.App, /, *, json: given.Json = False) -> int:
    """List queues: jobs by state, the longest wait, limits; `*` marks settings that an operator overrides."""

    async def work(service: Service) -> None:
        queues = await service.queues.all()
        await show(each(queues), _columns(), json=json, nothing="no queues are declared")

    return with_service(app, work)


def show_queue(app: given.App, queue: given.QueueName, /, *, json: given.Json = False) -> int:
    """Show one queue with its settings: declared, overridden, and in force."""

    async def work(service: Service) -> None:
        found = await service.queues.one(queue)
        if json:
            say_json(found)
        else:
            await _print_queue(found)

    return with_service(app, work)


def pause_queue(app: given.App, queue: given.QueueName, /, *, json: given.Json = False) -> int:
    """Stop handing out a queue's jobs until you resume it. Running jobs continue."""

    async def work(service: Service) -> None:
        await service.queues.pause(queue)
        await put_on_record(service, "queue paused", {"queue": queue})
        _tell(queue, "paused", json=json)

    return with_service(app, work)


def resume_queue(app: given.App, queue: given.QueueName, /, *, json: given.Json = False) -> int:
    """Hand out a queue's jobs again."""

    async def work(service: Service) -> None:
        await service.queues.resume(queue)
        await put_on_record(service, "queue resumed", {"queue": queue})
        _tell(queue, "resumed", json=json)

    return with_service(app, work)


def set_queue(
    app: given.App,
    queue: given.QueueName,
    /,
    *,
    concurrency: Annotated[str | None, _limit("Jobs that run at once")] = None,
    rate: Annotated[str | None, _limit('Jobs that start per period, such as "100/s"')] = None,
    lane_concurrency: Annotated[str | None, _limit("Jobs of one lane that run at once")] = None,
    lane_rate: Annotated[str | None, _limit("Jobs of one lane that start per period")] = None,
    retention: Annotated[str | None, Parameter(help='How long done jobs are kept, such as "24h".')] = None,
    result_ttl: Annotated[str | None, Parameter(help="How long results are kept.")] = None,
    dead_retention: Annotated[str | None, Parameter(help="How long dead letters are kept.")] = None,
    json: given.Json = False,
) -> int:
    """Override settings of a queue until you reset them. The declared settings are shown beside them."""
    options = {
        "concurrency": concurrency,
        "rate": rate,
        "lane_concurrency": lane_concurrency,
        "lane_rate": lane_rate,
        "retention": retention,
        "result_ttl": result_ttl,
        "dead_retention": dead_retention,
    }
    said = {name: value for name, value in options.items() if value is not None}
    settings = read_settings(said)

    async def work(service: Service) -> None:
        await service.queues.override(queue, settings)
        await put_on_record(service, "queue overridden", {"queue": queue, **said})
        _tell(queue, "overridden", json=json)

    return with_service(app, work)


def reset_queue(app: given.App, queue: given.QueueName, /, *, json: given.Json = False) -> int:
    """Drop the override of a queue: the declared settings apply again."""

    async def work(service: Service) -> None:
        changed = await service.queues.reset(queue)
        if changed:
            await put_on_record(service, "queue reset", {"queue": queue})
        _tell(queue, "reset" if changed else "not overridden", json=json)

    return with_service(app, work)


def read_settings(said: Mapping[str, str]) -> QueueSettings:
    """Return the settings that the options name; "none" means no limit."""
    if not said:
        raise UsageError("name a setting, such as --concurrency 5; the verb reset drops an override")
    unlimited = {name for name in _LIMITS if said.get(name) == NO_LIMIT}
    options = {name: as_number(name, value) for name, value in said.items() if name not in unlimited}
    settings = queue_settings(QueueOptions(**options))  # pyright: ignore[reportArgumentType]
    return msgspec.structs.replace(settings, **dict.fromkeys(unlimited))


def as_number(name: str, value: str) -> str | int:
    """Turn text into a whole number if it is one; anything else is refused later, with the option's name."""
    return int(value) if name.endswith(("concurrency", "weight")) and _NUMBER.fullmatch(value) else value


def _tell(queue: str, done: str, *, json: bool) -> None:
    if json:
        say_json({"queue": queue, "effect": done})
    else:
        say(f'queue "{queue}": {done}')


def _columns() -> Sequence[Column[QueueShown]]:
    states = (State.READY, State.RUNNING, State.SCHEDULED, State.BLOCKED, State.DEAD, State.DONE)
    return (
        Column("queue", lambda queue: queue.name),
        *(_count(state) for state in states),
        Column("oldest", lambda queue: "" if queue.oldest is None else age(queue.oldest), right=True),
        Column("paused", _paused),
        Column("limits", _limits, wraps=True),
    )


def _count(state: State) -> Column[QueueShown]:
    return Column(state.value, lambda queue: f"{queue.jobs[state]:,}", right=True)


def _paused(queue: QueueShown) -> str:
    return "paused" if queue.paused else ""


def _limits(queue: QueueShown) -> str:
    return ", ".join(
        f"{name}{'*' if name in queue.override else ''}={NO_LIMIT if value is None else value}"
        for name, value in queue.settings.items()
    )


async def _print_queue(queue: QueueShown) -> None:
    await show(each([queue]), _columns(), json=False, nothing="")
    names = list(dict.fromkeys((*queue.declared, *queue.override)))

    def said(layer: Any, name: str) -> str:
        return "" if name not in layer else NO_LIMIT if layer[name] is None else str(layer[name])

    if names:
        say("")
        columns: Sequence[Column[str]] = (
            Column("setting", lambda name: name),
            Column("declared", lambda name: said(queue.declared, name)),
            Column("override", lambda name: said(queue.override, name)),
            Column("in force", lambda name: said(queue.settings, name)),
        )
        await show(each(names), columns, json=False, nothing="")

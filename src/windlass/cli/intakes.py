"""`windlass intakes`: where jobs are taken from; paused, resumed, moved and forgotten."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from cyclopts import Parameter

from windlass.admin.intakes import IntakeShown, PartitionShown
from windlass.admin.service import Service
from windlass.cli import parameters as given
from windlass.cli.effects import put_on_record
from windlass.cli.opening import with_service
from windlass.cli.output import Column, confirm, each, say, say_aside, say_json, show, show_fields
from windlass.cli.text import since

Name = Annotated[str, Parameter(name="NAME", help="The intake.")]


def list_intakes(app: given.App, /, *, json: given.Json = False) -> int:
    """List intakes: where each reads, how many messages wait, and how fast they are taken."""

    async def work(service: Service) -> None:
        nothing = 'no intakes; an app declares them: app.intake("kafka://host:9092/orders", task=ship)'
        await show(each(await service.intakes.all()), _COLUMNS, json=json, nothing=nothing)

    return with_service(app, work)


def show_intake(app: given.App, name: Name, /, *, json: given.Json = False) -> int:
    """Show an intake: its partitions with their offsets and owners, or the readers of its queue."""

    async def work(service: Service) -> None:
        intake = await service.intakes.one(name)
        if json:
            say_json(intake)
            return
        show_fields(_fields(intake))
        if intake.partitions:
            say("")
            await show(each(intake.partitions), _partitions(await service.clock()), json=False, nothing="")
        for warning in intake.warnings:
            say_aside(f"windlass: warning: {warning}")

    return with_service(app, work)


def pause_intake(app: given.App, name: Name, /, *, json: given.Json = False) -> int:
    """Pause an intake. The message broker keeps new messages; jobs that were taken run."""
    return _pause(app, name, paused=True, json=json)


def resume_intake(app: given.App, name: Name, /, *, json: given.Json = False) -> int:
    """Resume an intake where it was paused."""
    return _pause(app, name, paused=False, json=json)


def move_intake(
    app: given.App,
    name: Name,
    partition: Annotated[str, Parameter(name="PARTITION", help='As the verb "show" lists it.')],
    to: Annotated[
        str,
        Parameter(name="TO", help='Where to go on: "begin", "end", or an offset, as "show" writes it.'),
    ],
    /,
    *,
    identity: Annotated[
        str | None,
        Parameter(
            help="Which log the offset is of. Then the message broker is not asked, and nothing is checked."
        ),
    ] = None,
    expect: Annotated[
        str | None, Parameter(help="Do nothing unless the offset is this one, as it was listed.")
    ] = None,
    yes: given.Yes = False,
    json: given.Json = False,
) -> int:
    """Let an intake go on at another place of a partition: back to take messages again, or on to leave some
    out. It also goes on with a source that was deleted and made anew.
    """

    async def work(service: Service) -> int:
        before = _partition(await service.intakes.one(name), partition)
        stands = "has none yet" if before is None or before.offset is None else f"is {before.offset} now"
        question = f'move partition {partition} of intake "{name}" to {to} (its offset {stands})'
        if not confirm(question, yes=yes):
            say_aside("nothing was done")
            return 0
        moved = await service.intakes.move(name, partition, to, identity=identity, expect=expect)
        if moved.moved:
            chosen = {
                "intake": name,
                "partition": partition,
                "from": moved.before or "",
                "to": moved.offset or "",
            }
            await put_on_record(service, "intake moved", chosen)
        if json:
            say_json(moved)
        elif moved.moved:
            say(f'intake "{name}", partition {partition}: goes on at {moved.offset}')
        else:
            say_aside(f"windlass: nothing was done: the offset is {moved.offset}, not {expect}")
        return 0 if moved.moved else 1

    return with_service(app, work)


def forget_intake(app: given.App, name: Name, /, *, yes: given.Yes = False, json: given.Json = False) -> int:
    """Remove the offsets of an intake that nobody runs any more. If it is run again, it begins anew."""

    async def work(service: Service) -> None:
        intake = await service.intakes.one(name)
        offsets = sum(partition.offset is not None for partition in intake.partitions)
        many = f"{offsets:,} offset{'' if offsets == 1 else 's'}"
        if not confirm(f'forget {many} of intake "{name}"', yes=yes):
            say_aside("nothing was done")
            return
        forgotten = await service.intakes.forget(name)
        await put_on_record(service, "intake forgotten", {"intake": name, "offsets": str(forgotten.offsets)})
        say_json(forgotten) if json else say(f'intake "{name}" is forgotten')

    return with_service(app, work)


def _pause(app: str, name: str, *, paused: bool, json: bool) -> int:
    async def work(service: Service) -> None:
        changed = await service.intakes.pause(name, paused=paused)
        effect = "paused" if paused else "resumed"
        if changed:
            await put_on_record(service, f"intake {effect}", {"intake": name})
        else:
            effect = "paused already" if paused else "not paused"
        say_json({"intake": name, "effect": effect}) if json else say(f'intake "{name}": {effect}')

    return with_service(app, work)


def _partition(intake: IntakeShown, name: str) -> PartitionShown | None:
    return next((each for each in intake.partitions if each.partition == name), None)


def _fields(intake: IntakeShown) -> Sequence[tuple[str, str]]:
    return (
        ("intake", intake.name),
        ("state", intake.state),
        ("reads", intake.url),
        ("format", intake.format),
        ("tasks", ", ".join(intake.tasks) or "those that messages name"),
        ("queues", ", ".join(intake.queues or ()) or "those that messages name"),
        ("fields", ", ".join(f"{name}={value}" for name, value in intake.fields.items() if name != "task")),
        ("backlog", f"{intake.backlog:,} ready jobs"),
        ("lag", _number(intake.lag)),
        ("run by", f"{intake.runners} process{'' if intake.runners == 1 else 'es'}"),
        ("app", intake.app),
    )


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _rate(rate: float) -> str:
    return f"{rate:,.1f}/s" if rate else ""


def _trouble(intake: IntakeShown) -> str:
    """The first thing that is wrong, the worst first."""
    told = sorted(intake.partitions, key=lambda each: not each.stopped)
    return next((each.error for each in told if each.error), "")


_COLUMNS: Sequence[Column[IntakeShown]] = (
    Column("intake", lambda intake: intake.name, wraps=True),
    Column("state", lambda intake: intake.state),
    Column("reads", lambda intake: intake.url, wraps=True, spare=2),
    Column("lag", lambda intake: _number(intake.lag), right=True),
    Column("rate", lambda intake: _rate(intake.rate), right=True),
    Column("taken", lambda intake: f"{intake.taken:,}", right=True, spare=3),
    Column("dead", lambda intake: f"{intake.dead:,}", right=True, spare=1),
    Column("run by", lambda intake: str(intake.runners), right=True, spare=1),
    Column("trouble", _trouble, wraps=True),
)


def _partitions(now: datetime) -> Sequence[Column[PartitionShown]]:
    return (
        Column("partition", lambda each: each.partition or "(queue)"),
        Column("offset", lambda each: each.offset or "", wraps=True),
        Column("lag", lambda each: _number(each.lag), right=True),
        Column("rate", lambda each: _rate(each.rate), right=True),
        Column("taken", lambda each: f"{each.taken:,}", right=True, spare=1),
        Column("dead", lambda each: f"{each.dead:,}", right=True, spare=1),
        Column("owner", _owner, wraps=True),
        Column("told", lambda each: since(each.as_of, now), right=True, spare=2),
        Column("trouble", _why, wraps=True),
    )


def _owner(partition: PartitionShown) -> str:
    if not partition.owner:
        return "nobody"
    who = f"{partition.host} pid {partition.pid}"
    return who if partition.is_read else f"({who}, gone)"


def _why(partition: PartitionShown) -> str:
    return f"stopped: {partition.error}" if partition.stopped else partition.error or partition.waits_for

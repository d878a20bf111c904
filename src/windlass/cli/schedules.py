"""`windlass schedules`: list, preview, create, edit, pause, run and delete schedules."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, cast

from cyclopts import Parameter

from windlass.admin.schedules import FireShown, ScheduleShown, moment_given
from windlass.admin.service import Service
from windlass.cli import parameters as given
from windlass.cli.effects import put_on_record
from windlass.cli.enqueue import read_document, saying_what_is_wanted
from windlass.cli.failure import UsageError
from windlass.cli.opening import with_service
from windlass.cli.output import Column, confirm, each, say, say_aside, say_json, show, show_fields
from windlass.cli.text import age, clock, since
from windlass.client.options import CallOptions
from windlass.client.schedule import ScheduleOptions

Name = Annotated[str, Parameter(help="The schedule.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class When:
    """When and how a schedule fires."""

    cron: Annotated[
        str | None,
        Parameter(help='Fire by a cron rule of five fields, such as "0 3 * * MON-FRI", or "@daily".'),
    ] = None
    every: Annotated[str | None, Parameter(help='Fire at this interval, such as "15m".')] = None
    at: Annotated[str | None, Parameter(help='Fire once at this time, such as "2030-01-31T08:00Z".')] = None
    tz: Annotated[str | None, Parameter(help='The time zone of a cron rule, such as "Europe/Paris".')] = None
    start: Annotated[str | None, Parameter(help="No tick before this time.")] = None
    end: Annotated[str | None, Parameter(help="No tick from this time on.")] = None
    jitter: Annotated[str | None, Parameter(help="Delay each job by a random time up to this.")] = None
    catch_up: Annotated[
        Literal["skip", "one", "all"] | None, Parameter(help="What to do about missed ticks.")
    ] = None
    overlap: Annotated[
        Literal["allow", "skip", "queue"] | None,
        Parameter(help="What a tick does while the job of an earlier tick is unfinished."),
    ] = None

    def options(self) -> ScheduleOptions:
        """Return the options that were given, with times parsed."""
        said: dict[str, Any] = {name: value for name, value in asdict(self).items() if value is not None}
        for name in said.keys() & {"at", "start", "end"}:
            said[name] = moment_given(said[name], f"--{name}")
        return cast("ScheduleOptions", said)


_UNSAID = When()


def list_schedules(app: given.App, /, *, limit: given.Limit = None, json: given.Json = False) -> int:
    """List schedules: rule, task, the next time, and when it fired last."""

    async def work(service: Service) -> None:
        columns = _columns(await service.clock())
        await show(service.schedules.all(), columns, json=json, limit=limit, nothing="there are no schedules")

    return with_service(app, work)


def show_schedule(app: given.App, name: Name, /, *, json: given.Json = False) -> int:
    """Show one schedule with its latest fires and their jobs."""

    async def work(service: Service) -> None:
        found = await service.schedules.one(name)
        if json:
            say_json(found)
        else:
            await _print(found, await service.clock())

    return with_service(app, work)


def preview_schedule(
    app: given.App,
    name: Name,
    /,
    *,
    count: Annotated[int, Parameter(help="How many; by default 10.")] = 10,
    json: given.Json = False,
) -> int:
    """Show the next times of a schedule."""

    async def work(service: Service) -> None:
        ticks = await service.schedules.preview(name, count)
        now = await service.clock()
        columns: Sequence[Column[datetime]] = (
            Column("tick", clock),
            Column("in", lambda tick: since(tick, now).removeprefix("in ")),
        )
        if json:
            for tick in ticks:
                say_json({"tick": tick})
        else:
            await show(each(ticks), columns, json=False, nothing="it never fires again")

    return with_service(app, work)


def create_schedule(
    app: given.App,
    name: Name,
    task: Annotated[str, Parameter(help="The task's name.")],
    arguments: Annotated[
        str, Parameter(help='Its arguments as a JSON object; "@file" reads it from a file.')
    ] = "{}",
    /,
    *,
    when: When = _UNSAID,
    queue: Annotated[str | None, Parameter(help="The queue; by default the task's own.")] = None,
    lane: Annotated[str | None, Parameter(help="The lane of its jobs.")] = None,
    priority: Annotated[int | None, Parameter(help="From -100 to 100, higher first.")] = None,
    json: given.Json = False,
) -> int:
    """Create a schedule in the store. Its arguments are checked against the task's signature."""
    options = when.options()
    calls = {"queue": queue, "lane": lane, "priority": priority}
    said = cast("CallOptions", {option: value for option, value in calls.items() if value is not None})
    document = read_document(arguments)

    async def work(service: Service) -> None:
        if queue is not None:
            await service.queues.check(queue)
        with saying_what_is_wanted(service.app, task):
            made = await service.schedules.create(name, task, document, said, options)
        await put_on_record(service, "schedule created", {"schedule": name, "task": task})
        _told(made, "created", json=json)

    return with_service(app, work)


def edit_schedule(
    app: given.App,
    name: Name,
    /,
    *,
    when: When = _UNSAID,
    json: given.Json = False,
) -> int:
    """Override when and how a schedule fires, until you reset it. The declared rule is shown beside it."""
    options = when.options()
    if not options:
        raise UsageError('name a change, such as --cron "0 4 * * *"; the verb reset drops an override')

    async def work(service: Service) -> None:
        edited = await service.schedules.edit(name, options)
        said = {option: str(value) for option, value in options.items()}
        await put_on_record(service, "schedule edited", {"schedule": name, **said})
        _told(edited, "changed", json=json)

    return with_service(app, work)


def reset_schedule(app: given.App, name: Name, /, *, json: given.Json = False) -> int:
    """Drop the override of a schedule: the declared rule applies again."""

    async def work(service: Service) -> None:
        changed = await service.schedules.reset(name)
        if changed:
            await put_on_record(service, "schedule reset", {"schedule": name})
        _tell(name, "reset" if changed else "not overridden", json=json)

    return with_service(app, work)


def pause_schedule(app: given.App, name: Name, /, *, json: given.Json = False) -> int:
    """Stop a schedule until you resume it."""

    async def work(service: Service) -> None:
        await service.schedules.pause(name, paused=True)
        await put_on_record(service, "schedule paused", {"schedule": name})
        _tell(name, "paused", json=json)

    return with_service(app, work)


def resume_schedule(app: given.App, name: Name, /, *, json: given.Json = False) -> int:
    """Let a schedule fire again. Its --catch-up decides what happens to missed ticks."""

    async def work(service: Service) -> None:
        await service.schedules.pause(name, paused=False)
        await put_on_record(service, "schedule resumed", {"schedule": name})
        _tell(name, "resumed", json=json)

    return with_service(app, work)


def run_schedule(app: given.App, name: Name, /, *, json: given.Json = False) -> int:
    """Enqueue the job of a schedule now. Its next ticks stay as they are."""

    async def work(service: Service) -> None:
        job = await service.schedules.run_now(name)
        await put_on_record(service, "schedule run", {"schedule": name, "job": job}, jobs=1, wanted=1)
        if json:
            say_json({"schedule": name, "id": job})
        else:
            say(job)

    return with_service(app, work)


def delete_schedule(
    app: given.App, name: Name, /, *, yes: given.Yes = False, json: given.Json = False
) -> int:
    """Delete a schedule and its history. One that the code declares comes back when a worker starts."""

    async def work(service: Service) -> None:
        await service.schedules.one(name)
        if not confirm(f'delete schedule "{name}"', yes=yes):
            say_aside("nothing was done")
            return
        await service.schedules.delete(name)
        await put_on_record(service, "schedule deleted", {"schedule": name})
        _tell(name, "deleted", json=json)

    return with_service(app, work)


def _told(schedule: ScheduleShown, done: str, *, json: bool) -> None:
    if json:
        say_json(schedule)
    elif schedule.next_at is None:
        say(f'schedule "{schedule.name}": {done}; it never fires')
    else:
        say(f'schedule "{schedule.name}": {done}; next at {clock(schedule.next_at)}')


def _tell(name: str, done: str, *, json: bool) -> None:
    if json:
        say_json({"schedule": name, "effect": done})
    else:
        say(f'schedule "{name}": {done}')


def _columns(now: datetime) -> Sequence[Column[ScheduleShown]]:
    return (
        Column("schedule", lambda each: each.name, wraps=True),
        Column("rule", lambda each: each.problem or each.rule, wraps=True),
        Column("task", lambda each: each.task, wraps=True),
        Column("next", lambda each: _next(each, now), right=True),
        Column("fired", lambda each: _fired(each, now), right=True),
        Column("from", _origin, spare=1),
    )


def _next(schedule: ScheduleShown, now: datetime) -> str:
    if schedule.paused:
        return "paused"
    return "never" if schedule.next_at is None else since(schedule.next_at, now)


def _fired(schedule: ScheduleShown, now: datetime) -> str:
    """Return when it last enqueued a job, and how many ticks were missed since."""
    when = next((since(fire.at, now) for fire in reversed(schedule.fires) if fire.jobs), "")
    last = schedule.fires[-1] if schedule.fires else None
    missed = f"{last.missed} missed" if last is not None and last.missed and not last.jobs else ""
    return ", ".join(text for text in (when, missed) if text)


def _origin(schedule: ScheduleShown) -> str:
    if not schedule.declared:
        return "operator"
    return "code, overridden" if schedule.overridden else "code"


async def _print(schedule: ScheduleShown, now: datetime) -> None:
    show_fields(
        [
            ("schedule", schedule.name),
            ("rule", schedule.rule),
            ("in words", schedule.words),
            ("problem", schedule.problem),
            ("task", schedule.task),
            ("queue", schedule.queue),
            ("lane", schedule.lane),
            (
                "next",
                "" if schedule.next_at is None else f"{clock(schedule.next_at)} ({_next(schedule, now)})",
            ),
            ("start", "" if schedule.start is None else clock(schedule.start)),
            ("end", "" if schedule.end is None else clock(schedule.end)),
            ("jitter", age(schedule.jitter) if schedule.jitter else ""),
            ("catch-up", schedule.catch_up),
            ("overlap", schedule.overlap),
            ("paused", "yes" if schedule.paused else ""),
            ("from", _origin(schedule)),
        ]
    )
    if schedule.fires:
        say("")
        columns: Sequence[Column[FireShown]] = (
            Column("tick", lambda fire: clock(fire.tick)),
            Column("fired", lambda fire: clock(fire.at)),
            Column("missed", lambda fire: str(fire.missed) if fire.missed else "", right=True),
            Column("jobs", lambda fire: ", ".join(fire.jobs), wraps=True),
        )
        await show(each(tuple(reversed(schedule.fires))), columns, json=False, nothing="")

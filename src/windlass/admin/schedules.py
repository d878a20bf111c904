"""Schedules for operators: seen, previewed, made, overridden, paused, run now and deleted."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, cast

import msgspec

from windlass.admin.enqueueing import task_named
from windlass.admin.views import moment, seconds
from windlass.broker.contract import Broker
from windlass.client.app import Windlass
from windlass.client.options import CallOptions
from windlass.client.schedule import ScheduleOptions, specification
from windlass.client.task import Call
from windlass.core.cron import Cron
from windlass.core.duration import instant
from windlass.core.job import NewJob, Status
from windlass.core.names import check_schedule
from windlass.core.option import whole
from windlass.core.query import FIRST_PAGE
from windlass.core.schedule import Every, Once, Rule, next_tick
from windlass.core.settings import Change
from windlass.core.specification import Specification, decode_specification, encode_specification
from windlass.core.spelling import hint
from windlass.core.timetable import ScheduleView
from windlass.core.units import Cursor, JobId, Micros
from windlass.errors import EnqueueRefused, InvalidOption, StoreError, UnreadablePayload

MOST_PREVIEWED = 1_000
_TRIES = 5
"""Attempts at a change that others change at the same time."""


class FireShown(msgspec.Struct, frozen=True, kw_only=True):
    """One fire of a schedule, or a run of fires that made no job."""

    tick: datetime
    """The tick it was for; the first, if there were several."""
    at: datetime
    """When it happened; the last, if there were several."""
    jobs: tuple[JobId, ...]
    missed: int
    """How many ticks made no job: by `catch_up`, by `overlap`, or as an earlier job had not started."""


class ScheduleShown(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, as it is in force."""

    name: str
    rule: str
    """As it was written: "0 3 * * * Europe/Paris", "every 3600 s", "at 2030-01-31 08:00:00+00:00"."""
    words: str
    """The same in English, where that says more."""
    task: str
    queue: str
    lane: str
    next_at: datetime | None
    paused: bool
    start: datetime | None
    end: datetime | None
    jitter: float
    catch_up: str
    overlap: str
    declared: bool
    """Whether code declares it; what only an operator made is gone when it is reset."""
    overridden: bool
    app: str
    revision: int
    version: int
    fires: tuple[FireShown, ...]
    """The latest, newest last."""
    problem: str = ""
    """Why it cannot fire: its specification is not readable by this version."""


class Schedules:
    """What can be seen of schedules and done to them."""

    def __init__(self, app: Windlass, broker: Broker) -> None:
        self._app = app
        self._broker = broker

    # --- reads ----------------------------------------------------------------------------------------------

    async def all(self) -> AsyncIterator[ScheduleShown]:
        """Every schedule, by name."""
        async for view in self._views():
            yield _shown(view)

    async def one(self, name: str) -> ScheduleShown:
        """One schedule; `InvalidOption` names those that there are."""
        return _shown(await self._view(name))

    async def preview(self, name: str, count: int) -> list[datetime]:
        """The next times of a schedule, as if it were not paused."""
        whole(count, name="count", least=1, most=MOST_PREVIEWED)
        view = await self._view(name)
        said = decode_specification(view.spec)
        ticks: list[datetime] = []
        tick = view.next_at
        while tick is not None and len(ticks) < count:
            ticks.append(moment(tick))
            tick = next_tick(said.rule, tick, start=said.start, end=said.end)
        return ticks

    async def preview_rule(self, options: ScheduleOptions, count: int) -> list[datetime]:
        """The next times of a rule that is not kept."""
        whole(count, name="count", least=1, most=MOST_PREVIEWED)
        said = specification(NewJob(id=JobId(), task="preview"), options)
        ticks: list[datetime] = []
        tick = await self._first(said)
        while tick is not None and len(ticks) < count:
            ticks.append(moment(tick))
            tick = next_tick(said.rule, tick, start=said.start, end=said.end)
        return ticks

    # --- writes ---------------------------------------------------------------------------------------------

    async def create(
        self, name: str, task: str, arguments: bytes, calls: CallOptions, options: ScheduleOptions
    ) -> ScheduleShown:
        """Make a schedule of a task, with its arguments as a JSON object."""
        sender = task_named(self._app, task).using(**calls)
        if sender.app is not self._app:
            there = sender.app.config.namespace
            raise InvalidOption(
                f'the queue of task "{task}" is in namespace "{there}", and so is a schedule of it: name the '
                f"app with it, module:app@{there}"
            )
        nameless = NewJob(id=JobId(), task=task, payload=sender.signature.encode_json(arguments))
        said = specification(sender.rebuilt(Call(sender, nameless)).job, options)
        changed = await self._broker.override_schedule(
            check_schedule(name), encode_specification(said), await self._first(said), 0
        )
        if changed.change is Change.CONFLICT:
            raise InvalidOption(f'there is a schedule "{name}" already; edit it, or give another name')
        return await self.one(name)

    async def edit(self, name: str, options: ScheduleOptions) -> ScheduleShown:
        """Override when and how a schedule fires; what is not said stays. Its call stays as it is."""
        for _ in range(_TRIES):
            view = await self._view(name)
            said = _edited(decode_specification(view.spec), options)
            changed = await self._broker.override_schedule(
                name, encode_specification(said), await self._first(said), view.version
            )
            if changed.change is not Change.CONFLICT:
                return await self.one(name)
        raise StoreError(f'schedule "{name}" keeps changing; try again')

    async def reset(self, name: str) -> bool:
        """Let what the code declares count again; whether anything was overridden. A schedule that no code
        declares is not reset, but deleted.
        """
        for _ in range(_TRIES):
            view = await self._view(name)
            if view.override is None:
                return False
            if view.declared is None:
                raise InvalidOption(f'schedule "{name}" is declared by no code; to remove it: delete')
            first = await self._first(decode_specification(view.declared))
            changed = await self._broker.override_schedule(name, None, first, view.version)
            if changed.change is not Change.CONFLICT:
                return True
        raise StoreError(f'schedule "{name}" keeps changing; try again')

    async def pause(self, name: str, *, paused: bool) -> None:
        """Stop or let go on its firing. What becomes of the ticks meanwhile is what `catch_up` says."""
        if not await self._broker.pause_schedule(name, paused=paused):
            await self._view(name)  # says which there are

    async def delete(self, name: str) -> None:
        """Remove a schedule and its history. One that code declares comes back with the next worker."""
        if not await self._broker.delete_schedule(name):
            await self._view(name)

    async def run_now(self, name: str) -> JobId:
        """Make its call now, besides its ticks."""
        said = decode_specification((await self._view(name)).spec)
        receipt = (await self._broker.enqueue([[said.job(self._app.new_id())]]))[0][0]
        if receipt.status is Status.REFUSED:
            raise EnqueueRefused(receipt.why or f'schedule "{name}": its job was refused: {receipt.refusal}')
        return receipt.of or receipt.job

    # --- parts ----------------------------------------------------------------------------------------------

    async def _views(self) -> AsyncIterator[ScheduleView]:
        cursor: Cursor | None = FIRST_PAGE
        while cursor is not None:
            page = await self._broker.schedules(cursor)
            for view in page.schedules:
                yield view
            cursor = page.cursor

    async def _view(self, name: str) -> ScheduleView:
        known: list[str] = []
        async for view in self._views():
            if view.name == name:
                return view
            known.append(view.name)
        raise InvalidOption(f'there is no schedule "{name}"; {hint(name, known, "schedules")}')

    async def _first(self, said: Specification) -> Micros | None:
        """The first tick from now on, by the store's clock."""
        now = (await self._broker.schedules(limit=1)).now
        return next_tick(said.rule, now, start=said.start, end=said.end)


def _edited(before: Specification, options: ScheduleOptions) -> Specification:
    """A specification with some of its options said anew."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if not {"cron", "every", "at"} & given.keys():
        given |= _rule_options(before.rule, given)
    elif "cron" in given and "tz" not in given and isinstance(before.rule, Cron):
        given["tz"] = before.rule.tz
    said = specification(before.job(JobId()), cast("ScheduleOptions", given))
    kept = {
        name: getattr(before, name)
        for name in ("start", "end", "jitter", "catch_up", "grace", "cap", "overlap")
        if name not in given
    }
    return msgspec.structs.replace(said, call=before.call, **kept)


def _rule_options(rule: Rule, given: dict[str, Any]) -> dict[str, Any]:
    """What was said of a rule, to be said again."""
    match rule:
        case Cron():
            return {"cron": rule.expression, "tz": given.get("tz", rule.tz)}
        case Every():
            return {"every": seconds(rule.interval)}
        case Once():
            return {"at": moment(rule.at)}


def _shown(view: ScheduleView) -> ScheduleShown:
    common: dict[str, Any] = {
        "name": view.name,
        "next_at": None if view.next_at is None else moment(view.next_at),
        "paused": view.paused,
        "declared": view.declared is not None,
        "overridden": view.override is not None,
        "app": view.app,
        "revision": view.revision,
        "version": view.version,
        "fires": tuple(
            FireShown(tick=moment(fire.tick), at=moment(fire.at), jobs=fire.jobs, missed=fire.missed)
            for fire in view.fires
        ),
    }
    try:
        said = decode_specification(view.spec)
    except UnreadablePayload as error:
        return ScheduleShown(
            **common, rule="", words="", task="", queue="", lane="", start=None, end=None, jitter=0,
            catch_up="", overlap="", problem=str(error),
        )  # fmt: skip
    return ScheduleShown(
        **common,
        rule=_written(said.rule),
        words=said.rule.describe() if isinstance(said.rule, Cron) else "",
        task=said.call.task,
        queue=said.call.queue,
        lane=said.call.lane,
        start=None if said.start is None else moment(said.start),
        end=None if said.end is None else moment(said.end),
        jitter=seconds(said.jitter),
        catch_up=said.catch_up,
        overlap=said.overlap,
    )


def _written(rule: Rule) -> str:
    match rule:
        case Cron():
            return f"{rule.expression} {rule.tz}"
        case Every():
            return f"every {seconds(rule.interval):g} s"
        case Once():
            return f"at {moment(rule.at)}"


def moment_given(text: str, option: str) -> datetime:
    """A time with a zone, as an operator writes it."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOption(f'{option} must be a time such as "2030-01-31T08:00Z", not "{text}"') from None
    instant(at, name=option)
    return at

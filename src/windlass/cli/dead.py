"""`windlass dead`: list, show, replay and discard dead letters, by id or by filter."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Literal, NamedTuple

import msgspec
from cyclopts import Parameter

from windlass.admin.audit import LONGEST_REASON, ActShown
from windlass.admin.dead import Selection, reason_in_bulk
from windlass.admin.groups import DeadGroup
from windlass.admin.jobs import JobChange
from windlass.admin.service import Service
from windlass.admin.views import DeadShown
from windlass.cli import parameters as given
from windlass.cli.effects import put_on_record, record_effects, show_effects
from windlass.cli.enqueue import read_document
from windlass.cli.failure import UsageError
from windlass.cli.jobs import LONGEST_CELL, Ids, check_limit, no_match, show_job
from windlass.cli.opening import with_service
from windlass.cli.output import Column, ask, confirm, each, say_aside, show
from windlass.cli.text import clock, shortened, since
from windlass.core.duration import micros
from windlass.core.limits import Rate as LimitRate
from windlass.core.limits import parse_rate
from windlass.core.operate import Effect, Operated
from windlass.core.units import Micros

All = Annotated[bool, Parameter(name="--all", help="All dead letters.")]
Rate = Annotated[
    str | None,
    Parameter(help='At most this many, such as "50/s", to spare a service that has just recovered.'),
]

Reason = Annotated[str, Parameter(help="Why you do it, for the audit log.")]
WhyDiscard = Annotated[
    str,
    Parameter(
        help="Why you do it, for the audit log and the archive. By id it must be said; on a terminal you are "
        "asked. By filter: that it was done in bulk."
    ),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which dead letters."""

    queue: given.Queue = None
    task: given.Task = None
    lane: given.Lane = None
    error: Annotated[
        str | None,
        Parameter(help="Only errors with this text in type or message; upper and lower case are the same."),
    ] = None
    group: Annotated[str | None, Parameter(help='Only this group, as the verb "groups" shows it.')] = None
    older_than: Annotated[
        str | None, Parameter(help='Only jobs that died longer ago than this: "30m", "12h", "7d".')
    ] = None

    @property
    def selection(self) -> Selection:
        """Return the filter without the age, which needs the store's clock."""
        return Selection(
            queue=self.queue, task=self.task, lane=self.lane, error=self.error, fingerprint=self.group
        )

    @property
    def length(self) -> Micros | None:
        """Return the least age, in microseconds."""
        return None if self.older_than is None else micros(self.older_than, name="--older-than")

    def said(self) -> dict[str, str]:
        """Return the filter as the audit log shows it."""
        return {name: value for name, value in asdict(self).items() if value is not None}


_ANY = Filter()
show_dead = show_job


def list_dead(
    app: given.App, /, *, chosen: Filter = _ANY, limit: given.Limit = None, json: given.Json = False
) -> int:
    """List dead letters with their errors, the newest job first."""
    check_limit(limit)

    async def work(service: Service) -> None:
        letters = service.dead.all(await _selected(service, chosen))
        await show(
            letters,
            _columns(await service.clock()),
            json=json,
            limit=limit,
            nothing=no_match(_NONE, service, chosen.task),
        )

    return with_service(app, work)


def group_dead(app: given.App, /, *, chosen: Filter = _ANY, json: given.Json = False) -> int:
    """Group dead letters by task and error: how many, since when, and the newest job of each group."""

    async def work(service: Service) -> None:
        groups = (await service.dead.groups(await _selected(service, chosen))).groups
        await show(
            each(groups),
            _group_columns(await service.clock()),
            json=json,
            nothing=no_match(_NONE, service, chosen.task),
        )

    return with_service(app, work)


def replay_dead(
    app: given.App,
    ids: Ids = (),
    /,
    *,
    chosen: Filter = _ANY,
    all_: All = False,
    rate: Rate = None,
    reason: Reason = "",
    yes: given.Yes = False,
    json: given.Json = False,
) -> int:
    """Replay dead letters: they become ready, with all their attempts. Choose them by id, filter, or all."""
    return _act(_Wish("replay", app, ids, chosen, rate, reason, all_, yes, json))


def discard_dead(
    app: given.App,
    ids: Ids = (),
    /,
    *,
    chosen: Filter = _ANY,
    all_: All = False,
    rate: Rate = None,
    reason: WhyDiscard = "",
    yes: given.Yes = False,
    json: given.Json = False,
) -> int:
    """Delete dead letters for good; the archive keeps a trace. Choose them by id, filter, or all."""
    return _act(_Wish("discard", app, ids, chosen, rate, reason, all_, yes, json))


def edit_dead(
    app: given.App,
    job: given.JobId,
    arguments: Annotated[
        str | None,
        Parameter(
            help='Its new arguments as a JSON object; "-" reads it from standard input, "@file" from a file.'
        ),
    ] = None,
    /,
    *,
    priority: Annotated[int | None, Parameter(help="From -100 to 100, higher first.")] = None,
    max_attempts: Annotated[int | None, Parameter(help="Attempts before it becomes a dead letter.")] = None,
    replay: Annotated[bool, Parameter(help="Also replay it.")] = False,
    json: given.Json = False,
) -> int:
    """Change the arguments of a dead letter or of a waiting job; --replay runs it again."""
    if arguments is None and priority is None and max_attempts is None:
        raise UsageError("name a change: new arguments, --priority or --max-attempts")
    document = None if arguments is None else read_document(arguments)
    change = JobChange(arguments=document, priority=priority, max_attempts=max_attempts)
    # Never the values, as the API records it.
    news = {"arguments": arguments, "priority": priority, "max_attempts": max_attempts}
    said = {name: "new" for name, value in news.items() if value is not None}

    async def work(service: Service) -> int:
        async def edited() -> AsyncIterator[Sequence[Operated]]:
            answer = await service.jobs.edit(await service.jobs.one(job), change)
            if answer.effect is Effect.APPLIED:
                await put_on_record(service, "edited", {"job": job, **said}, jobs=1, wanted=1)
            if replay and answer.effect is Effect.APPLIED:
                async for answers in service.dead.replay([job]):
                    done = sum(each.effect is Effect.APPLIED for each in answers)
                    await put_on_record(service, "replayed", {"job": job}, jobs=done, wanted=1)
                    yield answers
            else:
                yield [answer]

        return await show_effects(edited(), "replayed" if replay else "changed", total=1, json=json)

    return with_service(app, work)


def audit_dead(app: given.App, /, *, limit: given.Limit = None, json: given.Json = False) -> int:
    """Show what operators changed: when, who, what, how many jobs, and why; the newest first."""
    check_limit(limit)

    async def work(service: Service) -> None:
        columns: Sequence[Column[ActShown]] = (
            Column("at", lambda act: clock(act.at)),
            Column("by", lambda act: act.by, wraps=True),
            Column("what", lambda act: act.what),
            Column("jobs", lambda act: f"{act.jobs:,} of {act.wanted:,}" if act.wanted else "", right=True),
            Column("chosen", lambda act: ", ".join(f"{k}={v}" for k, v in act.chosen.items()), wraps=True),
            Column("reason", lambda act: act.reason, wraps=True),
        )
        acts = service.audit.acts()
        await show(acts, columns, json=json, limit=limit, nothing="the audit log has no such entry")

    return with_service(app, work)


class _Wish(NamedTuple):
    """What to do to which dead letters."""

    verb: Literal["replay", "discard"]
    app: str
    ids: Sequence[str]
    chosen: Filter
    rate: str | None
    reason: str
    everything: bool
    yes: bool
    json: bool


def _act(wish: _Wish) -> int:
    verb, ids, selection, length = wish.verb, wish.ids, wish.chosen.selection, wish.chosen.length
    rate = None if wish.rate is None else parse_rate(wish.rate)
    if len(wish.reason) > LONGEST_REASON:
        raise UsageError(f"--reason has at most {LONGEST_REASON} characters, not {len(wish.reason):,}")
    filtered = selection != Selection() or length is not None
    if ids and (filtered or wish.everything):
        raise UsageError("give either ids or a filter, not both")
    if not ids and not filtered and not wish.everything:
        raise UsageError(
            f"choose dead letters: windlass dead APP {verb} ID..., a filter such as --task, or --all"
        )

    async def work(service: Service) -> int:
        # Nothing that dies from here on is touched: what is acted on was counted, and each job once.
        chosen = await _dated(service, selection, length or 0)
        undated = selection.indexed and length is None  # the store has counted them
        count = len(set(ids)) if ids else await service.dead.count(selection if undated else chosen)
        if not count:
            say_aside(_NONE)
            return 0
        if not confirm(f"{verb} {count:,} dead letter{'' if count == 1 else 's'}", yes=wish.yes):
            say_aside("nothing was done")
            return 0
        said = wish.chosen.said() or ({"ids": f"{len(ids):,}"} if ids else {"all": "yes"})
        reason = _reason(wish, said)
        batches = _batches(service, wish, chosen, rate, count, reason)
        return await record_effects(
            service, batches, _DONE[verb], said, total=count, json=wish.json, reason=reason
        )

    return with_service(wish.app, work)


_DONE = {"replay": "replayed", "discard": "discarded"}


def _reason(wish: _Wish, said: Mapping[str, str]) -> str:
    """Why; what is discarded leaves no more than that. Asked once, whatever the number."""
    if wish.reason.strip() or wish.verb == "replay":
        return wish.reason
    usual = "" if wish.ids else reason_in_bulk(said)
    asked = "" if wish.yes else ask(f"reason [{usual}]" if usual else "reason")
    if len(asked) > LONGEST_REASON:
        raise UsageError(f"a reason has at most {LONGEST_REASON} characters, not {len(asked):,}")
    if not (asked or usual):
        raise UsageError("say why they are discarded: --reason TEXT; what is left of them is that")
    return asked or usual


def _batches(
    service: Service, wish: _Wish, chosen: Selection, rate: LimitRate | None, most: int, reason: str
) -> AsyncIterator[Sequence[Operated]]:
    letters, ids = service.dead, wish.ids
    if wish.verb == "replay":
        return letters.replay(ids, rate) if ids else letters.replay_chosen(chosen, rate, most=most)
    if ids:
        return letters.discard(ids, rate, reason=reason)
    return letters.discard_chosen(chosen, rate, most=most, reason=reason)


_NONE = "no dead letters match"


async def _selected(service: Service, chosen: Filter) -> Selection:
    length = chosen.length
    return chosen.selection if length is None else await _dated(service, chosen.selection, length)


async def _dated(service: Service, selection: Selection, length: Micros) -> Selection:
    """Return the selection with its age counted by the store's clock."""
    return msgspec.structs.replace(selection, died_before=await service.now() - length)


def _group_columns(now: datetime) -> Sequence[Column[DeadGroup]]:
    return (
        Column("count", lambda group: f"{group.count:,}", right=True),
        Column("task", lambda group: group.task, wraps=True),
        Column("group", lambda group: group.fingerprint, wraps=True),
        Column("first", lambda group: since(group.first, now), right=True, spare=2),
        Column("last", lambda group: since(group.last, now), right=True),
        Column("newest", lambda group: group.newest, spare=1),
        Column("error", lambda group: shortened(group.error or group.reason, LONGEST_CELL), wraps=True),
    )


def _columns(now: datetime) -> Sequence[Column[DeadShown]]:
    return (
        Column("id", lambda job: job.id),
        Column("task", lambda job: job.task, wraps=True),
        Column("queue", lambda job: job.queue, spare=3),
        Column("lane", lambda job: job.lane, wraps=True, spare=4),
        Column("attempt", lambda job: f"{job.attempt}/{job.max_attempts}", right=True, spare=1),
        Column("died", lambda job: since(job.finished_at, now), right=True),
        Column("reason", lambda job: job.reason or "", wraps=True, spare=2),
        Column("error", lambda job: shortened(_error(job), LONGEST_CELL), wraps=True),
    )


def _error(job: DeadShown) -> str:
    return "" if job.error is None else f"{job.error.type}: {job.error.message}"

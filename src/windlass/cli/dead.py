"""`windlass dead`: dead letters, listed, shown, replayed and discarded, by id or by filter."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter

from windlass.admin.listing import Selection
from windlass.admin.views import DeadShown
from windlass.cli import parameters as given
from windlass.cli.desk import Desk, at_desk
from windlass.cli.effects import show_effects
from windlass.cli.failure import UsageError
from windlass.cli.jobs import LONGEST_CELL, Ids, check_limit, show_job
from windlass.cli.output import Column, confirm, say_aside, show
from windlass.cli.text import shortened, since
from windlass.core.duration import micros
from windlass.core.operate import Operated
from windlass.core.units import Micros

ErrorText = Annotated[
    str | None, Parameter(help="Only those whose error has this text in its type or message, in any case.")
]
OlderThan = Annotated[
    str | None, Parameter(help='Only those that died longer ago than this: "30m", "12h", "7d".')
]
All = Annotated[bool, Parameter(name="--all", help="All dead letters.")]

show_dead = show_job


def list_dead(
    app: given.App,
    /,
    *,
    queue: given.Queue = None,
    task: given.Task = None,
    lane: given.Lane = None,
    error: ErrorText = None,
    older_than: OlderThan = None,
    limit: given.Limit = None,
    json: given.Json = False,
) -> int:
    """List dead letters with their errors, the newest accepted job first."""
    check_limit(limit)
    selection = Selection(queue=queue, task=task, lane=lane, error=error)
    length = _length(older_than)

    async def work(desk: Desk) -> None:
        chosen = selection if length is None else await _dated(desk, selection, length)
        columns = _columns(await desk.now())
        await show(
            desk.insight.dead(chosen), columns, json=json, limit=limit, nothing="no dead letters match"
        )

    return at_desk(app, work)


def replay_dead(
    app: given.App,
    ids: Ids = (),
    /,
    *,
    queue: given.Queue = None,
    task: given.Task = None,
    lane: given.Lane = None,
    error: ErrorText = None,
    older_than: OlderThan = None,
    all_: All = False,
    yes: given.Yes = False,
    json: given.Json = False,
) -> int:
    """Send dead letters back: ready, with all their attempts. By ids, by a filter, or all."""
    selection = Selection(queue=queue, task=task, lane=lane, error=error)
    return _act("replay", app, ids, selection, _length(older_than), everything=all_, yes=yes, json=json)


def discard_dead(
    app: given.App,
    ids: Ids = (),
    /,
    *,
    queue: given.Queue = None,
    task: given.Task = None,
    lane: given.Lane = None,
    error: ErrorText = None,
    older_than: OlderThan = None,
    all_: All = False,
    yes: given.Yes = False,
    json: given.Json = False,
) -> int:
    """Remove dead letters for good. By ids, by a filter, or all."""
    selection = Selection(queue=queue, task=task, lane=lane, error=error)
    return _act("discard", app, ids, selection, _length(older_than), everything=all_, yes=yes, json=json)


def _act(
    verb: Literal["replay", "discard"],
    app: str,
    ids: Sequence[str],
    selection: Selection,
    length: Micros | None,
    *,
    everything: bool,
    yes: bool,
    json: bool,
) -> int:
    filtered = selection != Selection() or length is not None
    if ids and (filtered or everything):
        raise UsageError("give either ids or a filter, not both")
    if not ids and not filtered and not everything:
        raise UsageError(f"say which: windlass dead APP {verb} ID..., a filter such as --task, or --all")

    async def work(desk: Desk) -> int:
        # Nothing that dies from here on is touched: what is acted on was counted, and each job once.
        chosen = await _dated(desk, selection, length or 0)
        count = len(set(ids)) if ids else await desk.insight.count_dead(chosen if length else selection)
        if not count:
            say_aside("no dead letters match")
            return 0
        if not confirm(f"{verb} {count:,} dead letter{'' if count == 1 else 's'}", yes=yes):
            say_aside("nothing was done")
            return 0
        batches = _batches(desk, verb, ids, chosen)
        return await show_effects(batches, _DONE[verb], total=count, json=json)

    return at_desk(app, work)


_DONE = {"replay": "replayed", "discard": "discarded"}


def _batches(
    desk: Desk, verb: Literal["replay", "discard"], ids: Sequence[str], chosen: Selection
) -> AsyncIterator[Sequence[Operated]]:
    operator = desk.operator
    if verb == "replay":
        return operator.replay(ids) if ids else operator.replay_chosen(chosen)
    return operator.discard(ids) if ids else operator.discard_chosen(chosen)


def _length(older_than: str | None) -> Micros | None:
    return None if older_than is None else micros(older_than, name="--older-than")


async def _dated(desk: Desk, selection: Selection, length: Micros) -> Selection:
    """The selection, of what had died so long ago by the store's clock."""
    return msgspec.structs.replace(selection, died_before=await desk.insight.now() - length)


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

"""`windlass history`: failure rates, waiting times and run times in any window of time."""

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from windlass.admin.service import Service
from windlass.cli import parameters as given
from windlass.cli.opening import with_service
from windlass.cli.output import Column, each, say, say_json, show
from windlass.cli.text import age, clock
from windlass.core.duration import micros
from windlass.observe.history.report import (
    Bucket,
    History,
    HostHistory,
    Percentiles,
    Summary,
    TaskHistory,
    window_of,
)

Since = Annotated[str, Parameter(help='The start: how long ago ("1h", "7d"), or a time. By default 1h.')]
Until = Annotated[str | None, Parameter(help="The end, in the same form. By default now.")]
Step = Annotated[
    str | None,
    Parameter(help='Show one row for each step of this length ("5m"), instead of one for each task.'),
]


def show_history(
    app: given.App,
    /,
    *,
    since: Since = "1h",
    until: Until = None,
    step: Step = None,
    task: given.Task = None,
    queue: given.Queue = None,
    json: given.Json = False,
) -> int:
    """Show failure rates, waiting and run times by task, throughput, and how busy workers were. The app's
    history= or $WINDLASS_HISTORY says where this is stored.
    """

    async def work(service: Service) -> None:
        window = window_of(since, until, await service.now(), task=task, queue=queue)
        length = None if step is None else micros(step, name="--step")
        found = await service.history(window, length)
        if json:
            say_json(found)
            return
        await _say(found, over_time=step is not None)

    return with_service(app, work)


async def _say(found: History, *, over_time: bool) -> None:
    total = found.total
    say(
        f"{clock(found.since)} to {clock(found.until)}: {total.attempts:,} attempts, {_rate(total)} failed, "
        f"{total.per_second:g} a second, workers {_part(found.use)} busy"
    )
    if over_time:
        await show(each(found.buckets), _BUCKETS, json=False, nothing="nothing", limit=len(found.buckets))
        return
    await show(
        each(found.tasks), _TASKS, json=False, nothing="no attempt ended in this time", limit=len(found.tasks)
    )
    if found.workers:
        say("")
        await show(each(found.workers), _WORKERS, json=False, nothing="", limit=len(found.workers))


def _rate(summary: Summary) -> str:
    return _part(summary.failure_rate)


def _part(part: float | None) -> str:
    return "-" if part is None else f"{part:.1%}"


def _spread(values: Percentiles) -> str:
    return "/".join("-" if value is None else age(value) for value in (values.p50, values.p95, values.p99))


_TASKS: Sequence[Column[TaskHistory]] = (
    Column("task", lambda row: row.task, wraps=True),
    Column("attempts", lambda row: f"{row.attempts:,}", right=True),
    Column("failed", lambda row: f"{row.failed:,}", right=True),
    Column("rate", _rate, right=True),
    Column("dead", lambda row: f"{row.dead:,}", right=True),
    Column("a second", lambda row: f"{row.per_second:g}", right=True, spare=1),
    Column("wait p50/95/99", lambda row: _spread(row.wait), right=True),
    Column("run p50/95/99", lambda row: _spread(row.run), right=True),
)
_BUCKETS: Sequence[Column[Bucket]] = (
    Column("from", lambda row: clock(row.at)),
    Column("done", lambda row: f"{row.done:,}", right=True),
    Column("failed", lambda row: f"{row.failed:,}", right=True),
    Column("a second", lambda row: f"{row.per_second:g}", right=True),
    Column("wait p50/95/99", lambda row: _spread(row.wait), right=True),
    Column("run p50/95/99", lambda row: _spread(row.run), right=True),
    Column("busy", lambda row: _part(row.use), right=True),
)
_WORKERS: Sequence[Column[HostHistory]] = (
    Column("host", lambda row: row.host, wraps=True),
    Column("slots", lambda row: f"{row.slots:g}", right=True),
    Column("held", lambda row: f"{row.busy:g}", right=True),
    Column("use", lambda row: _part(row.use), right=True),
)

"""`windlass history`: failure rates, waiting times and run times in any window of time."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from windlass.admin.service import Service
from windlass.cli import parameters as given
from windlass.cli.opening import with_service
from windlass.cli.output import Column, each, say, say_json, show
from windlass.cli.text import age, clock, one_line
from windlass.core.duration import micros
from windlass.errors import JobNotFound
from windlass.observe.history.report import (
    Bucket,
    GroupHistory,
    History,
    HostHistory,
    Percentiles,
    Summary,
    TaskHistory,
    window_of,
)
from windlass.observe.history.sink import GROUPS, By
from windlass.observe.history.trail import AttemptShown, JobHistory

Since = Annotated[str, Parameter(help='The start: how long ago ("1h", "7d"), or a time. By default 1h.')]
Until = Annotated[str | None, Parameter(help="The end, in the same form. By default now.")]
Step = Annotated[
    str | None,
    Parameter(help='Show one row for each step of this length ("5m"), instead of one for each task.'),
]
ByWhat = Annotated[
    Literal["task", "queue", "lane", "worker", "error"],
    Parameter(name="--by", help="One row for each of these: worker processes, kinds of errors."),
]
OfJob = Annotated[
    str | None, Parameter(name="--job", help="Show who enqueued this job, and each of its attempts.")
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
    by: ByWhat = "task",
    job: OfJob = None,
    json: given.Json = False,
) -> int:
    """Show failure rates, waiting and run times by task, throughput, and how busy workers were. The app's
    history= or $WINDLASS_HISTORY says where this is stored.
    """

    async def work(service: Service) -> None:
        if job is not None:
            await _show_job(await service.job_history(job), job, json=json)
            return
        window = window_of(since, until, await service.now(), task=task, queue=queue)
        length = None if step is None else micros(step, name="--step")
        found = await service.history(window, length, By(by))
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
    if found.by is not None:
        nothing = f"no {found.by} has anything to show for this time"
        await show(each(found.groups), _GROUPS[found.by], json=False, nothing=nothing, limit=GROUPS)
        return
    await show(
        each(found.tasks), _TASKS, json=False, nothing="no attempt ended in this time", limit=len(found.tasks)
    )
    if found.workers:
        say("")
        await show(each(found.workers), _WORKERS, json=False, nothing="", limit=len(found.workers))


async def _show_job(found: JobHistory | None, job: str, *, json: bool) -> None:
    if found is None:
        raise JobNotFound(f"job {job} is not known to history")
    if json:
        say_json(found)
        return
    say(f"{found.task}, queue {found.queue}" + (f", lane {found.lane}" if found.lane else ""))
    if (said := found.enqueued) is not None:
        who = f"app {said.by_app} on {said.by_host}" if said.by_app else "nobody knows whom"
        key = f", API key {said.by_key}" if said.by_key else ""
        unique = f", unique key {said.key}" if said.key is not None else ""
        say(f"enqueued {clock(said.at)} by {who}{key}{unique}")
    say("")
    attempts = found.attempts
    await show(
        each(attempts), _ATTEMPTS, json=False, nothing="no attempt of it has ended", limit=len(attempts)
    )


def _rate(summary: Summary) -> str:
    return _part(summary.failure_rate)


def _part(part: float | None) -> str:
    return "-" if part is None else f"{part:.1%}"


def _spread(values: Percentiles) -> str:
    return "/".join("-" if value is None else age(value) for value in (values.p50, values.p95, values.p99))


_FIGURES: Sequence[Column[Any]] = (
    Column("attempts", lambda row: f"{row.attempts:,}", right=True),
    Column("failed", lambda row: f"{row.failed:,}", right=True),
    Column("rate", _rate, right=True),
    Column("dead", lambda row: f"{row.dead:,}", right=True),
    Column("a second", lambda row: f"{row.per_second:g}", right=True, spare=1),
    Column("wait p50/95/99", lambda row: _spread(row.wait), right=True),
    Column("run p50/95/99", lambda row: _spread(row.run), right=True),
)
_TASKS: Sequence[Column[TaskHistory]] = (Column("task", lambda row: row.task, wraps=True), *_FIGURES)
_GROUPS: Mapping[str, Sequence[Column[GroupHistory]]] = {
    "queue": (Column("queue", lambda row: row.name, wraps=True), *_FIGURES),
    "lane": (Column("lane", lambda row: row.name, wraps=True), *_FIGURES),
    "worker": (
        Column("worker", lambda row: row.name or "(not known)", wraps=True),
        Column("host", lambda row: row.host or "", wraps=True),
        Column("slots", lambda row: "" if row.slots is None else str(row.slots), right=True),
        Column("use", lambda row: _part(row.use), right=True),
        *_FIGURES,
    ),
    "error": (
        Column("error", lambda row: row.error or "", wraps=True),
        Column("failed", lambda row: f"{row.failed:,}", right=True),
        Column("dead", lambda row: f"{row.dead:,}", right=True),
        Column("last", lambda row: clock(row.last_at), right=True),
        Column("task", lambda row: row.last_task or "", wraps=True),
        Column("message", lambda row: one_line(row.message or ""), wraps=True),
    ),
}
_ATTEMPTS: Sequence[Column[AttemptShown]] = (
    Column("attempt", lambda row: str(row.attempt), right=True),
    Column("started", lambda row: clock(row.started_at)),
    Column("outcome", lambda row: row.outcome),
    Column("wait", lambda row: "-" if row.wait is None else age(row.wait), right=True),
    Column("run", lambda row: "-" if row.run is None else age(row.run), right=True),
    Column("host", lambda row: row.host, wraps=True),
    Column("worker", lambda row: row.worker, wraps=True),
    Column("error", lambda row: one_line(f"{row.error}: {row.message}") if row.error else "", wraps=True),
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

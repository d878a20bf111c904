"""`windlass jobs`: list, show, cancel."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from cyclopts import Parameter

from windlass.admin.filtering import wanted
from windlass.admin.service import Service
from windlass.admin.views import JobShown, JobWhole
from windlass.cli import parameters as given
from windlass.cli.effects import record_effects
from windlass.cli.failure import UsageError
from windlass.cli.opening import with_service
from windlass.cli.output import Column, say, say_json, show, show_fields
from windlass.cli.text import age, clock, safe, shortened, since
from windlass.core.query import JobQuery
from windlass.core.spelling import hint
from windlass.core.state import State

LONGEST_CELL = 60
States = Annotated[tuple[State, ...], Parameter(help="Only jobs in this state; repeat for more.")]
Ids = Annotated[tuple[str, ...], Parameter(name="ID", help="Ids of jobs.")]


def list_jobs(
    app: given.App,
    /,
    *,
    state: States = (),
    queue: given.Queue = None,
    task: given.Task = None,
    lane: given.Lane = None,
    flow: Annotated[str | None, Parameter(help="Only this flow.")] = None,
    tag: Annotated[str | None, Parameter(help="Only jobs with this tag.")] = None,
    text: Annotated[
        str | None,
        Parameter(help="Only jobs with this text in id, task, queue, lane, key, flow, reason or a tag."),
    ] = None,
    since: Annotated[
        str | None,
        Parameter(help='Only jobs accepted since this time, or this long ago: "30m", "12h", "7d".'),
    ] = None,
    until: Annotated[str | None, Parameter(help="Only jobs accepted until this time.")] = None,
    parent: Annotated[str | None, Parameter(help="Only jobs that this job spawned.")] = None,
    limit: given.Limit = None,
    json: given.Json = False,
) -> int:
    """List jobs, the newest first."""
    check_limit(limit)
    query = JobQuery(
        queue=queue, task=task, lane=lane, flow=flow, states=frozenset(state) if state else frozenset(State)
    )

    async def work(service: Service) -> None:
        now = await service.now()
        chosen = wanted(query, now, tag=tag, text=text, since=since, until=until, parent=parent)
        columns = job_columns(await service.clock())
        nothing = no_match("no jobs match", service, task)
        await show(service.jobs.all(chosen), columns, json=json, limit=limit, nothing=nothing)

    return with_service(app, work)


def show_job(
    app: given.App,
    job: given.JobId,
    /,
    *,
    payload: Annotated[
        bool, Parameter(help="Also show its arguments and its result, without secrets.")
    ] = False,
    secrets: Annotated[bool, Parameter(help="Also show secrets; the audit log notes that you did.")] = False,
    json: given.Json = False,
) -> int:
    """Show everything that the store keeps about a job: its runs, errors and log lines."""

    async def work(service: Service) -> None:
        found = await service.jobs.one(job)
        whole = (
            await service.jobs.shown_whole(found, secrets=secrets)
            if payload or secrets
            else service.jobs.shown(found)
        )
        if secrets:
            await service.audit.record("secrets shown", {"job": job}, jobs=1, wanted=1)
        if json:
            say_json(whole)
        else:
            print_job(whole, await service.clock(), payload=payload or secrets)

    return with_service(app, work)


def cancel_jobs(app: given.App, ids: Ids = (), /, *, json: given.Json = False) -> int:
    """Cancel jobs: a waiting job at once; for a running job, its worker is asked to stop it."""
    if not ids:
        raise UsageError("name the jobs: windlass jobs APP cancel ID...")

    async def work(service: Service) -> int:
        said = {"job": ids[0]} if len(ids) == 1 else {"ids": f"{len(ids):,}"}
        return await record_effects(
            service, service.jobs.cancel(ids), "cancelled", said, total=len(ids), json=json
        )

    return with_service(app, work)


def no_match(said: str, service: Service, task: str | None) -> str:
    """Return the message for an empty list, with a hint if the app has no such task."""
    known = sorted(service.app.tasks)
    if task is None or task in known:
        return said
    return f'{said}; this app has no task "{task}"; {hint(task, known, "its tasks")}'


def check_limit(limit: int | None) -> None:
    """Refuse a limit below 1."""
    if limit is not None and limit < 1:
        raise UsageError(f"--limit must be at least 1, not {limit}; leave it out for all")


def job_columns(now: datetime) -> Sequence[Column[JobShown]]:
    """Return the columns of a list of jobs."""
    return (
        Column("id", lambda job: job.id),
        Column("task", lambda job: job.task, wraps=True),
        Column("queue", lambda job: job.queue, spare=2),
        Column("lane", lambda job: job.lane, wraps=True, spare=3),
        Column("state", lambda job: job.state),
        Column("attempt", lambda job: f"{job.attempt}/{job.max_attempts}", right=True, spare=1),
        Column("age", lambda job: since(job.accepted_at, now), right=True),
        Column("detail", lambda job: shortened(_detail(job, now), LONGEST_CELL), wraps=True),
    )


def _detail(job: JobShown, now: datetime) -> str:
    """Return what a list shows about a job besides its state."""
    if job.held is not None:
        return f"held: {job.held.reason}"
    if job.progress is not None and job.state == State.RUNNING:
        return f"{job.progress.fraction:.0%} {job.progress.message}"
    if job.state == State.SCHEDULED:
        return f"due {since(job.due_at, now)}"
    if job.cancel_requested and job.state == State.RUNNING:
        return "asked to stop"
    return job.reason or ""


def print_job(job: JobWhole, now: datetime, *, payload: bool) -> None:
    """Show a job to a person."""
    show_fields(_fields(job, now, payload=payload))
    if payload:
        say(f"payload  {_json(job.payload)}")
        say(f"result   {_json(job.result)}")
    for number, delivery in enumerate(job.deliveries, 1):
        runtime = "" if delivery.runtime is None else f" after {age(delivery.runtime)}"
        by = "" if delivery.session is None else f" in session {delivery.session}"
        cause = "" if delivery.cause is None else f" ({delivery.cause.kind} {delivery.cause.detail})".rstrip()
        error = "" if delivery.error is None else f": {delivery.error.type}: {delivery.error.message}"
        line = f"run {number}  {clock(delivery.claimed_at)} {delivery.outcome}{cause}{runtime}{by}{error}"
        say(shortened(line, 400))
    for line in job.logs:
        say(f"log    {shortened(line, 2_000)}")
    if job.error is not None and job.error.traceback:
        say(safe(job.error.traceback.rstrip()))


def _fields(job: JobWhole, now: datetime, *, payload: bool) -> list[tuple[str, str]]:
    error, called = job.error, "error" if job.state == State.DEAD else "last error"
    return [
        ("id", job.id),
        ("task", job.task),
        ("state", job.state),
        ("reason", job.reason or ""),
        ("queue", job.queue),
        ("lane", job.lane),
        ("priority", str(job.priority) if job.priority else ""),
        ("attempt", f"{job.attempt} of {job.max_attempts}"),
        ("crashes", str(job.crashes) if job.crashes else ""),
        ("accepted", _at(job.accepted_at, now)),
        ("due", _at(job.due_at, now) if job.due_at != job.accepted_at else ""),
        ("expires", _at(job.expires_at, now)),
        ("finished", _at(job.finished_at, now)),
        ("key", job.key or ""),
        ("tags", ", ".join(job.tags)),
        ("flow", job.flow),
        ("parent", job.parent or ""),
        ("after", ", ".join(edge.parent for edge in job.after)),
        ("headers", ", ".join(sorted(job.headers))),
        ("session", job.session or ""),
        (
            "cancel",
            "requested; its worker was asked to stop it"
            if job.cancel_requested and job.state == State.RUNNING
            else "",
        ),
        ("held", "" if job.held is None else f"{job.held.reason} ({job.held.times} times)"),
        ("replays", str(job.replays) if job.replays else ""),
        ("progress", "" if job.progress is None else f"{job.progress.fraction:.0%} {job.progress.message}"),
        ("arguments", f"{job.payload_bytes:,} bytes{'' if payload else '; --payload shows them'}"),
        ("returned", _returned(job, payload=payload)),
        (called, "" if error is None else f"{error.type}: {error.message}"),
    ]


def _returned(job: JobWhole, *, payload: bool) -> str:
    if job.result_bytes is None:
        return ""
    return f"{job.result_bytes:,} bytes{'' if payload else '; --payload shows it'}"


def _at(at: datetime | None, now: datetime) -> str:
    if at is None:
        return ""
    passed = since(at, now)
    return f"{clock(at)} ({passed if passed.startswith('in ') else f'{passed} ago'})"


def _json(value: object) -> str:
    return safe(msgspec.json.encode(value).decode())

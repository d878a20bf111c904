"""Jobs, one by one: enqueued by producers, waited for, changed, cancelled and sent back."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from litestar import Request, Response, get, patch, post
from litestar.params import FromPath, HeaderParameter, JSONBody, QueryParameter
from msgspec import UNSET, Meta, UnsetType

from windlass.admin.enqueueing import Accepted, JobRefused, Made, OptionRefused, make
from windlass.admin.idempotency import OtherBody
from windlass.admin.keys import Scope
from windlass.admin.views import JobWhole
from windlass.api.access import requires, unseen_queue
from windlass.api.bound_keys import stored_name, visible_task
from windlass.api.changing import Change, change_job, changes
from windlass.api.context import Context, RouteContext, prefix_of, unknown_job
from windlass.api.problems import Refusal, conflict, field, invalid
from windlass.api.shapes import LONGEST_WAIT, Seconds
from windlass.api.yielding import enumerate_yielding
from windlass.client.callbacks import check_callback
from windlass.core.job import GROUP_JOBS, NewJob
from windlass.core.job import Refusal as Why
from windlass.core.names import check_flow
from windlass.core.operate import Effect, Operated
from windlass.core.state import TERMINAL
from windlass.core.webhook import CALLBACK
from windlass.errors import InvalidOption, InvalidPayload, PayloadTooLarge

LONGEST_KEY = 255
"""Characters of an Idempotency-Key."""

JsonObject = Annotated[msgspec.Raw, Meta(extra_json_schema={"type": "object"})]
IdempotencyKey = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        min_length=1,
        max_length=LONGEST_KEY,
        description="The same key and body within 24 h give the same answer, and no second job.",
    ),
]


class Wanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call of a task: its arguments, and the options of `using(...)`."""

    task: str
    payload: JsonObject | UnsetType = UNSET
    """The arguments by name: a JSON object."""
    queue: str | UnsetType = UNSET
    """Another queue than the task's own."""
    lane: str | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    """From -100 to 100, higher first."""
    delay: Seconds | UnsetType = UNSET
    run_at: datetime | UnsetType = UNSET
    """A time that says its zone."""
    expires: Seconds | UnsetType = UNSET
    """Do not start it later than this after it was accepted."""
    key: str | UnsetType = UNSET
    """A unique key: one unfinished job of the task at a time."""
    mode: Literal["ignore", "replace", "throttle"] | UnsetType = UNSET
    window: Seconds | UnsetType = UNSET
    after: list[str] | UnsetType = UNSET
    """Ids of jobs to wait for."""
    on_failure: Literal["cancel", "ignore", "run"] | UnsetType = UNSET
    max_attempts: int | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    flow: str | UnsetType = UNSET
    callback: str | UnsetType = UNSET
    """A URL that is told when the job is done, and when it is dead."""


class WantedMany(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Calls that are accepted together or not at all."""

    jobs: Annotated[list[Wanted], Meta(min_length=1, max_length=GROUP_JOBS)]


class Enqueue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call of a task, in the plain form."""

    type: str
    """The name of a task."""
    payload: JsonObject | UnsetType = UNSET
    """Its arguments by name: a JSON object."""
    run_at: str | None = None
    """When to run it: a time that says its zone, or "now"."""


class Enqueued(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to the plain form."""

    task_id: str


class AcceptedMany(msgspec.Struct, frozen=True, kw_only=True):
    """Those of a batch, in its order."""

    jobs: list[Accepted]


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to a job."""

    id: str
    effect: str
    """applied; or flagged: it runs, and its worker was asked to stop it."""
    state: str | None


# --- producing ----------------------------------------------------------------------------------------------


@post("/enqueue", guards=[requires(Scope.ENQUEUE)], tags=["jobs"])
async def enqueue(
    context: RouteContext,
    request: Request[Any, Any, Any],
    data: JSONBody[Enqueue],
    idempotency_key: IdempotencyKey = None,
) -> Enqueued:
    """Enqueue a task: its name, its arguments, and when to run it."""
    options = {} if data.run_at in (None, "now") else {"run_at": _instant(str(data.run_at))}
    made = _made(context, data.type, data.payload, options, fields={"task": "type"})
    accepted = await _accept(context, [made], idempotency_key, request)
    return Enqueued(task_id=accepted[0].id)


@post("/v1/jobs", guards=[requires(Scope.ENQUEUE)], opt={"also": [200]}, tags=["jobs"])
async def create_job(
    context: RouteContext,
    request: Request[Any, Any, Any],
    data: JSONBody[Wanted],
    idempotency_key: IdempotencyKey = None,
) -> Response[Accepted]:
    """Enqueue a call of a task. 200 instead of 201: a job that was there before stands for it."""
    made = _made(context, data.task, data.payload, _options(data))
    accepted = (await _accept(context, [made], idempotency_key, request))[0]
    return Response(
        accepted,
        status_code=201 if accepted.created else 200,
        headers={"location": f"{prefix_of(request.scope)}/v1/jobs/{accepted.id}"},
    )


@post("/v1/jobs/batch", guards=[requires(Scope.ENQUEUE)], tags=["jobs"])
async def create_jobs(
    context: RouteContext,
    request: Request[Any, Any, Any],
    data: JSONBody[WantedMany],
    idempotency_key: IdempotencyKey = None,
) -> AcceptedMany:
    """Enqueue up to 1,000 calls in one step: all of them are accepted, or none."""
    made = [
        _made(context, each.task, each.payload, _options(each), at=f"jobs[{number}].")
        async for number, each in enumerate_yielding(data.jobs)
    ]
    return AcceptedMany(jobs=await _accept(context, made, idempotency_key, request))


def _options(wanted: Wanted) -> dict[str, Any]:
    """The options that were said."""
    return {
        name: value
        for name in Wanted.__struct_fields__
        if name not in ("task", "payload") and (value := getattr(wanted, name)) is not UNSET
    }


def _made(
    context: Context,
    task: str,
    payload: msgspec.Raw | UnsetType,
    options: dict[str, Any],
    *,
    at: str = "",
    fields: dict[str, str] | None = None,
) -> Made:
    """A job that can be sent; what is wrong with it is told with its field."""
    lanes = context.caller.lanes
    if lanes is not None and "lane" not in options and len(lanes) == 1:
        options["lane"] = next(iter(lanes))
    arguments = b"{}" if payload is UNSET else bytes(payload)
    try:
        known = visible_task(context.app, context.caller, task)
        if "flow" in options:
            options["flow"] = _own_flow(context, options["flow"])
        _check_callback(context, options)
        return make(
            known,
            arguments,
            options,
            check=lambda job: _in_sight(context, job),
            key=context.caller.shown,
        )
    except (OptionRefused, InvalidPayload, Refusal) as error:
        refusal = _refusal(error)
    if refusal.field is not None:
        refusal.field = at + (fields or {}).get(refusal.field, refusal.field)
    raise refusal


def _own_flow(context: Context, flow: str) -> str:
    """The name under which a flow is kept."""
    with field("flow"):
        return check_flow(stored_name(context.caller, check_flow(flow)))


def _check_callback(context: Context, options: Mapping[str, Any]) -> None:
    """Refuse a header that names no URL, or one which would not be told."""
    url = options.get("headers", {}).get(CALLBACK)
    if url is not None:
        try:
            check_callback(context.app.config, url)
        except InvalidOption as error:
            raise Refusal(400, "invalid", f'header "{CALLBACK}": {error}', field="headers") from None


def _in_sight(context: Context, job: NewJob) -> None:
    if not context.caller.sees_queue(job.queue):
        raise unseen_queue(job.queue)
    context.seen_lane(job.lane)


def _refusal(error: Exception) -> Refusal:
    match error:
        case Refusal():
            return error
        case OptionRefused():
            return invalid(str(error), field=error.option)
        case PayloadTooLarge():
            return Refusal(413, "too-large", str(error), field="payload")
        case _:
            return Refusal(422, "invalid-payload", str(error), field="payload")


def _instant(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise invalid(
            'run_at must be "now" or a time such as "2030-01-31T08:00:00Z"', field="run_at"
        ) from None
    if at.tzinfo is None:
        raise invalid('run_at must say its zone, as in "2030-01-31T08:00:00Z"', field="run_at")
    return at


async def _accept(
    context: Context, made: Sequence[Made], key: str | None, request: Request[Any, Any, Any]
) -> list[Accepted]:
    """Send jobs, under an idempotency key if there is one."""
    await _check_parents(context, made)
    enqueueing = context.service.enqueueing
    try:
        if key is None:
            return await enqueueing.accept(made)
        body = await request.body()
        return await enqueueing.accept_once(made, key=key, caller=context.caller.name, body=body)
    except OtherBody:
        raise Refusal(
            422,
            "idempotency-key-reused",
            "this Idempotency-Key was used for another request",
            field="Idempotency-Key",
        ) from None
    except JobRefused as error:
        at = f"jobs[{error.number}]." if len(made) > 1 else ""
        raise _why(made[error.number], error, at) from None


async def _check_parents(context: Context, made: Sequence[Made]) -> None:
    """To a bound key, a parent that it does not see is one that does not exist."""
    if not context.caller.is_bound:
        return
    own = {each.job.id for each in made}
    parents = list({edge.parent for each in made for edge in each.job.after} - own)
    known = await context.service.jobs.details(parents)
    for parent in parents:
        found = known.get(parent)
        if found is None or not context.sees(found):
            raise invalid(f"job {parent}, which is to be waited for, is not known", field="after")


def _why(made: Made, error: JobRefused, at: str) -> Refusal:
    text = str(error)
    match error.refusal:
        case Why.UNKNOWN_QUEUE:
            refusal = unseen_queue(made.job.queue)
            refusal.field = f"{at}queue"
            return refusal
        case Why.UNKNOWN_PARENT | Why.CYCLE:
            return invalid(text, field=f"{at}after")
        case Why.GROUP_TOO_LARGE:
            return Refusal(413, "too-large", text)
        case Why.STORE_FULL:
            return Refusal(507, "store-full", text, headers={"retry-after": "10"})
        case _:
            return Refusal(422, "refused", text)


# --- reading ------------------------------------------------------------------------------------------------


@get("/v1/jobs/{job:str}", guards=[requires(Scope.READ)], tags=["jobs"])
async def show_job(
    context: RouteContext,
    request: Request[Any, Any, Any],
    job: FromPath[str],
    wait: Annotated[
        float, QueryParameter(ge=0, le=LONGEST_WAIT, description="Seconds to wait for its end, at the most.")
    ] = 0,
    secrets: Annotated[  # noqa: FBT002 - of a query
        bool,
        QueryParameter(
            description="Show secrets in its payload, too: needs scope operate, and goes on record."
        ),
    ] = False,
) -> JobWhole:
    """A job with everything that is kept of it; values that are secret are masked."""
    if secrets and not context.caller.may(Scope.OPERATE):
        raise Refusal(403, "forbidden", "secrets are shown to keys with scope operate only", field="secrets")
    service, found = await context.seen_job_anywhere(job)
    if wait and found.state not in TERMINAL:
        with context.server_state.long_poll(context.caller.name):
            async with context.server_state.waiting_request(request) as waiting:
                await waiting.wait(service.jobs.wait(job, wait))
        found = await service.jobs.find(job)
        if found is None or not context.sees(found):
            raise unknown_job(job)
    if secrets:
        await context.record("secrets shown", {"job": job}, jobs=1, wanted=1)
    return context.shown(await service.jobs.shown_whole(found, secrets=secrets))


# --- operating ----------------------------------------------------------------------------------------------


@patch("/v1/jobs/{job:str}", guards=[requires(Scope.OPERATE)], tags=["jobs"])
async def edit_job(context: RouteContext, job: FromPath[str], data: JSONBody[Change]) -> Done:
    """Change a waiting job, or a dead letter. New arguments are checked like those of a call. 409 if it runs
    or has finished.
    """
    service, found = await context.seen_job_anywhere(job)
    done = _done(await change_job(context, service, found, data), "changed")
    await context.record("edited", {"job": job, **changes(data)}, jobs=1, wanted=1)
    return done


@post("/v1/jobs/{job:str}/cancel", guards=[requires(Scope.OPERATE)], status_code=200, tags=["jobs"])
async def cancel_job(context: RouteContext, job: FromPath[str]) -> Done:
    """Cancel a job: a waiting job at once; for a running job, its worker is asked to stop it."""
    service, found = await context.seen_job_anywhere(job)
    done = _done(await service.jobs.cancel_one(found.id), "cancelled")
    await context.record("cancelled", {"job": job}, jobs=1, wanted=1)
    return done


@post("/v1/jobs/{job:str}/replay", guards=[requires(Scope.OPERATE)], status_code=200, tags=["jobs"])
async def replay_job(context: RouteContext, job: FromPath[str]) -> Done:
    """Send a dead letter back: it becomes ready, with all its attempts."""
    service, found = await context.seen_job_anywhere(job)
    done = _done(await service.dead.replay_one(found.id), "replayed")
    await context.record("replayed", {"job": job}, jobs=1, wanted=1)
    return done


def _done(operated: Operated, what: str) -> Done:
    match operated.effect:
        case Effect.NOT_FOUND:
            raise unknown_job(operated.job)
        case Effect.WRONG_STATE:
            raise conflict(f"job {operated.job} is {operated.state}: it cannot be {what}")
        case Effect.CONFLICT:
            raise conflict(f"job {operated.by} holds its unique key; finish or cancel that one first")
        case _:
            return Done(id=operated.job, effect=operated.effect, state=operated.state)


ROUTES = (enqueue, create_job, create_jobs, show_job, edit_job, cancel_job, replay_job)

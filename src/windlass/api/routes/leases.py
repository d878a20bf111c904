"""Work for workers in any language: claim jobs, say how they are doing, and what became of them.

A lease is known by its token, which only its holder has; it is good for one delivery of one job. A lease
lives until its visibility runs out, whatever becomes of the server; or, in a session, for as long as its
worker beats.
"""

import random
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from litestar import Request, delete, post
from litestar.params import FromPath, JSONBody
from msgspec import UNSET

from windlass.admin.keys import Scope
from windlass.admin.leases import Ending, Failure, Handed, Work, check_visibility, check_work
from windlass.admin.views import seconds
from windlass.api.access import requires, unseen_queue
from windlass.api.bound_keys import shown_name
from windlass.api.context import Context, RouteContext
from windlass.api.problems import Refusal, field, invalid, not_found
from windlass.api.shapes import (
    Arguments,
    BeatAnswer,
    BeatGiven,
    Claim,
    Claimed,
    Extend,
    Extended,
    LeaseShown,
    OpenSession,
    Progress,
    SessionOpened,
    Settle,
    Settled,
    SettledMany,
    SettleMany,
)
from windlass.api.waiting_request import WaitingRequest
from windlass.api.yielding import enumerate_yielding
from windlass.core.duration import Duration, micros
from windlass.core.job import MAX_PARENTS, JobDetail
from windlass.core.lease import DRAW_RANGE, Ask, Asker
from windlass.core.outcome import Answer, Outcome, Verdict
from windlass.core.session import SessionInfo
from windlass.core.units import SECOND, Fence, JobId, Micros
from windlass.core.webhook import without_callback

LONGEST_TTL: Micros = 600 * SECOND
_OUTCOMES = {
    "ack": Outcome.DONE,
    "nack": Outcome.RETRY,
    "reject": Outcome.DEAD,
    "snooze": Outcome.SNOOZE,
    "release": Outcome.RELEASE,
    "hold": Outcome.HOLD,
}


# --- claiming -----------------------------------------------------------------------------------------------


@post("/v1/leases", guards=[requires(Scope.WORK)], status_code=200, tags=["leases"])
async def claim(context: RouteContext, request: Request[Any, Any, Any], data: JSONBody[Claim]) -> Claimed:
    """Claim jobs. With `wait`, the answer comes as soon as there is one."""
    ask = await _ask(context, data)
    if not data.wait:
        return _claimed(context, await context.service.leases.claim(ask))
    with context.server_state.long_poll(context.caller.name):
        async with context.server_state.waiting_request(request) as waiting:
            return _claimed(context, await _patient_claim(context, waiting, ask, data.wait))


async def _ask(context: Context, data: Claim) -> Ask:
    with field("queues"):
        check_work(data.queues)
    for queue in data.queues:
        if context.caller.lanes is not None or not context.caller.sees_queue(queue):
            raise unseen_queue(queue)
        await context.seen_queue(queue)
    limit = 1 if data.alone else data.limit
    rest: dict[str, Any] = {
        "queues": tuple(dict.fromkeys(data.queues)),
        "slots": limit,
        "limit": limit,
        "alone": data.alone,
        "draw": random.randrange(DRAW_RANGE),  # noqa: S311 - it decides between bands, and protects nothing
    }
    if (data.session is None) != (data.seq is None):
        raise invalid("session and seq go together", field="seq" if data.seq is None else "session")
    if data.session is not None:
        if data.visibility is not None:
            raise invalid("leases of a session have no visibility", field="visibility")
        return Ask(session=_session(context, data.session), seq=data.seq, **rest)
    return Ask(visibility=_visibility(context, data.visibility), **rest)


async def _patient_claim(context: Context, waiting: WaitingRequest, ask: Ask, wait: float) -> Work:
    """Claim until there is a job, or no time left."""
    leases = context.service.leases
    until = time.monotonic() + wait
    while True:
        work = await leases.claim(ask)
        if work.handed and waiting.is_gone and ask.session is None:
            await leases.give_back(work)  # else they would wait for their deadline
            return Work()
        left = until - time.monotonic()
        if work.handed or work.session is not Asker.ALIVE or left <= 0:
            return work
        pauses = [left, context.app.config.poll_floor / SECOND]
        if work.next_in is not None:
            pauses.append(work.next_in / SECOND)
        hint = 0.0 if work.more else max(0.0, min(pauses))
        came = await waiting.wait(_waited(context, ask.queues, hint))
        if came is None or ask.session is not None:
            # In a session every answer has a number of its own: the next ask is the worker's to send.
            return work


async def _waited(context: Context, queues: tuple[str, ...], seconds_: float) -> bool:
    await context.service.leases.wait(queues, seconds_)
    return True


def _claimed(context: Context, work: Work) -> Claimed:
    return Claimed(
        session=work.session,
        leases=[_lease(context, handed) for handed in work.handed],
        more=work.more,
        next_in=None if work.next_in is None else seconds(work.next_in),
        suspects=work.suspects,
    )


def _lease(context: Context, handed: Handed) -> LeaseShown:
    lease, payload = handed.lease, handed.payload
    return LeaseShown(
        lease=context.seals.lease(lease.job, lease.fence),
        job=lease.job,
        task=lease.task,
        payload=Arguments(args=payload.a, kwargs=payload.k),
        queue=lease.queue,
        lane=lease.lane,
        priority=lease.priority,
        attempt=lease.attempt,
        max_attempts=lease.max_attempts,
        fence=lease.fence,
        headers=without_callback(lease.headers),
        tags=lease.tags,
        flow=shown_name(context.caller, lease.flow),
        parents=lease.parents[:MAX_PARENTS],
        idempotency_key=lease.job,
        waited=seconds(lease.waited),
        expires_in=None if lease.expires_in is None else seconds(lease.expires_in),
        visibility=None if lease.visibility is None else seconds(lease.visibility),
    )


# --- settling -----------------------------------------------------------------------------------------------


@post("/v1/leases/{lease:str}/settle", guards=[requires(Scope.WORK)], status_code=200, tags=["leases"])
async def settle(context: RouteContext, lease: FromPath[str], data: JSONBody[Settle]) -> Settled:
    """End a lease. The same request again gets the same answer. 409: the lease was taken away."""
    opened, known = await _opened(context, [lease])
    answer = (await context.service.leases.settle([_ending(opened[0], data, "")], known))[0]
    _check(answer.verdict, answer.why)
    return _settled(answer)


@post("/v1/leases/settle", guards=[requires(Scope.WORK)], status_code=200, tags=["leases"])
async def settle_many(context: RouteContext, data: JSONBody[SettleMany]) -> SettledMany:
    """End up to 1,000 leases, each judged by itself."""
    opened, known = await _opened(context, [each.lease for each in data.items], at="items[{}].")
    endings = [
        _ending(opened[number], each, f"items[{number}].")
        async for number, each in enumerate_yielding(data.items)
    ]
    return SettledMany(items=[_settled(each) for each in await context.service.leases.settle(endings, known)])


def _ending(lease: tuple[JobId, Fence], data: Settle, at: str) -> Ending:
    outcome = _OUTCOMES[data.outcome]
    _check_fields(data, outcome, at)
    result: object = None
    if data.result is not UNSET:
        try:
            result = msgspec.json.decode(data.result)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise invalid(f"the result cannot be read: {error}", field=f"{at}result") from None
    error = data.error
    return Ending(
        job=lease[0],
        fence=lease[1],
        outcome=outcome,
        result=result,
        has_result=data.result is not UNSET,
        delay=None if data.delay is None else _duration(data.delay, f"{at}delay"),
        runtime=None if data.runtime is None else round(data.runtime * SECOND),
        error=None
        if error is None
        else Failure(type=error.type, message=error.message, traceback=error.traceback),
        reason=data.reason,
    )


def _check_fields(data: Settle, outcome: Outcome, at: str) -> None:
    """Refuse what the outcome has no use for: a slip would go unnoticed."""
    if data.result is not UNSET and outcome is not Outcome.DONE:
        raise invalid("a result comes with ack only", field=f"{at}result")
    if data.error is not None and outcome not in (Outcome.RETRY, Outcome.DEAD):
        raise invalid("an error comes with nack and reject only", field=f"{at}error")
    if data.delay is not None and outcome not in (Outcome.RETRY, Outcome.SNOOZE):
        raise invalid("a delay comes with nack and snooze only", field=f"{at}delay")
    if data.delay is None and outcome is Outcome.SNOOZE:
        raise invalid("a snooze needs a delay", field=f"{at}delay")


def _settled(answer: Answer) -> Settled:
    return Settled(verdict=answer.verdict, outcome=answer.outcome, state=answer.state)


# --- saying something about a run ---------------------------------------------------------------------------


@post("/v1/leases/{lease:str}/extend", guards=[requires(Scope.WORK)], status_code=200, tags=["leases"])
async def extend(context: RouteContext, lease: FromPath[str], data: JSONBody[Extend]) -> Extended:
    """Extend a lease, counted from now. The answer says whether the job is to be cancelled."""
    ((job, fence),), known = await _opened(context, [lease])
    more = _visibility(context, data.visibility)
    verdict, cancel = await context.service.leases.note(job, fence, extend=more, known=known)
    _check_stands(verdict)
    return Extended(visibility=seconds(more), cancel=cancel)


@post("/v1/leases/{lease:str}/progress", guards=[requires(Scope.WORK)], status_code=200, tags=["leases"])
async def progress(context: RouteContext, lease: FromPath[str], data: JSONBody[Progress]) -> Extended:
    """Report the progress of a run, and keep log lines."""
    ((job, fence),), known = await _opened(context, [lease])
    more = None if data.visibility is None else _visibility(context, data.visibility)
    verdict, cancel = await context.service.leases.note(
        job,
        fence,
        extend=more,
        fraction=data.fraction,
        message=data.message,
        logs=data.logs,
        known=known,
    )
    _check_stands(verdict)
    return Extended(visibility=None if more is None else seconds(more), cancel=cancel)


# --- sessions -----------------------------------------------------------------------------------------------


@post("/v1/leases/sessions", guards=[requires(Scope.WORK)], tags=["leases"])
async def open_session(context: RouteContext, data: JSONBody[OpenSession]) -> SessionOpened:
    """Open a session. Its leases have no deadline: they live as long as the session sends heartbeats."""
    with field("queues"):
        check_work(data.queues)
    for queue in data.queues:
        await context.seen_queue(queue)
    config = context.app.config
    ttl = config.session_ttl if data.ttl is None else _duration(data.ttl, "ttl")
    if not SECOND <= ttl <= LONGEST_TTL:
        raise invalid(f"ttl must be from 1 s to {LONGEST_TTL // SECOND} s", field="ttl")
    session = f"http-{secrets.token_hex(16)}"
    info = SessionInfo(
        host=_plain(data.host),
        pid=data.pid,
        app=context.app.name,
        version=_plain(data.version) or "http",
        queues=tuple(data.queues),
        slots=data.slots,
        ttl=ttl,
    )
    await context.service.leases.open(session, info)
    return SessionOpened(
        session=context.seals.session(session),
        id=session,
        ttl=seconds(ttl),
        beat=min(seconds(config.beat), seconds(ttl) / 4),
    )


@post(
    "/v1/leases/sessions/{session:str}/beat", guards=[requires(Scope.WORK)], status_code=200, tags=["leases"]
)
async def beat(context: RouteContext, session: FromPath[str], data: JSONBody[BeatGiven]) -> BeatAnswer:
    """Send the heartbeat of a session."""
    pulse = await context.service.leases.beat(_session(context, session), data.memory)
    return BeatAnswer(
        alive=pulse.alive, cancel=[context.seals.lease(job, fence) for job, fence in pulse.cancel]
    )


@delete("/v1/leases/sessions/{session:str}", guards=[requires(Scope.WORK)], status_code=204, tags=["leases"])
async def end_session(context: RouteContext, session: FromPath[str]) -> None:
    """End a session: its jobs go back at once, and spend no attempt."""
    await context.service.leases.end(_session(context, session))


# --- reading what was given ---------------------------------------------------------------------------------


async def _opened(
    context: Context, tokens: Sequence[str], at: str = ""
) -> tuple[list[tuple[JobId, Fence]], Mapping[JobId, JobDetail] | None]:
    """The job and the fence of each lease. For a caller with a bound key also the jobs, which had to be read
    to know whether it sees them. 404 for what is no token, and for a job that the caller does not see.
    """
    opened = [context.seals.open_lease(token) for token in tokens]
    known = None
    if context.caller.is_bound:
        known = await context.service.jobs.details([lease[0] for lease in opened if lease is not None])
    found: list[tuple[JobId, Fence]] = []
    for number, lease in enumerate(opened):
        job = None if lease is None or known is None else known.get(lease[0])
        is_hidden = job is not None and not job.pruned and not context.sees(job)
        if lease is None or is_hidden:
            raise not_found("there is no such lease", field=f"{at.format(number)}lease")
        found.append(lease)
    return found, known


def _session(context: Context, token: str) -> str:
    found = context.seals.open_session(token)
    if found is None:
        raise not_found("there is no such session", field="session")
    return found


def _visibility(context: Context, given: Duration | None) -> Micros:
    if given is None:
        return context.app.config.visibility
    with field("visibility"):
        return check_visibility(micros(given, name="visibility"), name="visibility")


def _duration(given: Duration, name: str) -> Micros:
    with field(name):
        return micros(given, name=name.rpartition(".")[2])


def _check(verdict: Verdict, why: str = "") -> None:
    match verdict:
        case Verdict.STALE:
            raise Refusal(409, "lease-lost", "this lease was taken away: the job is, or was, run by others")
        case Verdict.GONE:
            raise Refusal(410, "gone", "no record of this job is kept")
        case Verdict.REFUSED:
            raise Refusal(422, "refused", why or "the store refused it; the lease stands")
        case _:
            pass


def _check_stands(verdict: Verdict) -> None:
    if verdict is Verdict.ALREADY:
        raise Refusal(409, "lease-lost", "this lease was settled: there is nothing more to say about its run")
    _check(verdict)


def _plain(text: str) -> str:
    """A text for operators, without what would forge a line of a log."""
    return "".join(letter for letter in text if letter.isprintable())


ROUTES = (claim, settle, settle_many, extend, progress, open_session, beat, end_session)

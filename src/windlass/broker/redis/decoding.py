"""What scripts answer, as the contract's values. Pure: both transports use it."""

from collections.abc import Sequence
from typing import Any

import msgspec

from windlass.broker.redis.codes import ASKERS, DELIVERIES, POLICIES, STATES, STATUSES
from windlass.broker.redis.records import (
    Head,
    pack_id,
    raw_text,
    read_body,
    read_head,
    unpack,
    unpack_id,
    unpack_ids,
)
from windlass.core.event import Event
from windlass.core.group import refused_whole
from windlass.core.job import (
    FORGOTTEN,
    Delivery,
    Edge,
    Finished,
    Held,
    JobDetail,
    JobView,
    Moved,
    NewJob,
    Progress,
    Receipt,
    Refusal,
    Status,
)
from windlass.core.lease import Claimed, Lease
from windlass.core.operate import Effect, Operated
from windlass.core.outcome import Answer, Cause, Error, Outcome, Verdict
from windlass.core.query import Explanation, LaneView, Parked, Why
from windlass.core.session import Pulse, SessionInfo, SessionState, SessionView
from windlass.core.settings import Change, Changed
from windlass.core.state import Move, Reason, State
from windlass.core.timetable import FireRecord, ScheduleView
from windlass.core.units import JobId, Micros

_error = msgspec.json.Decoder(Error)
_cause = msgspec.json.Decoder(Cause)
_info = msgspec.json.Decoder(SessionInfo)
_memos = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])


def _maybe(value: Any) -> Any:
    return None if value is False else value


def state(code: int) -> State | None:
    """A state; None if there is none."""
    return None if code < 0 else STATES[code]


# produce


def receipts(group: Sequence[NewJob], answer: Any) -> tuple[Receipt, ...]:
    """The receipts of a group."""
    if answer == 1:
        return tuple(Receipt(Status.CREATED, job.id) for job in group)
    if answer and answer[0] == b"refused":
        refused = {job.id: why for job, why in (_refusal(group, one) for one in answer[1:])}
        return refused_whole(group, refused)
    return tuple(_receipt(job, one) for job, one in zip(group, answer, strict=True))


def _receipt(job: NewJob, answer: Any) -> Receipt:
    if isinstance(answer, int):
        return Receipt(STATUSES[answer], job.id)
    return Receipt(STATUSES[int(answer[0])], job.id, unpack_id(answer[1]))


def _refusal(group: Sequence[NewJob], raw: Any) -> tuple[NewJob, tuple[Refusal, str]]:
    job, refusal = group[int(raw[0]) - 1], Refusal(bytes(raw[1]).decode())
    return job, (refusal, _why_refused(job, refusal, raw[2]))


def _why_refused(job: NewJob, refusal: Refusal, which: bytes) -> str:
    match refusal:
        case Refusal.UNKNOWN_QUEUE:
            return f'queue "{job.queue}" is not declared'
        case Refusal.UNKNOWN_PARENT:
            return f"parent {unpack_id(which)} is not known"
        case Refusal.CYCLE:
            return f"job {job.id} waits for itself through its parents"
        case _:
            return "the store is at its limit of bytes (max_size)"


# consume


def claimed(answer: Any) -> Claimed:
    """The answer to an ask."""
    asker, more, next_in, suspects, now = answer[:5]
    if asker:
        return Claimed(session=ASKERS[int(asker)])
    return Claimed(
        leases=_leases(now, *answer[5:]) if len(answer) > 5 else (),
        more=bool(more),
        next_in=None if next_in < 0 else next_in,
        suspects=suspects,
    )


def _leases(
    now: Micros, ids: bytes, heads: Sequence[bytes], bodies: Sequence[bytes], rare: Sequence[Any]
) -> tuple[Lease, ...]:
    extras = {rare[at]: rare[at + 1 : at + 3] for at in range(0, len(rare), 3)}
    return tuple(
        _lease(now, job, read_head(raw), body, *extras.get(place, (b"", b"")))
        for place, (job, raw, body) in enumerate(zip(unpack_ids(ids), heads, bodies, strict=True))
    )


def _lease(now: Micros, job: JobId, head: Head, body: bytes, after: bytes, memos: bytes) -> Lease:
    stamp = head.stamp
    rare, cold = stamp.rare, stamp.cold
    headers, payload = read_body(body)
    return Lease(
        job=job,
        fence=head.fence,
        task=stamp.task,
        queue=stamp.queue,
        lane=stamp.lane,
        priority=cold.priority,
        attempt=head.attempt,
        max_attempts=cold.max_attempts,
        crashes=rare.crashes,
        revision=cold.revision,
        payload=payload,
        headers=headers,
        tags=stamp.tags,
        flow=cold.flow,
        parents=tuple(edge.parent for edge in edges(after)) if after else (),
        memos=read_memos(memos) if memos else {},
        waited=max(0, head.claimed - head.due),
        expires_in=None if rare.expires is None or head.started else rare.expires - now,
        visibility=None if rare.deadline is None else rare.deadline - now,
    )


def edges(raw: bytes | None) -> tuple[Edge, ...]:
    """The parents of a job."""
    return tuple(
        Edge(unpack_id(raw[at : at + 16]), POLICIES[raw[at + 16 : at + 17]])
        for at in range(0, len(raw or b""), 17)
        if raw
    )


def read_memos(raw: bytes | None) -> dict[str, bytes]:
    """What `current.step` recorded."""
    return {name: raw_text(value) for name, value in _memos.decode(raw).items()} if raw else {}


_DONE = Answer(Verdict.APPLIED, Outcome.DONE, State.DONE)


def answer(raw: Any) -> Answer:
    """The answer to a settlement."""
    if raw == 1:
        return _DONE
    verdict, outcome, code, why = raw
    return Answer(
        Verdict(verdict.decode()), Outcome(outcome.decode()) if outcome else None, state(code), why.decode()
    )


def pulse(session: str, raw: Any) -> Pulse:
    """The answer to a beat."""
    alive, version, *cancel = raw
    pairs = tuple((unpack_id(cancel[at]), cancel[at + 1]) for at in range(0, len(cancel), 2))
    return Pulse(session=session, alive=bool(alive), cancel=pairs, settings=version)


def moves(raw: Sequence[bytes]) -> tuple[Moved, ...]:
    """The transitions of a step."""
    return tuple(_moved(raw[at], unpack(raw[at + 1])) for at in range(0, len(raw), 2))


def _moved(job: bytes, row: Any) -> Moved:
    queue, task, lane, move, before, after, reason = row
    return Moved(
        job=unpack_id(job),
        queue=queue,
        task=task,
        lane=lane,
        move=Move(move),
        before=STATES[int(before)],
        after=STATES[int(after)],
        reason=Reason(reason) if reason else None,
    )


def event(raw: bytes) -> Event:
    """An event of the log."""
    at, task, queue, lane, move, before, after, reason, outcome, attempt, fence, runtime, waited = unpack(
        raw[16:]
    )
    return Event(
        at=at,
        job=unpack_id(raw[:16]),
        task=task,
        queue=queue,
        lane=lane,
        move=Move(move),
        before=state(before),
        after=state(after),
        reason=Reason(reason) if reason else None,
        outcome=Outcome(outcome) if outcome else None,
        attempt=attempt,
        fence=fence,
        runtime=_maybe(runtime),
        waited=_maybe(waited),
    )


# operate and settings


def operated(job: JobId, raw: Any) -> Operated:
    """The answer to an operation."""
    effect, code, by = raw
    return Operated(job, Effect(effect.decode()), state(code), unpack_id(by) if by else None)


def changed(raw: Any) -> Changed:
    """The answer to a declaration."""
    return Changed(Change(raw[0].decode()), raw[1])


def schedule(
    name: bytes, record: bytes, declared: bytes | None, override: bytes | None, fires: bytes | None
) -> ScheduleView:
    """A schedule."""
    app, revision, version, next_at, paused, _, _ = unpack(record)
    return ScheduleView(
        name=name.decode(),
        declared=declared,
        override=override,
        version=version,
        next_at=_maybe(next_at),
        paused=paused,
        app=app,
        revision=revision,
        fires=tuple(
            FireRecord(tick, at, tuple(unpack_id(bytes.fromhex(job)) for job in jobs), *missed)
            for tick, at, jobs, *missed in (unpack(fires) if fires else ())
        ),
    )


# read


def _fields(job: bytes, head: Head) -> dict[str, Any]:
    stamp = head.stamp
    rare, cold = stamp.rare, stamp.cold
    held = None
    if rare.hold_key is not None:
        held = Held(rare.hold_key, rare.hold_reason, rare.hold_since, rare.hold_times)
    state = STATES[head.state]
    return {
        "id": unpack_id(job),
        "task": stamp.task,
        "queue": stamp.queue,
        "lane": stamp.lane,
        "priority": cold.priority,
        "state": state,
        "reason": None if rare.reason is None else Reason(rare.reason),
        "attempt": head.attempt,
        "max_attempts": cold.max_attempts,
        "crashes": rare.crashes,
        "fence": head.fence,
        "key": rare.key,
        "tags": stamp.tags,
        "flow": cold.flow,
        "parent": rare.parent,
        "revision": cold.revision,
        "accepted_at": head.accepted,
        "due_at": head.due,
        "expires_at": rare.expires,
        "finished_at": head.finished or None,
        "session": head.session.decode() if state is State.RUNNING and head.session else None,
        "cancel_requested": bool(rare.cancel),
        "held": held,
        "waiting_for": rare.waiting,
        "replays": rare.replays,
        "progress": None if rare.permille is None else Progress(rare.permille, rare.message),
    }


def view(job: bytes, raw: bytes) -> JobView:
    """A job as listings show it."""
    return JobView(**_fields(job, read_head(raw)))


def detail(job: JobId, raw: Any) -> JobDetail | None:
    """A job with everything."""
    if raw is None:
        return None
    if len(raw) == 1:
        code, reason, fence, _, finished, _ = unpack(raw[0])
        return msgspec.structs.replace(
            FORGOTTEN,
            id=job,
            state=STATES[code],
            reason=Reason(reason) if reason else None,
            fence=fence,
            finished_at=finished,
        )
    head, body, dead_parent, deliveries, error, result, after, memos, *lines = raw
    parsed = read_head(head)
    fields = _fields(pack_id(job), parsed)
    if dead_parent:
        fields["reason"] = Reason.PARENT_DEAD
    headers, payload = read_body(body)
    return JobDetail(
        **fields,
        payload=payload,
        headers=headers,
        after=edges(after),
        result=result,
        error=_error.decode(error) if error else None,
        deliveries=_deliveries(parsed, deliveries),
        logs=tuple(line.decode() for line in lines),
        memos=tuple(sorted(read_memos(memos))),
    )


def _deliveries(head: Head, raw: bytes | None) -> tuple[Delivery, ...]:
    """The last attempts; the one that ended as done is told by the head."""
    found = [_delivery(row) for row in (unpack(raw) if raw else ())]
    if head.runtime:
        found.append(
            Delivery(
                fence=head.fence,
                attempt=head.attempt,
                session=head.session.decode() or None,
                claimed_at=head.claimed,
                ended_at=head.finished,
                outcome=Outcome.DONE,
                settled=True,
                runtime=head.runtime - 2 if head.runtime > 1 else None,
            )
        )
    return tuple(found[-DELIVERIES:])


def _delivery(row: Any) -> Delivery:
    fence, attempt, session, claimed_at, ended_at, outcome, settled, cause, runtime, error = row
    return Delivery(
        fence=fence,
        attempt=attempt,
        session=_maybe(session),
        claimed_at=claimed_at,
        ended_at=ended_at,
        outcome=Outcome(outcome),
        settled=settled,
        cause=_cause.decode(cause) if cause else None,
        runtime=_maybe(runtime),
        error=_error.decode(error) if error else None,
    )


def finished(job: bytes, code: int, reason: bytes, result: bytes | None, error: bytes | None) -> Finished:
    """What a waiter for a job's end is told."""
    return Finished(
        job=unpack_id(job),
        state=STATES[code],
        reason=Reason(reason.decode()) if reason else None,
        result=result,
        error=_error.decode(error) if error else None,
    )


def lane(queue: str, row: Sequence[Any]) -> LaneView:
    """A lane."""
    name, weight, ready, running, lag, concurrency, tokens, parked, paused = row
    return LaneView(
        queue=queue,
        lane=name.decode(),
        weight=weight,
        ready=ready,
        running=running,
        lag=lag,
        concurrency=None if concurrency < 0 else concurrency,
        tokens=None if tokens < 0 else tokens,
        parked=Parked(parked.decode()) if parked else None,
        paused=bool(paused),
    )


def session(row: Sequence[Any]) -> SessionView:
    """A session."""
    name, info, ended, opened, silent, leases, memory, cause = row
    return SessionView(
        id=name.decode(),
        info=_info.decode(info),
        state=SessionState.ENDED if ended else SessionState.ALIVE,
        opened_at=opened,
        silent_for=silent,
        leases=leases,
        memory=memory,
        cause=_cause.decode(cause) if cause else None,
    )


def explanation(job: JobId, raw: Any) -> Explanation:
    """Why a job waits."""
    code, said, about, next_in, ahead, error = raw
    why = Why(said.decode())
    named = why in (Why.PARENTS, Why.SEQUENCE)
    return Explanation(
        job=job,
        state=state(code),
        why=why,
        detail=unpack_id(about) if named else about.decode(),
        ahead=ahead,
        next_in=None if next_in < 0 else next_in,
        error=_error.decode(error) if error and why in (Why.RETRYING, Why.FINISHED) else None,
    )

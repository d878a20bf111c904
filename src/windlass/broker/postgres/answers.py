"""What a verb answers, from the rows that its function returned."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from windlass.broker.contract import Settled
from windlass.broker.postgres.driver import Row
from windlass.broker.postgres.records import (
    known_state,
    read_after,
    read_body,
    read_cause,
    read_error,
    read_headers,
    read_info,
    read_tags,
    read_text,
    state_of,
)
from windlass.core.event import Event, Events
from windlass.core.job import (
    FORGOTTEN,
    Delivery,
    Finished,
    Held,
    JobDetail,
    JobView,
    Moved,
    Progress,
    Receipt,
    Refusal,
    Status,
)
from windlass.core.lease import Asker, Claimed, Lease
from windlass.core.outcome import Answer, Outcome, Verdict
from windlass.core.query import (
    Count,
    Counts,
    Explanation,
    Lanes,
    LaneView,
    Page,
    Parked,
    UnfinishedFlow,
    UnfinishedFlows,
    Why,
)
from windlass.core.session import Pulse, SessionState, SessionView, Swept
from windlass.core.settings import Document, Kind, Subject
from windlass.core.state import Move, Reason, State
from windlass.core.timetable import FireRecord, Schedules, ScheduleView
from windlass.core.units import Cursor, JobId, SessionId


def receipt(job: JobId, row: Row) -> Receipt:
    """What became of one new job."""
    refusal = row["refusal"]
    return Receipt(
        Status(row["status"]),
        job,
        row["of"],
        None if refusal is None else Refusal(refusal),
        row["why"] or "",
    )


def claimed(rows: Sequence[Row]) -> Claimed:
    """The answer to an ask: its head, then its leases; tuples, in the order of the type `claimed`."""
    asker, more, next_in, suspects, *_ = rows[0]
    return Claimed(
        session=Asker(asker), leases=_leases(rows[1:]), more=more, next_in=next_in, suspects=suspects
    )


DONE = Answer(Verdict.APPLIED, Outcome.DONE, State.DONE, "")


def settled(rows: Sequence[Row], count: int, *, asked: bool) -> Settled:
    """The answers to so many settlements, and to the ask that came with them."""
    columns = rows[0][4:8]
    if columns[0] is None:
        return Settled(answers=(DONE,) * count, claimed=claimed(rows) if asked else None)
    answers = tuple(
        Answer(Verdict(verdict), None if outcome is None else Outcome(outcome), state_of(state), why)
        for verdict, outcome, state, why in zip(*columns, strict=True)
    )
    return Settled(answers=answers, claimed=claimed(rows) if asked else None)


def _leases(rows: Iterable[Row]) -> tuple[Lease, ...]:
    leases: list[Lease] = []
    for row in rows:
        # By place: looking up nineteen names costs more than everything else here.
        (
            *_,
            ids,
            payloads,
            fence,
            task,
            queue,
            lane,
            priority,
            attempt,
            max_attempts,
            crashes,
            revision,
            headers,
            tags,
            flow,
            parents,
            names,
            values,
            waited,
            expires_in,
            visibility,
        ) = row
        # Each sees headers and memos of its own: what a job does to them is no other's business.
        leases += [
            Lease(
                job=job,
                fence=fence,
                task=task,
                queue=queue,
                lane=lane,
                priority=priority,
                attempt=attempt,
                max_attempts=max_attempts,
                crashes=crashes,
                revision=revision,
                payload=payload,
                headers=read_headers(headers),
                tags=read_tags(tags),
                flow=flow,
                parents=tuple(parents) if parents else (),
                memos=dict(zip(names, values, strict=True)) if names else {},
                waited=waited,
                expires_in=expires_in,
                visibility=visibility,
            )
            for job, payload in zip(ids, payloads, strict=True)
        ]
    return tuple(leases)


def pulse(session: SessionId, row: Row) -> Pulse:
    """The answer to a sign of life."""
    cancel = zip(row["jobs"] or (), row["fences"] or (), strict=True)
    return Pulse(session=session, alive=row["alive"], cancel=tuple(cancel), settings=row["settings"])


def swept(rows: Sequence[Row]) -> Swept:
    """What a sweep did: its head, then the transitions that it made."""
    head = rows[0]
    return Swept(
        promoted=head["promoted"],
        reaped=tuple(head["reaped"]),
        moved=tuple(map(moved, rows[1:])),
        pruned=head["pruned"],
        overdue=tuple(head["overdue"] or ()),
        more=head["more"],
        schedules_due=head["schedules_due"],
        early=head["early"],
        since=head["since"],
        stepped_back=head["stepped_back"],
    )


def moved(row: Row) -> Moved:
    """A transition that a verb made."""
    return Moved(
        job=row["job"],
        queue=row["queue"],
        task=row["task"],
        lane=row["lane"],
        move=Move(row["move"]),
        before=known_state(row["before"]),
        after=known_state(row["after"]),
        reason=_reason(row["reason"]),
    )


def _reason(text: str | None) -> Reason | None:
    return None if text is None else Reason(text)


def _view(row: Row) -> dict[str, Any]:
    held = row["hold_key"]
    permille = row["permille"]
    return {
        "id": row["id"],
        "task": row["task"],
        "queue": row["queue"],
        "lane": row["lane"],
        "priority": row["priority"],
        "state": state_of(row["state"]),
        "reason": _reason(row["reason"]),
        "attempt": row["attempt"],
        "max_attempts": row["max_attempts"],
        "crashes": row["crashes"],
        "fence": row["fence"],
        "key": row["key"],
        "tags": read_tags(row["tags"]),
        "flow": row["flow"],
        "parent": row["parent"],
        "revision": row["revision"],
        "accepted_at": row["accepted_at"],
        "due_at": row["due_at"],
        "expires_at": row["expires_at"],
        "finished_at": row["finished_at"],
        "session": row["session"],
        "cancel_requested": row["cancel_requested"],
        "held": None
        if held is None
        else Held(held, read_text(row["hold_reason"]), row["held_since"], row["held_times"]),
        "waiting_for": row["waiting_for"],
        "replays": row["replays"],
        "progress": None if permille is None else Progress(permille, read_text(row["message"])),
    }


def detail(row: Row) -> JobDetail:
    """A job with everything that is kept of it."""
    if row["pruned"]:
        return msgspec.structs.replace(
            FORGOTTEN,
            id=row["id"],
            state=state_of(row["state"]),
            reason=_reason(row["reason"]),
            fence=row["fence"],
            finished_at=row["finished_at"],
        )
    error, lines, memos = row["error"], row["lines"], row["memos"]
    return JobDetail(
        **_view(row),
        payload=row["payload"],
        headers=read_headers(row["headers"]),
        after=read_after(row["after_ids"], row["after_on"]),
        result=row["result"],
        error=None if error is None else read_error(error),
        deliveries=_deliveries(row["history"]),
        logs=tuple(map(read_text, lines)) if lines else (),
        memos=tuple(memos) if memos else (),
    )


class _End(msgspec.Struct):
    """One end of a lease, as PostgreSQL writes it in JSON: bytes are hexadecimal behind a prefix."""

    fence: int
    attempt: int
    session: str | None
    claimed_at: int
    ended_at: int
    outcome: Outcome
    settled: bool
    cause: str | None
    runtime: int | None
    error: str | None


_ends = msgspec.json.Decoder(tuple[_End, ...])


def _deliveries(history: str | None) -> tuple[Delivery, ...]:
    if history is None:
        return ()
    return tuple(
        Delivery(
            fence=end.fence,
            attempt=end.attempt,
            session=end.session,
            claimed_at=end.claimed_at,
            ended_at=end.ended_at,
            outcome=end.outcome,
            settled=end.settled,
            cause=None if end.cause is None else read_cause(bytes.fromhex(end.cause[2:])),
            runtime=end.runtime,
            error=None if end.error is None else read_error(bytes.fromhex(end.error[2:])),
        )
        for end in _ends.decode(history)
    )


def page(rows: Sequence[Row]) -> Page:
    """A page of a listing."""
    cursor = rows[0]["n"]
    jobs = tuple(JobView(**_view(row)) for row in rows[1:])
    return Page(jobs=jobs, cursor=None if cursor is None else Cursor(str(cursor)))


def counts(rows: Sequence[Row]) -> Counts:
    """How many jobs there are, the age of the oldest of each queue, and which are paused."""
    found: list[Count] = []
    oldest: dict[str, int] = {}
    paused: list[str] = []
    for row in rows:
        state = state_of(row["state"])
        if row["n"] is None:
            paused.append(row["queue"])
        elif state is None:
            oldest[row["queue"]] = row["n"]
        else:
            found.append(Count(row["queue"], row["task"], state, row["n"]))
    found.sort(key=lambda count: (count.queue, count.task, count.state))
    return Counts(rows=tuple(found), oldest=oldest, paused=tuple(sorted(paused)))


def flows(rows: Sequence[Row], limit: int) -> UnfinishedFlows:
    """A page of flows."""
    found = tuple(
        UnfinishedFlow(flow=row["flow"], moving=row["moving"], held=row["held"], dead=row["dead"])
        for row in rows[:limit]
    )
    return UnfinishedFlows(flows=found, cursor=Cursor(found[-1].flow) if len(rows) > limit else None)


def lanes(queue: str, rows: Sequence[Row], limit: int) -> Lanes:
    """A page of lanes."""
    views = tuple(
        LaneView(
            queue=queue,
            lane=row["name"],
            weight=row["weight"],
            ready=row["ready"],
            running=row["running"],
            lag=row["lag"],
            concurrency=row["concurrency"],
            tokens=row["tokens"],
            parked=None if row["parked"] is None else Parked(row["parked"]),
            paused=row["paused"],
        )
        for row in rows[:limit]
    )
    # The first character keeps the cursor of the lane "" apart from "no cursor".
    return Lanes(lanes=views, cursor=Cursor(f">{views[-1].lane}") if len(rows) > limit else None)


def session(row: Row) -> SessionView:
    """A session as operators see it."""
    cause = row["cause"]
    return SessionView(
        id=row["id"],
        info=read_info(row["info"]),
        state=SessionState.ALIVE if row["alive"] else SessionState.ENDED,
        opened_at=row["opened_at"],
        silent_for=row["silent_for"],
        leases=row["leases"],
        memory=row["memory"],
        cause=None if cause is None else read_cause(cause),
    )


def finished(jobs: Sequence[JobId], rows: Sequence[Row]) -> dict[JobId, Finished]:
    """Those of the jobs that have finished."""
    found: dict[JobId, Finished] = {}
    for row in rows:
        error: bytes | None = row["error"]
        place: int = row["place"]
        job = jobs[place - 1]
        found[job] = Finished(
            job=job,
            state=known_state(row["state"]),
            reason=_reason(row["reason"]),
            result=row["result"],
            error=None if error is None else read_error(error),
        )
    return found


def events(rows: Sequence[Row]) -> Events:
    """A page of the event log."""
    head = rows[0]
    return Events(
        items=tuple(_event(row) for row in rows[1:]), cursor=Cursor(str(head["i"])), gap=bool(head["gap"])
    )


def _event(row: Row) -> Event:
    outcome = row["outcome"]
    return Event(
        at=row["at"],
        job=row["job"],
        task=row["task"],
        queue=row["queue"],
        lane=row["lane"],
        move=Move(row["move"]),
        before=state_of(row["before"]),
        after=state_of(row["after"]),
        reason=_reason(row["reason"]),
        outcome=None if outcome is None else Outcome(outcome),
        attempt=row["attempt"],
        fence=row["fence"],
        runtime=row["runtime"],
        waited=row["waited"],
    )


def explanation(job: JobId, row: Row) -> Explanation:
    """Why a job is not running."""
    error = row["error"]
    return Explanation(
        job=job,
        state=state_of(row["state"]),
        why=Why(row["why"]),
        detail=row["detail"] or read_text(row["hold_reason"]),
        ahead=row["ahead"],
        next_in=row["next_in"],
        error=None if error is None else read_error(error),
    )


def document(row: Row) -> Document:
    """A settings document."""
    kind = Kind(row["kind"])
    return Document(
        subject=Subject(kind, row["name"], row["lane"]),
        declared=read_body(kind, row["declared"]),
        override=read_body(kind, row["override"]),
        app=row["app"],
        revision=row["revision"],
        version=row["version"],
    )


_fires = msgspec.json.Decoder(tuple[FireRecord, ...])


def schedules(rows: Sequence[Row], limit: int) -> Schedules:
    """A page of schedules, with the store's time."""
    views = tuple(
        ScheduleView(
            name=row["name"],
            declared=row["declared"],
            override=row["override"],
            version=row["version"],
            next_at=row["next_at"],
            paused=row["paused"],
            app=row["app"],
            revision=row["revision"],
            fires=_fires.decode(row["fires"]),
        )
        for row in rows[1:][:limit]
    )
    cursor = Cursor(views[-1].name) if len(rows) > limit + 1 else None
    return Schedules(now=rows[0]["now"], schedules=views, cursor=cursor)

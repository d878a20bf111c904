"""The contract's verbs as calls of scripts: what is sent, and how the answer is read. Pure: both transports
use it.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from windlass.broker.contract import Options, Settled
from windlass.broker.redis import decoding, encoding, policies
from windlass.broker.redis.codes import STATE_CODES, STATES
from windlass.broker.redis.records import blob, pack, pack_id, read_head, unpack, unpack_id
from windlass.core.bounds import CALL_ITEMS, check_items
from windlass.core.event import FROM_NOW, FROM_START, Events
from windlass.core.group import payload_bytes, refused_whole, too_large
from windlass.core.job import GROUP_BYTES, GROUP_JOBS, Finished, JobDetail, JobView, NewJob, Receipt, Refusal
from windlass.core.lease import Ask, Claimed, check_ask
from windlass.core.operate import Edit, Operated, Purged, Target
from windlass.core.outcome import Cause, Outcome, Verdict
from windlass.core.query import (
    PAGE_ROWS,
    Count,
    Counts,
    Explanation,
    JobQuery,
    Lanes,
    Page,
    UnfinishedFlow,
    UnfinishedFlows,
    flow_in,
    lane_in,
    number_in,
    schedule_in,
)
from windlass.core.session import Beat, Ended, Note, Pulse, SessionView, Swept
from windlass.core.settings import Body, Changed, Declaration, Document, Kind, Subject
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.timetable import Fire, Fired, FireStatus, NewSchedule, Schedules
from windlass.core.units import Cursor, Fence, JobId, Micros, SessionId
from windlass.errors import ContractError

_T = TypeVar("_T")
_REPEATABLE = frozenset(
    {
        *("enqueue", "claim", "settle", "beat", "sweep", "declare", "open"),
        *(
            "get",
            "list",
            "unfinished_flows",
            "counts",
            "lanes",
            "sessions",
            "explain",
            "documents",
            "offsets",
            "schedules",
            "finished",
            "events",
        ),
    }
)
"""What answers the same when it is repeated. A claim of deadline leases costs a visibility if its reply is
lost, however it is repeated.
"""


class ScriptCall(msgspec.Struct, Generic[_T], frozen=True):
    """One call of one script: one round trip."""

    script: str
    args: tuple[bytes, ...]
    read: Callable[[Any], _T]
    full: Callable[[], _T] | None = None
    """The answer when the server is at its memory limit; None: an error."""

    @property
    def repeatable(self) -> bool:
        """Whether it may be sent again when a connection broke and nobody can tell whether it arrived."""
        return self.script in _REPEATABLE


def _one(script: str, wish: Any, read: Callable[[Any], _T]) -> ScriptCall[_T]:
    return ScriptCall(script, (pack(wish),), read)


def page_size(limit: int) -> int:
    """Refuse a page that is too large."""
    if not 1 <= limit <= PAGE_ROWS:
        raise ContractError(f"a page has 1 to {PAGE_ROWS} rows, not {limit}")
    return limit


# produce

Receipts = tuple[Receipt, ...]


def enqueue(
    groups: Sequence[Sequence[NewJob]],
) -> tuple[list[Receipts | None], list[ScriptCall[list[Receipts]]]]:
    """What is refused at once, by place; and calls that accept the rest, in order."""
    check_items("groups", groups)
    answers: list[Receipts | None] = []
    calls: list[ScriptCall[list[Receipts]]] = []
    part: list[Sequence[NewJob]] = []
    jobs = size = 0
    for group in groups:
        large = too_large(group)
        answers.append(refused_whole(group, large) if large else None)
        if large:
            continue
        more = payload_bytes(group)
        if part and (jobs + len(group) > GROUP_JOBS or size + more > GROUP_BYTES):
            calls.append(_enqueue(part))
            part, jobs, size = [], 0, 0
        part.append(group)
        jobs, size = jobs + len(group), size + more
    if part:
        calls.append(_enqueue(part))
    return answers, calls


def _enqueue(groups: Sequence[Sequence[NewJob]]) -> ScriptCall[list[Receipts]]:
    def read(answer: Any) -> list[Receipts]:
        return [decoding.receipts(group, one) for group, one in zip(groups, answer, strict=True)]

    rows, ids, bodies = encoding.calls(groups)
    return ScriptCall(
        "enqueue", (pack(rows), ids, bodies), read, lambda: [refused_full(group) for group in groups]
    )


def refused_full(group: Sequence[NewJob]) -> Receipts:
    """The receipts of a group that the server has no memory for."""
    why = (Refusal.STORE_FULL, "the server is at its memory limit (maxmemory)")
    return refused_whole(group, {job.id: why for job in group}) if group else ()


def merge(answers: list[Receipts | None], accepted: Sequence[Sequence[Receipts]]) -> tuple[Receipts, ...]:
    """The answers to all groups, in their order."""
    rest = iter([one for part in accepted for one in part])
    return tuple(next(rest) if one is None else one for one in answers)


# consume


def claim(ask: Ask) -> ScriptCall[Claimed]:
    return _one("claim", encoding.ask(check_ask(ask)), decoding.claimed)


def settle(items: Sequence[Settlement], ask: Ask | None) -> ScriptCall[Settled]:
    check_items("settlements", items)
    wish = b"" if ask is None else pack(encoding.ask(check_ask(ask)))

    def read(answer: Any) -> Settled:
        answers, claimed = answer
        return Settled(
            answers=tuple(map(decoding.answer, answers)),
            claimed=None if claimed is None else decoding.claimed(claimed),
        )

    _check_unusual(items)
    rows, jobs = encoding.settlements(items)
    return ScriptCall("settle", (rows, jobs, wish), read)


def _check_unusual(items: Sequence[Settlement]) -> None:
    unusual = [
        item for item in items if item.outcome is not Outcome.DONE or item.spawn or item.hold is not None
    ]
    check_items("children", [child for item in unusual for child in item.spawn])
    for item in unusual:
        if item.spawn and item.outcome is not Outcome.DONE:
            raise ContractError(f"children travel only with done, not with {item.outcome}")
        if (item.outcome is Outcome.HOLD) != (item.hold is not None):
            raise ContractError("a hold key goes with the outcome hold, and with no other")


def beat(beats: Sequence[Beat]) -> ScriptCall[tuple[Pulse, ...]]:
    check_items("beats", beats)

    def read(answer: Any) -> tuple[Pulse, ...]:
        return tuple(decoding.pulse(one.session, raw) for one, raw in zip(beats, answer, strict=True))

    return _one("beat", [encoding.beat(one) for one in beats], read)


def end_session(
    session: SessionId, cause: Cause, started: Collection[tuple[JobId, Fence]]
) -> ScriptCall[Ended]:
    def read(answer: Any) -> Ended:
        known, more, *moved = answer
        return Ended(known=bool(known), moved=decoding.moves(moved), more=bool(more))

    return _one("end_session", encoding.session_end(session, cause, started), read)


def annotate(notes: Sequence[Note]) -> ScriptCall[tuple[Verdict, ...]]:
    check_items("notes", notes)
    return _one(
        "annotate",
        [encoding.note(note) for note in notes],
        lambda answer: tuple(Verdict(verdict.decode()) for verdict in answer),
    )


def sweep(limit: int, every: Micros, *, keep_dead: bool) -> ScriptCall[Swept]:
    def read(answer: Any) -> Swept:
        early, promoted, pruned, more, due, since, stepped_back, reaped, moved, overdue = answer
        return Swept(
            promoted=promoted,
            reaped=tuple(session.decode() for session in reaped),
            moved=decoding.moves(moved),
            pruned=pruned,
            overdue=tuple(unpack_id(job) for job in overdue),
            more=bool(more),
            schedules_due=bool(due),
            early=bool(early),
            since=since,
            stepped_back=stepped_back,
        )

    return _one("sweep", [limit, every, keep_dead], read)


def wait(queues: Sequence[str], channel: bytes, waiter: str) -> ScriptCall[tuple[bool, int]]:
    return _one(
        "wait", [list(dict.fromkeys(queues)), blob(channel), waiter], lambda raw: (bool(raw[0]), raw[1])
    )


def leave(
    queues: Sequence[str], channel: bytes, waiter: str, since: int, *, pass_on: bool
) -> ScriptCall[None]:
    return _one("leave", [list(dict.fromkeys(queues)), blob(channel), waiter, since, pass_on], lambda _: None)


def finished(jobs: Sequence[JobId]) -> ScriptCall[tuple[Finished, ...]]:
    check_items("jobs", jobs)
    return _one(
        "finished",
        [blob(pack_id(job)) for job in jobs],
        lambda raw: tuple(decoding.finished(*raw[at : at + 5]) for at in range(0, len(raw), 5)),
    )


def events(after: Cursor, limit: int) -> ScriptCall[Events]:
    start = {FROM_START: -1, FROM_NOW: -2}.get(after)

    def read(answer: Any) -> Events:
        first, gap, *items = answer
        return Events(
            items=tuple(map(decoding.event, items)), cursor=Cursor(str(first + len(items))), gap=bool(gap)
        )

    return _one("events", [number_in(after) if start is None else start, page_size(limit)], read)


# schedules


def declare_schedule(new: NewSchedule) -> ScriptCall[Changed]:
    wish = [new.name, blob(new.spec), False if new.next_at is None else new.next_at, new.app, new.revision]
    return _one("declare_schedule", wish, decoding.changed)


def override_schedule(
    name: str, spec: bytes | None, next_at: Micros | None, expect: int
) -> ScriptCall[Changed]:
    wish = [name, False if spec is None else blob(spec), False if next_at is None else next_at, expect]
    return _one("override_schedule", wish, decoding.changed)


def delete_schedule(name: str) -> ScriptCall[bool]:
    return _one("change_schedule", [name, "delete"], bool)


def pause_schedule(name: str, *, paused: bool) -> ScriptCall[bool]:
    return _one("change_schedule", [name, paused], bool)


def fire(wish: Fire) -> ScriptCall[Fired]:
    large = too_large(wish.jobs)

    def read(answer: Any) -> Fired:
        status = FireStatus(answer[0].decode())
        made = status in (FireStatus.FIRED, FireStatus.REFUSED)
        return Fired(status, decoding.receipts(wish.jobs, answer[1]) if made else ())

    if large:
        refused = Fired(FireStatus.REFUSED, refused_whole(wish.jobs, large))
        return ScriptCall("schedules", (pack(["", 1]),), lambda _: refused)
    row = [wish.name, wish.version, wish.expect, False if wish.then is None else wish.then]
    call = _one("fire", [*row, encoding.packet(wish.jobs), wish.missed, wish.unless_waiting], read)
    return ScriptCall(
        call.script, call.args, read, lambda: Fired(FireStatus.REFUSED, refused_full(wish.jobs))
    )


def schedules(after: Cursor, limit: int) -> ScriptCall[Schedules]:
    def read(answer: Any) -> Schedules:
        now, *raw = answer
        found = [decoding.schedule(*raw[at : at + 5]) for at in range(0, len(raw), 5)]
        more = len(found) > limit
        return Schedules(
            now=now,
            schedules=tuple(found[:limit]),
            cursor=Cursor(found[limit - 1].name) if more else None,
        )

    return _one("schedules", [schedule_in(after), page_size(limit)], read)


# operate


def operate(verb: str, targets: Sequence[Target]) -> ScriptCall[tuple[Operated, ...]]:
    """Cancel, replay, discard or prune."""
    check_items("jobs", targets)
    return _operate(verb, targets, [encoding.target(one) for one in targets])


def edit(edits: Sequence[Edit]) -> ScriptCall[tuple[Operated, ...]]:
    check_items("jobs", edits)
    return _operate("edit", edits, [encoding.edit(one) for one in edits])


def _operate(
    verb: str, wishes: Sequence[Target | Edit], rows: list[encoding.Row]
) -> ScriptCall[tuple[Operated, ...]]:
    def read(answer: Any) -> tuple[Operated, ...]:
        return tuple(decoding.operated(one.job, raw) for one, raw in zip(wishes, answer, strict=True))

    return _one(verb, rows, read)


def _purged(answer: Any) -> Purged:
    return Purged(answer[0], bool(answer[1]))


def purge(queue: str, state: State, limit: int) -> ScriptCall[Purged]:
    if state is State.RUNNING:
        raise ContractError("running jobs are not purged; cancel them")
    return _one("purge", [queue, STATE_CODES[state], min(limit, CALL_ITEMS)], _purged)


def unhold(key: str, limit: int) -> ScriptCall[Purged]:
    return _one("unhold", [key, min(limit, CALL_ITEMS)], _purged)


def pause(queue: str, lane: str | None, *, paused: bool) -> ScriptCall[bool]:
    return _one("pause", [queue, False if lane is None else lane, paused], bool)


# settings


def _defaults(options: Options) -> dict[str, Any]:
    return policies.write_retention(options.retention or policies.REDIS_RETENTION)


def declare(declarations: Sequence[Declaration], options: Options) -> ScriptCall[tuple[Changed, ...]]:
    check_items("declarations", declarations)
    rows = [
        [
            one.subject.kind.value,
            one.subject.name,
            one.subject.lane,
            blob(policies.write_body(one.body)),
            one.app,
            one.revision,
        ]
        for one in declarations
    ]
    return _one("declare", [_defaults(options), rows], lambda answer: tuple(map(decoding.changed, answer)))


def override(subject: Subject, body: Body | None, expect: int, options: Options) -> ScriptCall[Changed]:
    layer = False if body is None else blob(policies.write_body(body))
    row = [subject.kind.value, subject.name, subject.lane, layer, expect]
    return _one("override", [_defaults(options), *row], decoding.changed)


def documents(kind: Kind, after: Subject | None, limit: int) -> ScriptCall[tuple[Document, ...]]:
    def read(answer: Any) -> tuple[Document, ...]:
        return tuple(_document(kind, *answer[at : at + 4]) for at in range(0, len(answer), 4))

    behind = False if after is None else f"{after.name}\0{after.lane}"
    return _one("documents", [kind.value, behind, page_size(limit)], read)


def _document(
    kind: Kind, subject: bytes, record: bytes, declared: bytes | None, override: bytes | None
) -> Document:
    name, _, lane = subject.decode().partition("\0")
    app, revision, version, _, _ = unpack(record)
    readers = {Kind.QUEUE: policies.read_queue, Kind.LANE: policies.read_lane}
    layer = readers.get(kind, bytes)
    return Document(
        subject=Subject(kind, name, lane),
        declared=None if declared is None else layer(declared),
        override=None if override is None else layer(override),
        app=app,
        revision=revision,
        version=version,
    )


# read


def get(jobs: Sequence[JobId]) -> ScriptCall[tuple[JobDetail | None, ...]]:
    check_items("jobs", jobs)

    def read(answer: Any) -> tuple[JobDetail | None, ...]:
        return tuple(decoding.detail(job, raw) for job, raw in zip(jobs, answer, strict=True))

    return _one("get", [blob(pack_id(job)) for job in jobs], read)


def list_jobs(query: JobQuery, after: Cursor, limit: int) -> ScriptCall[Page]:
    """A page. Filters are applied to the rows examined."""
    rows = page_size(limit) + 1 if query == JobQuery() else PAGE_ROWS + 1

    def read(answer: Any) -> Page:
        heads = answer[1::2]
        found: list[JobView] = []
        for examined, job in enumerate(answer[::2]):
            if len(found) == limit or examined == PAGE_ROWS:
                return Page(jobs=tuple(found), cursor=Cursor(str(read_head(heads[examined - 1]).arrival)))
            shown = decoding.view(job, heads[examined])
            if query.matches(shown):
                found.append(shown)
        return Page(jobs=tuple(found))

    return _one("list", [number_in(after) if after else False, rows, query.flow or ""], read)


def flows(after: Cursor, limit: int) -> ScriptCall[UnfinishedFlows]:
    def read(answer: Any) -> UnfinishedFlows:
        rows = [answer[at : at + 4] for at in range(0, len(answer), 4)]
        found = tuple(
            UnfinishedFlow(flow=name.decode(), moving=bool(moving), held=bool(held), dead=bool(dead))
            for name, moving, held, dead in rows[:limit]
        )
        return UnfinishedFlows(flows=found, cursor=Cursor(found[-1].flow) if len(rows) > limit else None)

    return _one("unfinished_flows", [flow_in(after), page_size(limit)], read)


def counts() -> ScriptCall[Counts]:
    def read(answer: Any) -> Counts:
        fields, ages, paused = answer
        rows = [
            _count(fields[at].decode(), int(fields[at + 1])) for at in range(0, len(fields), 2) if fields[at]
        ]
        return Counts(
            rows=tuple(sorted(rows, key=lambda row: (row.queue, row.task, row.state))),
            oldest={ages[at].decode(): ages[at + 1] for at in range(0, len(ages), 2)},
            paused=tuple(sorted(name.decode() for name in paused)),
        )

    return _one("counts", [], read)


def _count(field: str, number: int) -> Count:
    queue, task, code = field.split("\0")
    return Count(queue, task, STATES[int(code)], number)


def lanes(queue: str, after: Cursor, limit: int) -> ScriptCall[Lanes]:
    def read(answer: Any) -> Lanes:
        cursor, *rows = answer
        found = [decoding.lane(queue, rows[at : at + 9]) for at in range(0, len(rows), 9)]
        # The first character keeps the cursor of the lane "" apart from "no cursor".
        after = f">{found[limit - 1].lane}" if len(found) > limit else cursor.decode()
        return Lanes(lanes=tuple(found[:limit]), cursor=Cursor(after) if after else None)

    lane_in(after)  # refuses what is none
    return _one("lanes", [queue, after, page_size(limit)], read)


def sessions(after: SessionId, limit: int) -> ScriptCall[tuple[SessionView, ...]]:
    return _one(
        "sessions",
        [after, page_size(limit)],
        lambda raw: tuple(decoding.session(raw[at : at + 8]) for at in range(0, len(raw), 8)),
    )


def explain(job: JobId) -> ScriptCall[Explanation]:
    return _one("explain", [blob(pack_id(job))], lambda raw: decoding.explanation(job, raw))

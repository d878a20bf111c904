"""The contract's verbs as calls of functions: what is sent, and how the answer is read. Pure: both carriers
use it.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import accumulate, islice
from typing import Any, Generic, TypeVar

import msgspec

from windlass.broker.contract import Options, Settled
from windlass.broker.postgres import answers
from windlass.broker.postgres.adapting import Blobs, Ids, Numbers, Texts
from windlass.broker.postgres.arrays import ask_of, beats_of, jobs_of, notes_of, settlements_of
from windlass.broker.postgres.checks import check_page, check_purge, check_settlements
from windlass.broker.postgres.driver import Row
from windlass.broker.postgres.records import CODES, id_of, pack, pack_body, state_of
from windlass.core.bounds import CALL_ITEMS, check_items
from windlass.core.event import FROM_NOW, FROM_START, Events
from windlass.core.group import refused_whole, too_large
from windlass.core.job import Finished, JobDetail, NewJob, Receipt, Status
from windlass.core.lease import Ask, Claimed, check_ask
from windlass.core.operate import Edit, Effect, Operated, Purged, Target
from windlass.core.outcome import Cause, Verdict
from windlass.core.query import (
    AHEAD_LIMIT,
    PAGE_ROWS,
    Counts,
    Explanation,
    JobQuery,
    Lanes,
    Page,
    UnfinishedFlows,
    flow_in,
    lane_in,
    number_in,
    schedule_in,
)
from windlass.core.session import (
    END_LEASES,
    ENDED_KEPT,
    LOG_LINE_CHARS,
    LOG_LINES,
    MEMO_BYTES,
    MEMOS,
    Beat,
    Ended,
    Note,
    Pulse,
    SessionView,
    Swept,
)
from windlass.core.settings import Body, Change, Changed, Declaration, Document, Kind, Retention, Subject
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.timetable import FIRES_KEPT, Fire, Fired, FireStatus, NewSchedule, Schedules
from windlass.core.units import Cursor, Fence, JobId, Micros, SessionId

_T = TypeVar("_T")


class ProcedureCall(msgspec.Struct, Generic[_T], frozen=True):
    """One call of one function: one statement, one transaction, one round trip."""

    function: str
    """Empty: the answer is known without asking."""
    arguments: tuple[Any, ...]
    """All but the time."""
    read: Callable[[Sequence[Row]], _T]
    """What the rows of the answer mean."""
    timed: bool = True
    """Whether the function takes the time before them."""
    rings: bool = False
    """Whether it may make something claimable, or finish something: those who wait look again."""
    shows_jobs: bool = False
    """Whether it shows jobs: then it must know those that came by callers' own transactions, and says so
    (`take_in`).
    """
    named: bool = True
    """Whether rows are read by the names of their columns; otherwise they are tuples."""


def _step(
    function: str, arguments: tuple[Any, ...], read: Callable[[Sequence[Row]], _T]
) -> ProcedureCall[_T]:
    return ProcedureCall(function, arguments, read, rings=True)


def _setting(
    function: str, arguments: tuple[Any, ...], read: Callable[[Sequence[Row]], _T]
) -> ProcedureCall[_T]:
    """A call that time means nothing to."""
    return ProcedureCall(function, arguments, read, timed=False)


def _shown(
    function: str, arguments: tuple[Any, ...], read: Callable[[Sequence[Row]], _T]
) -> ProcedureCall[_T]:
    return ProcedureCall(function, arguments, read, shows_jobs=True)


def _only(column: str) -> Callable[[Sequence[Row]], Any]:
    """The one value of an answer."""
    return lambda rows: rows[0][column]


def open_with(said: Options) -> ProcedureCall[bool]:
    """Tell the store what this broker was opened with."""
    kept = said.retention or Retention()
    times = (kept.retention, kept.retention_count, kept.result_ttl, kept.dead_retention)
    arguments = (said.session_ttl, said.resend_window, *times, said.events_kept, said.max_size)
    return _setting("open_with", arguments, _only("open_with"))


def take_in(before: int | None) -> ProcedureCall[int | None]:
    """Accept what callers' own transactions have left, in bounded steps: what to call it with again, until it
    is None.
    """
    return _step("take_in", (before,), _only("take_in"))


def health() -> Sequence[ProcedureCall[Row]]:
    names = ("health", "health_of_tables", "health_of_standbys")
    return [_setting(name, (), lambda rows: rows[0]) for name in names]


# produce

Groups = Sequence[Sequence[NewJob]]
Receipts = tuple[tuple[Receipt, ...], ...]


def enqueue(groups: Groups) -> ProcedureCall[Receipts]:
    check_items("groups", groups)
    refused = [too_large(group) for group in groups]
    accepted = [group for group, large in zip(groups, refused, strict=True) if not large]
    jobs = accepted[0] if len(accepted) == 1 else [job for group in accepted for job in group]

    def read(rows: Sequence[Row]) -> Receipts:
        if rows:
            found = (answers.receipt(job.id, row) for job, row in zip(jobs, rows, strict=True))
        else:
            found = (Receipt(Status.CREATED, job.id) for job in jobs)  # no rows: every job was created
        return tuple(
            refused_whole(group, large) if large else tuple(islice(found, len(group)))
            for group, large in zip(groups, refused, strict=True)
        )

    if not jobs:
        return ProcedureCall("", (), read)
    return _step("enqueue", (Numbers(accumulate(map(len, accepted))), *jobs_of(jobs)), read)


# consume


def claim(ask: Ask) -> ProcedureCall[Claimed]:
    return ProcedureCall("claim", ask_of(check_ask(ask)), answers.claimed, rings=True, named=False)


def settle(items: Sequence[Settlement], ask: Ask | None) -> ProcedureCall[Settled]:
    check_settlements(items, ask)
    return ProcedureCall(
        "settle",
        (*settlements_of(items), *ask_of(ask)),
        lambda rows: answers.settled(rows, len(items), asked=ask is not None),
        rings=True,
        named=False,
    )


def beat(beats: Sequence[Beat]) -> ProcedureCall[tuple[Pulse, ...]]:
    check_items("beats", beats)
    return ProcedureCall(
        "beat",
        beats_of(beats),
        lambda rows: tuple(answers.pulse(one.session, row) for one, row in zip(beats, rows, strict=True)),
    )


def end_session(
    session: SessionId, cause: Cause, started: Collection[tuple[JobId, Fence]]
) -> ProcedureCall[Ended]:
    jobs, fences = Ids(id_of(job) for job, _ in started), Numbers(fence for _, fence in started)

    def read(rows: Sequence[Row]) -> Ended:
        moved = tuple(map(answers.moved, rows[1:]))
        return Ended(known=rows[0]["known"], moved=moved, more=rows[0]["more"])

    return _step("end_session", (session, pack(cause), cause.kind.value, jobs, fences, END_LEASES), read)


def annotate(notes: Sequence[Note]) -> ProcedureCall[tuple[Verdict, ...]]:
    check_items("notes", notes)
    return ProcedureCall(
        "annotate",
        (*notes_of(notes, LOG_LINE_CHARS), MEMOS, MEMO_BYTES, LOG_LINES),
        lambda rows: tuple(map(Verdict, rows[0]["annotate"])),
    )


def sweep(limit: int, every: Micros, *, keep_dead: bool) -> ProcedureCall[Swept]:
    return _step("sweep", (limit, every, ENDED_KEPT, keep_dead), answers.swept)


def claimable(queues: Sequence[str]) -> ProcedureCall[bool]:
    return ProcedureCall("claimable", (Texts(queues),), _only("claimable"))


def finished(jobs: Sequence[JobId]) -> ProcedureCall[dict[JobId, Finished]]:
    """Those of the jobs that have finished. Ids are as `id_of` gives them."""
    return ProcedureCall("finished", (Ids(jobs),), lambda rows: answers.finished(jobs, rows))


def events(after: Cursor, limit: int) -> ProcedureCall[Events]:
    check_page(limit)
    starts = {FROM_START: None, FROM_NOW: -1}
    start = starts[after] if after in starts else number_in(after)
    return _setting("events", (start, limit), answers.events)


# schedules


def _changed(row: Row) -> Changed:
    return Changed(Change(row["change"]), row["version"])


def _one_changed(rows: Sequence[Row]) -> Changed:
    return _changed(rows[0])


def declare_schedule(new: NewSchedule) -> ProcedureCall[Changed]:
    columns = (new.name, new.spec, new.next_at, new.app, new.revision)
    return _step("declare_schedule", columns, _one_changed)


def override_schedule(
    name: str, spec: bytes | None, next_at: Micros | None, expect: int
) -> ProcedureCall[Changed]:
    return _step("override_schedule", (name, spec, next_at, expect), _one_changed)


def delete_schedule(name: str) -> ProcedureCall[bool]:
    return _setting("delete_schedule", (name,), _only("delete_schedule"))


def pause_schedule(name: str, *, paused: bool) -> ProcedureCall[bool]:
    return _setting("pause_schedule", (name, paused), _only("pause_schedule"))


def fire(wish: Fire) -> ProcedureCall[Fired]:
    large = too_large(wish.jobs)
    ticks = wish.missed + len(wish.jobs)
    tick = (
        wish.name,
        wish.version,
        wish.expect,
        wish.then,
        ticks,
        wish.unless_waiting,
        FIRES_KEPT,
        bool(large),
    )

    def read(rows: Sequence[Row]) -> Fired:
        status = FireStatus(rows[0]["status"])
        if large and status is FireStatus.REFUSED:
            return Fired(status, refused_whole(wish.jobs, large))
        receipts = zip(wish.jobs, rows[1:], strict=False)
        return Fired(status, tuple(answers.receipt(job.id, row) for job, row in receipts))

    return _step("fire", (*tick, *jobs_of(() if large else wish.jobs)), read)


def schedules(after: Cursor, limit: int) -> ProcedureCall[Schedules]:
    check_page(limit)
    return ProcedureCall(
        "schedules", (schedule_in(after), limit + 1), lambda rows: answers.schedules(rows, limit)
    )


# operate


def operate(verb: str, targets: Sequence[Target]) -> ProcedureCall[tuple[Operated, ...]]:
    """Cancel, replay, discard or prune."""
    return _operate(verb, targets)


def edit(edits: Sequence[Edit]) -> ProcedureCall[tuple[Operated, ...]]:
    return _operate(
        "edit",
        edits,
        Blobs(edit.payload for edit in edits),
        Blobs(None if edit.headers is None else pack(edit.headers) for edit in edits),
        Blobs(None if edit.tags is None else pack(edit.tags) for edit in edits),
        Numbers(edit.priority for edit in edits),
        Numbers(edit.max_attempts for edit in edits),
    )


def _operate(
    verb: str, wishes: Sequence[Target] | Sequence[Edit], *columns: Sequence[Any]
) -> ProcedureCall[tuple[Operated, ...]]:
    check_items("jobs", wishes)
    jobs = Ids(id_of(wish.job) for wish in wishes)
    expected = Numbers(None if wish.expect is None else CODES[wish.expect] for wish in wishes)

    def read(rows: Sequence[Row]) -> tuple[Operated, ...]:
        return tuple(
            Operated(wish.job, Effect(row["effect"]), state_of(row["state"]), row["held_by"])
            for wish, row in zip(wishes, rows, strict=True)
        )

    return _step("operate", (verb, jobs, expected, *columns), read)


def _purged(rows: Sequence[Row]) -> Purged:
    return Purged(rows[0]["count"], rows[0]["more"])


def purge(queue: str, state: State, limit: int) -> ProcedureCall[Purged]:
    check_purge(state)
    return _step("purge", (queue, CODES[state], min(limit, CALL_ITEMS)), _purged)


def unhold(key: str, limit: int) -> ProcedureCall[Purged]:
    return _step("unhold", (key, min(limit, CALL_ITEMS)), _purged)


def pause(queue: str, lane: str | None, *, paused: bool) -> ProcedureCall[bool]:
    return _step("set_paused", (queue, lane, paused), _only("set_paused"))


# settings


def declare(declarations: Sequence[Declaration]) -> ProcedureCall[tuple[Changed, ...]]:
    check_items("declarations", declarations)
    columns = (
        Texts(each.subject.kind.value for each in declarations),
        Texts(each.subject.name for each in declarations),
        Texts(each.subject.lane for each in declarations),
        Blobs(pack_body(each.body) for each in declarations),
        Texts(each.app for each in declarations),
        Numbers(each.revision for each in declarations),
    )
    return _step("declare", columns, lambda rows: tuple(map(_changed, rows)))


def override(subject: Subject, body: Body | None, expect: int) -> ProcedureCall[Changed]:
    place = (subject.kind.value, subject.name, subject.lane)
    return _step("override", (*place, pack_body(body), expect), _one_changed)


def documents(kind: Kind, after: Subject | None, limit: int) -> ProcedureCall[tuple[Document, ...]]:
    check_page(limit)
    behind = (None, None) if after is None else (after.name, after.lane)
    return _setting(
        "documents", (kind.value, *behind, limit), lambda rows: tuple(map(answers.document, rows))
    )


# read


def get(jobs: Sequence[JobId]) -> ProcedureCall[tuple[JobDetail | None, ...]]:
    check_items("jobs", jobs)

    def read(rows: Sequence[Row]) -> tuple[JobDetail | None, ...]:
        found = {row["place"]: answers.detail(row) for row in rows}
        return tuple(found.get(place) for place in range(1, len(jobs) + 1))

    return _shown("get", (Ids(map(id_of, jobs)),), read)


def list_jobs(query: JobQuery, after: Cursor, limit: int) -> ProcedureCall[Page]:
    check_page(limit)
    states = Numbers(sorted(CODES[state] for state in query.states))
    last = number_in(after) if after else None
    arguments = (query.queue, states, query.task, query.lane, query.flow, last, limit, PAGE_ROWS)
    return ProcedureCall("list", arguments, answers.page, timed=False, shows_jobs=True)


def counts() -> ProcedureCall[Counts]:
    return _shown("counts", (), answers.counts)


def flows(after: Cursor, limit: int) -> ProcedureCall[UnfinishedFlows]:
    check_page(limit)
    return ProcedureCall(
        "unfinished_flows",
        (flow_in(after), limit + 1),
        lambda rows: answers.flows(rows, limit),
        timed=False,
        shows_jobs=True,
    )


def lanes(queue: str, after: Cursor, limit: int) -> ProcedureCall[Lanes]:
    check_page(limit)
    return ProcedureCall(
        "lanes", (queue, lane_in(after), limit), lambda rows: answers.lanes(queue, rows, limit)
    )


def sessions(after: SessionId, limit: int) -> ProcedureCall[tuple[SessionView, ...]]:
    check_page(limit)
    return _setting("sessions", (after, limit), lambda rows: tuple(map(answers.session, rows)))


def explain(job: JobId) -> ProcedureCall[Explanation]:
    return _shown("explain", (id_of(job), AHEAD_LIMIT), lambda rows: answers.explanation(job, rows[0]))

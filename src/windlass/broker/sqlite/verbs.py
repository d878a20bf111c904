"""The verbs as steps, written once: the broker runs them on the writer's thread, its blocking twin in the
caller's.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TypeVar

from windlass.broker.contract import Settled
from windlass.broker.sqlite import (
    claim,
    enqueue,
    explain,
    lanes,
    operate,
    reads,
    schedules,
    sessions,
    settings,
    settle,
    single,
    sweep,
)
from windlass.broker.sqlite.reading import Reading
from windlass.broker.sqlite.writer import Short
from windlass.broker.sqlite.writing import Writing
from windlass.core.bounds import check_items
from windlass.core.event import Events
from windlass.core.job import Finished, JobDetail, NewJob, Receipt
from windlass.core.lease import Ask, Claimed, check_ask
from windlass.core.operate import Edit, Operated, Purged, Target
from windlass.core.outcome import Cause, Verdict
from windlass.core.query import PAGE_ROWS, Counts, Explanation, JobQuery, Lanes, Page, UnfinishedFlows
from windlass.core.session import Beat, Ended, Note, Pulse, SessionView, Swept
from windlass.core.settings import Body, Changed, Declaration, Document, Kind, Subject
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.timetable import Fire, Fired, NewSchedule, Schedules
from windlass.core.units import Cursor, Fence, JobId, Micros, SessionId
from windlass.errors import ContractError

_T = TypeVar("_T")
Write = Callable[[Writing], _T]
Read = Callable[[Reading], _T]


def _page(limit: int) -> int:
    if not 1 <= limit <= PAGE_ROWS:
        raise ContractError(f"a page has 1 to {PAGE_ROWS} rows, not {limit}")
    return limit


# produce and consume


def do_enqueue(
    groups: Sequence[Sequence[NewJob]], full: str | None
) -> tuple[Write[Sequence[Sequence[Receipt]]], Short | None]:
    """The verb, and a shorter way if the call consists of one plain job."""
    write, job = partial(enqueue.enqueue, groups=groups, full=full), single.alone(groups, full)
    if job is not None:
        return write, partial(single.accept, job=job)
    check_items("groups", groups)
    return write, None


def do_claim(ask: Ask) -> Write[Claimed]:
    check_ask(ask)
    return partial(claim.claim, ask=ask)


def do_settle(items: Sequence[Settlement], ask: Ask | None) -> Write[Settled]:
    settle.check(items, ask)
    return partial(settle.settle, items=items, ask=ask)


def do_beat(beats: Sequence[Beat]) -> Write[Sequence[Pulse]]:
    check_items("beats", beats)
    return partial(sessions.beat, beats=beats)


def do_end_session(
    session: SessionId, cause: Cause, started: Collection[tuple[JobId, Fence]]
) -> Write[Ended]:
    return partial(sessions.end_session, session=session, cause=cause, started=started)


def do_annotate(notes: Sequence[Note]) -> Write[Sequence[Verdict]]:
    check_items("notes", notes)
    return partial(settle.annotate, notes=notes)


def read_early_sweep(every: Micros) -> Read[Swept | None]:
    return partial(sweep.comes_early, every=every)


def do_sweep(limit: int, every: Micros) -> Write[Swept]:
    return partial(sweep.sweep, limit=limit, every=every)


def check_watch(jobs: Sequence[JobId]) -> None:
    check_items("jobs", jobs)


def read_finished(jobs: Sequence[JobId]) -> Read[Sequence[Finished]]:
    return partial(reads.finished, jobs=jobs)


def read_events(after: Cursor, limit: int) -> Read[Events]:
    return partial(reads.events, after=after, limit=_page(limit))


# schedules


def do_declare_schedule(schedule: NewSchedule) -> Write[Changed]:
    return partial(schedules.declare_schedule, new=schedule)


def do_override_schedule(
    name: str, spec: bytes | None, next_at: Micros | None, expect: int
) -> Write[Changed]:
    return partial(schedules.override_schedule, name=name, spec=spec, next_at=next_at, expect=expect)


def do_delete_schedule(name: str) -> Write[bool]:
    return partial(schedules.delete_schedule, name=name)


def do_pause_schedule(name: str, *, paused: bool) -> Write[bool]:
    return partial(schedules.pause_schedule, name=name, paused=paused)


def do_fire(fire: Fire, full: str | None) -> Write[Fired]:
    return partial(schedules.fire, wish=fire, full=full)


def read_schedules(after: Cursor, limit: int) -> Read[Schedules]:
    return partial(schedules.schedules, after=after, limit=_page(limit))


# operate


def do_cancel(targets: Sequence[Target]) -> Write[Sequence[Operated]]:
    check_items("jobs", targets)
    return partial(operate.cancel, targets=targets)


def do_replay(targets: Sequence[Target]) -> Write[Sequence[Operated]]:
    check_items("jobs", targets)
    return partial(operate.replay, targets=targets)


def do_discard(targets: Sequence[Target]) -> Write[Sequence[Operated]]:
    check_items("jobs", targets)
    return partial(operate.discard, targets=targets)


def do_edit(edits: Sequence[Edit]) -> Write[Sequence[Operated]]:
    check_items("jobs", edits)
    return partial(operate.edit, edits=edits)


def do_purge(queue: str, state: State, limit: int) -> Write[Purged]:
    if state is State.RUNNING:
        raise ContractError("running jobs are not purged; cancel them")
    return partial(operate.purge, queue_name=queue, state=state, limit=limit)


def do_unhold(key: str, limit: int) -> Write[Purged]:
    return partial(operate.unhold, key=key, limit=limit)


def do_set_paused(queue: str, lane: str | None, *, paused: bool) -> Write[bool]:
    return partial(operate.set_paused, queue_name=queue, lane_name=lane, paused=paused)


# settings


def do_declare(declarations: Sequence[Declaration]) -> Write[Sequence[Changed]]:
    check_items("declarations", declarations)
    return partial(settings.declare, declarations=declarations)


def do_override(subject: Subject, body: Body | None, expect: int) -> Write[Changed]:
    return partial(settings.override, subject=subject, body=body, expect=expect)


def read_documents(kind: Kind, after: Subject | None, limit: int) -> Read[Sequence[Document]]:
    return partial(settings.documents, kind=kind, after=after, limit=_page(limit))


# read


def read_get(jobs: Sequence[JobId]) -> Read[Sequence[JobDetail | None]]:
    check_items("jobs", jobs)
    return partial(reads.get, jobs=jobs)


def read_list(query: JobQuery, after: Cursor, limit: int) -> Read[Page]:
    return partial(reads.list_jobs, query=query, after=after, limit=_page(limit))


def read_counts() -> Read[Counts]:
    return reads.counts


def read_flows(after: Cursor, limit: int) -> Read[UnfinishedFlows]:
    return partial(reads.unfinished_flows, after=after, limit=_page(limit))


def read_lanes(queue: str, after: Cursor, limit: int) -> Read[Lanes]:
    return partial(lanes.lanes, queue_name=queue, after=after, limit=_page(limit))


def read_sessions(after: SessionId, limit: int) -> Read[Sequence[SessionView]]:
    return partial(reads.sessions, after=after, limit=_page(limit))


def read_explain(job: JobId) -> Read[Explanation]:
    return partial(explain.explain, job_id=job)

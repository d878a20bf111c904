"""What a verb is called with, as arrays: one round trip whatever the number of items."""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from msgspec.structs import astuple

from windlass.broker.postgres.records import (
    FAILURES,
    MODES,
    is_canonical,
    new_id,
    new_ids,
    new_uuid,
    pack,
    pack_text,
    uuid_of,
)
from windlass.core.alike import Alike
from windlass.core.group import too_large
from windlass.core.job import NewJob
from windlass.core.lease import Ask
from windlass.core.outcome import Outcome
from windlass.core.session import Beat, Note
from windlass.core.settlement import Settlement

_job_of = attrgetter("job")
_id_of = attrgetter("id")
_ID, _PAYLOAD = map(NewJob.__struct_fields__.index, ("id", "payload"))
"""In which jobs of one task under the same options differ; the second comes later."""
_NUMBERS = 1_024
"""Of jobs that a call draws at once (`06_produce.sql`)."""
_BY_BLOCKS = True
"""Leases of one call that are alike are read from one row."""
NO_ASK: tuple[Any, ...] = (None, 0, 0, None, None, None, False, 0, 0, 0, _BY_BLOCKS)


def jobs_of(jobs: Sequence[NewJob]) -> tuple[list[Any], ...]:
    """New jobs, column by column; then their edges, each with the place of its child (from 1)."""
    edges = [(place, edge) for place, job in enumerate(jobs, 1) for edge in job.after]
    return (
        [new_uuid(job.id) for job in jobs],
        [job.task for job in jobs],
        [job.queue for job in jobs],
        [job.lane for job in jobs],
        [job.priority for job in jobs],
        [job.key for job in jobs],
        [MODES[job.mode] for job in jobs],
        [job.window for job in jobs],
        [job.delay for job in jobs],
        [job.run_at for job in jobs],
        [job.expires for job in jobs],
        [job.payload for job in jobs],
        [pack(job.headers) if job.headers else None for job in jobs],
        [pack(job.tags) if job.tags else None for job in jobs],
        [job.max_attempts for job in jobs],
        [job.revision for job in jobs],
        [job.flow for job in jobs],
        [place for place, _ in edges],
        [uuid_of(edge.parent) for _, edge in edges],
        [FAILURES[edge.on_failure] for _, edge in edges],
    )


def plain_of(jobs: Sequence[NewJob]) -> tuple[Any, ...] | None:
    """The smallest id of new jobs, then the jobs column by column; None if one has a key or parents.

    A column in which all are alike has one element, and none if that is "nothing".
    """
    for job in jobs:
        if job.key is not None or job.after:
            return None
    ids = new_ids(list(map(_id_of, jobs)))
    return (
        min(ids, key=str),
        ids,
        [job.payload for job in jobs],
        _alike([job.task for job in jobs]),
        _alike([job.queue for job in jobs]),
        _lanes([job.lane for job in jobs]),
        _alike([job.priority for job in jobs]),
        _alike([job.delay for job in jobs]),
        _if_any([job.run_at for job in jobs]),
        _if_any([job.expires for job in jobs]),
        _if_any([pack(job.headers) if job.headers else None for job in jobs]),
        _if_any([pack(job.tags) if job.tags else None for job in jobs]),
        _alike([job.max_attempts for job in jobs]),
        _alike([job.revision for job in jobs]),
        _alike([job.flow for job in jobs]),
    )


def alike_of(jobs: Sequence[NewJob]) -> tuple[Any, ...] | None:
    """The smallest id of new jobs, their ids and payloads, then value by value what they have in common; None
    if they differ in more, or have keys, lanes or parents, or are too many for one draw of numbers.
    """
    first = jobs.pattern if isinstance(jobs, Alike) else jobs[0]
    if first.key is not None or first.lane or first.after or len(jobs) > _NUMBERS:
        return None
    if isinstance(jobs, Alike):
        ids, payloads = jobs.ids, jobs.payloads
    else:
        columns = list(zip(*map(astuple, jobs), strict=True))
        payloads, ids = list(columns.pop(_PAYLOAD)), list(columns.pop(_ID))
        for column in columns:
            if column.count(column[0]) != len(column):
                return None
    return (
        min(ids),
        ids if isinstance(jobs, Alike) else new_ids(ids),
        payloads,
        first.task,
        first.queue,
        first.priority,
        first.delay,
        first.run_at,
        first.expires,
        pack(first.headers) if first.headers else None,
        pack(first.tags) if first.tags else None,
        first.max_attempts,
        first.revision,
        first.flow,
    )


def one_of(job: NewJob) -> tuple[Any, ...] | None:
    """A new job without key, lane and parents, value by value; None if it is another."""
    if job.key is not None or job.lane or job.after:
        return None
    return (
        new_id(job.id),
        job.payload,
        job.task,
        job.queue,
        job.priority,
        job.delay,
        job.run_at,
        job.expires,
        pack(job.headers) if job.headers else None,
        pack(job.tags) if job.tags else None,
        job.max_attempts,
        job.revision,
        job.flow,
    )


def _alike(column: list[Any]) -> list[Any]:
    return column[:1] if column.count(column[0]) == len(column) else column


def _lanes(column: list[str]) -> list[str]:
    return [] if not any(column) else _alike(column)


def _if_any(column: list[Any]) -> list[Any]:
    return [] if column.count(None) == len(column) else column


def is_plainly_done(item: Settlement) -> bool:
    """Whether it only says that a job is done."""
    if item.outcome is not Outcome.DONE or item.error is not None or item.spawn:
        return False
    return is_canonical(item.job) is not None  # else text and UUID would differ in their order


def done_of(items: Sequence[Settlement]) -> tuple[list[Any], ...]:
    """Settlements that only say that jobs are done, in the order of their ids and column by column."""
    items = sorted(items, key=_job_of)
    return (
        [item.job for item in items],
        [item.fence for item in items],
        [item.runtime for item in items],
        _if_any([item.result for item in items]),
    )


def ask_of(ask: Ask | None) -> tuple[Any, ...]:
    """An ask, or that there is none."""
    if ask is None:
        return NO_ASK
    return (
        ask.queues,
        ask.slots,
        ask.limit,
        ask.session,
        ask.seq,
        ask.visibility,
        ask.alone,
        ask.max_bytes,
        ask.draw,
        max(ask.slots, ask.soon),
        _BY_BLOCKS,
    )


def no_ask_of(ask: Ask | None) -> tuple[Any, ...]:
    """That there is none, but of which session it would be."""
    return NO_ASK if ask is None else (None, 0, 0, ask.session, *NO_ASK[4:])


def settlements_of(items: Sequence[Settlement]) -> tuple[list[Any], ...]:
    """Settlements, column by column; then their children, with the place of the settlement of each."""
    large = [too_large(item.spawn) for item in items]
    children = [
        (place, child) for place, item in enumerate(items, 1) if not large[place - 1] for child in item.spawn
    ]
    return (
        [uuid_of(item.job) for item in items],
        [item.fence for item in items],
        [item.outcome.value for item in items],
        [item.delay for item in items],
        [item.runtime for item in items],
        [None if item.error is None else pack(item.error) for item in items],
        [item.result for item in items],
        [None if item.hold is None else item.hold.key for item in items],
        [None if item.hold is None else pack_text(item.hold.reason) for item in items],
        [next(iter(refused.values()))[1] if refused else None for refused in large],
        [place for place, _ in children],
        *jobs_of([child for _, child in children]),
    )


def notes_of(notes: Sequence[Note], line_chars: int) -> tuple[list[Any], ...]:
    """Notes, column by column; then their log lines, with the place of the note of each."""
    lines = [(place, line[:line_chars]) for place, note in enumerate(notes, 1) for line in note.logs]
    return (
        [uuid_of(note.job) for note in notes],
        [note.fence for note in notes],
        [note.extend for note in notes],
        [note.permille for note in notes],
        [pack_text(note.message) for note in notes],
        [None if note.memo is None else note.memo[0] for note in notes],
        [None if note.memo is None else note.memo[1] for note in notes],
        [place for place, _ in lines],
        [pack_text(line) for _, line in lines],
    )


def beats_of(beats: Iterable[Beat]) -> tuple[list[Any], ...]:
    """Signs of life, column by column."""
    beats = list(beats)
    opened = [beat.open for beat in beats]
    return (
        [beat.session for beat in beats],
        [None if info is None else pack(info) for info in opened],
        [None if info is None else info.ttl for info in opened],
        [None if info is None else pack(info.queues).decode() for info in opened],
        [beat.memory for beat in beats],
    )

"""What a verb is called with, as arrays: one round trip whatever the number of items."""

from collections.abc import Iterable, Sequence
from typing import Any

from windlass.broker.postgres.records import (
    FAILURES,
    MODES,
    new_id,
    pack,
    pack_text,
    uuid_of,
)
from windlass.core.alike import Alike
from windlass.core.group import too_large
from windlass.core.job import NewJob
from windlass.core.lease import Ask
from windlass.core.session import Beat, Note
from windlass.core.settlement import Settlement

NO_ASK: tuple[Any, ...] = (None, 0, 0, None, None, None, False, 0, 0, 0)


def jobs_of(jobs: Sequence[NewJob]) -> tuple[list[Any], ...]:
    """New jobs, column by column; then their edges, each with the place of its child (from 1).

    A column in which all jobs are alike has one element, or none if that is "nothing".
    """
    if isinstance(jobs, Alike):
        ids, payloads, jobs = jobs.ids, jobs.payloads, (jobs.pattern,)
    else:
        ids, payloads = [new_id(job.id) for job in jobs], [job.payload for job in jobs]
    keyed = [job for job in jobs if job.key is not None]
    edges = [(place, edge) for place, job in enumerate(jobs, 1) for edge in job.after]
    return (
        ids,
        _alike([job.task for job in jobs]),
        _alike([job.queue for job in jobs]),
        _alike([job.lane for job in jobs]),
        _alike([job.priority for job in jobs]),
        [job.key for job in jobs] if keyed else [],
        [MODES[job.mode] for job in jobs] if keyed else [],
        [job.window for job in jobs] if keyed else [],
        _alike([job.delay for job in jobs]),
        _if_any([job.run_at for job in jobs]),
        _if_any([job.expires for job in jobs]),
        payloads,
        _if_any([pack(job.headers) if job.headers else None for job in jobs]),
        _if_any([pack(job.tags) if job.tags else None for job in jobs]),
        _alike([job.max_attempts for job in jobs]),
        _alike([job.revision for job in jobs]),
        _alike([job.flow for job in jobs]),
        [place for place, _ in edges],
        [uuid_of(edge.parent) for _, edge in edges],
        [FAILURES[edge.on_failure] for _, edge in edges],
    )


def _alike(column: list[Any]) -> list[Any]:
    return column[:1] if column and column.count(column[0]) == len(column) else column


def _if_any(column: list[Any]) -> list[Any]:
    return [] if column.count(None) == len(column) else _alike(column)


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
    )


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

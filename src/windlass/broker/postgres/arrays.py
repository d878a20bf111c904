"""What a verb is called with, as arrays: one round trip whatever the number of items."""

from collections.abc import Iterable, Sequence
from typing import Any

from windlass.broker.postgres.adapting import Blobs, Ids, Numbers, Texts
from windlass.broker.postgres.records import (
    FAILURES,
    MODES,
    id_of,
    new_id,
    pack,
    pack_text,
)
from windlass.core.alike import Alike
from windlass.core.group import too_large
from windlass.core.job import NewJob
from windlass.core.lease import Ask
from windlass.core.session import Beat, Note
from windlass.core.settlement import Settlement

NO_ASK: tuple[Any, ...] = (None, 0, 0, None, None, None, False, 0, 0, 0)


def jobs_of(jobs: Sequence[NewJob]) -> tuple[list[Any] | None, ...]:
    """New jobs, column by column; then their edges, each with the place of its child (from 1).

    A column in which all jobs are alike has one element, and one in which there is nothing is None: half of
    the columns of most calls, which then cost nothing on their way.
    """
    if isinstance(jobs, Alike):
        ids, payloads, jobs = jobs.ids, jobs.payloads, (jobs.pattern,)
    else:
        ids, payloads = [new_id(job.id) for job in jobs], [job.payload for job in jobs]
    keyed = any(job.key is not None for job in jobs)
    edges = [(place, edge) for place, job in enumerate(jobs, 1) for edge in job.after]
    return (
        Ids(ids),
        Texts(_alike([job.task for job in jobs])),
        Texts(_alike([job.queue for job in jobs])),
        Texts(_alike([job.lane for job in jobs])),
        Numbers(_alike([job.priority for job in jobs])),
        Texts([job.key for job in jobs]) if keyed else None,
        Numbers([MODES[job.mode] for job in jobs]) if keyed else None,
        Numbers([job.window for job in jobs]) if keyed else None,
        Numbers(_alike([job.delay for job in jobs])),
        _if_any(Numbers([job.run_at for job in jobs])),
        _if_any(Numbers([job.expires for job in jobs])),
        Blobs(payloads),
        _if_any(Blobs([pack(job.headers) if job.headers else None for job in jobs])),
        _if_any(Blobs([pack(job.tags) if job.tags else None for job in jobs])),
        Numbers(_alike([job.max_attempts for job in jobs])),
        Numbers(_alike([job.revision for job in jobs])),
        Texts(_alike([job.flow for job in jobs])),
        Numbers([place for place, _ in edges]) if edges else None,
        Ids([id_of(edge.parent) for _, edge in edges]) if edges else None,
        Numbers([FAILURES[edge.on_failure] for _, edge in edges]) if edges else None,
    )


def _alike(column: list[Any]) -> list[Any]:
    if len(column) > 1 and column.count(column[0]) == len(column):
        del column[1:]
    return column


def _if_any(column: list[Any]) -> list[Any] | None:
    return None if column.count(None) == len(column) else _alike(column)


def ask_of(ask: Ask | None) -> tuple[Any, ...]:
    """An ask, or that there is none."""
    if ask is None:
        return NO_ASK
    return (
        Texts(ask.queues),
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


def settlements_of(items: Sequence[Settlement]) -> tuple[list[Any] | None, ...]:
    """Settlements, column by column; then their children, with the place of the settlement of each."""
    large = [too_large(item.spawn) for item in items]
    children = [
        (place, child) for place, item in enumerate(items, 1) if not large[place - 1] for child in item.spawn
    ]
    return (
        Ids([id_of(item.job) for item in items]),
        Numbers([item.fence for item in items]),
        Texts([item.outcome.value for item in items]),
        Numbers([item.delay for item in items]),
        Numbers([item.runtime for item in items]),
        Blobs([None if item.error is None else pack(item.error) for item in items]),
        Blobs([item.result for item in items]),
        Texts([None if item.hold is None else item.hold.key for item in items]),
        Blobs([None if item.hold is None else pack_text(item.hold.reason) for item in items]),
        Texts([next(iter(refused.values()))[1] if refused else None for refused in large]),
        Numbers([place for place, _ in children]),
        *jobs_of([child for _, child in children]),
    )


def notes_of(notes: Sequence[Note], line_chars: int) -> tuple[list[Any], ...]:
    """Notes, column by column; then their log lines, with the place of the note of each."""
    lines = [(place, line[:line_chars]) for place, note in enumerate(notes, 1) for line in note.logs]
    return (
        Ids([id_of(note.job) for note in notes]),
        Numbers([note.fence for note in notes]),
        Numbers([note.extend for note in notes]),
        Numbers([note.permille for note in notes]),
        Blobs([pack_text(note.message) for note in notes]),
        Texts([None if note.memo is None else note.memo[0] for note in notes]),
        Blobs([None if note.memo is None else note.memo[1] for note in notes]),
        Numbers([place for place, _ in lines]),
        Blobs([pack_text(line) for _, line in lines]),
    )


def beats_of(beats: Iterable[Beat]) -> tuple[list[Any], ...]:
    """Signs of life, column by column."""
    beats = list(beats)
    opened = [beat.open for beat in beats]
    return (
        Texts([beat.session for beat in beats]),
        Blobs([None if info is None else pack(info) for info in opened]),
        Numbers([None if info is None else info.ttl for info in opened]),
        Texts([None if info is None else pack(info.queues).decode() for info in opened]),
        Numbers([beat.memory for beat in beats]),
    )

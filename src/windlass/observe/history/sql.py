"""The statements of history, which SQLite and PostgreSQL share: only the sign of a parameter differs, the
name of bytes, and what a sink does around them.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from windlass.core.outcome import Outcome
from windlass.observe.history.attempt import Attempt, Enqueued, Slots, Worker
from windlass.observe.history.rollup import Figures, bucket_of, decode
from windlass.observe.history.sink import GROUPS, By, Failed, Group, Minute, Trail, Used, Window

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS windlass_history_attempt (
        source text NOT NULL, job text NOT NULL, fence bigint NOT NULL, at bigint NOT NULL,
        task text NOT NULL, queue text NOT NULL, lane text NOT NULL, outcome text NOT NULL,
        move text NOT NULL, attempt integer NOT NULL, wait bigint, run bigint,
        worker_id text NOT NULL, host text NOT NULL, started_at bigint, error_type text NOT NULL,
        error text NOT NULL, fingerprint text NOT NULL, tags text NOT NULL,
        wait_bucket integer, run_bucket integer,
        PRIMARY KEY (source, job, fence))""",
    """CREATE INDEX IF NOT EXISTS windlass_history_attempt_at ON windlass_history_attempt (source, at)""",
    """CREATE TABLE IF NOT EXISTS windlass_history_enqueue (
        source text NOT NULL, job text NOT NULL, at bigint NOT NULL, task text NOT NULL,
        queue text NOT NULL, lane text NOT NULL, unique_key text, by_key text NOT NULL,
        by_app text NOT NULL, by_host text NOT NULL, tags text NOT NULL, PRIMARY KEY (source, job))""",
    """CREATE INDEX IF NOT EXISTS windlass_history_enqueue_at ON windlass_history_enqueue (source, at)""",
    """CREATE TABLE IF NOT EXISTS windlass_history_minute (
        source text NOT NULL, at bigint NOT NULL, task text NOT NULL, queue text NOT NULL,
        figures BYTES NOT NULL, PRIMARY KEY (source, at, task, queue))""",
    """CREATE TABLE IF NOT EXISTS windlass_history_slots (
        source text NOT NULL, at bigint NOT NULL, host text NOT NULL, processes integer NOT NULL,
        slots integer NOT NULL, leases integer NOT NULL, PRIMARY KEY (source, at, host))""",
    """CREATE TABLE IF NOT EXISTS windlass_history_worker (
        source text NOT NULL, worker_id text NOT NULL, host text NOT NULL, pid integer NOT NULL,
        app text NOT NULL, slots integer NOT NULL, opened_at bigint NOT NULL, seen_at bigint NOT NULL,
        PRIMARY KEY (source, worker_id))""",
    """CREATE TABLE IF NOT EXISTS windlass_history_reader (
        source text NOT NULL PRIMARY KEY, place text NOT NULL, reader text NOT NULL,
        until double precision NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS windlass_history_dead (
        source text NOT NULL, job text NOT NULL, died_at text NOT NULL, at text NOT NULL, entry text NOT NULL,
        PRIMARY KEY (source, job, died_at))""",
)
"""`BYTES` stands for what a store calls them."""
ADDED: Mapping[str, str] = {
    "worker_id": "text NOT NULL DEFAULT ''",
    "host": "text NOT NULL DEFAULT ''",
    "started_at": "bigint",
    "error_type": "text NOT NULL DEFAULT ''",
    "error": "text NOT NULL DEFAULT ''",
    "fingerprint": "text NOT NULL DEFAULT ''",
    "tags": "text NOT NULL DEFAULT '[]'",
    "wait_bucket": "integer",
    "run_bucket": "integer",
}
"""Columns of attempts that a table of an earlier version lacks."""
TABLES = ("attempt", "enqueue", "minute", "slots", "worker", "reader", "dead")

_ATTEMPT = (
    "job, fence, at, task, queue, lane, outcome, move, attempt, wait, run, worker_id, host, started_at, "
    "error_type, error, fingerprint, tags"
)
ATTEMPT_COLUMNS = f"source, {_ATTEMPT}, wait_bucket, run_bucket"
ENQUEUE_COLUMNS = "job, at, task, queue, lane, unique_key, by_key, by_app, by_host, tags"
ADD_ATTEMPT = f"""INSERT INTO windlass_history_attempt ({ATTEMPT_COLUMNS})
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
    ON CONFLICT DO NOTHING RETURNING 1"""  # noqa: S608 - columns, no values
ADD_ENQUEUE = f"""INSERT INTO windlass_history_enqueue (source, {ENQUEUE_COLUMNS})
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING"""  # noqa: S608
GET_MINUTE = """SELECT figures FROM windlass_history_minute
    WHERE source = $1 AND at = $2 AND task = $3 AND queue = $4"""
PUT_MINUTE = """INSERT INTO windlass_history_minute (source, at, task, queue, figures)
    VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (source, at, task, queue) DO UPDATE SET figures = excluded.figures"""
ADD_SLOTS = """INSERT INTO windlass_history_slots (source, at, host, processes, slots, leases)
    VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING"""
PUT_WORKER = """INSERT INTO windlass_history_worker AS w
    (source, worker_id, host, pid, app, slots, opened_at, seen_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (source, worker_id) DO UPDATE SET seen_at = excluded.seen_at
    WHERE w.seen_at < excluded.seen_at"""
TURN = """INSERT INTO windlass_history_reader AS r (source, place, reader, until) VALUES ($1, 'start', $2, $4)
    ON CONFLICT (source) DO UPDATE SET reader = excluded.reader, until = excluded.until
    WHERE r.reader = excluded.reader OR r.until < $3 RETURNING place"""
GO_ON = """UPDATE windlass_history_reader SET place = $3 WHERE source = $1 AND reader = $2"""
FORGET = (
    """DELETE FROM windlass_history_attempt WHERE source = $1 AND at < $2""",
    """DELETE FROM windlass_history_enqueue WHERE source = $1 AND at < $2""",
    """DELETE FROM windlass_history_minute WHERE source = $1 AND at < $2""",
    """DELETE FROM windlass_history_slots WHERE source = $1 AND at < $2""",
    """DELETE FROM windlass_history_worker WHERE source = $1 AND seen_at < $2""",
)


BLANKED_AT_ONCE = 20_000
"""Rows that are looked at in one transaction: who writes meanwhile waits for no more."""
_BLANKED: Mapping[str, tuple[str, str]] = {
    "attempt": ("error = ''", "error <> ''"),
    "enqueue": ("unique_key = NULL", "unique_key IS NOT NULL"),
}
"""By table: what is blanked, and where there is something to blank."""


def blank(table: str) -> tuple[str, str]:
    """Of a table: the job behind which the next rows end, and what blanks those of them that have a tag. In
    the JSON of tags it is looked for with the comma before it and with its quotes, as it stands nowhere else.
    """
    change, where = _BLANKED[table]
    end = f"""SELECT job FROM windlass_history_{table} WHERE source = $1 AND job > $2
        ORDER BY job LIMIT 1 OFFSET {BLANKED_AT_ONCE - 1}"""  # noqa: S608 - names of ours, no values
    update = f"""UPDATE windlass_history_{table} SET {change} WHERE source = $1 AND job > $2
        AND (CAST($3 AS text) IS NULL OR job <= $3) AND {where}
        AND replace(',' || substr(tags, 2), $4, '') <> ',' || substr(tags, 2) RETURNING 1"""  # noqa: S608
    return end, update


class Archived:
    """Of the archive of dead letters."""

    ADD = """INSERT INTO windlass_history_dead (source, job, died_at, at, entry) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (source, job, died_at) DO UPDATE SET at = excluded.at, entry = excluded.entry"""
    PAGE = """SELECT job, died_at, entry FROM windlass_history_dead
        WHERE source = $1 AND (job, died_at) > ($2, $3) ORDER BY job, died_at LIMIT $4"""
    REPLACE = """UPDATE windlass_history_dead SET entry = $4
        WHERE source = $1 AND job = $2 AND died_at = $3"""
    FORGET = """DELETE FROM windlass_history_dead WHERE source = $1 AND at < $2"""


_CHOSEN = """source = $1 AND at >= $2 AND at < $3
      AND (CAST($4 AS text) IS NULL OR task = $4) AND (CAST($5 AS text) IS NULL OR queue = $5)"""
MINUTES = f"""SELECT at, task, queue, figures FROM windlass_history_minute
    WHERE {_CHOSEN}"""  # noqa: S608
USED = """SELECT at / 60000000 * 60000000 AS minute, host, count(*), sum(slots), sum(leases)
    FROM windlass_history_slots WHERE source = $1 AND at >= $2 AND at < $3 GROUP BY 1, 2 ORDER BY 1, 2"""
FAILED = f"""SELECT fingerprint, error_type, error, task, job, fence, at FROM (
        SELECT fingerprint, error_type, error, task, job, fence, at,
            row_number() OVER (PARTITION BY fingerprint ORDER BY at DESC, fence DESC) AS place
        FROM windlass_history_attempt WHERE {_CHOSEN} AND fingerprint <> '') AS f
    WHERE place = 1"""  # noqa: S608
WORKERS = """SELECT worker_id, host, pid, app, slots, opened_at, seen_at FROM windlass_history_worker
    WHERE source = $1 AND opened_at < $3 AND seen_at >= $2 ORDER BY host, opened_at, worker_id"""
TRAIL = f"""SELECT {_ATTEMPT} FROM windlass_history_attempt
    WHERE source = $1 AND job = $2 ORDER BY fence"""  # noqa: S608
ORIGIN = f"""SELECT {ENQUEUE_COLUMNS} FROM windlass_history_enqueue
    WHERE source = $1 AND job = $2"""  # noqa: S608

_COLUMNS: Mapping[By, str] = {By.LANE: "lane", By.WORKER: "worker_id", By.ERROR: "fingerprint"}


def ends(by: By) -> str:
    """How many ended in which way, and how long they ran: by name, outcome and bucket."""
    column, most = _COLUMNS[by], _most(by)
    return f"""WITH most AS ({most})
    SELECT {column}, outcome, run_bucket, count(*), coalesce(sum(run), 0)
    FROM windlass_history_attempt WHERE {_CHOSEN} AND {column} IN (SELECT name FROM most)
    GROUP BY 1, 2, 3"""  # noqa: S608


def waits(by: By) -> str:
    """How long they waited: by name, outcome and bucket."""
    column, most = _COLUMNS[by], _most(by)
    return f"""WITH most AS ({most})
    SELECT {column}, outcome, wait_bucket, count(*) FROM windlass_history_attempt
    WHERE {_CHOSEN} AND wait_bucket IS NOT NULL AND {column} IN (SELECT name FROM most)
    GROUP BY 1, 2, 3"""  # noqa: S608


def _most(by: By) -> str:
    column = _COLUMNS[by]
    real = " AND fingerprint <> ''" if by is By.ERROR else ""
    return f"""SELECT {column} AS name FROM windlass_history_attempt WHERE {_CHOSEN}{real}
        GROUP BY {column} ORDER BY count(*) DESC, {column} LIMIT {GROUPS}"""  # noqa: S608


_NUMBERED = re.compile(r"\$(\d+)")


def with_question_marks(statement: str) -> str:
    """A statement as SQLite numbers its parameters."""
    return _NUMBERED.sub(r"?\1", statement)


# --- rows ---------------------------------------------------------------------------------------------------


def attempt_row(source: str, attempt: Attempt) -> tuple[Any, ...]:
    """The parameters of `ADD_ATTEMPT`."""
    return (
        source,
        attempt.job,
        attempt.fence,
        attempt.at,
        attempt.task,
        attempt.queue,
        attempt.lane,
        attempt.outcome.value,
        attempt.move.value,
        attempt.attempt,
        attempt.wait,
        attempt.run,
        attempt.worker_id,
        attempt.host,
        attempt.started_at,
        attempt.error_type,
        attempt.error,
        attempt.fingerprint,
        _tags_text(attempt.tags),
        None if attempt.wait is None else bucket_of(attempt.wait),
        None if attempt.run is None else bucket_of(attempt.run),
    )


def enqueue_row(source: str, enqueued: Enqueued) -> tuple[Any, ...]:
    """The parameters of `ADD_ENQUEUE`."""
    *fields, tags = msgspec.structs.astuple(enqueued)
    return (source, *fields, _tags_text(tags))


async def blanked(rows: Callable[..., Awaitable[Sequence[Any]]], source: str, tag: str) -> int:
    """Blank the rows with a tag, some at a time; how many held something."""
    wanted, count = "," + _tags_text((tag,))[1:-1], 0
    for table in _BLANKED:
        end, update = blank(table)
        place: str | None = ""
        while place is not None:
            found = await rows(end, source, place)
            last: str | None = found[0][0] if found else None
            count += len(await rows(update, source, place, last, wanted))
            place = last
    return count


def slots_row(source: str, slots: Slots) -> tuple[Any, ...]:
    """The parameters of `ADD_SLOTS`."""
    return (source, slots.at, slots.host, slots.processes, slots.slots, slots.leases)


def worker_row(source: str, worker: Worker) -> tuple[Any, ...]:
    """The parameters of `PUT_WORKER`."""
    return (source, *msgspec.structs.astuple(worker))


def window_row(source: str, window: Window) -> tuple[Any, ...]:
    """The parameters of what reads a window."""
    return (source, window.since, window.until, window.task, window.queue)


def minute(row: Sequence[Any]) -> Minute:
    """A row of `MINUTES`."""
    return Minute(row[0], row[1], row[2], decode(row[3]))


def used(row: Sequence[Any]) -> Used:
    """A row of `USED`."""
    return Used(row[0], row[1], int(row[2]), int(row[3]), int(row[4]))


def failed(row: Sequence[Any]) -> Failed:
    """A row of `FAILED`."""
    return Failed(*row)


def worker(row: Sequence[Any]) -> Worker:
    """A row of `WORKERS`."""
    return msgspec.convert(dict(zip(Worker.__struct_fields__, row, strict=True)), Worker)


def attempt(row: Sequence[Any]) -> Attempt:
    """A row of `TRAIL`."""
    *fields, tags = row
    said = dict(zip(Attempt.__struct_fields__, [*fields, _TAGS.decode(tags)], strict=True))
    return msgspec.convert(said, Attempt)


def enqueued(row: Sequence[Any]) -> Enqueued:
    """A row of `ORIGIN`."""
    *fields, tags = row
    said = dict(zip(Enqueued.__struct_fields__, [*fields, _TAGS.decode(tags)], strict=True))
    return msgspec.convert(said, Enqueued)


def trail(origin: Sequence[Sequence[Any]], attempts: Sequence[Sequence[Any]]) -> Trail:
    """Rows of `ORIGIN` and `TRAIL`."""
    return Trail(enqueued(origin[0]) if origin else None, [attempt(row) for row in attempts])


def groups(ended: Iterable[Sequence[Any]], waited: Iterable[Sequence[Any]]) -> list[Group]:
    """Rows of `ends` and `waits`, put together: those with the most attempts first."""
    found: dict[str, Figures] = {}
    for name, outcome, bucket, count, ran in ended:
        found.setdefault(name, Figures()).add_run(Outcome(outcome), bucket, int(count), int(ran))
    for name, outcome, bucket, count in waited:
        found.setdefault(name, Figures()).add_wait(Outcome(outcome), bucket, int(count))
    return [
        Group(name, figures)
        for name, figures in sorted(found.items(), key=lambda each: (-each[1].attempts, each[0]))
    ]


_TAGS = msgspec.json.Decoder(tuple[str, ...])


def _tags_text(tags: tuple[str, ...]) -> str:
    return msgspec.json.encode(tags).decode()

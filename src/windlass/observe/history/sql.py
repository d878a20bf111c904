"""The statements of history, which SQLite and PostgreSQL share: only the sign of a parameter differs, the
name of bytes, and what a sink does around them.
"""

import re
from collections.abc import Sequence
from typing import Any

from windlass.observe.history.attempt import Attempt, Slots
from windlass.observe.history.rollup import decode
from windlass.observe.history.sink import Minute, Used, Window

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS windlass_history_attempt (
        source text NOT NULL, job text NOT NULL, fence bigint NOT NULL, at bigint NOT NULL,
        task text NOT NULL, queue text NOT NULL, lane text NOT NULL, outcome text NOT NULL,
        move text NOT NULL, attempt integer NOT NULL, wait bigint, run bigint,
        PRIMARY KEY (source, job, fence))""",
    """CREATE INDEX IF NOT EXISTS windlass_history_attempt_at ON windlass_history_attempt (source, at)""",
    """CREATE TABLE IF NOT EXISTS windlass_history_minute (
        source text NOT NULL, at bigint NOT NULL, task text NOT NULL, queue text NOT NULL,
        figures BYTES NOT NULL, PRIMARY KEY (source, at, task, queue))""",
    """CREATE TABLE IF NOT EXISTS windlass_history_slots (
        source text NOT NULL, at bigint NOT NULL, host text NOT NULL, processes integer NOT NULL,
        slots integer NOT NULL, leases integer NOT NULL, PRIMARY KEY (source, at, host))""",
    """CREATE TABLE IF NOT EXISTS windlass_history_reader (
        source text NOT NULL PRIMARY KEY, place text NOT NULL, reader text NOT NULL,
        until double precision NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS windlass_history_dead (
        source text NOT NULL, job text NOT NULL, died_at text NOT NULL, at text NOT NULL, entry text NOT NULL,
        PRIMARY KEY (source, job, died_at))""",
)
"""`BYTES` stands for what a store calls them."""
ADD_ATTEMPT = """INSERT INTO windlass_history_attempt
    (source, job, fence, at, task, queue, lane, outcome, move, attempt, wait, run)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING RETURNING 1"""
GET_MINUTE = """SELECT figures FROM windlass_history_minute
    WHERE source = $1 AND at = $2 AND task = $3 AND queue = $4"""
PUT_MINUTE = """INSERT INTO windlass_history_minute (source, at, task, queue, figures)
    VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (source, at, task, queue) DO UPDATE SET figures = excluded.figures"""
ADD_SLOTS = """INSERT INTO windlass_history_slots (source, at, host, processes, slots, leases)
    VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING"""
TURN = """INSERT INTO windlass_history_reader AS r (source, place, reader, until) VALUES ($1, 'start', $2, $4)
    ON CONFLICT (source) DO UPDATE SET reader = excluded.reader, until = excluded.until
    WHERE r.reader = excluded.reader OR r.until < $3 RETURNING place"""
GO_ON = """UPDATE windlass_history_reader SET place = $3 WHERE source = $1 AND reader = $2"""
FORGET = (
    """DELETE FROM windlass_history_attempt WHERE source = $1 AND at < $2""",
    """DELETE FROM windlass_history_minute WHERE source = $1 AND at < $2""",
    """DELETE FROM windlass_history_slots WHERE source = $1 AND at < $2""",
)


class Archived:
    """Of the archive of dead letters."""

    ADD = """INSERT INTO windlass_history_dead (source, job, died_at, at, entry) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (source, job, died_at) DO UPDATE SET at = excluded.at, entry = excluded.entry"""
    PAGE = """SELECT job, died_at, entry FROM windlass_history_dead
        WHERE source = $1 AND (job, died_at) > ($2, $3) ORDER BY job, died_at LIMIT $4"""
    REPLACE = """UPDATE windlass_history_dead SET entry = $4
        WHERE source = $1 AND job = $2 AND died_at = $3"""
    FORGET = """DELETE FROM windlass_history_dead WHERE source = $1 AND at < $2"""


MINUTES = """SELECT at, task, queue, figures FROM windlass_history_minute
    WHERE source = $1 AND at >= $2 AND at < $3
      AND (CAST($4 AS text) IS NULL OR task = $4) AND (CAST($5 AS text) IS NULL OR queue = $5)"""
USED = """SELECT at / 60000000 * 60000000 AS minute, host, count(*), sum(slots), sum(leases)
    FROM windlass_history_slots WHERE source = $1 AND at >= $2 AND at < $3 GROUP BY 1, 2 ORDER BY 1, 2"""

_NUMBERED = re.compile(r"\$(\d+)")


def with_question_marks(statement: str) -> str:
    """A statement as SQLite numbers its parameters."""
    return _NUMBERED.sub(r"?\1", statement)


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
    )


def slots_row(source: str, slots: Slots) -> tuple[Any, ...]:
    """The parameters of `ADD_SLOTS`."""
    return (source, slots.at, slots.host, slots.processes, slots.slots, slots.leases)


def window_row(source: str, window: Window) -> tuple[Any, ...]:
    """The parameters of `MINUTES`."""
    return (source, window.since, window.until, window.task, window.queue)


def minute(row: Sequence[Any]) -> Minute:
    """A row of `MINUTES`."""
    return Minute(row[0], row[1], row[2], decode(row[3]))


def used(row: Sequence[Any]) -> Used:
    """A row of `USED`."""
    return Used(row[0], row[1], row[2], row[3], row[4])

"""The statements of history, which SQLite and PostgreSQL share word for word; only the sign of a parameter
differs, and what a sink does around them.

A percentile is the smallest value that so many of a hundred do not exceed (nearest rank): a value that
occurred, and the same on both. Cost: the rows of the window, read by the index on time, sorted twice.
"""

import re
from collections.abc import Sequence
from typing import Any

from windlass.observe.history.attempt import FAILED, GIVEN_BACK, Attempt, Slots
from windlass.observe.history.sink import Figures, Used, Window

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS windlass_history_attempt (
        source text NOT NULL, job text NOT NULL, fence bigint NOT NULL, at bigint NOT NULL,
        task text NOT NULL, queue text NOT NULL, lane text NOT NULL, outcome text NOT NULL,
        move text NOT NULL, attempt integer NOT NULL, wait bigint, run bigint,
        PRIMARY KEY (source, job, fence))""",
    """CREATE INDEX IF NOT EXISTS windlass_history_attempt_at ON windlass_history_attempt (source, at)""",
    """CREATE TABLE IF NOT EXISTS windlass_history_slots (
        source text NOT NULL, at bigint NOT NULL, host text NOT NULL, processes integer NOT NULL,
        slots integer NOT NULL, leases integer NOT NULL, PRIMARY KEY (source, at, host))""",
    """CREATE TABLE IF NOT EXISTS windlass_history_reader (
        source text NOT NULL PRIMARY KEY, place text NOT NULL, reader text NOT NULL,
        until double precision NOT NULL)""",
)
ADD_ATTEMPT = """INSERT INTO windlass_history_attempt
    (source, job, fence, at, task, queue, lane, outcome, move, attempt, wait, run)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING"""
ADD_SLOTS = """INSERT INTO windlass_history_slots (source, at, host, processes, slots, leases)
    VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING"""
TURN = """INSERT INTO windlass_history_reader AS r (source, place, reader, until) VALUES ($1, 'start', $2, $4)
    ON CONFLICT (source) DO UPDATE SET reader = excluded.reader, until = excluded.until
    WHERE r.reader = excluded.reader OR r.until < $3 RETURNING place"""
GO_ON = """UPDATE windlass_history_reader SET place = $3 WHERE source = $1 AND reader = $2"""
FORGET = (
    """DELETE FROM windlass_history_attempt WHERE source = $1 AND at < $2""",
    """DELETE FROM windlass_history_slots WHERE source = $1 AND at < $2""",
)


def _among(words: Sequence[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


_FIGURES = f"""WITH chosen AS (
    SELECT KEY AS k, outcome, wait, run, outcome IN ({_among(GIVEN_BACK)}) AS back
    FROM windlass_history_attempt
    WHERE source = $1 AND at >= $2 AND at < $3
      AND (CAST($4 AS text) IS NULL OR task = $4) AND (CAST($5 AS text) IS NULL OR queue = $5)
), counted AS (
    SELECT k, count(*) AS n,
        sum(CASE WHEN outcome = 'done' THEN 1 ELSE 0 END) AS done,
        sum(CASE WHEN outcome IN ({_among(FAILED)}) THEN 1 ELSE 0 END) AS failed,
        sum(CASE WHEN outcome = 'dead' THEN 1 ELSE 0 END) AS dead,
        sum(CASE WHEN outcome = 'cancelled' THEN 1 ELSE 0 END) AS cancelled,
        sum(CASE WHEN back THEN 1 ELSE 0 END) AS back,
        CAST(coalesce(sum(run), 0) AS bigint) AS ran
    FROM chosen GROUP BY k
), waits AS (
    SELECT k, min(CASE WHEN place * 100 >= n * 50 THEN v END) AS p50,
        min(CASE WHEN place * 100 >= n * 95 THEN v END) AS p95,
        min(CASE WHEN place * 100 >= n * 99 THEN v END) AS p99
    FROM (SELECT k, wait AS v, row_number() OVER (PARTITION BY k ORDER BY wait) AS place,
            count(*) OVER (PARTITION BY k) AS n FROM chosen WHERE wait IS NOT NULL AND NOT back) w GROUP BY k
), runs AS (
    SELECT k, min(CASE WHEN place * 100 >= n * 50 THEN v END) AS p50,
        min(CASE WHEN place * 100 >= n * 95 THEN v END) AS p95,
        min(CASE WHEN place * 100 >= n * 99 THEN v END) AS p99
    FROM (SELECT k, run AS v, row_number() OVER (PARTITION BY k ORDER BY run) AS place,
            count(*) OVER (PARTITION BY k) AS n FROM chosen WHERE run IS NOT NULL AND NOT back) r GROUP BY k
)
SELECT c.k, c.done, c.failed, c.dead, c.cancelled, c.back, c.ran,
    w.p50, w.p95, w.p99, r.p50, r.p95, r.p99
FROM counted c LEFT JOIN waits w ON w.k = c.k LEFT JOIN runs r ON r.k = c.k"""  # noqa: S608 - of our own words
TOTAL = _FIGURES.replace("KEY", "1")
BY_TASK = _FIGURES.replace("KEY", "task") + " ORDER BY c.n DESC, c.k LIMIT $6"
BY_TIME = _FIGURES.replace("KEY", "at / $6 * $6") + " ORDER BY c.k"

USED_BY_HOST = """SELECT host, count(*), sum(slots), sum(leases) FROM windlass_history_slots
    WHERE source = $1 AND at >= $2 AND at < $3 GROUP BY host ORDER BY host"""
USED_BY_TIME = """SELECT at / $4 * $4 AS k, count(DISTINCT at), sum(slots), sum(leases)
    FROM windlass_history_slots WHERE source = $1 AND at >= $2 AND at < $3 GROUP BY 1 ORDER BY 1"""

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
    """The first five parameters of the questions by attempt."""
    return (source, window.since, window.until, window.task, window.queue)


def figures(row: Sequence[Any]) -> Figures:
    """A row of the questions by attempt."""
    return Figures(
        key=row[0],
        done=row[1],
        failed=row[2],
        dead=row[3],
        cancelled=row[4],
        given_back=row[5],
        ran=row[6],
        waits=(row[7], row[8], row[9]),
        runs=(row[10], row[11], row[12]),
    )


def used(row: Sequence[Any]) -> Used:
    """A row of the questions by slots."""
    return Used(key=row[0], samples=row[1], slots=row[2], leases=row[3])

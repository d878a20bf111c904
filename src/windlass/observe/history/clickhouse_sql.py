"""The statements of history in ClickHouse.

A row that is written twice collapses, sooner or later, since its table is ordered by what names it. Until
then `FINAL` counts it once. That is asked for over the last hours only: repeats come within seconds of each
other, when a reader died, and the server merges what is young first.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.core.units import HOUR, SECOND, Micros
from windlass.observe.history.attempt import FAILED, GIVEN_BACK, Attempt, Enqueued, Slots, Worker
from windlass.observe.history.rollup import bucket_of
from windlass.observe.history.sink import GROUPS, By, Window

RECENT: Micros = 6 * HOUR
NONE = -1
"""The bucket of a time that nobody measured."""
_FAR = 2**32 - 1
"""The last second that a DateTime knows."""

_MONTHLY = "PARTITION BY toYYYYMM(toDateTime(intDiv(at, 1000000), 'UTC'))"
_WITH_TTL = "TTL drop_at SETTINGS non_replicated_deduplication_window = 1000"
_TIME = "time DateTime64(6, 'UTC') ALIAS fromUnixTimestamp64Micro(at, 'UTC')"

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "attempt": {
        "source": "LowCardinality(String)",
        "task": "LowCardinality(String)",
        "at": "Int64",
        "job": "String",
        "fence": "Int64",
        "queue": "LowCardinality(String)",
        "lane": "String",
        "outcome": "LowCardinality(String)",
        "move": "LowCardinality(String)",
        "attempt": "Int32",
        "wait": "Nullable(Int64)",
        "run": "Nullable(Int64)",
        "worker_id": "LowCardinality(String)",
        "host": "LowCardinality(String)",
        "started_at": "Nullable(Int64)",
        "error_type": "LowCardinality(String)",
        "error": "String",
        "fingerprint": "LowCardinality(String)",
        "tags": "Array(String)",
        "wait_bucket": "Int16",
        "run_bucket": "Int16",
        "drop_at": "DateTime",
    },
    "enqueue": {
        "source": "LowCardinality(String)",
        "job": "String",
        "at": "Int64",
        "task": "LowCardinality(String)",
        "queue": "LowCardinality(String)",
        "lane": "String",
        "unique_key": "Nullable(String)",
        "by_key": "LowCardinality(String)",
        "by_app": "LowCardinality(String)",
        "by_host": "LowCardinality(String)",
        "tags": "Array(String)",
        "drop_at": "DateTime",
    },
    "slots": {
        "source": "LowCardinality(String)",
        "at": "Int64",
        "host": "LowCardinality(String)",
        "processes": "Int32",
        "slots": "Int32",
        "leases": "Int32",
        "drop_at": "DateTime",
    },
    "worker": {
        "source": "LowCardinality(String)",
        "worker_id": "String",
        "host": "LowCardinality(String)",
        "pid": "Int64",
        "app": "LowCardinality(String)",
        "slots": "Int32",
        "opened_at": "Int64",
        "seen_at": "Int64",
        "drop_at": "DateTime",
    },
}


def _table(name: str, engine: str, more: str = "") -> str:
    columns = ", ".join(f"{column} {kind}" for column, kind in COLUMNS[name].items())
    return f"CREATE TABLE IF NOT EXISTS windlass_history_{name} ({columns}{more}) ENGINE = {engine}"


SCHEMA = (
    _table(
        "attempt",
        f"ReplacingMergeTree {_MONTHLY} ORDER BY (source, task, at, job, fence) {_WITH_TTL}",
        f", {_TIME}, INDEX by_job job TYPE bloom_filter GRANULARITY 4",
    ),
    _table("enqueue", f"ReplacingMergeTree {_MONTHLY} ORDER BY (source, job) {_WITH_TTL}", f", {_TIME}"),
    _table("slots", f"ReplacingMergeTree {_MONTHLY} ORDER BY (source, at, host) {_WITH_TTL}", f", {_TIME}"),
    _table("worker", "ReplacingMergeTree(seen_at) ORDER BY (source, worker_id) TTL drop_at"),
)
AGES: Mapping[str, str] = {"attempt": "at", "enqueue": "at", "slots": "at", "worker": "seen_at"}
"""What tells how old a row of each table is."""

_TAGGED = "source = {source:String} AND has(tags, {tag:String})"
BLANK: Mapping[str, tuple[str, str]] = {
    "attempt": ("error = ''", f"{_TAGGED} AND error != ''"),
    "enqueue": ("unique_key = NULL", f"{_TAGGED} AND unique_key IS NOT NULL"),
}
"""By table: what is blanked, and where."""

_BACK = ", ".join(f"'{outcome.value}'" for outcome in GIVEN_BACK)
_BAD = ", ".join(f"'{outcome.value}'" for outcome in FAILED)
_CHOSEN = """source = {source:String} AND at >= {since:Int64} AND at < {until:Int64}
    AND ({every_task:Bool} OR task = {task:String}) AND ({every_queue:Bool} OR queue = {queue:String})"""
_GROUPED: Mapping[By, str] = {By.LANE: "lane", By.WORKER: "worker_id", By.ERROR: "fingerprint"}


def _attempts(columns: str, more: str = "") -> str:
    """The attempts of a window, each once."""
    table = "windlass_history_attempt"
    return f"""(
        SELECT {columns} FROM {table} FINAL WHERE {_CHOSEN} AND at >= {{recent:Int64}}{more}
        UNION ALL
        SELECT {columns} FROM {table} WHERE {_CHOSEN} AND at < {{recent:Int64}}{more})"""  # noqa: S608 - no values


def _counted(keys: Mapping[str, str], columns: str, more: str = "") -> tuple[str, str]:
    """Two statements: ends and run times by some keys, and waits by the same. First they are counted by
    bucket, which is quick, then the buckets of each key are put together.
    """
    names = ", ".join(keys)
    told = ", ".join(f"{column} AS {name}" for name, column in keys.items())
    ended = _attempts(f"{columns}, outcome, run_bucket, run", more)
    waited = _attempts(f"{columns}, wait_bucket", f"{more} AND wait_bucket >= 0 AND outcome NOT IN ({_BACK})")
    ends = f"""SELECT {names}, sumIf(n, outcome = 'done'), sumIf(n, outcome IN ({_BAD})),
            sumIf(n, outcome = 'dead'), sumIf(n, outcome = 'cancelled'), sumIf(n, outcome IN ({_BACK})),
            sum(ran), sumMapIf([run_bucket], [n], run_bucket >= 0 AND outcome NOT IN ({_BACK}))
        FROM (SELECT {told}, outcome, run_bucket, count() AS n, sum(ifNull(run, 0)) AS ran
            FROM {ended} GROUP BY {names}, outcome, run_bucket)
        GROUP BY {names}"""  # noqa: S608 - columns, no values
    waits = f"""SELECT {names}, sumMap([wait_bucket], [n])
        FROM (SELECT {told}, wait_bucket, count() AS n FROM {waited} GROUP BY {names}, wait_bucket)
        GROUP BY {names}"""  # noqa: S608 - likewise
    return ends, waits


MINUTES = _counted(
    {"slot": "intDiv(at, {step:Int64}) * {step:Int64}", "of_task": "task", "of_queue": "queue"},
    "at, task, queue",
)


def groups(by: By) -> tuple[str, str]:
    """What counts by lane, worker or error: the largest alone."""
    column = _GROUPED[by]
    real = " AND fingerprint != ''" if by is By.ERROR else ""
    most = f"""SELECT {column} FROM {_attempts(f"{column}, outcome", real)}
        GROUP BY {column} ORDER BY countIf(outcome NOT IN ({_BACK})) DESC, {column} LIMIT {GROUPS}"""  # noqa: S608
    return _counted({"name": column}, column, f"{real} AND {column} IN ({most})")


USED = """SELECT intDiv(at, 60000000) * 60000000 AS minute, host, count(), sum(slots), sum(leases)
    FROM windlass_history_slots FINAL
    WHERE source = {source:String} AND at >= {since:Int64} AND at < {until:Int64}
    GROUP BY minute, host ORDER BY minute, host"""
LAST_FAILED = f"""SELECT fingerprint, argMax((error_type, error, task, job, fence, at), (at, fence)) AS last
    FROM {_attempts("fingerprint, error_type, error, task, job, fence, at", " AND fingerprint != ''")}
    GROUP BY fingerprint"""  # noqa: S608
WORKERS = """SELECT worker_id, host, pid, app, slots, opened_at, seen_at FROM windlass_history_worker FINAL
    WHERE source = {source:String} AND opened_at < {until:Int64} AND seen_at >= {since:Int64}
    ORDER BY host, opened_at, worker_id"""
TRAIL = f"""SELECT {", ".join(Attempt.__struct_fields__)} FROM windlass_history_attempt FINAL
    WHERE source = {{source:String}} AND job = {{job:String}} ORDER BY fence"""  # noqa: S608
ORIGIN = """SELECT job, at, task, queue, lane, unique_key, by_key, by_app, by_host, tags
    FROM windlass_history_enqueue FINAL WHERE source = {source:String} AND job = {job:String}"""


def window_parameters(source: str, window: Window, step: Micros, now: Micros) -> dict[str, Any]:
    """The parameters of what reads a window."""
    return {
        "source": source,
        "since": window.since,
        "until": window.until,
        "step": step,
        "recent": now - RECENT,
        "every_task": window.task is None,
        "task": window.task or "",
        "every_queue": window.queue is None,
        "queue": window.queue or "",
    }


# --- rows, in the order of `COLUMNS` ------------------------------------------------------------------------


def drop_at(at: Micros, keep: Micros) -> int:
    """When a row is too old, in seconds."""
    return min(_FAR, (at + keep) // SECOND + 1)


def attempt_row(source: str, said: Attempt, keep: Micros) -> Sequence[Any]:
    """An attempt."""
    return (
        source,
        said.task,
        said.at,
        said.job,
        said.fence,
        said.queue,
        said.lane,
        said.outcome.value,
        said.move.value,
        said.attempt,
        said.wait,
        said.run,
        said.worker_id,
        said.host,
        said.started_at,
        said.error_type,
        said.error,
        said.fingerprint,
        list(said.tags),
        NONE if said.wait is None else bucket_of(said.wait),
        NONE if said.run is None else bucket_of(said.run),
        drop_at(said.at, keep),
    )


def enqueue_row(source: str, said: Enqueued, keep: Micros) -> Sequence[Any]:
    """That a job was accepted."""
    return (
        source,
        said.job,
        said.at,
        said.task,
        said.queue,
        said.lane,
        said.key,
        said.by_key,
        said.by_app,
        said.by_host,
        list(said.tags),
        drop_at(said.at, keep),
    )


def slots_row(source: str, said: Slots, keep: Micros) -> Sequence[Any]:
    """The slots of a host."""
    return (source, said.at, said.host, said.processes, said.slots, said.leases, drop_at(said.at, keep))


def worker_row(source: str, said: Worker, keep: Micros) -> Sequence[Any]:
    """A worker process."""
    return (
        source,
        said.worker_id,
        said.host,
        said.pid,
        said.app,
        said.slots,
        said.opened_at,
        said.seen_at,
        drop_at(said.seen_at, keep),
    )

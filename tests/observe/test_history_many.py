"""How long a report over 24 hours and ten million attempts takes in ClickHouse. Measured, not judged: the
figures are printed (`-s`), and each report must count every attempt.
"""

import asyncio
import sys
import time

import pytest

from windlass.core.units import DAY, SECOND
from windlass.observe.history.report import History, look
from windlass.observe.history.sink import By, Window, open_sink
from windlass.verify.brokers.clickhouse import OwnClickHouse

ATTEMPTS = 10_000_000
INSERT = 1_000_000
ROWS = """INSERT INTO windlass_history_attempt
    (source, task, at, job, fence, queue, lane, outcome, move, attempt, wait, run, worker_id, host,
     started_at, error_type, error, fingerprint, tags, wait_bucket, run_bucket, drop_at)
SELECT 's', concat('task', toString(number % 20)), {since} + intDiv(number * {day}, {many}) AS ended,
    toString(generateUUIDv4(number)), number, concat('queue', toString(number % 4)),
    concat('tenant', toString(cityHash64(number) % 1000)),
    multiIf(number % 100 = 0, 'dead', number % 20 = 0, 'retry', 'done') AS ends,
    if(ends = 'dead', 'dead', ends), 1, cityHash64(number, 1) % 2000000 AS waited,
    1 + cityHash64(number, 2) % 5000000 AS ran, concat('worker', toString(number % 40)),
    concat('host', toString(number % 10)), ended - ran, if(ends = 'done', '', 'ValueError'),
    if(ends = 'done', '', 'no such user'), if(ends = 'done', '', concat('f', toString(number % 50))), ['a'],
    if(waited = 0, 0, 1 + toInt16(log(waited) / log(1.05))), 1 + toInt16(log(ran) / log(1.05)),
    toDateTime(4000000000)
FROM numbers({start}, {count})"""


def say(text: str) -> None:
    """Show it to whoever runs this with -s."""
    sys.stdout.write(f"{text}\n")


@pytest.mark.slow
def test_a_report_over_ten_million_attempts(clickhouse: OwnClickHouse, clickhouse_url: str) -> None:
    now = time.time_ns() // 1_000
    since = now - DAY

    async def report(by: By | None) -> tuple[float, History]:
        sink = await open_sink(clickhouse_url)
        started = time.perf_counter()
        found = await look(sink, "s", Window(since=since - 600 * SECOND, until=now + 600 * SECOND), by=by)
        seconds = time.perf_counter() - started
        await sink.close()
        return seconds, found

    async def main() -> None:
        await (await open_sink(clickhouse_url)).close()
        started = time.perf_counter()
        for start in range(0, ATTEMPTS, INSERT):
            clickhouse.ask(ROWS.format(since=since, day=DAY, many=ATTEMPTS, start=start, count=INSERT))
        say(f"{ATTEMPTS:,} attempts written in {time.perf_counter() - started:.1f} s")
        for by in (None, By.QUEUE, By.LANE, By.WORKER, By.ERROR):
            seconds, found = await report(by)
            assert found.total.attempts == ATTEMPTS
            assert found.total.failed == ATTEMPTS // 20
            assert len(found.tasks) == 20
            say(f"report by {by or 'task'}: {seconds:.2f} s")

    asyncio.run(main())

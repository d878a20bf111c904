"""History in ClickHouse after real kills between data and place: its figures are those of PostgreSQL."""

import asyncio
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.broker.postgres.namespaces import Namespaces

from windlass.broker.contract import Broker
from windlass.broker.sqlite import SqliteBroker
from windlass.conformance.harness import new_id
from windlass.core.event import Emit
from windlass.core.job import NewJob
from windlass.core.lease import Ask
from windlass.core.outcome import Error, Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.settlement import Settlement
from windlass.core.units import HOUR, Micros
from windlass.observe.history.reader import HistoryReader
from windlass.observe.history.sink import By, Window, open_sink
from windlass.verify.brokers.clickhouse import OwnClickHouse

READER = Path(__file__).with_name("dying_reader.py")
POINTS = [
    *("place 1 1000", "insert 4 1000", "place 2 7", "place 1 1000", "insert 3 50", "place 1 50"),
    *("place 4 7", "insert 2 1000"),
]
"""Where the readers die, one after the other, and how many events they read at once: what is repeated comes
in other batches than before.
"""
KINDS = [Outcome.DONE, Outcome.DONE, Outcome.DONE, Outcome.RETRY, Outcome.DEAD, Outcome.SNOOZE]


class Traffic:
    """Jobs that run and end in every way."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.session = uuid.uuid4().hex
        self.seq = 0

    async def open(self) -> None:
        await self.broker.declare(
            [
                Declaration(
                    subject=Subject(Kind.QUEUE, "mail"),
                    app="shop",
                    revision=0,
                    body=QueueSettings(emit=Emit.FINAL),
                )
            ]
        )
        await self.broker.beat([Beat(session=self.session, open=SessionInfo(host="box", slots=100))])

    async def runs(self, count: int) -> None:
        jobs = [
            NewJob(new_id(), f"task{number % 3}", "mail", f"lane{number % 5}", tags=("a",), max_attempts=9)
            for number in range(count)
        ]
        await self.broker.enqueue([jobs])
        self.seq += 1
        ask = Ask(session=self.session, seq=self.seq, queues=("mail",), slots=count, limit=count)
        leases = (await self.broker.claim(ask)).leases
        assert len(leases) == count
        ends = [
            Settlement(
                job=lease.job,
                fence=lease.fence,
                outcome=(outcome := KINDS[number % len(KINDS)]),
                runtime=1_000 * number,
                delay=HOUR,
                error=Error(type="ValueError", message=f"no {number}", fingerprint=f"f{number % 2}")
                if outcome in (Outcome.RETRY, Outcome.DEAD)
                else None,
            )
            for number, lease in enumerate(leases)
        ]
        await self.broker.settle(ends)


def reader(store: Path, sink: str, clock: int, point: str) -> int:
    """Run a reader in a process of its own; how it ended."""
    command = [sys.executable, str(READER), str(store), sink, str(clock), *point.split()]
    return subprocess.run(command, check=False, timeout=60).returncode


async def told(url: str, broker: Broker, now: Micros) -> dict[str, Any]:
    """All that a sink says of its attempts, in an order that does not depend on the sink."""
    sink = await open_sink(url, broker)
    window = Window(since=now - HOUR, until=now + HOUR)
    minutes = await sink.minutes("s", window)
    found: dict[str, Any] = {
        "minutes": sorted(minutes, key=lambda each: (each.at, each.task, each.queue)),
        "failed": sorted(await sink.failed("s", window), key=lambda each: each.fingerprint),
        **{by: await sink.groups("s", window, by) for by in (By.LANE, By.WORKER, By.ERROR)},
    }
    await sink.close()
    return found


def test_figures_are_those_of_postgres_after_kills_between_data_and_place(
    clickhouse: OwnClickHouse, clickhouse_url: str, namespaces: Namespaces, tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    postgres = namespaces.server.dsn

    async def main() -> None:
        broker = await SqliteBroker.open(path)
        traffic = Traffic(broker)
        await traffic.open()
        await (await open_sink(clickhouse_url)).close()
        clickhouse.ask("SYSTEM STOP MERGES windlass_history_attempt")  # repeats are there when it is asked
        clock = 1_000
        for point in POINTS:
            await traffic.runs(60)
            clock += 100  # the turn of the one before is over
            code = await asyncio.to_thread(reader, path, clickhouse_url, clock, point)
            assert code == -signal.SIGKILL, point
            await traffic.runs(7)  # what is repeated is longer than it was
        assert await asyncio.to_thread(reader, path, clickhouse_url, clock + 100, "none 0 30") == 0
        sink = await open_sink(postgres, broker)
        await HistoryReader(broker, sink, "s").step()
        await sink.close()
        now = (await broker.schedules(limit=1)).now
        right = await told(postgres, broker, now)
        assert sum(each.figures.attempts + each.figures.given_back for each in right["minutes"]) == 8 * 67
        assert await told(clickhouse_url, broker, now) == right
        rows = int(clickhouse.ask("SELECT count() FROM windlass_history_attempt"))
        assert rows > 8 * 67, "nothing was repeated: this test shows nothing"
        await broker.close()

    asyncio.run(main())


def test_what_was_repeated_is_there_once(
    clickhouse_url: str, clickhouse: OwnClickHouse, tmp_path: Path
) -> None:
    """A whole batch that comes again is recognised by its token, and not even written."""
    path = tmp_path / "store.db"

    async def main() -> None:
        broker = await SqliteBroker.open(path)
        traffic = Traffic(broker)
        await traffic.open()
        await traffic.runs(20)
        for clock in (1_100, 1_200, 1_300):
            assert (
                await asyncio.to_thread(reader, path, clickhouse_url, clock, "place 1 1000")
                == -signal.SIGKILL
            )
        await broker.close()

    asyncio.run(main())
    assert clickhouse.ask("SELECT count() FROM windlass_history_attempt") == "20\n"


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest) -> Any:
    """PostgreSQL keeps nothing for other tests."""
    yield
    if "namespaces" in request.fixturenames:
        from tests.observe.conftest import _emptied  # noqa: PLC0415

        asyncio.run(_emptied(request.getfixturevalue("namespaces").server.dsn))

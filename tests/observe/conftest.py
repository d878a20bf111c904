"""Places for history: a file and, where their programs are, PostgreSQL and ClickHouse."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.bridges.servers import without
from tests.broker.postgres.namespaces import Namespaces
from tests.each_store import namespaces, redis_server, store

from windlass.observe.history.sql import TABLES
from windlass.verify.brokers.clickhouse import OwnClickHouse
from windlass.verify.brokers.places import Missing
from windlass.verify.guardian import Guardian
from windlass.verify.processes import Starter

__all__ = ["namespaces", "redis_server", "store"]


@pytest.fixture(scope="session")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnClickHouse]:
    """A server for all tests. Who uses it leaves it empty."""
    guardian = Guardian()
    try:
        server = OwnClickHouse(
            Starter(tmp_path_factory.mktemp("servers"), guardian), tmp_path_factory.mktemp("clickhouse")
        )
    except Missing as missing:
        guardian.close()
        without(missing)
    server.start()
    yield server
    server.close()
    guardian.close()


@pytest.fixture
def clickhouse_url(clickhouse: OwnClickHouse) -> Iterator[str]:
    """An empty database, which keeps what is as old as the attempts of tests."""
    yield f"{clickhouse.url()}?keep=36500d"
    for table in clickhouse.ask("SHOW TABLES").split():
        clickhouse.ask(f"DROP TABLE {table} SYNC")


@pytest.fixture(params=["sqlite", "postgres", "clickhouse"])
def history_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'history.db'}"
        return
    if request.param == "clickhouse":
        yield request.getfixturevalue("clickhouse_url")
        return
    found: Namespaces = request.getfixturevalue("namespaces")
    yield found.server.dsn
    asyncio.run(_emptied(found.server.dsn))


async def _emptied(dsn: str) -> None:
    connection: Any = await asyncpg.connect(dsn)
    for table in TABLES:
        await connection.execute(f"DROP TABLE IF EXISTS windlass_history_{table}")
    await connection.close()

"""Places for history: a file and, where its programs are, a PostgreSQL database."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.observe.history.sql import TABLES

__all__ = ["namespaces"]


@pytest.fixture(params=["sqlite", "postgres"])
def history_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'history.db'}"
        return
    found: Namespaces = request.getfixturevalue("namespaces")
    yield found.server.dsn
    asyncio.run(_emptied(found.server.dsn))


async def _emptied(dsn: str) -> None:
    connection: Any = await asyncpg.connect(dsn)
    for table in TABLES:
        await connection.execute(f"DROP TABLE IF EXISTS windlass_history_{table}")
    await connection.close()

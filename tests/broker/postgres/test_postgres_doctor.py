"""What `windlass doctor` says of a PostgreSQL store."""

import asyncio
import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, LiteralString

import asyncpg
import msgspec
import psycopg
from psycopg import pq
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker
from windlass.broker.postgres.health import Health
from windlass.broker.postgres.url import Location

__all__ = ["namespaces"]


def _doctor(folder: Path, url: str, namespace: str) -> dict[str, list[dict[str, str]]]:
    (folder / "tasks.py").write_text("from windlass import Windlass\napp = Windlass()\n")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")}
    done = subprocess.run(
        [sys.executable, "-m", "windlass", "doctor", "tasks:app", "--json"],
        cwd=folder,
        env={**clean, "WINDLASS_URL": url, "WINDLASS_NAMESPACE": namespace},
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, list[dict[str, str]]] = {}
    for line in done.stdout.splitlines():
        finding = json.loads(line)
        found.setdefault(finding["check"], []).append(finding)
    return found


def test_missing_migrations_are_said_before_they_are_made(namespaces: Namespaces, tmp_path: Path) -> None:
    url = namespaces.server.dsn
    (first,) = _doctor(tmp_path, url, "examined")["migrations"]
    assert (first["level"], first["text"].startswith("layout 0 of ")) == ("note", True)
    again = _doctor(tmp_path, url, "examined")
    assert again["migrations"][0]["level"] == "ok"
    assert any("synchronous_commit is off" in finding["text"] for finding in again["store"])


def test_a_role_that_may_not_migrate_is_a_problem_in_one_line(namespaces: Namespaces, tmp_path: Path) -> None:
    with psycopg.connect(namespaces.server.dsn, autocommit=True) as owner:
        owner.execute("CREATE ROLE patient LOGIN")
        found = _doctor(tmp_path, namespaces.server.dsn.replace("windlass@", "patient@"), "examined_not")
        owner.execute("DROP ROLE patient")
    (problem,) = [finding for finding in found["store"] if finding["level"] == "problem"]
    assert "run `windlass migrate` as a role that may" in problem["text"]


def test_room_that_nothing_uses_is_found(namespaces: Namespaces) -> None:
    async def test() -> None:
        options = Options(namespace="bloated")
        broker = await PostgresBroker.open(Location(namespaces.server.dsn), options=options)
        connection: Any = await asyncpg.connect(namespaces.server.dsn)
        before = await broker.health()
        await connection.execute(
            "INSERT INTO bloated.timed SELECT repeat('x', 500) || g FROM generate_series(1, 4000) g"
        )
        await connection.execute("DELETE FROM bloated.timed WHERE right(task, 1) <> '7'")
        await connection.execute("VACUUM ANALYZE bloated.timed")
        after: Health = await broker.health()
        assert before.bloat < 100_000
        assert after.bloated == "timed"
        assert after.bloat > 1_000_000
        await connection.close()
        await broker.close()

    asyncio.run(test())


def test_what_pins_vacuum_is_named(namespaces: Namespaces) -> None:
    async def test() -> None:
        options = Options(namespace="pinned")
        broker = await PostgresBroker.open(Location(namespaces.server.dsn), options=options)
        other: Any = await asyncpg.connect(
            namespaces.server.dsn, server_settings={"application_name": "nightly report"}
        )
        async with other.transaction(isolation="repeatable_read"):
            await other.fetchval("SELECT 1")
            health = await broker.health()
            async with asyncio.timeout(20):
                # The server's own may be older for a while.
                while "nightly report" not in (health.oldest_by or ""):
                    await asyncio.sleep(0.05)
                    health = await broker.health()
        assert health.oldest_transaction is not None
        await other.close()
        await broker.close()

    asyncio.run(test())


def test_a_slot_that_pins_vacuum_is_named(namespaces: Namespaces) -> None:
    """As a standby leaves it that sent feedback and is gone."""

    async def test() -> None:
        broker = await PostgresBroker.open(
            Location(namespaces.server.dsn), options=Options(namespace="slotted")
        )
        with psycopg.connect(namespaces.server.dsn, autocommit=True) as other:
            before = await broker.health()
            other.execute("SELECT pg_create_physical_replication_slot('gone', true)")
            _feed_back(namespaces.server.dsn, other, "gone")
            health = await broker.health()
            other.execute("SELECT pg_drop_replication_slot('gone')")
        await broker.close()
        assert (before.pinned_by, before.pinned_for) == (None, 0)
        assert health.pinned_by == "replication slot gone"
        assert health.warnings() == before.warnings()
        far = msgspec.structs.replace(health, pinned_for=200_001)
        assert any("replication slot gone has hindered vacuum for 200,001" in text for text in far.warnings())

    asyncio.run(test())


def _feed_back(dsn: str, other: "psycopg.Connection[Any]", slot: str) -> None:
    """Say as a standby does which transactions it still needs, until the slot says so."""
    query = "SELECT pg_current_xact_id()::text::bigint, pg_current_wal_lsn()::text"
    ((transaction, position),) = other.execute(query).fetchall()
    connection = pq.PGconn.connect(f"{dsn}&replication=true".encode())
    try:
        started = connection.exec_(f"START_REPLICATION SLOT {slot} PHYSICAL {position}".encode())
        assert started.status == pq.ExecStatus.COPY_BOTH, started.error_message
        connection.put_copy_data(b"h" + struct.pack(">qIIII", 0, transaction, 0, 0, 0))
        connection.flush()
        _until(other, "SELECT FROM pg_replication_slots WHERE xmin IS NOT NULL")
    finally:
        connection.finish()
    _until(other, "SELECT FROM pg_replication_slots WHERE NOT active")


def _until(connection: "psycopg.Connection[Any]", query: LiteralString) -> None:
    """Wait for what another process of the server does."""
    for _ in range(1_000):
        if connection.execute(query).rowcount:
            return
        time.sleep(0.02)
    raise AssertionError(query)

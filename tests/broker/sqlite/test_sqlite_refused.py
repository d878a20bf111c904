"""Tables that are gone: each verb answers with one of our errors, and goes on when they are back."""

import asyncio
import subprocess
import sys
from pathlib import Path

from tests.broker.every_verb import QUEUE, call_all, told_by_all
from tests.broker.sqlite.files import new_file

from windlass.broker.sqlite import SqliteBroker
from windlass.errors import StoreError

_CHANGE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA legacy_alter_table = ON")
for row in connection.execute(sys.argv[2]):
    print(row[0])
connection.close()
"""
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"


def _execute(path: Path, statement: str) -> list[str]:
    """In a process of its own: a file that is closed takes the locks of its whole process with it."""
    done = subprocess.run(
        [sys.executable, "-c", _CHANGE, str(path), statement], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_a_table_that_is_gone_is_one_of_our_errors_whichever_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = new_file(tmp_path)
        broker = SqliteBroker(path)
        await broker.declare([QUEUE])
        await call_all(broker)
        tables = _execute(
            path, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        )
        assert {"job", "queue", "schedule"} <= set(tables), tables
        for table in tables:
            _execute(path, f"ALTER TABLE {table} RENAME TO elsewhere")
            told = await told_by_all(broker)
            _execute(path, f"ALTER TABLE elsewhere RENAME TO {table}")
            assert all(isinstance(error, StoreError) for error in told.values()), (table, told)
            if table == "job":
                assert told.keys() >= {"enqueue", "claim: until a deadline", "settle", "take", "get"}
        await call_all(broker)
        await broker.close()

    asyncio.run(scenario())

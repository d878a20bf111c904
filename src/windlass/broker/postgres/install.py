"""Installing a namespace in a database: numbered migrations, then the functions.

A migration and the note that it was made are one transaction, under a lock that other installers wait for.
Killed at any point, the next one goes on where it stopped. Migrations only add, so that older workers go on
beside them.
"""

import re
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import groupby
from typing import Any, Final, TypeAlias

import psycopg

from windlass.broker.postgres.constants import with_constants
from windlass.errors import StoreError

_PACKAGE: Final = "windlass.broker.postgres"
_LOCK: Final = 6_289_646_838_145_372_261
"""The advisory lock of installers, whatever the namespace."""
REVISION: Final = 1
"""Grows with every release that changes a function: an older program leaves a newer one's functions alone."""


_ALONE: Final = "SELECT pg_advisory_xact_lock(1464422980, 'job'::regclass::oid::integer)"
"""Every step that changes jobs holds this lock. Without it one that has begun with an older function would go
on with it among rows that newer ones have written, and take a block for its first job.
"""

_Connection: TypeAlias = psycopg.AsyncConnection[Any]


def quoted(name: str) -> str:
    """A name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def _scripts(folder: str) -> tuple[tuple[str, str], ...]:
    found = (file for file in files(_PACKAGE).joinpath(folder).iterdir() if file.name.endswith(".sql"))
    return tuple((file.name, file.read_text("utf-8")) for file in sorted(found, key=lambda file: file.name))


@cache
def migrations() -> tuple[str, ...]:
    """The numbered migrations, in order: the first leads from an empty schema to layout 1.

    Files of one number are parts of one migration.
    """
    numbered = groupby(_scripts("migrations"), key=lambda script: script[0].partition("_")[0])
    return tuple(with_constants("\n".join(text for _, text in parts)) for _, parts in numbered)


@cache
def functions() -> str:
    """Every function, in the order in which they can be created."""
    return with_constants("\n".join(text for _, text in _scripts("sql")))


def rules() -> str:
    """The functions that decide, and touch nothing."""
    return dict(_scripts("sql"))["01_rules.sql"]


@cache
def fingerprint() -> str:
    """What tells one set of functions from another."""
    return sha256(functions().encode()).hexdigest()[:16]


@cache
def first_layout() -> str:
    """What tells one first migration from another, whatever its comments. Every later one builds on it."""
    texts = (text for name, text in _scripts("migrations") if name.startswith("0001"))
    statements = re.sub(r"--.*", "", "\n".join(texts))
    return sha256(" ".join(statements.split()).encode()).hexdigest()[:16]


def _path(schema: str) -> str:
    """The search path of functions: names in them never mean a temporary table of the caller."""
    return f"SET LOCAL search_path = {schema}, pg_catalog, pg_temp"


def script(namespace: str, *, layout: int = 0) -> str:
    """What an installation from a layout on would run, for `windlass migrate --sql`."""
    schema = quoted(namespace)
    begin = f"BEGIN;\nSELECT pg_advisory_xact_lock({_LOCK});\n{_path(schema)};\n"
    steps = [f"CREATE SCHEMA IF NOT EXISTS {schema};\n{begin}{_layout()};\nCOMMIT;"]
    for number, migration in enumerate(migrations()[layout:], layout + 1):
        steps.append(f"{begin}{migration}\nUPDATE layout SET number = {number};\nCOMMIT;")
    steps.append(f"{begin}{_ALONE};\n{functions()}\n{_note(REVISION, fingerprint())};\nCOMMIT;")
    return "\n".join(steps) + "\n"


_LAYOUT: Final = (
    "CREATE TABLE IF NOT EXISTS layout (one boolean PRIMARY KEY DEFAULT true CHECK (one), "
    "number integer NOT NULL DEFAULT 0, revision integer NOT NULL DEFAULT 0, "
    "functions text NOT NULL DEFAULT '', first text NOT NULL)"
)


def _layout() -> str:
    first = f"INSERT INTO layout (first) VALUES ('{first_layout()}') ON CONFLICT DO NOTHING"  # noqa: S608 - of our own making
    return f"{_LAYOUT}; {first}"


async def install(connection: _Connection, namespace: str) -> None:
    """Bring a namespace up to date, if it is not."""
    if await state(connection, namespace) == (len(migrations()), REVISION, fingerprint()):
        return
    schema = quoted(namespace)
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        await _check_schema(connection, namespace)
        await _run(connection, f"CREATE SCHEMA IF NOT EXISTS {schema}; {_path(schema)}; {_layout()}")
    for _ in range(len(migrations()) + 1):
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
            await _run(connection, _path(schema))
            if not await _step(connection):
                return


async def _step(connection: _Connection) -> bool:
    """Take the next step, if there is one."""
    number, revision, installed = await _row(
        connection, "SELECT number, revision, functions FROM layout FOR UPDATE"
    ) or (0, 0, "")
    if number > len(migrations()) or revision > REVISION:
        return False  # a newer program was here; what it added does not hinder this one
    if number < len(migrations()):
        await _run(connection, migrations()[number])
        await connection.execute("UPDATE layout SET number = %s", [number + 1])
        return True
    if installed == fingerprint():
        return False
    await _run(connection, _ALONE)
    await _run(connection, f"{functions()}\n; {_note(REVISION, fingerprint())}")
    return True


def _note(revision: int, functions: str) -> str:
    return f"UPDATE layout SET revision = {revision}, functions = '{functions}'"  # noqa: S608 - of our own making


async def state(connection: _Connection, namespace: str) -> tuple[int, int, str] | None:
    """Layout, revision and fingerprint of what is installed; None if nothing is."""
    layout = f"{quoted(namespace)}.layout"
    if await _row(connection, "SELECT 1 WHERE to_regclass(%s) IS NOT NULL", layout) is None:
        return None
    # Asked for as JSON: an earlier version may not have had every column.
    row = await _row(connection, f"SELECT to_jsonb(l) FROM {layout} l")  # noqa: S608 - an identifier, quoted
    found: dict[str, Any] = {} if row is None else row[0]
    if found.get("first") != first_layout():
        raise StoreError(
            f'the namespace "{namespace}" was made by an earlier version of Windlass, and this one cannot use'
            " its tables: drain it with the version that made it, or choose another namespace"
        )
    return found["number"], found["revision"], found["functions"]


async def _check_schema(connection: _Connection, namespace: str) -> None:
    """Refuse a schema that others use: its tables are not ours to add to."""
    # Asked of the catalogue, which sees what was committed while this waited for its turn.
    taken = await _row(
        connection,
        "SELECT min(c.relname::text) FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace "
        "WHERE s.nspname = %s HAVING count(*) > 0 AND NOT bool_or(c.relname = 'layout')",
        namespace,
    )
    if taken is not None:
        raise StoreError(
            f'the schema "{namespace}" has tables of another program ("{taken[0]}"); choose another namespace'
        )


async def _run(connection: _Connection, script: str) -> None:
    """Execute statements, however many."""
    await connection.execute(script.encode(), prepare=False)


async def _row(connection: _Connection, query: str, *arguments: Any) -> Any:
    """The first row of an answer; None if there is none."""
    return await (await connection.execute(query.encode(), arguments or None, prepare=False)).fetchone()

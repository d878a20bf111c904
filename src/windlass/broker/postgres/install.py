"""Putting a namespace into a database: numbered migrations, then the functions.

A migration and the note that it was made are one transaction, under a lock that other installers wait for.
Killed at any point, the next one goes on where it stopped. Migrations only add, so that older workers go on
beside them.
"""

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final

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


def quoted(name: str) -> str:
    """A name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def _scripts(folder: str) -> tuple[tuple[str, str], ...]:
    found = (file for file in files(_PACKAGE).joinpath(folder).iterdir() if file.name.endswith(".sql"))
    return tuple((file.name, file.read_text("utf-8")) for file in sorted(found, key=lambda file: file.name))


@cache
def migrations() -> tuple[str, ...]:
    """The numbered migrations, in order: the first leads from an empty schema to layout 1."""
    return tuple(with_constants(text) for _, text in _scripts("migrations"))


@cache
def functions() -> str:
    """Every function, in the order in which they can be created."""
    return with_constants("\n".join(text for _, text in _scripts("sql")))


@cache
def fingerprint() -> str:
    """What tells one set of functions from another."""
    return sha256(functions().encode()).hexdigest()[:16]


def _path(schema: str) -> str:
    """What names mean in functions made under it: never a temporary table of whoever calls them."""
    return f"SET LOCAL search_path = {schema}, pg_catalog, pg_temp"


def script(namespace: str, *, layout: int = 0) -> str:
    """What an installation from a layout on would run, for `windlass migrate --sql`."""
    schema = quoted(namespace)
    begin = f"BEGIN;\nSELECT pg_advisory_xact_lock({_LOCK});\n{_path(schema)};\n"
    steps = [f"CREATE SCHEMA IF NOT EXISTS {schema};\n{begin}{_LAYOUT};\nCOMMIT;"]
    for number, migration in enumerate(migrations()[layout:], layout + 1):
        steps.append(f"{begin}{migration}\nUPDATE layout SET number = {number};\nCOMMIT;")
    steps.append(f"{begin}{_ALONE};\n{functions()}\n{_note(REVISION, fingerprint())};\nCOMMIT;")
    return "\n".join(steps) + "\n"


_LAYOUT: Final = (
    "CREATE TABLE IF NOT EXISTS layout (one boolean PRIMARY KEY DEFAULT true CHECK (one), "
    "number integer NOT NULL DEFAULT 0, revision integer NOT NULL DEFAULT 0, "
    "functions text NOT NULL DEFAULT ''); "
    "INSERT INTO layout DEFAULT VALUES ON CONFLICT DO NOTHING"
)


async def install(connection: Any, namespace: str) -> None:
    """Bring a namespace up to date, if it is not."""
    if await state(connection, namespace) == (len(migrations()), REVISION, fingerprint()):
        return
    schema = quoted(namespace)
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        await _check_schema(connection, namespace)
        await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        await connection.execute(_path(schema))
        await connection.execute(_LAYOUT)
    for _ in range(len(migrations()) + 1):
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            await connection.execute(_path(schema))
            if not await _step(connection):
                return


async def _step(connection: Any) -> bool:
    """Take the next step, if there is one."""
    number, revision, installed = await connection.fetchrow(
        "SELECT number, revision, functions FROM layout FOR UPDATE"
    )
    if number > len(migrations()) or revision > REVISION:
        return False  # a newer program was here; what it added does not hinder this one
    if number < len(migrations()):
        await connection.execute(migrations()[number])
        await connection.execute("UPDATE layout SET number = $1", number + 1)
        return True
    if installed == fingerprint():
        return False
    await connection.execute(_ALONE)
    await connection.execute(functions())
    await connection.execute(_note(REVISION, fingerprint()))
    return True


def _note(revision: int, functions: str) -> str:
    return f"UPDATE layout SET revision = {revision}, functions = '{functions}'"  # noqa: S608 - of our own making


async def state(connection: Any, namespace: str) -> tuple[int, int, str] | None:
    """Layout, revision and fingerprint of what is installed; None if nothing is."""
    if await connection.fetchval("SELECT to_regclass($1)", f"{quoted(namespace)}.layout") is None:
        return None
    row = await connection.fetchrow(
        f"SELECT number, revision, functions FROM {quoted(namespace)}.layout"  # noqa: S608 - an identifier, quoted
    )
    return None if row is None else (row["number"], row["revision"], row["functions"])


async def _check_schema(connection: Any, namespace: str) -> None:
    """Refuse a schema that others use: its tables are not ours to add to."""
    # Asked of the catalogue, which sees what was committed while this waited for its turn.
    taken = await connection.fetchval(
        "SELECT CASE WHEN bool_or(c.relname = 'layout') THEN NULL ELSE min(c.relname::text) END "
        "FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace WHERE s.nspname = $1",
        namespace,
    )
    if taken is not None:
        raise StoreError(
            f'the schema "{namespace}" has tables of another program ("{taken}"); choose another namespace'
        )

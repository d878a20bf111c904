"""Opening a namespace: it is installed once, goes on where it stopped, and leaves others' schemas alone."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import msgspec
import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker, read_url
from windlass.broker.postgres.install import functions, install, migrations, quoted, script
from windlass.broker.postgres.migrating import layout_state
from windlass.broker.postgres.url import Location
from windlass.broker.registry import open_broker
from windlass.core.units import SECOND
from windlass.errors import InvalidOption, StoreError, StoreUnavailable

__all__ = ["namespaces"]


def _with(namespaces: Namespaces, test: Callable[[Any], Awaitable[None]]) -> None:
    async def whole() -> None:
        connection: Any = await asyncpg.connect(namespaces.server.dsn)
        try:
            await test(connection)
        finally:
            await connection.close()

    asyncio.run(whole())


async def _opens(namespaces: Namespaces, name: str) -> None:
    broker = await PostgresBroker.open(Location(namespaces.server.dsn), options=Options(namespace=name))
    assert (await broker.counts()).rows == ()
    await broker.close()


def test_an_installation_that_was_killed_goes_on(namespaces: Namespaces) -> None:
    """After every step that is a transaction of its own."""

    async def test(connection: Any) -> None:
        steps = script("killed").split("COMMIT;")
        for done in range(len(steps)):
            await connection.execute('DROP SCHEMA IF EXISTS "killed" CASCADE')
            for step in steps[:done]:
                if step.strip():
                    await connection.execute(f"{step}COMMIT;")
            await _opens(namespaces, "killed")

    _with(namespaces, test)


def test_many_install_at_once(namespaces: Namespaces) -> None:
    async def test(_: Any) -> None:
        await asyncio.gather(*(_opens(namespaces, "at_once") for _ in range(4)))

    _with(namespaces, test)


def test_new_functions_replace_old_ones_beside_those_who_use_them(namespaces: Namespaces) -> None:
    async def test(connection: Any) -> None:
        name = 'odd "name"'
        await _opens(namespaces, name)
        outdate = f"UPDATE {quoted(name)}.layout SET functions = 'older'"  # noqa: S608 - an identifier, quoted
        await connection.execute(outdate)
        broker = await PostgresBroker.open(Location(namespaces.server.dsn), options=Options(namespace=name))
        await connection.execute(outdate)
        own = await namespaces.connect()
        await asyncio.gather(install(own, name), *(broker.sweep(limit=10) for _ in range(10)))
        await own.close()
        await broker.close()

    _with(namespaces, test)


def test_a_newer_layout_is_left_alone(namespaces: Namespaces) -> None:
    async def test(connection: Any) -> None:
        await _opens(namespaces, "newer")
        for newer in ("number = 99", "number = 1, revision = 99"):
            change = f"UPDATE newer.layout SET {newer}, functions = 'newer'"  # noqa: S608 - of this test's own making
            await connection.execute(change)
            await _opens(namespaces, "newer")
            assert await connection.fetchval("SELECT functions FROM newer.layout") == "newer"

    _with(namespaces, test)


def test_a_schema_of_others_is_refused(namespaces: Namespaces) -> None:
    async def test(connection: Any) -> None:
        await connection.execute("CREATE SCHEMA theirs; CREATE TABLE theirs.orders (id int)")
        with pytest.raises(StoreError, match='"theirs" has tables of another program'):
            await _opens(namespaces, "theirs")

    _with(namespaces, test)


_EARLIER = {
    "with a higher number": "(number, revision, functions) AS VALUES (6, 40, 'f')",
    "with other tables": "(number, revision, functions, first) AS VALUES (1, 1, 'f', 'another')",
    "with other columns": "(one, version) AS VALUES (true, 1)",
    "that was never made": "(number) AS SELECT 1 WHERE false",
}


@pytest.mark.parametrize("layout", _EARLIER.values(), ids=_EARLIER.keys())
def test_a_namespace_of_an_earlier_version_is_refused(namespaces: Namespaces, layout: str) -> None:
    """Whatever number it has: its tables are others than those that migrations build on."""

    async def test(connection: Any) -> None:
        await connection.execute("DROP SCHEMA IF EXISTS dated CASCADE; CREATE SCHEMA dated")
        await connection.execute("CREATE TABLE dated.meta (one boolean); CREATE TABLE dated.job (id uuid)")
        await connection.execute(f"CREATE TABLE dated.layout {layout}")
        said = '"dated" was made by an earlier version of Windlass.* drain it .* or choose another namespace'
        with pytest.raises(StoreError, match=said):
            await _opens(namespaces, "dated")
        with pytest.raises(StoreError, match=said):
            await layout_state(namespaces.server.dsn, "dated")
        tables = "SELECT count(*) FROM pg_class WHERE relnamespace = 'dated'::regnamespace AND relkind = 'r'"
        assert await connection.fetchval(tables) == 3, "nothing was added"

    _with(namespaces, test)


def test_every_function_says_what_it_sees() -> None:
    """What is called from outside fixes its search path: whoever calls it may have any."""
    entries = [
        part for part in functions().split("CREATE OR REPLACE FUNCTION ")[1:] if not part.startswith("_")
    ]
    assert len(entries) > 20
    for entry in entries:
        assert "SET search_path FROM CURRENT" in entry.split("$$")[0], entry[:60]
    assert len(migrations()) >= 1


def test_a_url_names_the_store(namespaces: Namespaces) -> None:
    async def test(_: Any) -> None:
        broker = await open_broker(namespaces.server.dsn, options=Options(namespace="by_url"))
        assert broker.capabilities.store == "postgres"
        await broker.close()

    _with(namespaces, test)


def test_a_url_has_options() -> None:
    place = read_url("postgresql://u:p@h:1/d?sslmode=require&connections=2&pooler=transaction")
    assert place == Location("postgresql://u:p@h:1/d?sslmode=require", 2, pooled=True)
    for wrong in ("connections=0", "connections=5", "connections=x", "pooler=session"):
        with pytest.raises(InvalidOption) as caught:
            read_url(f"postgres://u:secret@h/d?{wrong}")
        assert "secret" not in str(caught.value)


def test_an_unreachable_server_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable):
        asyncio.run(open_broker("postgres://127.0.0.1:1/none"))


def test_behind_a_pooler_nothing_outlasts_a_transaction(namespaces: Namespaces) -> None:
    async def test(_: Any) -> None:
        place = Location(namespaces.server.dsn, pooled=True)
        broker = await PostgresBroker.open(place, options=Options(namespace="pooled"))
        assert (await broker.sweep(limit=10)).more is False
        await broker.close()

    _with(namespaces, test)


def test_behind_a_pooler_a_call_is_one_transaction_of_one_statement(namespaces: Namespaces) -> None:
    """So that a process which is stopped in the middle of one keeps no server of the pooler's."""

    async def test(connection: Any) -> None:
        place = Location(namespaces.server.dsn, pooled=True, connections=1)
        broker = await PostgresBroker.open(place, options=Options(namespace="one_call"))

        async def transactions() -> int:
            await broker._pool.fetch(b"SELECT pg_stat_force_next_flush()", named=False)
            return await connection.fetchval(
                "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
            )

        before = await transactions()
        for _ in range(50):
            await broker.sweep(limit=10)
        # Others come and go on this server, but not by fifty.
        assert 50 <= await transactions() - before < 100
        await broker.close()

    _with(namespaces, test)


def test_behind_a_pooler_another_isolation_is_refused(namespaces: Namespaces) -> None:
    """Nothing that a client sets would hold there."""

    async def test(connection: Any) -> None:
        await connection.execute("CREATE ROLE strict LOGIN SUPERUSER")
        await connection.execute("ALTER ROLE strict SET default_transaction_isolation = 'serializable'")
        try:
            dsn = namespaces.server.dsn.replace("windlass@", "strict@")
            with pytest.raises(StoreError, match="serializable by default, and Windlass needs"):
                await PostgresBroker.open(Location(dsn, pooled=True), options=Options(namespace="isolated"))
            broker = await PostgresBroker.open(Location(dsn), options=Options(namespace="isolated"))
            await broker.close()
        finally:
            await connection.execute("DROP SCHEMA IF EXISTS isolated CASCADE; DROP ROLE strict")

    _with(namespaces, test)


def test_the_state_of_health(namespaces: Namespaces) -> None:
    async def test(connection: Any) -> None:
        broker = await PostgresBroker.open(
            Location(namespaces.server.dsn), options=Options(namespace="healthy")
        )
        async with connection.transaction(isolation="repeatable_read"):
            await connection.fetchval("SELECT 1")
            health = await broker.health()
        assert (health.layout, health.not_taken_in, health.in_recovery) == (len(migrations()), 0, False)
        assert health.oldest_by is not None
        assert health.warnings() == (
            "synchronous_commit is off: accepted jobs can be lost in a crash; set it to on",
        )
        ill = msgspec.structs.replace(
            health, layout=0, in_recovery=True, oldest_transaction=400 * SECOND, rows_dead=20_001, rows_live=5
        )
        assert len(ill.warnings()) == 5
        full = msgspec.structs.replace(
            health, bloated="job", bloat=2**30, bytes=2**30, in_default=200_000, not_taken_in=10_000
        )
        assert [text.split(":")[0] for text in full.warnings()[1:]] == [
            "table job has about 1,024 MiB that nothing uses",
            "200,000 rows are in a default partition",
            "10,000 jobs from callers' own transactions wait to be taken in",
        ]
        await broker.close()

    _with(namespaces, test)

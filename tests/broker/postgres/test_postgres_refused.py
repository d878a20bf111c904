"""Rights are revoked and functions dropped under clients that are connected: each verb answers with one of
our errors, and goes on when the operator has put it right.
"""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest
from tests.broker.every_verb import QUEUE, VERBS, call_all, new_job, told_by_all
from tests.broker.postgres.servers import Server, programs

from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker
from windlass.broker.postgres.trouble import Refusal, in_words
from windlass.broker.postgres.url import Location
from windlass.errors import StoreError, StoreUnavailable

NAMESPACE = "refused"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server(programs())
    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE ROLE humble LOGIN")
        yield server
    finally:
        server.remove()


HARM = {
    "usage revoked": (
        f"REVOKE USAGE ON SCHEMA {NAMESPACE} FROM humble",
        f"GRANT USAGE ON SCHEMA {NAMESPACE} TO humble",
    ),
    "schema renamed": (
        f"ALTER SCHEMA {NAMESPACE} RENAME TO elsewhere",
        f"ALTER SCHEMA elsewhere RENAME TO {NAMESPACE}",
    ),
    "table renamed": (
        f"ALTER TABLE {NAMESPACE}.job RENAME TO elsewhere",
        f"ALTER TABLE {NAMESPACE}.elsewhere RENAME TO job",
    ),
    "table revoked": (
        f"REVOKE ALL ON ALL TABLES IN SCHEMA {NAMESPACE} FROM humble",
        f"GRANT ALL ON ALL TABLES IN SCHEMA {NAMESPACE} TO humble",
    ),
}


async def _opened(server: Server) -> PostgresBroker:
    owner = await PostgresBroker.open(Location(server.dsn), options=Options(namespace=NAMESPACE))
    await owner.declare([QUEUE])
    await owner.close()
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"GRANT USAGE ON SCHEMA {NAMESPACE} TO humble")
        for kind in ("TABLES", "SEQUENCES", "FUNCTIONS"):
            connection.execute(f"GRANT ALL ON ALL {kind} IN SCHEMA {NAMESPACE} TO humble")
    place = Location(server.dsn.replace("windlass@", "humble@"))
    broker = await PostgresBroker.open(place, options=Options(namespace=NAMESPACE))
    await call_all(broker)
    return broker


@pytest.mark.parametrize("harm", HARM)
def test_every_verb_answers_with_one_of_our_errors(server: Server, harm: str) -> None:
    async def scenario() -> None:
        broker = await _opened(server)
        blocking = broker.blocking
        await asyncio.to_thread(blocking.enqueue, [[new_job()]])
        before, after = HARM[harm]
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(before)
            told = await told_by_all(broker)
            for _ in range(2):
                with pytest.raises(StoreError) as caught:
                    await asyncio.to_thread(blocking.enqueue, [[new_job()]])
                assert "refused" in str(caught.value)
            connection.execute(after)
        assert {type(error) for error in told.values()} <= {Refusal, StoreUnavailable}, told
        needed = {"enqueue", "claim", "settle", "take", "get"} if harm == "table renamed" else VERBS.keys()
        assert needed <= told.keys(), needed - told.keys()
        for error in told.values():
            assert "secret" not in str(error)
            assert "docs/postgres.md" in str(error) or "windlass migrate" in str(error), error
        await call_all(broker)
        await asyncio.to_thread(blocking.enqueue, [[new_job()]])
        await broker.close()

    asyncio.run(scenario())


def test_a_table_that_is_gone_is_one_of_our_errors_whichever_it_is(server: Server) -> None:
    async def scenario() -> None:
        broker = await _opened(server)
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [NAMESPACE])
            tables = [str(name) for (name,) in rows]
            assert {"job", "lease", "queue", "schedule", "edge"} <= set(tables), tables
            for table in tables:
                connection.execute(f"ALTER TABLE {NAMESPACE}.{table} RENAME TO elsewhere")
                told = await told_by_all(broker)
                connection.execute(f"ALTER TABLE {NAMESPACE}.elsewhere RENAME TO {table}")
                assert {type(error) for error in told.values()} <= {Refusal, StoreUnavailable}, (table, told)
        await call_all(broker)
        await broker.close()

    asyncio.run(scenario())


class _Said(Exception):
    def __init__(self, sqlstate: str) -> None:
        super().__init__("what the server said")
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    "sqlstate",
    [
        *("00000", "01000", "02000", "03000", "08006", "0A000", "0LP01", "0P000", "20000", "21000", "22003"),
        *("22P02", "23502", "23505", "23514", "24000", "25001", "25006", "25P02", "25P03", "26000", "28000"),
        *("2BP01", "2D000", "34000", "3D000", "3F000", "40001", "40P01", "42501", "42601", "42883", "42P01"),
        *("53000", "53100", "53200", "53300", "54001", "55000", "55006", "55P03", "57014", "57P01", "57P05"),
        *("58000", "58030", "72000", "F0000", "HV000", "P0001", "P0002", "XX000", "XX001", "ZZ999"),
    ],
)
def test_every_code_is_one_of_our_errors(sqlstate: str) -> None:
    told = in_words(_Said(sqlstate), Location("postgres://u:secret@host/d"))
    assert isinstance(told, StoreError)
    assert "what the server said" in str(told)
    assert "secret" not in str(told)
    assert isinstance(told, StoreUnavailable) == sqlstate.startswith(
        ("08", "40", "53", "57", "58", "25006", "25P0", "55P03", "26", "0A000")
    )

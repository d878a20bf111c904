"""Rights are revoked and functions dropped under clients that are connected: each verb answers with one of
our errors, and goes on when the operator has put it right.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import psycopg
import pytest
from tests.broker.postgres.servers import Server, programs

from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker
from windlass.broker.postgres.trouble import Refusal, in_words
from windlass.broker.postgres.url import Location
from windlass.conformance.harness import APP, new_id
from windlass.core.event import FROM_START
from windlass.core.job import NewJob
from windlass.core.lease import Ask
from windlass.core.outcome import Cause, CauseKind
from windlass.core.query import JobQuery
from windlass.core.session import Beat
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.errors import StoreError, StoreUnavailable

_ASK = Ask(queues=("q",), slots=10, limit=10, visibility=10**9)
_QUEUE = Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(), app=APP)
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


def _job() -> NewJob:
    return NewJob(id=new_id(), task="t", queue="q", payload=b"secret")


VERBS: dict[str, Callable[[PostgresBroker], Awaitable[Any]]] = {
    "enqueue": lambda broker: broker.enqueue([[_job()]]),
    "enqueue many": lambda broker: broker.enqueue([[_job(), _job()]]),
    "claim": lambda broker: broker.claim(_ASK),
    "beat": lambda broker: broker.beat([Beat(session="s", memory=0)]),
    "end session": lambda broker: broker.end_session("s", Cause(CauseKind.STOP, "")),
    "sweep": lambda broker: broker.sweep(limit=10),
    "declare": lambda broker: broker.declare([_QUEUE]),
    "get": lambda broker: broker.get([new_id()]),
    "list": lambda broker: broker.list(JobQuery()),
    "counts": lambda broker: broker.counts(),
    "watch": lambda broker: broker.watch([new_id()], 0.1),
    "wait": lambda broker: broker.wait(["q"], 0.1),
    "events": lambda broker: broker.events(FROM_START, 10, 0.0),
    "schedules": lambda broker: broker.schedules(),
    "explain": lambda broker: broker.explain(new_id()),
}
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
    await owner.declare([_QUEUE])
    await owner.close()
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"GRANT USAGE ON SCHEMA {NAMESPACE} TO humble")
        for kind in ("TABLES", "SEQUENCES", "FUNCTIONS"):
            connection.execute(f"GRANT ALL ON ALL {kind} IN SCHEMA {NAMESPACE} TO humble")
    place = Location(server.dsn.replace("windlass@", "humble@"))
    broker = await PostgresBroker.open(place, options=Options(namespace=NAMESPACE))
    for verb in VERBS.values():
        await verb(broker)
    return broker


@pytest.mark.parametrize("harm", HARM)
def test_every_verb_answers_with_one_of_our_errors(server: Server, harm: str) -> None:
    async def scenario() -> None:
        broker = await _opened(server)
        blocking = broker.blocking
        await asyncio.to_thread(blocking.enqueue, [[_job()]])
        before, after = HARM[harm]
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(before)
            told: dict[str, BaseException | None] = {}
            for name, verb in VERBS.items():
                try:
                    await verb(broker)
                except BaseException as error:  # noqa: BLE001 - which it is is the question
                    told[name] = error
            for _ in range(2):
                with pytest.raises(StoreError) as caught:
                    await asyncio.to_thread(blocking.enqueue, [[_job()]])
                assert "refused" in str(caught.value)
            connection.execute(after)
        assert {type(error) for error in told.values()} <= {Refusal, StoreUnavailable}, told
        assert told.keys() >= {"enqueue", "enqueue many", "claim", "get"}, told
        for error in told.values():
            assert "secret" not in str(error)
            assert "docs/postgres.md" in str(error) or "windlass migrate" in str(error), error
        for verb in VERBS.values():
            await verb(broker)
        await asyncio.to_thread(blocking.enqueue, [[_job()]])
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

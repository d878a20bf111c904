"""A call is one statement, and so one transaction: counted in the server's log."""

import asyncio
import re
from collections.abc import Awaitable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.broker.postgres.both import ASK, a_job
from tests.broker.postgres.servers import Server, programs

from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker, install
from windlass.broker.postgres.url import Location
from windlass.conformance.harness import APP
from windlass.core.job import Edge
from windlass.core.lease import Ask, Lease
from windlass.core.outcome import Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.settlement import Settlement
from windlass.core.take import Source, Take

_SQL = Path(install.__file__).parent / "sql"
_SAID = re.compile(r"LOG:  (?:statement|execute [^:]*): (?:SELECT \S+ FROM (?:\S+\.)?(\w+)\(|(.*))")
_BARE = re.compile(
    r"""\b(?:\w+_)?(?:states?|before|after|kept|kind|mode|emit|on_failure)\b \s*
        (?: [=<>]+ | IN\ \( | BETWEEN ) \s* (?:'\{)? -?\d
      | \bkept\ \+ | \d::smallint | '\{[\d,]+\}'::smallint""",
    re.VERBOSE,
)
"""A code that is compared with a digit, or a digit that is made one."""


@pytest.mark.parametrize("name", [path.name for path in _SQL.glob("*.sql")])
def test_no_code_is_a_bare_digit(name: str) -> None:
    """States, what is kept, kinds of horizons, modes: their names are put in when a function is installed."""
    assert _BARE.findall((_SQL / name).read_text(encoding="utf-8")) == []


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    started = Server(programs(), log_statement="all")
    try:
        yield started
    finally:
        started.remove()


class Listened:
    """A broker whose calls are read in the log of its server."""

    def __init__(self, server: Server, broker: PostgresBroker) -> None:
        self._log = server.folder / "log"
        self.broker = broker

    async def said(self, *calls: Awaitable[object]) -> list[str]:
        """The functions that calls have called; a statement that is no call of one stands for itself."""
        start = self._log.stat().st_size
        for call in calls:
            await call
        with self._log.open("rb") as log:
            log.seek(start)
            return [found[1] or found[2] for found in _SAID.finditer(log.read().decode())]

    async def leases(self, count: int) -> Sequence[Lease]:
        await self.broker.enqueue([[a_job()] for _ in range(count)])
        return (await self.broker.claim(ASK)).leases


def _settled(lease: Lease, outcome: Outcome = Outcome.DONE, **more: object) -> Settlement:
    return Settlement(job=lease.job, fence=lease.fence, outcome=outcome, runtime=1, **more)  # type: ignore[arg-type]


def test_every_call_is_one_statement(server: Server) -> None:
    async def test() -> None:
        broker = await PostgresBroker.open(Location(server.dsn), options=Options(namespace="counted"))
        queues = [
            Declaration(subject=Subject(Kind.QUEUE, name), body=body, app=APP)
            for name, body in {"q": QueueSettings(), "limited": QueueSettings(concurrency=1)}.items()
        ]
        await broker.declare(queues)
        await broker.beat([Beat(session="s", open=SessionInfo(queues=("q",)))])
        listened = Listened(server, broker)
        ask = Ask(queues=("q", "limited"), slots=9, limit=9, session="s", seq=1)

        one, keyed, parent = a_job(), a_job(key="k"), a_job()
        await broker.enqueue([[a_job()]])  # so that the connection is open
        assert await listened.said(broker.enqueue([[one]])) == ["enqueue"]
        assert await listened.said(broker.enqueue([[one]])) == ["enqueue"], "a resent id"
        assert await listened.said(broker.enqueue([[a_job()], [one]])) == ["enqueue"], "beside a new one"
        assert await listened.said(broker.enqueue([[keyed]])) == ["enqueue"]
        assert await listened.said(broker.enqueue([[a_job(key="k")]])) == ["enqueue"], "a duplicate"
        assert await listened.said(broker.enqueue([[a_job(lane="l", queue="limited")]])) == ["enqueue"]
        flow = [parent, a_job(after=(Edge(parent.id),))]
        assert await listened.said(broker.enqueue([flow])) == ["enqueue"]
        assert broker.blocking is not None
        await asyncio.to_thread(broker.blocking.enqueue, [[a_job()]])
        blocking = asyncio.to_thread(broker.blocking.enqueue, [[a_job()]])
        assert await listened.said(blocking) == ["enqueue"]

        source, said = Source("orders"), [(a_job(),), (a_job(key="l"),)]
        for expect, groups in ((None, said[:1]), ("1", said[1:]), ("0", said), ("2", ())):
            then = str(int(expect or 0) + 1)
            take = broker.take(Take(source=source, expect=expect, then=then, groups=groups))
            assert await listened.said(take) == ["take"]

        assert await listened.said(broker.claim(ask)) == ["claim"]
        assert await listened.said(broker.claim(ask)) == ["claim"], "a repeated ask"
        held = await listened.leases(1)
        again = Ask(queues=("q", "limited"), slots=9, limit=9, session="s", seq=2)
        assert await listened.said(broker.settle([_settled(held[0])], again)) == ["settle"]
        assert await listened.said(broker.settle([_settled(held[0])])) == ["settle"], "said again"
        held = await listened.leases(4)
        mixed = [
            _settled(held[0]),
            _settled(held[1], Outcome.RETRY, delay=0),
            _settled(held[2], Outcome.DEAD),
            _settled(held[3], spawn=(a_job(key="spawned"),)),
        ]
        assert await listened.said(broker.settle(mixed)) == ["settle"]
        assert await listened.said(broker.beat([Beat(session="s")])) == ["beat"]
        assert await listened.said(broker.sweep(limit=10)) == ["sweep"]
        await broker.close()

    asyncio.run(test())

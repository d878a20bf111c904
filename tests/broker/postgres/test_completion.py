"""Jobs that are settled in the transaction of their own writes: the effect happens exactly once."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker
from windlass.conformance.harness import APP, new_id
from windlass.core.job import Edge, NewJob
from windlass.core.lease import Ask, Lease
from windlass.core.outcome import Cause, CauseKind, Outcome, Verdict
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.units import SECOND
from windlass.errors import ContractError, StoreUnavailable

__all__ = ["namespaces"]
_TTL = 30 * SECOND
_dice = random.Random(7)


class Killed(Exception):
    """The worker ends here."""


class Bank:
    """A broker whose jobs write a ledger of their own."""

    def __init__(self, broker: PostgresBroker) -> None:
        self.broker = broker
        self.ledger = f'"{broker.namespace}_ledger"'

    async def add(self, **options: Any) -> str:
        job = NewJob(**{"id": new_id(), "task": "t", "queue": "q", "max_attempts": 1_000, **options})
        await self.broker.enqueue([[job]])
        return job.id

    async def session(self, name: str) -> str:
        await self.broker.beat([Beat(session=name, open=SessionInfo(queues=("q",)))])
        return name

    async def one(self, session: str, seq: int = 1) -> Lease:
        ask = Ask(queues=("q",), slots=1, limit=1, session=session, seq=seq)
        (lease,) = (await self.broker.claim(ask)).leases
        return lease

    async def write(self, connection: Any, job: str) -> None:
        await connection.execute(f"INSERT INTO {self.ledger} VALUES (%s)", [job])  # noqa: S608 - an identifier

    async def written(self) -> list[str]:
        async with self.broker.transaction(_TTL) as connection:
            rows = await connection.execute(f"SELECT job FROM {self.ledger} ORDER BY 1")  # noqa: S608 - likewise
            return [row[0] for row in await rows.fetchall()]

    async def state(self, job: str) -> State:
        detail = (await self.broker.get([job]))[0]
        assert detail is not None
        return detail.state


def _done(lease: Lease, **more: Any) -> Settlement:
    return Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE, runtime=1, **more)


@asynccontextmanager
async def _opened(namespaces: Namespaces, **settings: Any) -> AsyncIterator[Bank]:
    broker = await namespaces.open(None, Options())
    queue = Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(**settings), app=APP)
    await broker.declare([queue])
    bank = Bank(broker)
    async with broker.transaction(_TTL) as connection:
        await connection.execute(f"CREATE TABLE IF NOT EXISTS {bank.ledger} (job text)")
        await connection.execute(f"TRUNCATE {bank.ledger}")
    try:
        yield bank
    finally:
        await broker.close()


Run = Callable[..., None]


@pytest.fixture
def run(namespaces: Namespaces) -> Run:
    def ran(test: Callable[[Bank], Awaitable[None]], **settings: Any) -> None:
        async def whole() -> None:
            async with _opened(namespaces, **settings) as bank:
                await test(bank)

        asyncio.run(whole())

    return ran


def test_committed_together(run: Run) -> None:
    async def test(bank: Bank) -> None:
        job = await bank.add()
        lease = await bank.one(await bank.session("w"))
        async with bank.broker.transaction(_TTL) as connection:
            await bank.write(connection, job)
            answer = await bank.broker.settle_on(connection, _done(lease, result=b"r"))
            assert (answer.verdict, answer.outcome, answer.state) == (
                Verdict.APPLIED,
                Outcome.DONE,
                State.DONE,
            )
            assert await bank.state(job) is State.RUNNING
        answers = (await bank.broker.settle([_done(lease, result=b"r")])).answers
        assert [(a.verdict, a.outcome, a.state) for a in answers] == [
            (Verdict.ALREADY, Outcome.DONE, State.DONE)
        ]
        detail = (await bank.broker.get([job]))[0]
        assert detail is not None
        assert (detail.state, detail.result, len(detail.deliveries)) == (State.DONE, b"r", 1)
        assert await bank.written() == [job]

    run(test)


def test_rolled_back_together(run: Run) -> None:
    async def test(bank: Bank) -> None:
        job = await bank.add()
        lease = await bank.one(await bank.session("w"))
        with suppress(Killed):
            async with bank.broker.transaction(_TTL) as connection:
                await bank.write(connection, job)
                await bank.broker.settle_on(connection, _done(lease))
                raise Killed
        assert await bank.written() == []
        assert await bank.state(job) is State.RUNNING
        assert (await bank.broker.settle([_done(lease)])).answers[0].verdict is Verdict.APPLIED

    run(test)


def test_a_lease_that_was_taken_away_is_refused(run: Run) -> None:
    async def test(bank: Bank) -> None:
        await bank.add()
        session = await bank.session("w")
        lease = await bank.one(session)
        await bank.broker.end_session(session, Cause(CauseKind.LOST))
        async with bank.broker.transaction(_TTL) as connection:
            assert (await bank.broker.settle_on(connection, _done(lease))).verdict is Verdict.STALE
        again = await bank.one(await bank.session("v"))
        assert again.fence > lease.fence

    run(test)


def test_a_lease_cannot_be_taken_away_while_it_is_settled(run: Run) -> None:
    """Its session ends, and is swept, between the settlement and the commit: the job does not run again."""

    async def test(bank: Bank) -> None:
        job = await bank.add()
        session = await bank.session("w")
        lease = await bank.one(session)
        async with bank.broker.transaction(_TTL) as connection:
            await bank.write(connection, job)
            await bank.broker.settle_on(connection, _done(lease))
            async with asyncio.timeout(5):
                ended = await bank.broker.end_session(session, Cause(CauseKind.LOST))
                assert (ended.known, ended.moved, ended.more) == (True, (), False)
                await bank.broker.sweep(limit=100)
            ask = Ask(queues=("q",), slots=1, limit=1, visibility=SECOND)
            assert (await bank.broker.claim(ask)).leases == ()
        assert await bank.state(job) is State.DONE
        assert await bank.written() == [job]

    run(test)


def test_committed_while_its_session_is_being_ended_it_does_not_run_again(run: Run) -> None:
    """The commit comes between the first look of the step that ends the session and its look at the lease."""

    async def test(bank: Bank) -> None:
        job = await bank.add()
        session = await bank.session("w")
        lease = await bank.one(session)
        async with bank.broker.transaction(_TTL) as holding:
            await holding.execute(f"SELECT FROM {bank.broker._namespace.schema}.session FOR UPDATE")
            async with bank.broker.transaction(_TTL) as connection:
                await bank.write(connection, job)
                await bank.broker.settle_on(connection, _done(lease))
                ending = asyncio.ensure_future(bank.broker.end_session(session, Cause(CauseKind.LOST)))
                waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
                async with asyncio.timeout(30):
                    while (await (await holding.execute(waiting)).fetchall()) == [(0,)]:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
        assert (await ending).moved == () or (await ending).moved[0].after is State.DONE
        assert (await bank.broker.claim(Ask(queues=("q",), slots=1, limit=1, visibility=SECOND))).leases == ()
        assert await bank.state(job) is State.DONE
        assert await bank.written() == [job]

    run(test)


def test_rolled_back_after_its_session_ended_it_runs_again(run: Run) -> None:
    async def test(bank: Bank) -> None:
        await bank.add()
        session = await bank.session("w")
        lease = await bank.one(session)
        with suppress(Killed):
            async with bank.broker.transaction(_TTL) as connection:
                await bank.broker.settle_on(connection, _done(lease))
                await bank.broker.end_session(session, Cause(CauseKind.LOST))
                raise Killed
        await bank.broker.sweep(limit=100)
        assert (await bank.one(await bank.session("v"))).attempt == 2

    run(test)


def test_another_word_about_the_lease_does_not_get_through(run: Run) -> None:
    async def test(bank: Bank) -> None:
        job = await bank.add()
        lease = await bank.one(await bank.session("w"))
        retry = Settlement(job=job, fence=lease.fence, outcome=Outcome.RETRY, runtime=1)
        async with bank.broker.transaction(_TTL) as connection:
            await bank.broker.settle_on(connection, _done(lease))
            with pytest.raises(StoreUnavailable):
                await bank.broker.settle([retry])
        assert (await bank.broker.settle([retry])).answers[0].verdict is Verdict.ALREADY
        assert await bank.state(job) is State.DONE

    run(test)


def test_what_follows_is_done_for_the_dead(run: Run) -> None:
    """The worker dies right after its commit: the next claim sees limits, dependents and children."""

    async def test(bank: Bank) -> None:
        parent = await bank.add()
        child = await bank.add(after=(Edge(parent),))
        lease = await bank.one(await bank.session("w"))
        spawned = NewJob(id=new_id(), task="t", queue="q")
        async with bank.broker.transaction(_TTL) as connection:
            await bank.broker.settle_on(connection, _done(lease, spawn=(spawned,)))
        assert (await bank.one(await bank.session("v"))).job == child
        details = await bank.broker.get([parent, spawned.id])
        assert [detail and detail.state for detail in details] == [State.DONE, State.READY]
        assert details[1] is not None
        assert details[1].parent == parent

    run(test, concurrency=1)


def test_what_cannot_be_kept_is_refused(run: Run) -> None:
    async def test(bank: Bank) -> None:
        await bank.add()
        lease = await bank.one(await bank.session("w"))
        nowhere = NewJob(id=new_id(), task="t", queue="nowhere")
        async with bank.broker.transaction(_TTL) as connection:
            answer = await bank.broker.settle_on(connection, _done(lease, spawn=(nowhere,)))
            assert answer.verdict is Verdict.REFUSED
            assert "nowhere" in answer.why
            retry = Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.RETRY)
            with pytest.raises(ContractError):
                await bank.broker.settle_on(connection, retry)

    run(test)


def test_transfers_add_up(run: Run) -> None:
    """Workers die before and after their commit, and wake up after their session was ended by others."""
    transfers = 80

    async def work(bank: Bank, name: str) -> None:
        for life in range(10_000):
            session = await bank.session(f"{name}-{life}")
            ask = Ask(queues=("q",), slots=1, limit=1, session=session, seq=1)
            leases = (await bank.broker.claim(ask)).leases
            if not leases and not await _left(bank):
                return
            for lease in leases:
                with suppress(Killed):
                    await _transfer(bank, session, lease)
            await bank.broker.end_session(session, Cause(CauseKind.LOST))
            await _run_suspects(bank)

    async def test(bank: Bank) -> None:
        jobs = sorted([await bank.add() for _ in range(transfers)])
        async with asyncio.timeout(60):
            await asyncio.gather(*(work(bank, f"w{number}") for number in range(3)))
        assert await bank.written() == jobs
        assert {await bank.state(job) for job in jobs} == {State.DONE}

    run(test)


async def _transfer(bank: Bank, session: str, lease: Lease) -> None:
    fate = _dice.choice(["well", "well", "before", "after", "zombie", "late"])
    lost = Cause(CauseKind.LOST)
    if fate == "zombie":
        await bank.broker.end_session(session, lost)
    async with bank.broker.transaction(_TTL) as connection:
        await bank.write(connection, lease.job)
        answer = await bank.broker.settle_on(connection, _done(lease))
        if answer.verdict is not Verdict.APPLIED or fate == "before":
            raise Killed
        if fate == "late":
            await bank.broker.end_session(session, lost)
            await bank.broker.sweep(limit=10)
    if fate == "after":
        raise Killed
    await bank.broker.settle([_done(lease)])


async def _run_suspects(bank: Bank) -> None:
    """What was lost twice runs alone, and well."""
    ask = Ask(queues=("q",), slots=1, limit=1, alone=True, visibility=_TTL)
    for lease in (await bank.broker.claim(ask)).leases:
        async with bank.broker.transaction(_TTL) as connection:
            await bank.write(connection, lease.job)
            assert (await bank.broker.settle_on(connection, _done(lease))).verdict is Verdict.APPLIED


async def _left(bank: Bank) -> int:
    rows = (await bank.broker.counts()).rows
    return sum(row.count for row in rows if row.state is not State.DONE)

"""Lease blocks beside others: processes of the release before, repeated asks, blocks of earlier functions."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import asyncpg
import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.postgres import PostgresBroker
from windlass.broker.postgres.install import quoted
from windlass.conformance.harness import new_id
from windlass.core.job import NewJob
from windlass.core.lease import Ask, Lease
from windlass.core.outcome import Outcome, Verdict
from windlass.core.session import Beat, Note, SessionInfo
from windlass.core.settings import QueueSettings
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.units import SECOND

__all__ = ["namespaces"]
_CLAIM = "SELECT * FROM {}.claim(NULL, false, $1, 6, 6, $2, $3, NULL, false, 1000000, 0, 0)"
"""As the release before asks: it does not say that it can read a block."""


def _done(lease: Lease) -> Settlement:
    return Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE, runtime=1)


async def _query(broker: PostgresBroker, query: str, *values: Any) -> Sequence[Any]:
    """Ask the database itself; "{}" is the schema."""
    return await broker._pool.call(query.format(quoted(broker.namespace)), *values)


async def _sent(broker: PostgresBroker, session: str, count: int) -> list[NewJob]:
    await broker.beat([Beat(session=session, open=SessionInfo(queues=("q",)))])
    jobs = [NewJob(id=new_id(), task="t", queue="q", payload=b"%d" % number) for number in range(count)]
    await broker.enqueue([jobs])
    return jobs


async def _taken(broker: PostgresBroker, session: str, count: int) -> list[Lease]:
    await _sent(broker, session, count)
    return list((await broker.claim(_ask(session, 1, count))).leases)


def _ask(session: str, seq: int, slots: int) -> Ask:
    return Ask(queues=("q",), slots=slots, limit=slots, session=session, seq=seq)


def test_the_release_before_finds_leases_where_they_were(namespaces: Namespaces) -> None:
    """It counts the places of a row from its end, and takes each row for one job."""

    async def test() -> None:
        async with namespaces.several(1, q=QueueSettings()) as (broker,):
            jobs = await _sent(broker, "s", 6)
            places = await _query(
                broker,
                "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) ORDER BY attnum",
                f"{quoted(broker.namespace)}.claimed",
            )
            before = [row["attname"] for row in places]
            _, *rows = await _query(broker, _CLAIM, ["q"], "s", 1)
            assert [(str(row["job"]), row["payload"]) for row in rows] == [
                (job.id, job.payload) for job in jobs
            ]
            assert {(row["attempt"], row["fence"] > 0, row["ids"]) for row in rows} == {(1, True, None)}
            first = before.index("job")
            for row in rows:
                assert list(row.keys())[first - len(before) :] == before[first:]
            assert [row["jobs"] for row in await _query(broker, "SELECT jobs FROM {}.lease_block")]

    asyncio.run(test())


def test_jobs_of_a_block_share_nothing_that_one_could_change(namespaces: Namespaces) -> None:
    async def test() -> None:
        async with namespaces.several(1, q=QueueSettings()) as (broker,):
            await broker.beat([Beat(session="s", open=SessionInfo(queues=("q",)))])
            jobs = [NewJob(id=new_id(), task="t", queue="q", headers={"a": "b"}) for _ in range(3)]
            await broker.enqueue([jobs])
            first, *others = (await broker.claim(_ask("s", 1, 3))).leases
            cast("dict[str, str]", first.headers).clear()
            cast("dict[str, bytes]", first.memos)["step"] = b"1"
            assert [(lease.headers, lease.memos) for lease in others] == [({"a": "b"}, {})] * 2

    asyncio.run(test())


@pytest.mark.parametrize(
    "inner",
    [
        "_claim(NULL, 0, false)",
        "_settle_past(NULL, '{{}}', '{{}}', '{{}}', '{{}}', 's')",
    ],
)
def test_a_step_of_the_release_before_begins_anew(namespaces: Namespaces, inner: str) -> None:
    """It waited for the lock while functions were renewed, and calls those that it knows."""

    async def test() -> None:
        async with namespaces.several(1, q=QueueSettings()) as (broker,):
            connection: Any = await asyncpg.connect(namespaces.server.dsn)
            try:
                await connection.execute(f"SET search_path = {quoted(broker.namespace)}")
                with pytest.raises(asyncpg.SerializationError):
                    await connection.execute(f"SELECT {inner.format()}")
            finally:
                await connection.close()

    asyncio.run(test())


def test_a_repeated_ask_beside_a_settle_of_its_session(namespaces: Namespaces) -> None:
    """One has the session and waits for its blocks, the other one has these: nobody waits in a circle."""

    async def test() -> None:
        async with namespaces.several(2, q=QueueSettings()) as (one, two):
            log = namespaces.server.folder / "log"
            before = log.read_text().count("deadlock detected")
            guard: Any = await asyncpg.connect(namespaces.server.dsn)
            for number in range(4):
                session = f"s{number}"
                leases = await _taken(one, session, 6)
                async with guard.transaction():
                    await guard.execute("SELECT pg_advisory_xact_lock(1464422983, hashtext($1))", session)
                    settle = asyncio.create_task(
                        one.settle([_done(lease) for lease in leases[:2]], _ask(session, 2, 0))
                    )
                    await _waiting(guard, 1)
                    claim = asyncio.create_task(two.claim(_ask(session, 1, 6)))
                    await _waiting(guard, 2)
                answers = (await settle).answers
                assert [answer.verdict for answer in answers] == [Verdict.APPLIED] * 2
                await claim
                await one.settle([_done(lease) for lease in leases[2:]])
            await guard.close()
            assert log.read_text().count("deadlock detected") == before

    asyncio.run(test())


async def _waiting(connection: Any, count: int) -> None:
    """Until so many wait for the blocks of a session; each may give up now and then, and come again."""
    query = "SELECT count(*) FROM pg_locks WHERE classid = 1464422983 AND NOT granted"
    for _ in range(2_000):
        if await connection.fetchval(query) >= count:
            return
        await asyncio.sleep(0.001)
    pytest.fail(f"not {count} of them waited: nothing was tested")


def test_blocks_whose_numbers_were_drawn_in_turns_are_leased_one_by_one(namespaces: Namespaces) -> None:
    """As earlier functions drew them: a look for one of their jobs would not find such a block."""

    async def test() -> None:
        async with namespaces.several(1, q=QueueSettings()) as (broker,):
            jobs = await _sent(broker, "s", 3)
            await _query(broker, "UPDATE {}.job SET n = n + (n % 1024) * 2048, seq = n + (n % 1024) * 2048")
            await _query(
                broker,
                "UPDATE {}.ready SET jobs = array("
                "SELECT n + (n % 1024) * 2048 FROM unnest(jobs) u (n) ORDER BY n)",
            )
            leases = (await broker.claim(_ask("s", 1, 3))).leases
            assert [lease.job for lease in leases] == [job.id for job in jobs]
            assert await _query(broker, "SELECT FROM {}.lease_block") == []
            states = [detail and detail.state for detail in await broker.get([job.id for job in jobs])]
            assert states == [State.RUNNING] * 3
            settled = await broker.settle([_done(lease) for lease in leases])
            assert {answer.verdict for answer in settled.answers} == {Verdict.APPLIED}

    asyncio.run(test())


async def _blocks_of(broker: PostgresBroker, session: str) -> list[int]:
    """How many jobs each row of its leases has."""
    rows = await _query(
        broker, "SELECT cardinality(jobs) AS n FROM {}.lease_block WHERE session = $1 ORDER BY i", session
    )
    return [row["n"] for row in rows]


def test_an_answer_with_single_leases_leaves_blocks_of_earlier_ones(namespaces: Namespaces) -> None:
    """Its own are opened; those of before others may be ending in this moment."""

    async def test() -> None:
        async with namespaces.several(1, q=QueueSettings(), r=QueueSettings()) as (broker,):
            await _taken(broker, "s", 6)
            await _sent(broker, "s", 3)
            await broker.enqueue([[NewJob(id=new_id(), task="t", queue="r")]])
            ask = Ask(queues=("q", "r"), slots=4, limit=4, session="s", seq=2)
            assert len((await broker.claim(ask)).leases) == 4
            assert await _blocks_of(broker, "s") == [3, 3]

    asyncio.run(test())


def test_a_repeated_ask_opens_the_blocks_of_its_answer_alone(namespaces: Namespaces) -> None:
    async def test() -> None:
        async with namespaces.several(1, q=QueueSettings()) as (broker,):
            await _taken(broker, "s", 6)
            await _sent(broker, "s", 3)
            ask = _ask("s", 2, 3)
            first = (await broker.claim(ask)).leases
            assert await _blocks_of(broker, "s") == [3, 3, 3]
            again = (await broker.claim(ask)).leases
            assert [(lease.job, lease.fence) for lease in again] == [
                (lease.job, lease.fence) for lease in first
            ]
            assert await _blocks_of(broker, "s") == [3, 3]

    asyncio.run(test())


def test_a_block_that_came_meanwhile_is_not_opened_without_its_lock(namespaces: Namespaces) -> None:
    """Of another session, which may be ending its jobs in this moment, while the first one was waited for."""

    async def test() -> None:
        async with namespaces.several(2, q=QueueSettings()) as (one, two):
            lease, *_ = await _taken(one, "first", 3)
            (job, *_) = await _sent(one, "second", 3)
            guard: Any = await asyncpg.connect(namespaces.server.dsn)
            async with guard.transaction():
                await guard.execute("SELECT pg_advisory_xact_lock(1464422983, hashtext('first'))")
                notes = [Note(job=each, fence=lease.fence, permille=5) for each in (lease.job, job.id)]
                noting = asyncio.create_task(two.annotate(notes))
                await _waiting(guard, 1)
                await one.claim(_ask("second", 1, 3))
            await guard.close()
            assert await noting == (Verdict.APPLIED, Verdict.STALE)
            assert await _blocks_of(one, "first") == []
            assert await _blocks_of(one, "second") == [3]

    asyncio.run(test())


_PAUSED = """
ALTER FUNCTION {schema}._as_leased({schema}.job) RENAME TO _as_leased_now;
CREATE FUNCTION {schema}._as_leased(j {schema}.job) RETURNS {schema}.job LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1464422983, 0);
    RETURN {schema}._as_leased_now(j);
END $$
"""
"""Between its look at the row of a job and that at its block, a step waits here."""


def test_settled_in_a_transaction_while_its_block_is_opened(namespaces: Namespaces) -> None:
    """By its row it was leased in a block or not at all, and then no block has it: it is leased by itself."""

    async def test() -> None:
        own = Namespaces(namespaces.server, prefix="paused")  # nobody else is to wait
        async with own.several(2, q=QueueSettings()) as (one, two):
            mine, other, *_ = await _taken(one, "s", 3)
            guard: Any = await asyncpg.connect(namespaces.server.dsn)
            await guard.execute(_PAUSED.format(schema=quoted(one.namespace)))
            async with one.transaction(30 * SECOND) as connection:
                async with guard.transaction():
                    await guard.execute("SELECT pg_advisory_xact_lock(1464422983, 0)")
                    settling = asyncio.create_task(one.settle_on(connection, _done(mine)))
                    await _waiting(guard, 1)
                    await two.annotate([Note(job=other.job, fence=other.fence, permille=5)])
                    assert await _blocks_of(two, "s") == []
                assert (await settling).verdict is Verdict.APPLIED
            await guard.close()
            assert (await two.settle([_done(mine)])).answers[0].verdict is Verdict.ALREADY

    asyncio.run(test())

"""Whatever makes a job claimable wakes those who wait in other processes, whichever queue it is in."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from tests.broker.postgres.namespaces import namespaces
from tests.broker.postgres.waking import ASK, NEVER, House, Run, only_told, run

from windlass.conformance.harness import APP, new_id
from windlass.core.job import Edge, NewJob
from windlass.core.lease import Ask, Lease
from windlass.core.limits import Rate
from windlass.core.operate import Target
from windlass.core.outcome import Cause, CauseKind, Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.settlement import HoldKey, Settlement
from windlass.core.timetable import Fire, NewSchedule
from windlass.core.units import HOUR, MINUTE, SECOND

__all__ = ["namespaces", "only_told", "run"]
_SHARING = """
    SELECT DISTINCT u FROM unnest(array(
        SELECT name FROM (SELECT 'n' || g AS name FROM generate_series(1, 9999) g) n
        WHERE hashtext(name) & 63 = 0 ORDER BY name LIMIT 2)) u
"""
"""Two queues that have the same bells, and but one of them; in the order in which a call rings for them."""
_RATE = Rate(count=1, per=HOUR)
_IN_THE_WAY = {
    "slot of the queue": QueueSettings(concurrency=1),
    "slot of lane ''": QueueSettings(lane_concurrency=1),
    "token of the queue": QueueSettings(rate=_RATE),
    "token of lane ''": QueueSettings(lane_rate=_RATE),
    "place in line": QueueSettings(sequence=True),
    "head cancelled": QueueSettings(sequence=True),
    "head expired": QueueSettings(sequence=True),
}
"""What the job before leaves to the next when it ends, and the settings by which it had it."""


@pytest.mark.usefixtures("only_told")
@pytest.mark.parametrize(
    "how",
    [
        "given back",
        "promoted",
        "resumed",
        "replayed",
        "retried",
        "spawned",
        "freed",
        *_IN_THE_WAY,
        "let go",
        "fired",
        "taken in",
    ],
)
def test_what_becomes_claimable_by_another_process_wakes_a_waiter(run: Run, how: str) -> None:
    async def test(house: House) -> None:
        make_claimable = await _Ways(house).prepare(how)
        waiter = asyncio.create_task(house.waiting.wait(["q"], NEVER))
        await house.until_listened_to()
        await house.listening_one()
        assert not waiter.done()
        await make_claimable()
        await asyncio.wait_for(waiter, 20)
        assert (await house.sending.claim(ASK)).leases

    run(test)


class _Ways:
    """How a job of "q" becomes claimable without an enqueue."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._broker = house.sending

    async def prepare(self, how: str) -> Callable[[], Awaitable[object]]:
        """All that comes before; what is left to be done."""
        broker, job = self._broker, NewJob(id=new_id(), task="t", queue="q")
        match how:
            case "given back":
                info = SessionInfo(host="h", pid=1, queues=("q",), slots=1)
                await broker.beat([Beat(session="s", open=info)])
                await self._lease_of(job, session="s", seq=1)
                return lambda: broker.end_session("s", Cause(CauseKind.STOP))
            case "promoted":
                await broker.enqueue([[msgspec.structs.replace(job, delay=SECOND // 2)]])
                return self._sweep_until_promoted
            case "resumed":
                await broker.enqueue([[job]])
                await broker.pause("q")
                return lambda: broker.resume("q")
            case "replayed":
                lease = await self._lease_of(job)
                await broker.settle([Settlement(job=job.id, fence=lease.fence, outcome=Outcome.DEAD)])
                return lambda: broker.replay([Target(job.id)])
            case "retried":
                lease = await self._lease_of(job)
                retry = Settlement(job=job.id, fence=lease.fence, outcome=Outcome.RETRY)
                return lambda: broker.settle([retry])
            case "spawned":
                parent = NewJob(id=new_id(), task="t", queue="other")
                lease = await self._lease_of(parent)
                done = Settlement(job=parent.id, fence=lease.fence, outcome=Outcome.DONE, spawn=(job,))
                return lambda: broker.settle([done])
            case "freed" | "taken in":
                parent = NewJob(id=new_id(), task="t", queue="other")
                lease = await self._lease_of(parent)
                await broker.enqueue([[msgspec.structs.replace(job, after=(Edge(parent.id),))]])
                done = Settlement(job=parent.id, fence=lease.fence, outcome=Outcome.DONE)
                return (lambda: broker.settle([done])) if how == "freed" else (lambda: self._settle_own(done))
            case _ if how in _IN_THE_WAY:
                return await self._end_what_is_in_the_way(job, how)
            case "let go":
                lease = await self._lease_of(job)
                hold = HoldKey("k", "r")
                held = Settlement(job=job.id, fence=lease.fence, outcome=Outcome.HOLD, hold=hold)
                await broker.settle([held])
                return lambda: broker.unhold("k", 10)
            case _:
                at = time.time_ns() // 1_000 - SECOND
                schedule = NewSchedule(name="s", spec=b"x", next_at=at, app=APP, revision=1)
                await broker.declare_schedule(schedule)
                (declared,) = (await broker.schedules()).schedules
                fire = Fire(name="s", version=declared.version, expect=at, then=at + MINUTE, jobs=(job,))
                return lambda: broker.fire(fire)

    async def _end_what_is_in_the_way(self, job: NewJob, how: str) -> Callable[[], Awaitable[object]]:
        """Another job keeps this one from being handed out, until it has ended."""
        broker, first = self._broker, NewJob(id=new_id(), task="t", queue="q")
        queue = Declaration(subject=Subject(Kind.QUEUE, "q"), body=_IN_THE_WAY[how], app=APP)
        await broker.declare([queue])
        if how.startswith("head"):
            await broker.enqueue([[msgspec.structs.replace(first, delay=MINUTE, expires=1)], [job]])
            cancelled = how == "head cancelled"
            return lambda: broker.cancel([Target(first.id)]) if cancelled else broker.sweep(limit=10)
        lease = await self._lease_of(first)
        await broker.enqueue([[job]])
        settlement = Settlement(job=first.id, fence=lease.fence, outcome=Outcome.DONE)
        if how.startswith("token"):
            hold = HoldKey("k", "r")
            settlement = msgspec.structs.replace(settlement, outcome=Outcome.HOLD, hold=hold)
        return lambda: broker.settle([settlement])

    async def _lease_of(self, job: NewJob, **asker: Any) -> Lease:
        await self._broker.enqueue([[job]])
        whose = asker or {"visibility": MINUTE}
        (lease,) = (await self._broker.claim(Ask(queues=(job.queue,), slots=1, limit=1, **whose))).leases
        return lease

    async def _sweep_until_promoted(self) -> None:
        async with asyncio.timeout(20):
            while not (await self._broker.sweep(limit=10)).promoted:  # noqa: ASYNC110 - the store's clock
                await asyncio.sleep(0.05)

    async def _settle_own(self, done: Settlement) -> None:
        """In a transaction of the caller's own; what follows is brought about by the next step."""
        async with self._broker.transaction(MINUTE) as connection:
            await self._broker.settle_on(connection, done)
        await self._broker.sweep(limit=10)


@pytest.mark.usefixtures("only_told")
@pytest.mark.parametrize("how", ["in one call", "one after the other", "resumed"])
def test_queues_that_share_their_bells_are_told_of_each(run: Run, how: str) -> None:
    async def test(house: House) -> None:
        broker = house.sending
        rows = await house.connection.fetch(_SHARING)
        one, other = (row["u"] for row in rows)
        for name in (one, other):
            queue = Declaration(subject=Subject(Kind.QUEUE, name), body=QueueSettings(), app=APP)
            await broker.declare([queue])
        if how == "resumed":
            for name in (one, other):
                await house.send(name)
                await broker.pause(name)
        waiter = asyncio.create_task(house.waiting.wait([other], NEVER))
        await house.until_listened_to()
        await house.listening_one()
        assert not waiter.done()
        if how == "in one call":
            await broker.enqueue([[NewJob(id=new_id(), task="t", queue=name) for name in (one, other)]])
        elif how == "resumed":
            await asyncio.gather(broker.resume(one), broker.resume(other))
        else:
            await house.send(one)
            await house.send(other)
        await asyncio.wait_for(waiter, 20)

    run(test)

"""Jobs that old workers hold are freed by those who can run them, again and again, and no others are."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from tests.worker.simulated import ManualPace, add_jobs

from windlass import Windlass
from windlass.broker.memory import MemoryBroker
from windlass.core.lease import Ask
from windlass.core.outcome import Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settlement import HoldKey, Settlement
from windlass.core.state import State
from windlass.core.units import DAY
from windlass.errors import StoreUnavailable
from windlass.worker.holds import Holds, hold_key, own_tasks


class Deploy:
    """A store with an old worker, which holds whatever it gets, and the code of a new one."""

    def __init__(self) -> None:
        self.pace = ManualPace()
        self.broker: Any = MemoryBroker(clock=self.pace.clock)
        self.app = Windlass("memory://")

        @self.app.task
        def fresh(number: int) -> None: ...

        self.task = fresh
        self.holds = Holds(self.broker, self.pace, own_tasks(self.app))
        self._seq = 0

    async def hold_all(self) -> int:
        """The old worker comes by; how many jobs it found."""
        self._seq += 1
        ask = Ask(session="old", seq=self._seq, queues=("default",), slots=100, limit=100)
        leases = (await self.broker.claim(ask)).leases
        await self.broker.settle(
            [
                Settlement(
                    job=each.job,
                    fence=each.fence,
                    outcome=Outcome.HOLD,
                    hold=HoldKey(hold_key(each.task), "no such task"),
                )
                for each in leases
            ]
        )
        return len(leases)

    async def state(self, identity: str) -> State:
        (detail,) = await self.broker.get([identity])
        return detail.state

    async def enqueue(self, **more: Any) -> str:
        job = self.task.using(**more).call(1).job
        await self.broker.enqueue([[job]])
        return job.id


def deployed(test: Callable[[Deploy], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        async def main() -> None:
            deploy = Deploy()
            await deploy.app.declare(deploy.broker)
            await deploy.broker.beat([Beat(session="old", open=SessionInfo())])
            await test(deploy)

        asyncio.run(main())

    run.__name__ = test.__name__
    return run


@deployed
async def test_what_old_workers_hold_is_freed_as_often_as_they_hold_it(deploy: Deploy) -> None:
    identity = await deploy.enqueue()
    for _ in range(8):  # after so many holds it would wait for minutes
        assert await deploy.hold_all() == 1
        assert await deploy.state(identity) is State.SCHEDULED
        await deploy.holds.free_runnable()
        assert await deploy.state(identity) is State.READY


@deployed
async def test_what_this_code_cannot_read_either_is_left_alone(deploy: Deploy) -> None:
    (identity,) = await add_jobs(deploy.broker, task="fresh", payload=b"nonsense")
    await deploy.hold_all()
    await deploy.holds.free_runnable()
    assert await deploy.state(identity) is State.SCHEDULED


@deployed
async def test_code_of_the_app_that_raises_frees_nothing_and_ends_nothing(deploy: Deploy) -> None:
    identity = await deploy.enqueue()
    await deploy.hold_all()

    def broken(_: bytes) -> Any:
        raise RuntimeError("in a type of the app")

    deploy.task.signature.decode = broken  # pyright: ignore[reportAttributeAccessIssue]
    assert await deploy.holds.free_runnable() == 0
    assert await deploy.state(identity) is State.SCHEDULED


@deployed
async def test_jobs_of_tasks_that_are_not_ours_are_left_alone(deploy: Deploy) -> None:
    (identity,) = await add_jobs(deploy.broker, task="unknown")
    await deploy.hold_all()
    await deploy.holds.free_runnable()
    assert await deploy.state(identity) is State.SCHEDULED


@deployed
async def test_jobs_that_are_merely_not_due_are_left_alone(deploy: Deploy) -> None:
    later = await deploy.enqueue(delay="1h")
    held = await deploy.enqueue()
    await deploy.hold_all()
    await deploy.holds.free_runnable()
    assert (await deploy.state(later), await deploy.state(held)) == (State.SCHEDULED, State.READY)


@deployed
async def test_held_jobs_are_found_behind_many_that_are_not_due(deploy: Deploy) -> None:
    held = await deploy.enqueue()
    await deploy.hold_all()
    await add_jobs(deploy.broker, 250, task="fresh", delay=DAY)
    for _ in range(4):
        await deploy.holds.free_runnable()
    assert await deploy.state(held) is State.READY


@deployed
async def test_at_first_all_are_freed_and_then_every_few_seconds_what_can_run(deploy: Deploy) -> None:
    (unreadable,) = await add_jobs(deploy.broker, task="fresh", payload=b"nonsense")
    await deploy.hold_all()
    running = asyncio.create_task(deploy.holds.run())
    await deploy.pace.rest()
    assert await deploy.state(unreadable) is State.READY, "whoever held it may have been wrong"
    await deploy.hold_all()
    await deploy.hold_all()
    identity = await deploy.enqueue()
    for _ in range(6):
        assert await deploy.hold_all() >= 1
        await deploy.pace.advance(6)
    assert await deploy.state(identity) is State.READY
    running.cancel()


@deployed
async def test_a_store_that_is_away_is_asked_again(deploy: Deploy) -> None:
    identity = await deploy.enqueue()
    await deploy.hold_all()
    unhold, tries = deploy.broker.unhold, []

    async def unavailable(*asked: Any) -> Any:
        tries.append(asked)
        if len(tries) < 3:
            raise StoreUnavailable("away")
        return await unhold(*asked)

    deploy.broker.unhold = unavailable
    running = asyncio.create_task(deploy.holds.run())
    await deploy.pace.advance(4)
    assert len(tries) == 3
    assert await deploy.state(identity) is State.READY
    running.cancel()


@deployed
async def test_looks_become_seldom_until_something_is_found(deploy: Deploy) -> None:
    counts, looks = deploy.broker.counts, []

    async def noted() -> Any:
        looks.append(deploy.pace.now())
        return await counts()

    deploy.broker.counts = noted
    running = asyncio.create_task(deploy.holds.run())
    await deploy.pace.advance(600)
    assert 35 <= len(looks) <= 42
    assert looks[-1] - looks[-2] == 30
    await deploy.enqueue()
    await deploy.hold_all()
    await deploy.pace.advance(31)
    found = len(looks)
    await deploy.pace.advance(20)
    assert len(looks) - found >= 3
    running.cancel()


class Odd(msgspec.Struct):
    """An argument whose reading fails in a way of its own."""

    n: int

    def __post_init__(self) -> None:
        if self.n == 13:
            raise RuntimeError("users' code")


def test_payloads_that_fail_in_their_own_way_do_not_end_the_search_for_held_jobs() -> None:
    app = Windlass("memory://")

    @app.task
    def odd(arg: Odd) -> None: ...

    async def main() -> None:
        pace = ManualPace()
        broker: Any = MemoryBroker(clock=pace.clock)
        await app.declare(broker)
        await broker.beat([Beat(session="old", open=SessionInfo())])
        call = odd.call(Odd(12)).job
        await broker.enqueue([[msgspec.structs.replace(call, payload=call.payload.replace(b"12", b"13"))]])
        ask = Ask(session="old", seq=1, queues=("default",), slots=1, limit=1)
        (lease,) = (await broker.claim(ask)).leases
        assert b"13" in lease.payload
        hold = HoldKey(hold_key(lease.task), "no such task")
        await broker.settle([Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.HOLD, hold=hold)])
        assert await Holds(broker, pace, own_tasks(app)).free_runnable() == 0
        assert (await broker.get([lease.job]))[0].state is State.SCHEDULED

    asyncio.run(main())

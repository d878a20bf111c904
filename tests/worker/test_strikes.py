"""Strikes: jobs that an operator has struck are held before they start; others run; lifting frees them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.worker.simulated import World
from tests.worker.simulated import scenario as scenario_of_a_supervisor
from tests.worker.virtual import Bench, VirtualPace, run

from windlass import Windlass
from windlass.admin.strikes import Strikes
from windlass.config import Config
from windlass.core.job import JobDetail
from windlass.core.session import SessionInfo
from windlass.core.settings import Kind, Subject
from windlass.core.state import State
from windlass.errors import StoreUnavailable
from windlass.worker.heart import Heart
from windlass.worker.messages import Reread
from windlass.worker.worker import Worker


class Struck:
    """An app whose task was struck for one user."""

    def __init__(self, app: Windlass, bench: Bench) -> None:
        self.bench = bench
        self.app = app
        self.ran: list[tuple[str, int]] = []
        self.strikes = Strikes(app, bench.broker)

        @app.task
        async def send(user_id: int, text: str = "hi") -> None:
            self.ran.append(("send", user_id))

        @app.task
        async def other(user_id: int) -> None:
            self.ran.append(("other", user_id))

        self.send, self.other = send, other

    async def held(self, job: str) -> JobDetail:
        end = self.bench.pace.now() + 60
        while not (detail := await self.bench.job(job)).held:
            assert self.bench.pace.now() < end, detail.state
            await asyncio.sleep(0.01)
        return detail


@pytest.fixture
def struck(app: Windlass, bench: Callable[[Windlass], Bench]) -> Struck:
    return Struck(app, bench(app))


def scenario(test: Callable[[Struck], Awaitable[None]]) -> Callable[[Struck], None]:
    def go(struck: Struck) -> None:
        async def main() -> None:
            await struck.app.declare(struck.bench.broker)
            async with asyncio.timeout(100_000):
                await test(struck)

        run(main())

    go.__name__ = test.__name__
    go.__doc__ = test.__doc__
    return go


@scenario
async def test_a_struck_job_is_held_and_its_neighbours_run(struck: Struck) -> None:
    made = await struck.strikes.strike("send", {"user_id": 42}, reason="their mailbox is full")
    bad, good, another = await struck.bench.enqueue(
        struck.send.call(42), struck.send.call(43), struck.other.call(42)
    )
    async with struck.bench.worker():
        await struck.bench.ended(good, another)
        detail = await struck.held(bad)
    assert sorted(struck.ran) == [("other", 42), ("send", 43)]
    assert (detail.state, detail.attempt) == (State.SCHEDULED, 0)
    assert detail.held is not None
    assert detail.held.key == f"strike:{made.strike.id}"
    assert detail.held.reason == f"struck by an operator ({made.strike.id}): their mailbox is full"


@scenario
async def test_lifting_frees_what_was_held_at_once(struck: Struck) -> None:
    made = await struck.strikes.strike("send", {"user_id": 42})
    (job,) = await struck.bench.enqueue(struck.send.call(42))
    async with struck.bench.worker() as worker:
        await asyncio.sleep(20)
        held = (await struck.held(job)).held
        assert held is not None
        assert held.times == 5, "after 0, 1, 3, 7 and 15 seconds"
        lifted = await struck.strikes.lift(made.strike.id)
        worker.reread()
        before = struck.bench.pace.now()
        await struck.bench.ended(job)
    assert struck.ran == [("send", 42)]
    assert struck.bench.pace.now() - before < 4, "it would have waited for another ten seconds"
    assert lifted.freed == 1


@scenario
async def test_what_a_worker_held_that_heard_late_is_freed_by_it(struck: Struck) -> None:
    made = await struck.strikes.pause("send")
    (first,) = await struck.bench.enqueue(struck.send.call(1))
    async with struck.bench.worker() as worker:
        await struck.held(first)
        await struck.strikes.lift(made.strike.id)
        (late,) = await struck.bench.enqueue(struck.send.call(2))
        await struck.held(late)  # the worker has not heard of it
        worker.reread()
        before = struck.bench.pace.now()
        await struck.bench.ended(first, late)
        assert struck.bench.pace.now() - before < 4


@scenario
async def test_a_paused_task_holds_every_job_and_resumes(struck: Struck) -> None:
    await struck.strikes.pause("send", reason="a bad release")
    jobs = await struck.bench.enqueue(*(struck.send.call(number) for number in range(5)))
    async with struck.bench.worker() as worker:
        for job in jobs:
            detail = await struck.held(job)
            assert detail.held is not None
            assert detail.held.reason == 'task "send" is paused: a bad release'
        assert await struck.strikes.resume("other") is None
        resumed = await struck.strikes.resume("send")
        worker.reread()
        await struck.bench.ended(*jobs)
    assert resumed is not None
    assert resumed.freed == 5
    assert len(struck.ran) == 5


@scenario
async def test_what_was_claimed_before_and_has_not_started_is_held(struck: Struck) -> None:
    started, release = asyncio.Event(), asyncio.Event()

    @struck.app.task
    async def blocks() -> None:
        started.set()
        await release.wait()

    async with struck.bench.worker(slots=1) as worker:
        known = await struck.bench.enqueue(*(struck.send.call(0) for _ in range(20)))
        await struck.bench.ended(*known)  # from here on it is known to be short, and claimed ahead
        jobs = await struck.bench.enqueue(blocks.call(), *(struck.send.call(1) for _ in range(3)))
        await started.wait()
        await asyncio.sleep(0.02)
        assert len(worker.table.waiting()) == 3
        await struck.strikes.pause("send")
        worker.reread()
        await asyncio.sleep(0.02)
        assert all([(await struck.bench.job(job)).held for job in jobs[1:]])
        release.set()
        await struck.bench.ended(jobs[0])
    assert ("send", 1) not in struck.ran


@scenario
async def test_a_strike_that_this_version_cannot_read_stops_nobody(struck: Struck) -> None:
    await struck.bench.broker.override(Subject(Kind.STRIKE, "newer"), b'{"regex": 1}', 0)
    (job,) = await struck.bench.enqueue(struck.send.call(1))
    async with struck.bench.worker():
        await struck.bench.ended(job)
    assert struck.ran == [("send", 1)]


@scenario
async def test_nothing_is_claimed_before_the_strikes_were_read(struck: Struck) -> None:
    await struck.strikes.pause("send")
    (job,) = await struck.bench.enqueue(struck.send.call(1))
    tries: list[float] = []
    documents: Any = struck.bench.broker.documents

    async def away(*asked: Any) -> Any:
        tries.append(struck.bench.pace.now())
        if len(tries) < 4:
            raise StoreUnavailable("away")
        return await documents(*asked)

    struck.bench.broker.documents = away  # type: ignore[method-assign]
    async with struck.bench.worker():
        await struck.held(job)
    assert len(tries) >= 4
    assert struck.ran == []


@scenario
async def test_a_worker_that_is_told_to_end_does_not_wait_for_strikes(struck: Struck) -> None:
    async def away(*_: Any) -> Any:
        raise StoreUnavailable("away")

    struck.bench.broker.documents = away  # type: ignore[method-assign]
    async with struck.bench.worker():
        await asyncio.sleep(5)


class Member:
    """A worker under a heart, as an embedded one is."""

    def __init__(self, worker: Worker) -> None:
        self.session, self.info, self.opened = worker.session, SessionInfo(), True
        self._worker = worker
        self._version: int | None = None

    def is_stopped(self) -> bool:
        return False

    def memory(self) -> int:
        return 0

    def heartbeat_answered(self, sent: float) -> None: ...
    def cancel(self, leases: Any) -> None: ...
    def lost(self) -> None: ...

    def settings(self, version: int) -> None:
        if version != self._version:
            self._version = version
            self._worker.reread()


@scenario
async def test_a_strike_that_is_set_while_a_worker_runs_is_obeyed_within_a_beat(struck: Struck) -> None:
    async with struck.bench.worker() as worker:
        member = Member(worker)
        heart = Heart(struck.bench.broker, VirtualPace(), Config(), lambda: [member])
        beating = asyncio.create_task(heart.run())
        (before,) = await struck.bench.enqueue(struck.send.call(1))
        await struck.bench.ended(before)
        await struck.strikes.pause("send")
        await asyncio.sleep(5.1)
        (after,) = await struck.bench.enqueue(struck.send.call(2))
        await struck.held(after)
        await struck.strikes.resume("send")
        await struck.bench.ended(after, within=10)
        beating.cancel()
    assert struck.ran == [("send", 1), ("send", 2)]


@scenario_of_a_supervisor(processes=2)
async def test_children_are_told_once_when_the_settings_have_changed(world: World) -> None:
    await world.begin()
    await world.pace.advance(20)
    assert [child.heard_of(Reread) for child in world.spawner.children] == [[], []]
    await world.broker.override(Subject(Kind.STRIKE, "any"), b"{}", 0)
    await world.pace.advance(5.1)
    assert [child.heard_of(Reread) for child in world.spawner.children] == [[Reread()]] * 2
    await world.pace.advance(20)
    assert [child.heard_of(Reread) for child in world.spawner.children] == [[Reread()]] * 2

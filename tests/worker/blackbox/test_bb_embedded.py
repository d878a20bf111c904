"""A worker inside an application: `async with app.worker():`."""

import asyncio
import contextlib
import ctypes
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.worker.blackbox.fleet import Fleet

from windlass import GiveUp, RetryPolicy, Snooze, Windlass, current
from windlass.core.outcome import CauseKind, Outcome
from windlass.core.state import State
from windlass.errors import JobCancelled, JobFailed


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Windlass:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/windlass.db"
    return Windlass(url, beat=0.2, session_ttl=1.5, grace=5)


@contextlib.asynccontextmanager
async def _closed(app: Windlass) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await app.aclose()


def test_it_runs_every_kind_of_task(app: Windlass) -> None:
    @app.task
    async def in_loop(a: int) -> int:
        await asyncio.sleep(0)
        return a + 1

    @app.task
    def in_thread(a: int) -> list[int]:
        return [a, threading.get_ident()]

    @app.task(run="inline")
    def inline(a: int) -> list[int]:
        return [a, threading.get_ident()]

    async def main() -> None:
        async with _closed(app), app.worker(concurrency=4):
            jobs = [await in_loop.aenqueue(number) for number in range(20)]
            assert [await job.aresult(timeout=10) for job in jobs] == list(range(1, 21))
            assert (await (await in_thread.aenqueue(1)).aresult(timeout=10))[1] != threading.get_ident()
            assert (await (await inline.aenqueue(1)).aresult(timeout=10))[1] == threading.get_ident()

    asyncio.run(main())


def test_failures_retries_and_signals(app: Windlass) -> None:
    runs: list[int] = []

    @app.task(retry=RetryPolicy(max_attempts=3, base=0.02, cap=0.02))
    async def fails() -> None:
        runs.append(current.attempt)
        raise ValueError("no")

    @app.task
    def gives_up() -> None:
        raise GiveUp("why")

    @app.task(retry=RetryPolicy(max_attempts=1))
    async def snoozes() -> int:
        runs.append(0)
        if runs.count(0) < 3:
            raise Snooze(0.05)
        return current.attempt

    async def main() -> None:
        async with _closed(app), app.worker():
            with pytest.raises(JobFailed, match="ValueError: no"):
                await (await fails.aenqueue()).aresult(timeout=10)
            with pytest.raises(JobFailed, match="why"):
                await (await gives_up.aenqueue()).aresult(timeout=10)
            assert await (await snoozes.aenqueue()).aresult(timeout=10) == 1

    asyncio.run(main())
    assert [run for run in runs if run] == [1, 2, 3]


def test_leaving_lets_runs_end_and_gives_the_rest_back(app: Windlass) -> None:
    started = 0
    begun = asyncio.Event()

    @app.task
    async def slow() -> None:
        nonlocal started
        started += 1
        begun.set()
        await asyncio.sleep(0.3)

    async def main() -> None:
        async with _closed(app):
            jobs = []
            async with app.worker(concurrency=2):
                jobs = await app.aenqueue_many(slow.call() for _ in range(10))
                await asyncio.wait_for(begun.wait(), 10)
            states = [await job.astate() for job in jobs]
            assert states.count(State.DONE) == started
            assert states.count(State.READY) == 10 - started
            async with app.worker(concurrency=10):
                for job in jobs:
                    await job.aresult(timeout=10)
            assert started == 10

    asyncio.run(main())


@pytest.mark.slow
def test_a_blocked_loop_keeps_its_lease(app: Windlass) -> None:
    runs: list[int] = []

    @app.task
    async def blocks() -> int:
        runs.append(current.fence)
        time.sleep(3)  # noqa: ASYNC251 - two TTLs
        return current.fence

    async def main() -> None:
        async with _closed(app), app.worker():
            assert await (await blocks.aenqueue()).aresult(timeout=60) == runs[0]

    asyncio.run(main())
    assert len(runs) == 1


def test_cancel_reaches_a_running_job(app: Windlass) -> None:
    ends: list[str] = []
    begun = asyncio.Event()

    @app.task
    async def endless() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    async def main() -> None:
        async with _closed(app), app.worker():
            job = await endless.aenqueue()
            await asyncio.wait_for(begun.wait(), 10)
            assert await job.acancel()
            with pytest.raises(JobCancelled):
                await job.aresult(timeout=10)

    asyncio.run(main())
    assert ends == ["cancelled"]


def test_an_error_in_the_body_is_raised_and_the_worker_left(app: Windlass) -> None:
    @app.task
    async def task() -> None: ...

    async def main() -> None:
        async with _closed(app):
            with pytest.raises(ZeroDivisionError):
                await body()

    async def body() -> None:
        async with app.worker():
            await (await task.aenqueue()).aresult(timeout=10)
            raise ZeroDivisionError

    before = threading.active_count()
    asyncio.run(main())
    assert threading.active_count() <= before + 2


def test_cancelling_the_body_leaves_the_worker(app: Windlass) -> None:
    @app.task
    async def task() -> None: ...

    async def body(inside: asyncio.Event) -> None:
        async with app.worker():
            inside.set()
            await asyncio.sleep(60)

    async def main() -> None:
        async with _closed(app):
            inside = asyncio.Event()
            running = asyncio.create_task(body(inside))
            await asyncio.wait_for(inside.wait(), 10)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(running, 10)

    asyncio.run(main())


def test_it_spawns_and_serves_due_jobs(app: Windlass) -> None:
    @app.task
    async def child(number: int) -> int:
        return number

    @app.task
    async def parent() -> list[str]:
        return [str(current.spawn(child.call(number))) for number in range(3)]

    async def main() -> None:
        async with _closed(app), app.worker():
            ids = await (await parent.aenqueue()).aresult(timeout=10)
            assert [await app.job(one).aresult(timeout=10) for one in ids] == [0, 1, 2]
            began = time.monotonic()
            job = await child.using(delay=0.3).aenqueue(7)
            assert await job.aresult(timeout=10) == 7
            assert time.monotonic() - began >= 0.3

    asyncio.run(main())


def test_two_workers_in_one_process(tmp_path: Path) -> None:
    app = Windlass(f"sqlite:///{tmp_path}/windlass.db")
    seen: list[str] = []

    @app.task
    async def one(number: int) -> int:
        seen.append(current.job.id)
        await asyncio.sleep(0.01)
        return number

    async def main() -> None:
        async with _closed(app), app.worker(concurrency=2), app.worker(concurrency=2):
            jobs = await app.aenqueue_many(one.call(number) for number in range(50))
            assert [await job.aresult(timeout=60) for job in jobs] == list(range(50))

    asyncio.run(main())
    assert len(seen) == len(set(seen)) == 50


@pytest.mark.slow
def test_it_goes_on_when_it_has_lost_its_session(fleet: Fleet) -> None:
    """Its weaker promise: C code that holds the interpreter past the TTL loses the lease, no more."""
    fleet.settings.update(WINDLASS_SESSION_TTL="1.5s", WINDLASS_BEAT="0.3s")
    fleet.start('processes=1, queues=("other",)')  # it sweeps
    app = Windlass(fleet.url, beat=0.3, session_ttl=1.5)
    runs: list[int] = []

    @app.task
    def holds() -> int:
        runs.append(current.fence)
        if len(runs) == 1:
            ctypes.PyDLL(None).usleep(6_000_000)
        return current.fence

    @app.task
    async def after() -> str:
        return "well"

    async def main() -> None:
        async with _closed(app), app.worker():
            job = await holds.aenqueue()
            assert await job.aresult(timeout=60) == runs[1]
            assert await (await after.aenqueue()).aresult(timeout=60) == "well"
            detail = (await (await app.connection.broker()).get([job.id]))[0]
            assert detail is not None
            assert [each.outcome for each in detail.deliveries] == [Outcome.RETRY, Outcome.DONE]
            assert detail.deliveries[0].cause is not None
            assert detail.deliveries[0].cause.kind is CauseKind.LOST

    asyncio.run(main())
    assert len(runs) == 2

"""When a worker asks: not in vain, not first after a hold, alone only while there are suspects."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.worker.virtual import Bench, VirtualPace, run

from windlass import Windlass, current
from windlass.core.lease import Ask
from windlass.core.outcome import Cause, CauseKind, Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.state import State
from windlass.errors import StoreUnavailable


class LatePace(VirtualPace):
    """Chance is against it."""

    def jitter(self) -> float:
        return 0.9


def test_a_worker_that_held_a_job_is_not_the_first_to_ask_for_it_again(tmp_path: Path) -> None:
    """It was told to the moment when the job is due: so was nobody else."""
    old, new = Windlass("memory://"), Windlass("memory://")

    @new.task
    async def work() -> None: ...

    async def scenario() -> float:
        bench = Bench(old, tmp_path)
        bench.pace = LatePace()
        await new.declare(bench.broker)
        async with bench.worker():
            (job,) = await bench.enqueue(work.call())
            times, begun = [0.0, 0.0], bench.pace.now()
            for count in (1, 2):
                while len((await bench.job(job)).deliveries) < count:
                    assert bench.pace.now() < begun + 10
                    await asyncio.sleep(0.001)
                times[count - 1] = bench.pace.now()
            assert {each.outcome for each in (await bench.job(job)).deliveries} == {Outcome.HOLD}
            return times[1] - times[0]

    assert run(scenario()) > 1.2


def test_what_cannot_be_had_without_a_slot_is_not_asked_for_all_the_time(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    asks: list[float] = []

    @app.task
    async def work(seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def scenario(bench: Bench) -> None:
        real = bench.broker.claim

        async def claim(ask: Ask) -> object:
            asks.append(bench.pace.now())
            return await real(ask)

        bench.broker.claim = claim  # type: ignore[method-assign,assignment]
        quick = await bench.enqueue(*(work.call(0.001) for _ in range(100)))
        async with bench.worker(slots=1) as worker:
            await bench.ended(*quick)
            await bench.enqueue(work.call(20))
            await bench.seen(lambda: bool(worker.table.started()))
            last = await bench.enqueue(*(work.using(max_attempts=1).call(0.001) for _ in range(10)))
            asks.clear()
            await asyncio.sleep(10)
            assert len(asks) < 30
            await bench.ended(*last)

    run(scenario(bench(app)))


async def _suspect(bench: Bench, job: str) -> None:
    """Let a job crash twice."""
    for n in range(2):
        session = f"crashing-{job}-{n}"
        await bench.broker.beat([Beat(session=session, open=SessionInfo())])
        ask = Ask(queues=("default",), slots=1, limit=1, session=session, seq=1)
        (lease,) = (await bench.broker.claim(ask)).leases
        assert lease.job == job
        await bench.broker.end_session(session, Cause(CauseKind.CRASH), [(lease.job, lease.fence)])
        await asyncio.sleep(2)


def test_alone_it_ends_when_there_are_no_suspects(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    @app.task
    async def work() -> None: ...

    async def scenario(bench: Bench) -> State:
        (job,) = await bench.enqueue(work.call())
        await _suspect(bench, job)
        async with bench.worker(alone=True, slots=1) as worker:
            await bench.seen(lambda: worker.is_lost, within=10)
            return (await bench.job(job)).state

    assert run(scenario(bench(app))) is State.DONE


def test_alone_it_waits_for_suspects_that_cannot_run_now(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    @app.task
    async def work() -> None: ...

    async def scenario(bench: Bench) -> State:
        (job,) = await bench.enqueue(work.call())
        await _suspect(bench, job)
        await bench.broker.pause("default")
        async with bench.worker(alone=True, slots=1) as worker:
            await asyncio.sleep(5)
            assert not worker.is_lost, "it is still at work"
            await bench.broker.resume("default")
            (detail,) = await bench.ended(job, within=5)
        return detail.state

    assert run(scenario(bench(app))) is State.DONE


def test_a_run_that_has_ended_cannot_overrun(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    """Its outcome may wait for the store for long: nobody is to be killed for it."""

    @app.task(timeout=5, hard_timeout=10)
    async def work() -> None:
        await asyncio.sleep(1)

    async def scenario(bench: Bench) -> tuple[list[float], list[float]]:
        real = bench.broker.settle
        away = True

        async def settle(items: Any, ask: Any = None) -> Any:
            if away:
                raise StoreUnavailable("nobody there")
            return await real(items, ask)

        bench.broker.settle = settle  # type: ignore[method-assign]
        (job,) = await bench.enqueue(work.call())
        async with bench.worker() as worker:
            await bench.seen(lambda: bool(worker.table.started()))
            during = [entry.deadline for entry in worker.table.started()]
            await asyncio.sleep(2)
            after = [entry.deadline for entry in worker.table.started()]
            away = False
            await bench.ended(job)
        return during, after

    during, after = run(scenario(bench(app)))
    assert [deadline > 0 for deadline in during] == [True]
    assert after == [0.0], "started, for a crash is charged to it; but not running"


def test_the_last_words_of_a_job_reach_the_store_before_its_end(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    """After it they would be refused."""

    @app.task
    async def work() -> None:
        current.progress(0.5, "half")
        await asyncio.sleep(0.05)
        current.progress(1, "last word")
        current.log("goodbye")

    async def scenario(bench: Bench) -> list[Any]:
        async with bench.worker():
            return await bench.ended(*await bench.enqueue(*(work.call() for _ in range(3))))

    for detail in run(scenario(bench(app))):
        assert (detail.progress.permille, detail.progress.message) == (1_000, "last word")
        assert list(detail.logs) == ["goodbye"]


def test_a_step_does_not_wait_for_what_may_wait(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    waits: list[float] = []

    @app.task
    async def work() -> None:
        current.progress(0.1)
        await asyncio.sleep(0.01)
        current.progress(0.2)
        before = asyncio.get_running_loop().time()
        await current.astep("one", lambda: 1)
        waits.append(asyncio.get_running_loop().time() - before)

    async def scenario(bench: Bench) -> None:
        async with bench.worker():
            await bench.ended(*await bench.enqueue(work.call()))

    run(scenario(bench(app)))
    assert waits[0] < 0.02

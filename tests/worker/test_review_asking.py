"""When a worker asks: not in vain, not first after a hold, and alone only for as long as there are suspects."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from tests.worker.virtual import Bench, VirtualPace, run

from windlass import Windlass
from windlass.core.lease import Ask
from windlass.core.outcome import Cause, CauseKind, Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.state import State


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
            deliveries = bench.broker._ns.jobs[job].deliveries
            await bench.seen(lambda: len(deliveries) == 1, within=5)
            first = bench.pace.now()
            await bench.seen(lambda: len(deliveries) == 2, within=5)
            assert {each.outcome for each in deliveries} == {Outcome.HOLD}
            return bench.pace.now() - first

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
            await bench.seen(lambda: bool(worker._runners.runs))
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

"""Nobody is left out: groups, queues, and what a worker that is busy hands back or keeps."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.worker.virtual import Bench, run

from windlass import Windlass, current
from windlass.core.operate import Target
from windlass.core.outcome import Cause, CauseKind
from windlass.core.state import State
from windlass.errors import ContractError
from windlass.worker.options import Group
from windlass.worker.shares import Shares
from windlass.worker.table import Table


def test_a_group_with_endless_work_leaves_the_others_their_turn(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    ran: list[str] = []
    app.queue("busy")
    app.queue("calm")

    @app.task
    async def work(queue: str) -> None:
        ran.append(queue)
        await asyncio.sleep(0.001)

    async def scenario(bench: Bench) -> None:
        busy = [work.using(queue="busy").call("busy") for _ in range(400)]
        calm = [work.using(queue="calm").call("calm") for _ in range(10)]
        ids = await bench.enqueue(*busy, *calm)
        groups = [Group(slots=1, queues=("busy",)), Group(slots=1, queues=("calm",))]
        async with bench.worker(groups=groups):
            await bench.ended(*ids)

    run(scenario(bench(app)))
    assert ran.index("calm") < 5
    assert [n for n, queue in enumerate(ran) if queue == "calm"][-1] < 200


def test_queues_beyond_those_that_an_ask_names_get_their_turn() -> None:
    queues = tuple(f"q{n}" for n in range(150))
    shares = Shares(Group(slots=1, queues=queues, weights=(1,) * 150))
    asked: set[str] = set()
    for _ in range(10):
        order = shares.order()
        asked.update(order)
        shares.received(order, ())
    assert asked == set(queues)


def test_what_is_given_back_is_not_asked_for_again_at_once(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    """A worker whose jobs have become slow holds none in reserve until it knows better."""

    @app.task
    async def work(seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def scenario(bench: Bench) -> list[int]:
        quick = await bench.enqueue(*(work.call(0.001) for _ in range(100)))
        async with bench.worker(slots=2):
            await bench.ended(*quick)
            await bench.enqueue(work.call(100), work.call(100))
            await asyncio.sleep(0.5)
            waiting = await bench.enqueue(*(work.call(0.001) for _ in range(20)))
            await asyncio.sleep(30)
            handed = [len((await bench.job(job)).deliveries) for job in waiting]
            await bench.ended(*waiting)
        return handed

    assert max(run(scenario(bench(app)))) <= 1


def test_rows_are_free_again_after_any_end(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    """Done, failed, given back: a worker with few rows never runs out of them."""
    told: list[int] = []

    @app.task
    async def work(what: Any) -> None:
        if what == "fail":
            raise ValueError
        await asyncio.sleep(what)

    async def scenario(bench: Bench) -> None:
        async with bench.worker(slots=2, rows=6, on_jobs=told.append) as worker:
            for _ in range(30):
                ids = await bench.enqueue(*(work.call(0.001) for _ in range(5)))
                ids += await bench.enqueue(*(work.using(max_attempts=1).call("fail") for _ in range(3)))
                await bench.ended(*ids)
            slow = await bench.enqueue(work.call(3), work.call(3), *(work.call(0.001) for _ in range(40)))
            await bench.ended(*slow, within=30)
            await bench.seen(lambda: told[-1] == 30 * 8 + 42, within=5)  # what was given back is no run
            assert worker.table.started() == []
            assert worker.table.waiting() == []

    run(scenario(bench(app)))


def test_no_more_is_claimed_than_the_table_has_rows_for(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    asked: list[int] = []

    @app.task
    async def work() -> None:
        await asyncio.sleep(0.001)

    async def scenario(bench: Bench) -> None:
        settle = bench.broker.settle

        async def counted_settle(items: Any, ask: Any = None) -> Any:
            asked.append(0 if ask is None else ask.limit)
            return await settle(items, ask)

        bench.broker.settle = counted_settle  # type: ignore[method-assign]
        async with bench.worker(slots=2, rows=5):
            await bench.ended(*await bench.enqueue(*(work.call() for _ in range(200))))

    run(scenario(bench(app)))
    assert 2 < max(asked) <= 5


def test_weighted_bands_share_the_asks_of_one_slot(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    """Each ask draws anew: else one at a time is always of the same band."""
    ran: list[int] = []
    app.queue("banded", bands={10: 80, 0: 20})

    @app.task(queue="banded")
    async def work(priority: int) -> None:
        ran.append(priority)
        await asyncio.sleep(1)

    async def scenario(bench: Bench) -> None:
        calls = [work.using(priority=priority).call(priority) for priority in (10, 0) for _ in range(40)]
        await bench.enqueue(*calls)
        async with bench.worker(slots=1, grace=0):
            await bench.seen(lambda: len(ran) >= 40)

    run(scenario(bench(app)))
    assert 4 <= ran[:40].count(0) <= 12


def test_a_run_whose_children_are_refused_frees_its_row_once(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    elsewhere = app.external("elsewhere", queue="nobody-declared-it")

    @app.task
    async def parent() -> None:
        current.spawn(elsewhere.call())

    async def scenario(bench: Bench) -> list[int]:
        asked: list[int] = []
        claim = bench.broker.claim

        async def counted_claim(ask: Any) -> Any:
            asked.append(ask.limit)
            return await claim(ask)

        bench.broker.claim = counted_claim  # type: ignore[method-assign]
        async with bench.worker(slots=4, rows=2):
            await bench.ended(*await bench.enqueue(*(parent.using(max_attempts=1).call() for _ in range(5))))
            await asyncio.sleep(3)
        return asked

    asked = run(scenario(bench(app)))
    assert asked[-1] == 2, "with a row freed twice it would ask for three, with one lost for one"


def test_what_is_held_in_reserve_takes_no_slot_of_its_own(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    inside: list[int] = []
    most = 0

    @app.task
    async def work() -> None:
        nonlocal most
        inside.append(1)
        most = max(most, len(inside))
        await asyncio.sleep(0.001)
        inside.pop()

    async def scenario(bench: Bench) -> None:
        async with bench.worker(slots=2):
            await bench.ended(*await bench.enqueue(*(work.call() for _ in range(300))))

    run(scenario(bench(app)))
    assert most == 2


def test_a_word_that_the_store_never_takes_frees_its_row_and_is_said(
    app: Windlass, bench: Callable[[Windlass], Bench], caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def work() -> None: ...

    async def scenario(bench: Bench) -> State:
        real = bench.broker.settle

        async def settle(items: Any, ask: Any = None) -> Any:
            raise ContractError("not this one")

        async with bench.worker(rows=1):
            bench.broker.settle = settle  # type: ignore[method-assign]
            await bench.enqueue(work.call())
            await asyncio.sleep(3)
            bench.broker.settle = real  # type: ignore[method-assign]
            (detail,) = await bench.ended(*await bench.enqueue(work.call()), within=10)
            return detail.state

    assert run(scenario(bench(app))) is State.DONE, "its only row is free again"
    assert "the store takes no word on it: not this one" in caplog.text


def test_a_late_word_is_said(
    app: Windlass, bench: Callable[[Windlass], Bench], caplog: pytest.LogCaptureFixture
) -> None:
    """Operators look for why a job ran twice."""

    @app.task
    async def work() -> None:
        await asyncio.sleep(5)

    async def scenario(bench: Bench) -> None:
        await bench.enqueue(work.call())
        async with bench.worker() as worker:
            await bench.seen(lambda: bool(worker.table.started()))
            await bench.broker.end_session(worker.session, Cause(CauseKind.LOST))

    run(scenario(bench(app)))
    assert "came too late and was refused: the lease was lost" in caplog.text


def test_what_the_supervisor_took_back_is_let_go(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    """It does not start here, is released by one of the two, and its row is free again."""
    ran: list[str] = []

    @app.task
    async def work(seconds: float) -> None:
        ran.append(current.job.id)
        await asyncio.sleep(seconds)

    async def scenario(bench: Bench) -> None:
        quick = await bench.enqueue(*(work.call(0.001) for _ in range(100)))
        async with bench.worker(slots=1, rows=6) as worker:
            await bench.ended(*quick)
            jobs = await bench.enqueue(*(work.call(0.1) for _ in range(6)))
            await bench.seen(lambda: bool(worker.table.waiting()), within=5)
            supervisor = Table.open(worker.table.path)
            taken = supervisor.take_back(supervisor.waiting())
            supervisor.close()
            assert taken
            await bench.ended(*jobs, within=60)
            assert sorted(ran[100:]) == sorted(jobs), "each once"
            more = await bench.enqueue(*(work.call(0.001) for _ in range(100)))
            await bench.ended(*more, within=60)

    run(scenario(bench(app)))


def test_a_job_that_is_cancelled_while_it_waits_in_hand_never_runs(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    ran: list[str] = []

    @app.task
    async def work(seconds: float) -> None:
        ran.append(current.job.id)
        await asyncio.sleep(seconds)

    async def scenario(bench: Bench) -> tuple[str, State]:
        quick = await bench.enqueue(*(work.call(0.001) for _ in range(100)))
        async with bench.worker(slots=1) as worker:
            await bench.ended(*quick)
            await bench.enqueue(*(work.call(0.1) for _ in range(6)))
            await bench.seen(lambda: bool(worker.table.waiting()), within=5)
            lease = worker.table.waiting()[0]
            await bench.broker.cancel([Target(lease.job)])
            worker.cancel(lease.job, lease.fence)
            (detail,) = await bench.ended(lease.job, within=5)
            return lease.job, detail.state

    job, state = run(scenario(bench(app)))
    assert state is State.CANCELLED
    assert job not in ran

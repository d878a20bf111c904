"""A store that works for one after the other: workers ask for more before they look at what has come."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.worker.virtual import Bench, run

from windlass import Windlass
from windlass.broker.contract import Capabilities, Pacing
from windlass.core.state import State
from windlass.errors import StoreUnavailable
from windlass.worker.asking import ASK_LIMIT
from windlass.worker.fetcher import DEFERRED
from windlass.worker.local_leases import LocalLeases
from windlass.worker.table import Table
from windlass.worker.worker import Worker

JOBS = 4_000
TAKES = 0.01


class Serial:
    """The model, as if it were far away; what it answers may get lost."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self.worker: Worker | None = None
        self.on_ask: Callable[[], None] = lambda: None
        self.on_leases: Callable[[], None] = lambda: None
        self.early = 0
        """Calls that came before the worker had filed all that it was given."""
        self.answered = 0
        """Leases that the worker was given and has not settled, as far as it was told."""
        self.lose_every = 0
        self.calls = 0

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(self._broker.capabilities, pacing=Pacing(serial=True, ahead=2_000))

    def __getattr__(self, verb: str) -> Any:
        real = getattr(self._broker, verb)
        if verb not in ("claim", "settle"):
            return real

        async def called(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            lose = self.lose_every and self.calls % self.lose_every == 0
            if self.worker is not None and self.answered > _filed(self.worker):
                self.early += 1
                self.on_ask()
            await asyncio.sleep(TAKES)
            answer = await real(*args, **kwargs)
            await asyncio.sleep(TAKES)
            if lose:
                raise StoreUnavailable("the reply got lost")
            claimed = answer if verb == "claim" else answer.claimed
            leases = 0 if claimed is None else len(claimed.leases)
            self.answered += leases - (len(args[0]) if verb == "settle" else 0)
            if leases >= DEFERRED:
                self.on_leases()
            return answer

        return called


def _filed(worker: Worker) -> int:
    return len(worker.table.started()) + len(worker.table.waiting())


@pytest.fixture
def ran(app: Windlass) -> list[int]:
    """What the task `work` has run."""
    ran: list[int] = []

    @app.task(name="work")
    async def work(n: int) -> None:
        ran.append(n)

    return ran


def calls(app: Windlass, count: int) -> Any:
    return (app.tasks["work"].call(n) for n in range(count))


@pytest.mark.parametrize("lose_every", [0, 3], ids=["answers come", "answers get lost"])
def test_more_is_asked_for_before_what_has_come_is_taken_in(
    app: Windlass, bench: Callable[[Windlass], Bench], ran: list[int], lose_every: int
) -> None:
    async def scenario(bench: Bench) -> Serial:
        store = Serial(bench.broker)
        store.lose_every = lose_every
        ids = await bench.enqueue(*calls(app, JOBS))
        async with bench.worker(broker=store, slots=16) as worker:  # type: ignore[arg-type]
            store.worker = worker
            details = await bench.ended(*ids)
        assert {(each.state, each.attempt, len(each.deliveries)) for each in details} == {(State.DONE, 1, 1)}
        return store

    store = run(scenario(bench(app)))
    assert sorted(ran) == list(range(JOBS)), "each once"
    assert store.early >= JOBS // ASK_LIMIT // 2


def test_a_worker_that_drains_gives_back_what_it_has_not_looked_at(
    app: Windlass, bench: Callable[[Windlass], Bench], ran: list[int]
) -> None:
    async def scenario(bench: Bench) -> list[Any]:
        store = Serial(bench.broker)
        ids = await bench.enqueue(*calls(app, JOBS))
        async with bench.worker(broker=store, slots=16) as worker:  # type: ignore[arg-type]
            store.worker = worker
            store.on_ask = lambda: worker.drain(30.0)
            await bench.seen(lambda: store.early > 0)
        return [await bench.job(job) for job in ids]

    details = run(scenario(bench(app)))
    states = [each.state for each in details]
    assert set(states) == {State.DONE, State.READY}, "nothing is held by a worker that is gone"
    assert states.count(State.DONE) == len(ran)
    back = [each for each in details if each.state is State.READY and each.deliveries]
    assert len(back) >= DEFERRED
    assert {each.attempt for each in back} == {0}, "they were not charged"


def test_a_worker_that_has_no_time_left_gives_it_back_too(
    app: Windlass, bench: Callable[[Windlass], Bench], ran: list[int]
) -> None:
    async def scenario(bench: Bench) -> list[Any]:
        store = Serial(bench.broker)
        ids = await bench.enqueue(*calls(app, JOBS))
        async with bench.worker(broker=store, slots=2 * DEFERRED, grace=0.0) as worker:  # type: ignore[arg-type]
            store.on_leases = lambda: worker.drain(0.0)
            await bench.seen(lambda: worker.draining)
        return [await bench.job(job) for job in ids]

    details = run(scenario(bench(app)))
    assert {each.state for each in details} <= {State.DONE, State.READY}
    assert {each.attempt for each in details if each.state is State.READY} == {0}


def test_what_is_announced_counts_until_it_is_here(tmp_path: Path) -> None:
    local_leases = LocalLeases(Table.create(tmp_path / "table", 100), [16])
    local_leases.announce(0, 60)
    assert (local_leases.room, local_leases.waiting, local_leases.waiting_in(0), local_leases.unfinished) == (
        40,
        60,
        60,
        [60],
    )
    local_leases.arrived(0)
    assert (local_leases.room, local_leases.waiting, local_leases.waiting_in(0), local_leases.unfinished) == (
        100,
        0,
        0,
        [0],
    )

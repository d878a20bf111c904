"""Jobs under a limit in a worker's hand: many at a time if they are short, and none that others could run."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from tests.worker.leases import a_lease
from tests.worker.virtual import Bench, run

from windlass import Call, RetryPolicy, Windlass
from windlass.broker.contract import Pacing
from windlass.core.lease import Ask, Claimed
from windlass.worker.asking import PREFETCH_LIMITED, AskingGroup, Bound
from windlass.worker.options import Group


def _watch(bench: Bench) -> tuple[list[int], Counter[str]]:
    """How many leases each answer brings, and how many each session holds at the most."""
    sizes: list[int] = []
    held: Counter[str] = Counter()
    most: Counter[str] = Counter()

    def received(ask: Ask | None, claimed: Claimed | None) -> None:
        if ask is None or claimed is None or ask.session is None:
            return
        sizes.append(len(claimed.leases))
        held[ask.session] += len(claimed.leases)
        most[ask.session] = max(most[ask.session], held[ask.session])

    claim, settle = bench.broker.claim, bench.broker.settle

    async def claimed(ask: Ask) -> Any:
        answer = await claim(ask)
        received(ask, answer)
        return answer

    async def settled(items: Any, ask: Ask | None = None) -> Any:
        answer = await settle(items, ask)
        if ask is not None and ask.session is not None:
            held[ask.session] -= len(items)
        received(ask, answer.claimed)
        return answer

    bench.broker.claim, bench.broker.settle = claimed, settled  # type: ignore[method-assign]
    return sizes, most


def test_short_ones_come_many_at_a_time(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    app.queue("default", lane_concurrency=4)

    @app.task
    async def work() -> None: ...

    async def scenario(bench: Bench) -> list[int]:
        sizes, _ = _watch(bench)
        ids = await bench.enqueue(*(work.using(lane=str(n % 300)).call() for n in range(900)))
        async with bench.worker(slots=16):
            await bench.ended(*ids)
        return sizes

    sizes = run(scenario(bench(app)))
    assert sum(sizes) == 900
    assert max(sizes) > 100
    assert len([size for size in sizes if size]) <= 20, sizes


def _most_held(bench: Bench, calls: Iterable[Call[Any]]) -> Counter[str]:
    """How many leases a worker of four slots held at the most while it ran these."""

    async def scenario() -> Counter[str]:
        _, most = _watch(bench)
        ids = await bench.enqueue(*calls)
        async with bench.worker(slots=4):
            await bench.ended(*ids)
        return most

    return run(scenario())


def test_slow_ones_come_for_free_slots(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    app.queue("default", lane_concurrency=1)

    @app.task
    async def work() -> None:
        await asyncio.sleep(0.2)

    most = _most_held(bench(app), (work.using(lane=str(n)).call() for n in range(60)))
    assert most == {"session-1": 4}


def test_last_attempts_come_for_free_slots(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    """After a power cut nobody could tell whether they had started."""
    app.queue("default", lane_concurrency=4)

    @app.task(retry=RetryPolicy(max_attempts=1))
    async def work() -> None: ...

    most = _most_held(bench(app), (work.using(lane=str(n)).call() for n in range(200)))
    assert most == {"session-1": 4}


def test_a_worker_leaves_what_others_have_slots_for(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    """A limit as large as the slots of two workers, of which one comes late: what the other held ahead, it
    would never get.
    """
    app.queue("default", concurrency=8)
    ran = 0

    @app.task
    async def work() -> None:
        nonlocal ran
        ran += 1
        await asyncio.sleep(0.004)

    async def scenario(bench: Bench) -> Counter[str]:
        ids = await bench.enqueue(*(work.call() for _ in range(500)))
        async with bench.worker(slots=4):
            await bench.seen(lambda: ran >= 100)
            async with bench.worker(slots=4):
                details = await bench.ended(*ids)
        return Counter(detail.deliveries[0].session or "" for detail in details)

    shares = run(scenario(bench(app)))
    assert shares["session-2"] > 130, shares


def test_one_that_cannot_start_runs_elsewhere(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    """Run times are what they were; when a run takes longer, what waits for it goes back."""
    app.queue("default", lane_concurrency=1)
    waited: list[float] = []

    @app.task
    async def work(seconds: float) -> None:
        waited.append(asyncio.get_running_loop().time() - started[0])
        await asyncio.sleep(seconds)

    started: list[float] = [0.0]

    async def scenario(bench: Bench) -> None:
        first = await bench.enqueue(*(work.using(lane=str(n)).call(0.0) for n in range(400)))
        async with bench.worker(slots=2):
            await bench.ended(*first)
            waited.clear()
            started[0] = bench.pace.now()
            slow = [work.using(lane=f"slow-{n}").call(60.0) for n in range(2)]
            quick = [work.using(lane=f"quick-{n}").call(0.0) for n in range(20)]
            ids = await bench.enqueue(*slow, *quick)
            await bench.seen(lambda: len(waited) >= 2)
            async with bench.worker(slots=2):
                await bench.ended(*ids[2:], within=30)

    run(scenario(bench(app)))
    assert len(waited) == 22
    assert max(waited) < 1


def test_nothing_is_asked_for_that_could_not_be_had(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    """What has ended and is not settled yet has its place: an ask that counts it as free comes back empty."""
    app.queue("default", lane_concurrency=4)
    asks: list[tuple[Ask, bool]] = []
    """Each with whether the answer before it said that there was more."""

    @app.task
    async def work() -> None:
        await asyncio.sleep(0.000_1)

    async def scenario(bench: Bench) -> None:
        settle, claim = bench.broker.settle, bench.broker.claim
        more = False

        async def settled(items: Any, ask: Ask | None = None) -> Any:
            nonlocal more
            assert ask is not None
            asks.append((ask, more))
            await asyncio.sleep(0.02)
            answer = await settle(items, ask)
            more = answer.claimed is not None and answer.claimed.more
            return answer

        async def claimed(ask: Ask) -> Any:
            nonlocal more
            asks.append((ask, more))
            await asyncio.sleep(0.02)
            answer = await claim(ask)
            more = answer.more
            return answer

        bench.broker.claim, bench.broker.settle = claimed, settled  # type: ignore[method-assign]
        ids = await bench.enqueue(*(work.using(lane=str(n % 300)).call() for n in range(900)))
        async with bench.worker(slots=16):
            await bench.ended(*ids)

    run(scenario(bench(app)))
    assert max(ask.soon - ask.slots for ask, _ in asks) > 50, "it holds many ahead"
    assert [ask for ask, more in asks if more and ask.limit and not max(ask.slots, ask.soon)] == []
    assert all(ask.soon < ask.limit or ask.soon == ask.slots for ask, _ in asks)


def _answer(count: int, *, more: bool) -> Claimed:
    return Claimed(leases=(a_lease(),) * count, more=more)


def test_what_stopped_a_claim_tells_what_the_next_job_is() -> None:
    group = AskingGroup(0, Group(slots=4, queues=("q",)), Pacing())
    ask = Ask(queues=("q",), slots=2, soon=5, limit=9, session="s", seq=1)
    for count, bound in (
        (1, Bound.LIMIT),
        (2, Bound.SLOTS),
        (4, Bound.SLOTS),
        (5, Bound.SOON),
        (9, Bound.LIMIT),
    ):
        group.answered(ask, _answer(count, more=True))
        assert group.bound is bound, count
    group.answered(ask, _answer(5, more=False))
    assert group.bound is Bound.LIMIT, "there was nothing more"


def test_what_is_held_ahead_grows_while_there_is_more_than_is_handed_out() -> None:
    group = AskingGroup(0, Group(slots=4, queues=("q",)), Pacing())
    ask = Ask(queues=("q",), slots=2, soon=5, limit=9, session="s", seq=1)
    assert group.limited.size == 0, "nothing is known yet"
    for _ in range(10):
        group.measured(runtime=1e-5, waited=PREFETCH_LIMITED / 4)
        group.answered(ask, _answer(5, more=True))
    assert group.limited.size == 250
    group.measured(runtime=1e-5, waited=PREFETCH_LIMITED * 2)
    assert group.limited.size == 125, "they waited for too long"
    group.answered(ask, _answer(4, more=False))
    assert group.limited.size == 0
    assert group.prefetch.size > 0, "others are not concerned"
    group.measured(runtime=0.5, waited=0.0)
    assert group.limited.size == 0, "they run for too long"

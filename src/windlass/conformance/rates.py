"""Rates: token buckets of queues and lanes, and tokens that come back."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from windlass.broker.contract import Options
from windlass.conformance.harness import Harness, Worker, ids
from windlass.core.job import Edge
from windlass.core.lease import Ask, Lease
from windlass.core.limits import Rate
from windlass.core.outcome import CauseKind, Outcome
from windlass.core.query import Parked
from windlass.core.settlement import HoldKey
from windlass.core.state import State
from windlass.core.units import HOUR, MINUTE, SECOND, JobId, Micros


async def _handed_out(store: Harness, worker: Worker, queue: str, steps: list[Micros]) -> list[int]:
    """How many jobs each claim of all that there is gives, after each step of time."""
    counts: list[int] = []
    for step in steps:
        store.advance(step)
        counts.append(len((await worker.claim(queue)).leases))
    return counts


def _assert_every_window_holds(times: list[Micros], rate: Rate) -> None:
    for first, start in enumerate(times):
        for last, end in enumerate(times[first:], first):
            assert (last - first + 1 - rate.size) * rate.per <= rate.count * (end - start)


# a rate holds


async def test_queue_rate_holds(store: Harness) -> None:
    """Five a second and three at once, over all lanes, to the microsecond; an hour of rest saves no more."""
    await store.queue("rated", rate=Rate(5, SECOND, 3))
    for lane in ("a", "b"):
        await store.add_many(50, queue="rated", lane=lane)
    worker = await store.worker()
    steps = [0, 0, 199_999, 1, 300_000, 100_000, 600_000, HOUR, 0, 200_000]
    assert await _handed_out(store, worker, "rated", steps) == [3, 0, 0, 1, 1, 1, 3, 3, 0, 1]


async def test_queue_rate_holds__in_every_window(store: Harness) -> None:
    """However workers ask, and nothing is lost: a worker that asks often enough gets the whole rate."""
    rate = Rate(7, SECOND, 2)
    await store.queue("rated", rate=rate)
    await store.add_many(60, queue="rated")
    workers = [await store.worker(), await store.worker()]
    times: list[Micros] = []
    start = store.clock.now()
    for number in range(60):
        store.advance((37_000, 1, 142_857, 90_011)[number % 4])
        claimed = await workers[number % 2].claim("rated", slots=1 + number % 3)
        times += [store.clock.now()] * len(claimed.leases)
    _assert_every_window_holds(times, rate)
    assert len(times) >= (store.clock.now() - start) * rate.count // rate.per


async def test_queue_rate_holds__with_a_burst_of_a_tenth_of_a_second(store: Harness) -> None:
    """By default; at least one."""
    worker = await store.worker()
    for rate, burst in ((Rate(100), 10), (Rate(19), 1), (Rate(5, MINUTE), 1)):
        queue = f"rated-{rate.count}"
        await store.queue(queue, rate=rate)
        await store.add_many(20, queue=queue)
        assert await _handed_out(store, worker, queue, [0, HOUR]) == [burst, burst]


async def test_queue_rate_holds__for_leases_with_a_deadline(store: Harness) -> None:
    await store.queue("rated", rate=Rate(1, HOUR, 3))
    await store.add_many(9, queue="rated")
    worker = await store.worker()
    await worker.one("rated")
    ask = Ask(queues=("rated",), slots=9, limit=9, visibility=MINUTE)
    assert len((await store.broker.claim(ask)).leases) == 2
    assert (await worker.claim("rated")).leases == ()


async def test_lane_rate_holds(store: Harness) -> None:
    """Each lane has a bucket of its own, the lane of jobs without one among them."""
    await store.queue("rated", lane_rate=Rate(2, SECOND, 2))
    for lane in ("a", ""):
        await store.add_many(20, queue="rated", lane=lane)
    worker = await store.worker()
    steps = [0, 0, 499_999, 1, 750_000, 250_000, HOUR]
    assert await _handed_out(store, worker, "rated", steps) == [4, 0, 0, 2, 2, 2, 4]
    await store.add_many(5, queue="rated", lane="b")
    assert await _handed_out(store, worker, "rated", [0, 0]) == [2, 0]


async def test_lane_rate_holds__its_own_before_the_queues_for_lanes(store: Harness) -> None:
    await store.queue("rated", lane_rate=Rate(1, HOUR, 2))
    await store.lane("rated", "more", rate=Rate(1, HOUR, 3))
    await store.lane("rated", "less", rate=Rate(1, HOUR, 1))
    await store.lane("rated", "none", rate=None)
    await store.lane("rated", "weighed", weight=5)
    lanes = {"more": 3, "less": 1, "none": 4, "weighed": 2, "other": 2}
    for lane in lanes:
        await store.add_many(4, queue="rated", lane=lane)
    leases = (await (await store.worker()).claim("rated")).leases
    assert {lane: sum(lease.lane == lane for lease in leases) for lane in lanes} == lanes


async def test_lane_rate_holds__and_spends_nothing_where_the_queue_has_no_token(store: Harness) -> None:
    """Nor the other way round: only a job that is handed out costs its tokens."""
    await store.queue("rated", rate=Rate(1, SECOND, 1))
    await store.lane("rated", "a", rate=Rate(1, HOUR, 2))
    for lane in "ab":
        await store.add_many(9, queue="rated", lane=lane)
    worker = await store.worker()
    lanes = ""
    for _ in range(12):
        lanes += "".join(lease.lane for lease in (await worker.claim("rated")).leases)
        store.advance(SECOND // 2)
    assert lanes == "ababbb"


_LAYOUTS: dict[str, dict[str, Any]] = {
    "bands": {},
    "lanes first": {"order": "lane"},
    "weighted bands": {"bands": {5: 3, 0: 1}},
    "sequence": {"sequence": True},
}
"""In each of them a store may go another way to who is next."""
_layouts = pytest.mark.parametrize("layout", _LAYOUTS.values(), ids=_LAYOUTS)


async def _lane_of_a_later_time(
    store: Harness, worker: Worker, layout: dict[str, Any], look: str = "enqueue", **more: Any
) -> JobId:
    """Spend a lane's one token of a minute, have the lane looked at an hour later, when it has another, and
    set the clock back before a sweep sees it; the job that is next there.
    """
    await store.queue("rated", lane_rate=Rate(1, MINUTE, 1), **layout)
    await store.sweep()
    _, following = await store.add_many(2, queue="rated", lane="a", **more)
    await store.done(await worker.one("rated"))
    store.advance(HOUR)
    match look:
        case "enqueue":
            await store.add(queue="rated", lane="a")
        case "claim":
            assert (await worker.claim("rated", slots=0)).leases == ()
        case _:
            await store.broker.pause("rated", "a")
            await store.broker.resume("rated", "a")
    assert (await store.lane_view("a", "rated")).parked is None
    store.advance(-HOUR)
    return following


@_layouts
@pytest.mark.parametrize("look", ["enqueue", "claim", "resume"])
async def test_lane_rate_holds__by_the_time_that_it_is(
    store: Harness, layout: dict[str, Any], look: str
) -> None:
    """A lane that took its place by a token of a later time, which no sweep has seen, has none yet."""
    worker = await store.worker()
    job = await _lane_of_a_later_time(store, worker, layout, look)
    claimed = await worker.claim("rated")
    assert (claimed.leases, claimed.next_in) == ((), MINUTE)
    store.advance(MINUTE - 1)
    claimed = await worker.claim("rated")
    assert (claimed.leases, claimed.next_in) == ((), 1)
    store.advance(1)
    assert ids((await worker.claim("rated")).leases) == [job]


@_layouts
async def test_lane_rate_holds__by_the_time_that_it_is_and_others_go_on(
    store: Harness, layout: dict[str, Any]
) -> None:
    """A lane without a token keeps no other from its turn."""
    worker = await store.worker()
    job = await _lane_of_a_later_time(store, worker, layout)
    other = await store.add(queue="rated", lane="b")
    claimed = await worker.claim("rated")
    assert (ids(claimed.leases), claimed.next_in) == ([other], MINUTE)
    await store.done(claimed.leases[0])
    store.advance(MINUTE)
    assert ids((await worker.claim("rated")).leases) == [job]


@_layouts
async def test_lane_rate_holds__by_the_time_that_it_is_and_what_has_expired_waits_for_it(
    store: Harness, layout: dict[str, Any]
) -> None:
    """A claim does not look at the jobs of a lane without a token."""
    worker = await store.worker()
    job = await _lane_of_a_later_time(store, worker, layout, expires=SECOND)
    store.advance(2 * SECOND)
    assert (await worker.claim("rated")).leases == ()
    assert await store.state(job) is State.READY


# tokens that come back


async def _tokens_after(store: Harness, end: Callable[[Worker, list[Lease]], Awaitable[object]]) -> set[int]:
    """How many tokens are at hand after two were spent and `end` was done, of a queue and of a lane."""
    found: set[int] = set()
    for kind in ("rate", "lane_rate"):
        queue = f"{kind}-{store.clock.now()}"
        await store.queue(queue, **{kind: Rate(1, HOUR, 2)})
        await store.add_many(9, queue=queue, lane="a")
        worker, other = await store.worker(), await store.worker()
        leases = await worker.take(2, queue)
        assert (await other.claim(queue)).leases == ()
        await end(worker, leases)
        found.add(len((await other.claim(queue)).leases))
    store.advance(1)
    return found


async def test_lane_rate_holds__while_the_clock_goes_back(store: Harness) -> None:
    """A lane whose bucket is of a later time has no token: it leaves its ring, which is forgotten empty."""
    await store.queue("rated", lane_rate=Rate(1, SECOND, 1))
    await store.add_many(2, queue="rated", lane="a")
    worker = await store.worker()
    await worker.one("rated")
    await store.passes(1, 2 * SECOND)
    assert (await store.lane_view("a", "rated")).parked is None
    await store.passes(1, -HOUR)
    seen = await store.lane_view("a", "rated")
    assert (seen.parked, (await worker.claim("rated")).leases) == (Parked.RATE, ())
    await store.passes(2, Options().resend_window)
    assert (await store.lane_view("a", "rated")).lag == 0


async def test_given_back_work_returns_its_token(store: Harness) -> None:
    """Released or held before it started."""
    hold = HoldKey("task:t", "unknown task")
    for outcome in (Outcome.RELEASE, Outcome.HOLD):
        for runtime, tokens in ((None, 1), (0, 0), (1, 0)):

            async def end(
                _: Worker, leases: list[Lease], outcome: Outcome = outcome, runtime: Micros | None = runtime
            ) -> None:
                key = hold if outcome is Outcome.HOLD else None
                await store.settle(leases[0], outcome, runtime=runtime, hold=key)

            assert await _tokens_after(store, end) == {tokens}, (outcome, runtime)


async def test_given_back_work_returns_its_token__what_ran_does_not(store: Harness) -> None:
    for outcome in (Outcome.DONE, Outcome.RETRY, Outcome.SNOOZE, Outcome.DEAD, Outcome.CANCELLED):

        async def end(_: Worker, leases: list[Lease], outcome: Outcome = outcome) -> None:
            await store.settle(leases[0], outcome, runtime=1)

        assert await _tokens_after(store, end) == {0}, outcome


async def test_given_back_work_returns_its_token__when_a_session_ends(store: Harness) -> None:
    """For what had not started; for nothing where nobody can tell."""
    for kind, started, tokens in (
        (CauseKind.STOP, 0, 2),
        (CauseKind.STOP, 1, 1),
        (CauseKind.CRASH, 0, 2),
        (CauseKind.CRASH, 1, 1),
        (CauseKind.CRASH, 2, 0),
        (CauseKind.LOST, 0, 0),
    ):

        async def end(
            worker: Worker, leases: list[Lease], kind: CauseKind = kind, started: int = started
        ) -> None:
            await worker.end(kind, started=leases[:started])

        assert await _tokens_after(store, end) == {tokens}, (kind, started)


async def test_given_back_work_returns_its_token__not_at_a_deadline(store: Harness) -> None:
    """Nobody can tell."""
    await store.queue("rated", rate=Rate(1, HOUR, 1))
    job = await store.add(queue="rated")
    ask = Ask(queues=("rated",), slots=1, limit=1, visibility=SECOND)
    assert len((await store.broker.claim(ask)).leases) == 1
    store.advance(SECOND)
    await store.sweep()
    assert await store.state(job) is State.READY
    assert (await store.broker.claim(ask)).leases == ()


async def test_given_back_work_returns_its_token__once(store: Harness) -> None:
    async def end(worker: Worker, leases: list[Lease]) -> None:
        for _ in range(2):
            await store.release(leases[0])
        await worker.end(CauseKind.STOP, started=[leases[1]])
        await worker.end(CauseKind.STOP)

    assert await _tokens_after(store, end) == {1}


async def test_given_back_work_returns_its_token__into_a_bucket_that_holds_no_more(store: Harness) -> None:
    async def end(_: Worker, leases: list[Lease]) -> None:
        store.advance(3 * HOUR)
        for lease in leases:
            await store.release(lease)

    assert await _tokens_after(store, end) == {2}


async def test_given_back_work_returns_its_token__less_what_came_since(store: Harness) -> None:
    """To the microsecond: a token that was out while a quarter of one came is worth the rest."""
    for kind in ("rate", "lane_rate"):
        queue = f"{kind}-late"
        await store.queue(queue, **{kind: Rate(1, HOUR, 2)})
        await store.add_many(9, queue=queue, lane="a")
        worker = await store.worker()
        first, _second = await worker.take(2, queue)
        store.advance(HOUR // 4)
        await store.release(first)  # a quarter has come by itself, and three quarters come back
        assert len((await worker.claim(queue)).leases) == 1
        store.advance(HOUR - 1)
        assert (await worker.claim(queue)).leases == ()
        store.advance(1)
        assert len((await worker.claim(queue)).leases) == 1


async def test_queue_rate_holds__when_work_comes_back_late(store: Harness) -> None:
    """In every window, for what was not given back: a bucket that has filled up behind two claims does not
    get their tokens on top.
    """
    rate = Rate(5, SECOND, 2)
    await store.queue("rated", rate=rate)
    await store.add_many(20, queue="rated")
    stuck, quick = await store.worker(), await store.worker()
    held = await stuck.take(2, "rated")
    times: list[Micros] = []
    for step in (400_000, 1, 1, 100_000, 100_000):
        store.advance(step)
        times += [store.clock.now()] * len((await quick.claim("rated")).leases)
        if held:
            await store.release(held.pop())
    assert len(times) == 3
    _assert_every_window_holds(times, rate)


async def test_given_back_work_returns_its_token__although_it_was_cancelled(store: Harness) -> None:
    """Asked to be cancelled before it started, it never ran."""

    async def end(_: Worker, leases: list[Lease]) -> None:
        await store.cancel(leases[0].job)
        await store.release(leases[0])
        assert await store.state(leases[0].job) is State.CANCELLED

    assert await _tokens_after(store, end) == {1}


async def test_given_back_work_returns_its_token__and_nothing_of_the_job_behind_it(store: Harness) -> None:
    """What happens to that one meanwhile counts."""
    await store.queue("q", lane_rate=Rate(10, MINUTE, 10))
    worker = await store.worker()
    first, parent = await store.add_many(2, lane="a")
    await store.settle(await worker.one(), Outcome.RELEASE)
    child = await store.add(after=(Edge(parent),))
    leases = await worker.take(2)
    assert [lease.job for lease in leases] == [first, parent]
    for lease in leases:
        await store.done(lease)
    assert await store.state(child) is State.READY

"""Rounds: asks that take one turn of each of a ring's first lanes, which stores hand out by a way of its own.

As in `lanes`, the order of claims is a word, a letter for each lane.
"""

import string
from collections.abc import Sequence

from windlass.conformance.harness import Harness
from windlass.core.lease import Lease
from windlass.core.outcome import Outcome
from windlass.core.settlement import Settlement
from windlass.core.units import JobId


def _word(leases: Sequence[Lease]) -> str:
    return "".join(lease.lane for lease in leases)


def _done(leases: Sequence[Lease]) -> list[Settlement]:
    return [Settlement(job=one.job, fence=one.fence, outcome=Outcome.DONE, runtime=1) for one in leases]


async def test_lanes_share_by_weight__where_a_second_turn_comes_before_a_first(store: Harness) -> None:
    """Lanes are apart by a turn of four, and the next ask's turn is one job."""
    await store.time_task()
    lanes = string.ascii_lowercase + "{|}~"
    for lane in lanes:
        await store.add_many(20, lane=lane)
    worker = await store.worker()
    first = await worker.claim(slots=1, soon=97, limit=97)
    assert _word(first.leases) == "".join(lane * 4 for lane in lanes)[:97]
    rest = lanes[25:]
    assert _word((await worker.claim(slots=9)).leases) == (rest + lanes[24] + rest)[:9]


async def test_lanes_share_by_weight__and_by_name_at_the_same_time(store: Harness) -> None:
    worker = await store.worker()
    for lane in "cd":
        await store.add_many(5, lane=lane)
    assert _word(await worker.take(2)) == "cd"
    await store.add_many(5, lane="b")
    assert _word(await worker.take(2)) == "bb"


async def test_parked_lane_returns_with_its_debt__before_others_of_the_same_call(store: Harness) -> None:
    await store.queue("limited", lane_concurrency=2)
    for lane in "abcdef":
        await store.add_many(9, queue="limited", lane=lane)
    worker = await store.worker()
    first, second = await worker.take(6, "limited"), await worker.take(6, "limited")
    assert _word(first) == _word(second) == "abcdef"
    await store.broker.settle(_done(first[1:]))
    settled = await store.broker.settle(_done(first[:1]), worker.ask("limited", slots=3))
    assert settled.claimed is not None
    assert _word(settled.claimed.leases) == "abc"


async def test_first_in_first_out__within_lanes_that_have_turns_of_several(store: Harness) -> None:
    await store.time_task()
    jobs = {lane: await store.add_many(37, lane=lane) for lane in string.ascii_lowercase}
    worker = await store.worker()
    seen: dict[str, list[JobId]] = {lane: [] for lane in jobs}
    for count in (65, 97, 65, 97, 78, 97, 33) * 2:
        for lease in (await worker.claim(slots=1, soon=count, limit=count)).leases:
            seen[lease.lane].append(lease.job)
    assert seen == {lane: jobs[lane][: len(seen[lane])] for lane in jobs}
    assert sum(map(len, seen.values())) == 37 * 26


async def test_higher_priority_goes_first__before_the_rest_of_a_round(store: Harness) -> None:
    for lane in "abcd":
        await store.add_many(5, lane=lane)
    await store.add_many(1, lane="z", priority=5)
    await store.add_many(3, lane="y", priority=5)
    assert _word(await (await store.worker()).take(4)) == "yzyy"

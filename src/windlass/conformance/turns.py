"""Turns of lanes: how many jobs in a row one of them hands out to an ask that will start many in a moment.

As in `lanes`, the order of claims is a word, a letter for each lane.
"""

from windlass.conformance.harness import Harness, Worker
from windlass.core.limits import Rate
from windlass.core.outcome import Outcome
from windlass.core.settlement import Settlement
from windlass.core.units import HOUR, SECOND

_PAYLOAD = bytes(10)


async def _backlog(store: Harness, lanes: str, count: int = 20, queue: str = "q") -> None:
    await store.time_task(queue=queue)
    for lane in lanes:
        await store.add_many(count, queue=queue, lane=lane, payload=_PAYLOAD)


async def _served(worker: Worker, count: int, *, soon: int = 96, queue: str = "q") -> str:
    """The lanes of so many jobs at the most, claimed by an ask that starts so many beyond its slots soon."""
    claimed = await worker.claim(queue, slots=1, soon=1 + soon, limit=200, max_bytes=count * len(_PAYLOAD))
    return "".join(lease.lane for lease in claimed.leases)


async def test_turn_grows_with_what_starts_soon(store: Harness) -> None:
    worker = await store.worker()
    for queue, soon, order in (
        ("none", 0, "abababab"),
        ("few", 31, "abababab"),
        ("two", 32, "aabbaabb"),
        ("three", 64, "aaabbbaaabbb"),
        ("four", 96, "aaaabbbbaaaabbbb"),
        ("more", 190, "aaaabbbbaaaabbbb"),
    ):
        await store.queue(queue)
        await _backlog(store, "ba", queue=queue)
        assert await _served(worker, len(order), soon=soon, queue=queue) == order, queue


async def test_turn_grows_with_what_starts_soon__not_with_slots(store: Harness) -> None:
    """Jobs that have a place to run in may be long ones."""
    await _backlog(store, "ab")
    claimed = await (await store.worker()).claim(slots=200, soon=200, limit=200)
    assert "".join(lease.lane for lease in claimed.leases) == "ab" * 20


async def test_turn_is_paid_for(store: Harness) -> None:
    """Each of its jobs counts, so shares are by weight as ever, and in no ask more than a turn apart."""
    await store.lane("q", "a", weight=2)
    await _backlog(store, "ba", count=40)
    worker = await store.worker()
    assert await _served(worker, 28) == "aaaabbbbaaaaaaaabbbbaaaaaaaa"
    assert await _served(worker, 6, soon=0) == "bbaaba"


async def test_turn_begins_anew_with_every_ask(store: Harness) -> None:
    await _backlog(store, "abc")
    worker = await store.worker()
    assert await _served(worker, 6) == "aaaabb"
    assert await _served(worker, 6) == "ccccbb"


async def test_turn_ends_where_a_lane_may_no_more(store: Harness) -> None:
    worker = await store.worker()
    for queue, settings in {
        "slots": {"lane_concurrency": 3},
        "tokens": {"lane_rate": Rate(1, HOUR, 3)},
        "both": {"lane_rate": Rate(1, HOUR, 3), "lane_concurrency": 5},
    }.items():
        await store.queue(queue, **settings)
        await _backlog(store, "ba", queue=queue)
        assert await _served(worker, 20, queue=queue) == "aaabbb", queue
    await store.queue("queue", concurrency=6)
    await _backlog(store, "ba", queue="queue")
    assert await _served(worker, 20, queue="queue") == "aaaabb"


async def test_turn_ends_where_a_lane_may_no_more__of_jobs(store: Harness) -> None:
    await _backlog(store, "ac", count=2)
    await _backlog(store, "b", count=6)
    assert await _served(await store.worker(), 20) == "aabbbbccbb"


async def test_turn_ends_where_a_lane_may_no_more__and_goes_on_with_slots_that_come_back(
    store: Harness,
) -> None:
    """In the same call, which frees them."""
    await store.queue("limited", lane_concurrency=4)
    await _backlog(store, "ab", queue="limited")
    worker = await store.worker()
    leases = (await worker.claim("limited", slots=1, soon=97, limit=97)).leases
    assert "".join(lease.lane for lease in leases) == "aaaabbbb"
    done = [
        Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE, runtime=1)
        for lease in (*leases[:3], *leases[4:])
    ]
    settled = await store.broker.settle(done, worker.ask("limited", slots=1, soon=97, limit=97))
    assert settled.claimed is not None
    assert "".join(lease.lane for lease in settled.claimed.leases) == "aaabbbb"


async def test_turn_ends_with_an_expired_job(store: Harness) -> None:
    await store.time_task()
    for lane, expires in (("a", None), ("a", SECOND), ("a", None), ("a", None), ("b", None), ("b", None)):
        await store.add(lane=lane, payload=_PAYLOAD, expires=expires)
    store.advance(2 * SECOND)
    assert await _served(await store.worker(), 20) == "abbaa"


async def test_turn_moves_the_time_of_its_ring(store: Harness) -> None:
    """A lane that comes now is behind those that wait for their first turn, and before all second ones."""
    await _backlog(store, "bc")
    worker = await store.worker()
    assert await _served(worker, 4) == "bbbb"
    await _backlog(store, "a", count=5)
    assert await _served(worker, 12) == "cccc" + "aaaa" + "bbbb"


async def test_turn_moves_the_time_of_its_ring__so_that_lanes_that_come_and_go_starve_nobody(
    store: Harness,
) -> None:
    """A new lane of four jobs comes as often as four are claimed: the old one has its share of them."""
    await _backlog(store, "o", count=30)
    worker = await store.worker()
    assert await _served(worker, 4) == "oooo"
    served = ""
    for number in range(12):
        await store.add_many(4, lane=f"new-{number}", payload=_PAYLOAD)
        served += await _served(worker, 4)
    assert served.count("o") >= 12


async def test_turn_is_of_one_band(store: Harness) -> None:
    await store.time_task()
    await store.add_many(2, lane="a", priority=10, payload=_PAYLOAD)
    await _backlog(store, "ab", count=4)
    assert await _served(await store.worker(), 20) == "aaaaaabbbb"


async def test_turn_is_of_one_band__but_where_lanes_come_first(store: Harness) -> None:
    await store.queue("lanes", order="lane")
    await store.time_task(queue="lanes")
    await store.add_many(2, queue="lanes", lane="a", priority=10, payload=_PAYLOAD)
    await _backlog(store, "ab", count=4, queue="lanes")
    assert await _served(await store.worker(), 20, queue="lanes") == "aaaabbbbaa"

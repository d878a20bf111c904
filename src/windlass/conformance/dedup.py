"""Dedup: what a unique key is, how long it is held, and what `ignore` and `throttle` make of a later call."""

from typing import Any

import pytest

from windlass.conformance.calls import absorbed_by, call, creates, replaces
from windlass.conformance.harness import Harness
from windlass.core.job import Edge, Mode, Receipt, Status
from windlass.core.operate import Effect, Operated, Target
from windlass.core.state import State
from windlass.core.units import HOUR, MINUTE, SECOND, JobId

_IGNORE, _REPLACE, _THROTTLE = Mode.IGNORE, Mode.REPLACE, Mode.THROTTLE
_ENDED = (State.DONE, State.DEAD, State.CANCELLED)

# what a key is


async def test_key_is_unique_in_queue_lane_and_task(store: Harness) -> None:
    await store.queue("r")
    first = await store.add(key="k", lane="a")
    await absorbed_by(store, first, lane="a")
    others: list[dict[str, Any]] = [
        {"lane": "a", "queue": "r"}, {"lane": "b"}, {"lane": ""}, {"lane": "a", "task": "u"},
        {"lane": "a", "key": "K"}, {"lane": "a", "key": "k "}, {"lane": "a", "key": ""},
    ]  # fmt: skip
    for other in others:
        await absorbed_by(store, await creates(store, **other), **other)


@pytest.mark.parametrize("mark", [":", "|", "/", ",", "\x1f", "\x01", "'", '"', "}", " "])
async def test_key_is_unique_in_queue_lane_and_task__whatever_they_contain(store: Harness, mark: str) -> None:
    """No two different triples are ever taken for one, whatever a store joins them with."""
    await creates(store, lane="a", task=f"b{mark}c", key="d")
    await creates(store, lane=f"a{mark}b", task="c", key="d")
    await creates(store, lane="a", task="b", key=f"c{mark}d")


async def test_key_is_unique_in_queue_lane_and_task__no_key(store: Harness) -> None:
    jobs = await store.add_many(3)
    assert await store.states(jobs) == [State.READY] * 3


@pytest.mark.parametrize("state", State)
async def test_ignore_answers_duplicate(store: Harness, state: State) -> None:
    first = await store.reach(state, key="k", window=MINUTE, payload=b"first")
    await absorbed_by(store, first, payload=b"second", priority=9, tags=("x",), delay=HOUR)


async def test_ignore_answers_duplicate__between_attempts(store: Harness) -> None:
    first, worker = await store.add(key="k"), await store.worker()
    await store.retry(await worker.one(), MINUTE)
    await absorbed_by(store, first)
    store.advance(MINUTE)
    await store.hold(await worker.one())
    await absorbed_by(store, first)


@pytest.mark.parametrize("mode", [_IGNORE, _THROTTLE])
async def test_ignore_answers_duplicate__whatever_the_first_was(store: Harness, mode: Mode) -> None:
    """The later call's mode decides, by the first one's window."""
    first = await store.reach(State.DONE, key="k", mode=mode, window=MINUTE)
    await absorbed_by(store, first, window=0)


@pytest.mark.parametrize("state", _ENDED)
async def test_key_is_free_after_its_window(store: Harness, state: State) -> None:
    store.advance(HOUR)
    first = await store.reach(state, key="k", window=MINUTE)
    store.advance(MINUTE - 1)
    await store.sweep()
    await absorbed_by(store, first)
    store.advance(1)
    second = await creates(store, window=HOUR)
    await absorbed_by(store, second)


@pytest.mark.parametrize("state", _ENDED)
async def test_key_is_free_after_its_window__none(store: Harness, state: State) -> None:
    await store.reach(state, key="k")
    second = await creates(store, window=HOUR)
    await absorbed_by(store, second)


async def test_key_is_free_after_its_window__counted_from_the_end(store: Harness) -> None:
    first = await store.add(key="k", window=MINUTE)
    store.advance(HOUR)
    lease = await (await store.worker()).one()
    store.advance(HOUR)
    await store.done(lease)
    store.advance(MINUTE - 1)
    await absorbed_by(store, first)
    store.advance(1)
    await creates(store)


async def test_key_is_free_after_its_window__expired(store: Harness) -> None:
    first = await store.add(key="k", window=MINUTE, expires=SECOND)
    store.advance(SECOND)
    await store.sweep()
    assert await store.state(first) is State.DEAD
    await absorbed_by(store, first)
    store.advance(MINUTE)
    await creates(store)


async def test_key_is_free_after_its_window__of_the_new_holder(store: Harness) -> None:
    """What the job before it does later does not free the key: it is no longer its."""
    first = await store.reach(State.DEAD, key="k")
    second = await creates(store)
    await store.discard(first)
    store.advance(HOUR)
    await store.sweep()
    await absorbed_by(store, second)


async def _remove(store: Harness, state: State, job: JobId) -> None:
    if state is State.DEAD:
        assert (await store.discard(job)).effect is Effect.APPLIED
    await store.sweep()


@pytest.mark.parametrize("state", _ENDED)
async def test_key_outlives_its_job(store: Harness, state: State) -> None:
    await store.queue("q", retention=0)
    first = await store.reach(state, key="k", window=HOUR)
    await _remove(store, state, first)
    store.advance(HOUR - 1)
    await store.sweep()
    assert await store.missing(first)
    await absorbed_by(store, first)
    await absorbed_by(store, first, _THROTTLE)
    store.advance(1)
    await creates(store)


async def test_key_outlives_its_job__and_is_not_that_of_another_with_its_id(store: Harness) -> None:
    await store.queue("q", retention=0)
    first = await store.reach(State.DONE, key="k", window=10 * HOUR)
    store.advance(HOUR)  # the resend window is over as well
    await store.sweep()
    assert await store.missing(first)
    again = await store.add(id=first, payload=b"again")
    await absorbed_by(store, first)
    await creates(store, _REPLACE, payload=b"new")
    assert (await store.get(again)).payload == b"again"


async def test_key_outlives_its_job__and_absorbs_its_own_id_sent_again(store: Harness) -> None:
    await store.queue("q", retention=0)
    first = await store.reach(State.DONE, key="k", window=10 * HOUR)
    store.advance(HOUR)  # the resend window is over as well
    await store.sweep()
    await absorbed_by(store, first, id=first)
    store.advance(9 * HOUR)
    await creates(store, id=first)


async def test_key_works_inside_a_group(store: Harness) -> None:
    group = [store.job(key="a"), store.job(key="b"), store.job(key="a"), store.job(), store.job(key="a")]
    receipts = await store.enqueue(*group)
    assert [receipt.of for receipt in receipts] == [None, None, group[0].id, None, group[0].id]
    assert await store.count(State.READY) == 3
    assert [await store.missing(job.id) for job in group] == [False, False, True, False, True]


async def test_key_works_inside_a_group__replace(store: Harness) -> None:
    payloads = [b"1", b"2", b"3"]
    group = [store.job(key="k", mode=_REPLACE, payload=payload) for payload in payloads]
    receipts = await store.enqueue(*group)
    assert [receipt.status for receipt in receipts] == [Status.CREATED, Status.REPLACED, Status.REPLACED]
    assert [receipt.of for receipt in receipts] == [None, group[0].id, group[0].id]
    lease = await (await store.worker()).one()
    assert (lease.job, lease.payload) == (group[0].id, b"3")


async def test_key_works_inside_a_group__of_many(store: Harness) -> None:
    first = await store.add(key="7")
    group = [store.job(key=str(number % 400), mode=_THROTTLE) for number in range(1_000)]
    receipts = await store.enqueue(*group)
    standing = {str(number): group[number].id for number in range(400)} | {"7": first}
    for number, (job, receipt) in enumerate(zip(group, receipts, strict=True)):
        created = number < 400 and number != 7
        assert receipt.status is (Status.CREATED if created else Status.DUPLICATE), number
        assert receipt.of == (None if created else standing[str(job.key)]), number
    assert await store.count(State.READY) == 400


async def test_key_works_inside_a_group__of_a_flow(store: Harness) -> None:
    """The first in the group is the first, also when its parent has to be created before it."""
    parent = store.job()
    child, later = store.job(key="k", after=(Edge(parent.id),)), store.job(key="k")
    receipts = await store.enqueue(child, later, parent)
    assert receipts == [
        Receipt(Status.CREATED, child.id),
        Receipt(Status.DUPLICATE, later.id, of=child.id),
        Receipt(Status.CREATED, parent.id),
    ]


async def test_key_works_inside_a_group__and_across_groups(store: Harness) -> None:
    first, second = store.job(key="k"), store.job(key="k")
    receipts = await store.broker.enqueue([[first], [second]])
    assert [receipts[0][0].status, receipts[1][0].of] == [Status.CREATED, first.id]


# throttle


@pytest.mark.parametrize("state", State)
async def test_throttle_is_one_per_window(store: Harness, state: State) -> None:
    first = await store.reach(state, key="k", mode=_THROTTLE, window=MINUTE)
    await absorbed_by(store, first, _THROTTLE, payload=b"second")
    store.advance(MINUTE - 1)
    await store.sweep()
    await absorbed_by(store, first, _THROTTLE)


async def test_throttle_is_one_per_window__from_acceptance(store: Harness) -> None:
    """A run that takes part of the window takes it from the window."""
    worker = await store.worker()
    for _ in range(3):
        first = await creates(store, _THROTTLE, window=MINUTE)
        store.advance(MINUTE // 2)
        await store.done(await worker.one())
        store.advance(MINUTE // 2 - 1)
        await absorbed_by(store, first, _THROTTLE, window=MINUTE)
        store.advance(1)


async def test_throttle_is_one_per_window__and_one_at_a_time(store: Harness) -> None:
    """Beyond its window a job that has not finished still holds its key, and lets go of it when it has."""
    first = await creates(store, _THROTTLE, window=MINUTE)
    store.advance(HOUR)
    await store.sweep()
    await absorbed_by(store, first, _THROTTLE, window=MINUTE)
    lease = await (await store.worker()).one()
    await absorbed_by(store, first, _THROTTLE, window=MINUTE)
    await store.done(lease)
    await creates(store, _THROTTLE, window=MINUTE)


async def test_throttle_is_one_per_window__although_nothing_is_kept(store: Harness) -> None:
    await store.queue("q", retention=0)
    first = await store.reach(State.DONE, key="k", mode=_THROTTLE, window=HOUR)
    store.advance(HOUR - 1)
    await store.sweep()
    await absorbed_by(store, first, _THROTTLE)
    store.advance(1)
    await creates(store, _THROTTLE)


# replay


async def test_replay_takes_its_key_again(store: Harness) -> None:
    first = await store.reach(State.DEAD, key="k", window=MINUTE)
    store.advance(MINUTE)
    await store.sweep()
    assert await store.replay(first) == Operated(first, Effect.APPLIED, State.READY)
    await absorbed_by(store, first)
    await replaces(store, first, window=MINUTE)
    await store.done(await (await store.worker()).one())
    store.advance(MINUTE - 1)
    await absorbed_by(store, first)
    store.advance(1)
    await creates(store)


async def test_replay_takes_its_key_again__within_its_own_window(store: Harness) -> None:
    first = await store.reach(State.DEAD, key="k", window=HOUR)
    assert (await store.replay(first)).effect is Effect.APPLIED
    store.advance(2 * HOUR)
    await store.sweep()
    await absorbed_by(store, first)


@pytest.mark.parametrize("state", State)
async def test_replay_takes_its_key_again__or_conflicts(store: Harness, state: State) -> None:
    """Any job that holds the key: one that waits, one that runs, or one that finished within its window."""
    first = await store.reach(State.DEAD, key="k")
    holder = await store.reach(state, key="k", window=MINUTE)
    before = await store.everything()
    assert await store.replay(first) == Operated(first, Effect.CONFLICT, State.DEAD, by=holder)
    assert await store.everything() == before
    await absorbed_by(store, holder)


async def test_replay_takes_its_key_again__when_the_holder_has_ended(store: Harness) -> None:
    first = await store.reach(State.DEAD, key="k")
    second = await store.reach(State.DONE, key="k", window=MINUTE)
    store.advance(MINUTE - 1)
    assert (await store.replay(first)).by == second
    store.advance(1)
    assert (await store.replay(first)).effect is Effect.APPLIED
    await absorbed_by(store, first)


async def test_replay_takes_its_key_again__one_of_two(store: Harness) -> None:
    first, second = await store.reach(State.DEAD, key="k"), await store.reach(State.DEAD, key="k")
    assert list(await store.broker.replay([Target(first), Target(second)])) == [
        Operated(first, Effect.APPLIED, State.READY),
        Operated(second, Effect.CONFLICT, State.DEAD, by=first),
    ]
    assert await store.states([first, second]) == [State.READY, State.DEAD]


async def test_replay_takes_its_key_again__not_from_a_runner_with_a_follower(store: Harness) -> None:
    first = await store.reach(State.DEAD, key="k")
    runner = await store.reach(State.RUNNING, key="k")
    follower = await creates(store, _REPLACE)
    assert (await store.replay(first)).by == runner
    assert (await call(store, _REPLACE)).of == follower


async def test_replay_takes_its_key_again__elsewhere_it_is_another(store: Harness) -> None:
    first = await store.reach(State.DEAD, key="k", lane="a")
    await store.add(key="k", lane="b")
    assert (await store.replay(first)).effect is Effect.APPLIED

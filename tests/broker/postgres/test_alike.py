"""Jobs that differ only in ids and payloads: what is done for all of them at once is as in the model."""

import asyncio
from typing import Any

import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.contract import Broker, Options
from windlass.broker.memory import MemoryBroker
from windlass.broker.postgres.arrays import alike_of
from windlass.broker.postgres.records import new_ids
from windlass.clock import ManualClock
from windlass.conformance.harness import Harness, new_id
from windlass.core.event import FROM_START
from windlass.core.job import NewJob, Status
from windlass.core.state import State
from windlass.core.units import HOUR, SECOND
from windlass.errors import ContractError

__all__ = ["namespaces"]

_NOW = ManualClock().now()
_OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "later": {"delay": HOUR},
    "at a time": {"run_at": _NOW + HOUR},
    "at a time that is over": {"run_at": _NOW - HOUR},
    "of a priority, for a while": {"priority": 7, "expires": HOUR},
    "later, for a while": {"delay": SECOND, "expires": HOUR, "priority": -7},
    "with words of their own": {"headers": {"a": "b"}, "tags": ("x", "y"), "flow": "f", "revision": 3},
    "once": {"max_attempts": 1},
}
_QUEUES: dict[str, dict[str, Any]] = {
    "plain": {},
    "told of": {"emit": "all"},
    "aging": {"age_step": SECOND},
    "weighted": {"bands": {7: 3, 0: 1}},
    "in lanes": {"lane_concurrency": 2},
    "in a line": {"sequence": True},
}


@pytest.mark.parametrize("queue", _QUEUES)
@pytest.mark.parametrize("options", _OPTIONS)
def test_groups_of_jobs_alike_are_kept_as_in_the_model(
    namespaces: Namespaces, queue: str, options: str
) -> None:
    jobs = [_job(b"%d" % number, **_OPTIONS[options]) for number in range(6)]
    assert alike_of(jobs) is not None

    async def seen(store: Harness) -> list[object]:
        broker = store.broker
        await store.queue("q", **_QUEUES[queue])
        found: list[object] = [await broker.enqueue([jobs[:3], jobs[3:5]])]
        found.append(await broker.enqueue([jobs[:3], jobs[3:]]))  # all but the last one were sent before
        found.append(await broker.get([job.id for job in jobs]))
        found += [await store.count(state) for state in State]
        told = await broker.events(FROM_START, 100, 0)
        found.append([(event.job, event.move, event.after) for event in told.items])
        store.clock.advance(2 * SECOND)
        await broker.sweep(limit=100)
        worker = await store.worker()
        found.append([lease.job for lease in (await worker.claim(slots=10)).leases])
        return found

    async def compare() -> None:
        answers: list[list[object]] = []
        for opened in (_modelled, namespaces.open):
            store = await Harness.open(opened, Options())
            try:
                answers.append(await seen(store))
            finally:
                await store.close()
        for number, (expected, found) in enumerate(zip(*answers, strict=True)):
            assert found == expected, f"observation {number}"

    asyncio.run(compare())


def test_jobs_are_handed_out_in_the_order_in_which_they_came_however_many_at_once(
    namespaces: Namespaces,
) -> None:
    """Alone, alike, as several groups of a call, or differing: whichever way each call goes."""
    lanes: tuple[dict[str, Any], ...] = ({}, {"lane": ""}, {"headers": {"a": "b"}})
    sizes = (1, 1_000, 2, 1_000, 1)
    groups = [[_job(b"", **lanes[size % 3]) for _ in range(size)] for size in sizes]
    several = [[_job(b"") for _ in range(900)], [_job(b"") for _ in range(900)]]
    unlike = [[_job(b"", priority=0, flow=f"f{number % 2}") for number in range(700)] for _ in "12"]

    async def test() -> None:
        store = await Harness.open(namespaces.open, Options())
        await store.queue("q")
        for call in (*([group] for group in groups), several, unlike, [[_job(b"last")]]):
            receipts = await store.broker.enqueue(call)
            assert {one.status for group in receipts for one in group} == {Status.CREATED}
            sent.extend(job.id for group in call for job in group)
        worker = await store.worker()
        while leases := (await worker.claim(slots=500)).leases:
            handed_out.extend(lease.job for lease in leases)
        await store.close()

    sent: list[str] = []
    handed_out: list[str] = []
    asyncio.run(test())
    assert handed_out == sent


async def _modelled(clock: ManualClock, options: Options) -> Broker:
    return MemoryBroker(clock=clock, options=options)


def _job(payload: bytes, **options: Any) -> NewJob:
    return NewJob(**{"id": new_id(), "task": "t", "queue": "q", "payload": payload, **options})


def test_jobs_that_differ_in_more_are_not_alike() -> None:
    job = _job(b"x")
    others: tuple[dict[str, Any], ...] = (
        {"task": "u"},
        {"priority": 1},
        {"expires": 5},
        {"headers": {"a": "b"}},
        {"tags": ("x",)},
        {"flow": "f"},
    )
    assert alike_of([job, _job(b"y")]) is not None
    for other in others:
        assert alike_of([job, _job(b"y", **other)]) is None


def test_ids_are_looked_at_together_as_they_are_one_by_one() -> None:
    ids = [new_id() for _ in range(3)]
    assert new_ids(ids) is ids
    for wrong in (
        ["not a uuid", *ids],
        [f"{ids[0]},{ids[1]}", ""],
        [f"{ids[0]},{ids[1]}"],
        [ids[0][:-1] + "A"],
    ):
        with pytest.raises(ContractError, match="canonical"):
            new_ids(wrong)

"""Everything that a broker does can be watched at one seam, and watching changes nothing."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from windlass.broker.contract import Broker, Options
from windlass.broker.memory import MemoryBroker
from windlass.broker.observed import VERBS, Observation, observe
from windlass.clock import ManualClock
from windlass.conformance.harness import Harness, OpenBroker
from windlass.core.lease import Ask
from windlass.errors import ContractError


def opening(seen: list[Observation]) -> OpenBroker:
    async def opened(clock: ManualClock, options: Options) -> Broker:
        return observe(MemoryBroker(clock=clock, options=options), [seen.append])

    return opened


def test_each_verb_is_told_with_its_answer() -> None:
    seen: list[Observation] = []

    async def main() -> None:
        store = await Harness.open(opening(seen))
        job = await store.add()
        lease = await (await store.worker()).one()
        await store.done(lease)
        await store.broker.sweep(limit=5)
        assert [told.verb for told in seen] == ["declare", "enqueue", "beat", "claim", "settle", "sweep"]
        assert seen[1].answer[0][0].job == job
        assert seen[5].kwargs == {"limit": 5}
        assert all(told.seconds >= 0 and told.error is None for told in seen)
        await store.close()

    asyncio.run(main())


def test_an_error_is_told_and_raised() -> None:
    seen: list[Observation] = []

    async def main() -> None:
        store = await Harness.open(opening(seen))
        with pytest.raises(ContractError):
            await store.broker.claim(Ask(queues=(), slots=2, limit=1))
        assert isinstance(seen[-1].error, ContractError)

    asyncio.run(main())


def test_blocking_calls_are_told_too() -> None:
    seen: list[Observation] = []

    async def main() -> None:
        store = await Harness.open(opening(seen))
        blocking = store.broker.blocking
        assert blocking is not None
        blocking.enqueue([[store.job()]])
        with pytest.raises(TypeError):
            blocking.enqueue([3])  # pyright: ignore[reportArgumentType]
        assert [(told.verb, told.error is None) for told in seen[1:]] == [
            ("enqueue", True),
            ("enqueue", False),
        ]

    asyncio.run(main())


def test_an_observer_that_fails_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []

    def broken(_: Observation) -> None:
        raise RuntimeError("no")

    async def main() -> None:
        broker = observe(MemoryBroker(clock=ManualClock()), [broken, seen.append])
        await broker.counts()
        await broker.counts()

    asyncio.run(main())
    assert len(seen) == 2
    message = "an observer of the broker failed and is left out from now on: RuntimeError in "
    assert [record.message for record in caplog.records] == [message + broken.__qualname__]


def test_an_observer_that_fails_in_many_threads_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    together = threading.Barrier(4)

    def broken(_: Observation) -> None:
        together.wait(10)
        raise RuntimeError("no")

    blocking = observe(MemoryBroker(), [broken]).blocking
    assert blocking is not None
    with ThreadPoolExecutor(4) as pool:
        assert [list(answer) for answer in pool.map(blocking.enqueue, [[]] * 4)] == [[]] * 4
    assert len(caplog.records) == 1


def test_an_observation_does_not_show_what_was_asked() -> None:
    seen = Observation(verb="enqueue", args=("secret",), kwargs={}, answer="secret", seconds=0.0012)
    assert repr(seen) == "<enqueue: answered in 1.200 ms>"


def test_without_observers_there_is_no_wrapper() -> None:
    broker = MemoryBroker()
    assert observe(broker, []) is broker


def test_every_verb_of_the_contract_is_wrapped() -> None:
    assert {"enqueue", "claim", "settle", "sweep", "fire", "cancel", "declare", "explain"} <= VERBS
    assert "capabilities" not in VERBS

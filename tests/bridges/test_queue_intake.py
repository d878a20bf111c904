"""Queues: a message is acknowledged when its job is accepted; what comes again is known by its id."""

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from tests.bridges.bench import Bench, LosesAnswers
from tests.bridges.fake_sources import FakeQueueSource, Queue, Trouble

from windlass.bridges.message import Message
from windlass.broker.contract import Options
from windlass.core.job import HIGHEST_PRIORITY
from windlass.core.lease import Ask
from windlass.core.outcome import Cause, CauseKind, Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Retention
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.errors import BridgeUnavailable


@pytest.mark.parametrize("seed", range(20))
def test_each_id_is_one_job_through_repeats_reordering_lost_answers_and_kills(seed: int) -> None:
    bench, queue = Bench(), Queue()
    draw, trouble = random.Random(seed), Trouble(seed, 0.05)
    bench.broker = LosesAnswers(bench.model, seed, 0.1)
    source = partial(FakeQueueSource, queue, bench.pace, trouble, shuffle=draw.shuffle)
    count = 300

    async def story() -> None:
        await bench.start(source)
        await bench.start(source)
        for number in range(count):
            for _ in range(1 + (draw.random() < 0.2)):
                queue.put({"n": number}, f"m{number}")
            if draw.random() < 0.03:
                await bench.kill(len(bench.running) - 1)
                await bench.start(source)
            await bench.pace.sleep(draw.random() / 10)
        await bench.until_taken(*range(count))

        async def all_acknowledged() -> bool:
            return not queue.waiting and not queue.held

        await bench.until(all_acknowledged)
        assert await bench.numbers() == list(range(count))
        assert len(queue.received) > count
        assert bench.broker.lost > 0

    bench.play(story)


@pytest.mark.parametrize(
    ("options", "again", "is_known"),
    [
        ({}, "m1", True),
        ({"window": "1h"}, "m1", True),
        ({"window": "0s"}, "m1", False),
        ({"key": "body.n"}, "m2", False),
        ({"key": "body.n", "window": "1h"}, "m2", True),
    ],
)
def test_an_id_or_a_key_is_known_for_the_window_after_the_end_of_its_job(
    options: dict[str, Any], again: str, is_known: bool
) -> None:
    """Beyond what is kept of the job: a message may come again after that."""
    bench, queue = Bench(store=Options(retention=Retention(retention=0)), **options), Queue()

    async def story() -> None:
        await bench.start(partial(FakeQueueSource, queue, bench.pace))
        queue.put({"n": 1}, "m1")
        await bench.until_taken(1)
        await bench.model.beat([Beat(session="s", open=SessionInfo(queues=("default",), slots=1))])
        (lease,) = (
            await bench.model.claim(Ask(session="s", seq=1, queues=("default",), slots=1, limit=1))
        ).leases
        await bench.model.settle([Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE)])
        await bench.pace.sleep(60)
        queue.put({"n": 1}, again)
        queue.put({"n": 2}, "m3")
        await bench.until_taken(*([2] if is_known else [1, 2]))

    bench.play(story)


def test_nothing_is_acknowledged_while_the_store_does_not_accept() -> None:
    bench, queue = Bench(), Queue()
    bench.broker = LosesAnswers(bench.model, 1, 2.0)  # every take fails before it is done

    async def story() -> None:
        await bench.start(partial(FakeQueueSource, queue, bench.pace))
        for number in range(10):
            queue.put({"n": number}, f"m{number}")
        status = await bench.until_told(
            lambda told: any("line broke" in each.error for each in told.partitions.values())
        )
        assert list(status.partitions) == [bench.processes[0].session]
        assert await bench.jobs() == []
        assert len(queue.waiting) + len(queue.held) == 10

    bench.play(story)


def test_unreadable_messages_are_dead_letters_once_each() -> None:
    bench, queue = Bench(), Queue()

    async def story() -> None:
        await bench.start(partial(FakeQueueSource, queue, bench.pace))
        for _ in range(2):
            queue.put(b"no JSON", "bad")
            await bench.pace.sleep(5)
        queue.put({"n": 1}, "m1")
        await bench.until_taken(1)
        dead = [job for job in await bench.jobs() if job.state is State.DEAD]
        assert [job.payload for job in dead] == [b"no JSON"]

    bench.play(story)


def test_priority_of_a_message_is_that_of_its_job() -> None:
    bench, queue = Bench(), Queue()

    async def story() -> None:
        await bench.start(partial(FakeQueueSource, queue, bench.pace))
        for number, priority in enumerate((None, 0, 9, 255)):
            queue.put({"n": number}, f"m{number}", priority=priority)
        await bench.until_taken(0, 1, 2, 3)
        found = {msgspec.json.decode(job.payload)["k"]["n"]: job.priority for job in await bench.jobs()}
        assert found == {0: bench.app.tasks["ship"].pattern.priority, 1: 0, 2: 9, 3: HIGHEST_PRIORITY}

    bench.play(story)


def test_readers_whose_sessions_have_ended_are_shown_no_more() -> None:
    bench, queue = Bench(), Queue()

    async def story() -> None:
        source = partial(FakeQueueSource, queue, bench.pace)
        await bench.start(source)
        await bench.start(source)
        first, second = (process.session for process in bench.processes)
        await bench.until_told(lambda told: set(told.partitions) == {first, second})
        await bench.stop(bench.running[0])
        await bench.until_told(lambda told: set(told.partitions) == {second})

    bench.play(story)


def test_a_reader_whose_session_was_lost_is_shown_once_by_its_new_one() -> None:
    bench, queue = Bench(), Queue()

    async def story() -> None:
        source = partial(FakeQueueSource, queue, bench.pace)
        await bench.start(source)
        await bench.start(source)
        lost, other = (process.session for process in bench.processes)
        await bench.until_told(lambda told: set(told.partitions) == {lost, other})
        await bench.model.end_session(lost, Cause(CauseKind.STOP, "stopped"))
        status = await bench.until_told(
            lambda told: lost not in told.partitions and bench.processes[0].session in told.partitions
        )
        assert set(status.partitions) == {bench.processes[0].session, other}
        assert all(partition == each.owner for partition, each in status.partitions.items())
        await bench.stop(bench.running[0])
        await bench.until_told(lambda told: set(told.partitions) == {other})

    bench.play(story)


def test_a_queue_that_could_not_be_opened_is_shown_once_after_its_session_was_lost() -> None:
    bench, queue = Bench(), Queue()
    refused = [BridgeUnavailable("away")]

    def opens() -> FakeQueueSource:
        if refused:
            raise refused[0]
        return FakeQueueSource(queue, bench.pace)

    async def story() -> None:
        await bench.start(opens)
        (process,) = bench.processes
        lost = process.session
        await bench.until_told(lambda told: told.partitions[lost].error == "away")
        await bench.model.end_session(lost, Cause(CauseKind.STOP, "stopped"))
        await bench.until_told(lambda told: set(told.partitions) == {process.session} != {lost})
        refused.clear()
        await bench.until_told(lambda told: not told.partitions[process.session].error)
        assert set((await bench.status()).partitions) == {process.session}

    bench.play(story)


def test_a_short_trouble_after_a_long_one_and_an_hour_of_work_is_tried_again_soon() -> None:
    """Although nothing was taken in that hour."""
    bench, queue = Bench(), Queue()
    away = True

    class Sometimes(FakeQueueSource):
        async def receive(self, limit: int, timeout: float) -> Sequence[Message]:
            if away:
                raise BridgeUnavailable("away")
            return await super().receive(limit, timeout)

    async def story() -> None:
        nonlocal away
        await bench.start(partial(Sometimes, queue, bench.pace))
        await bench.pace.sleep(300)
        away = False
        await bench.pace.sleep(3_600)
        away = True
        await bench.pace.sleep(2)
        queue.put({"n": 1}, "m1")
        away = False
        await bench.pace.sleep(5)
        assert await bench.numbers() == [1]

    bench.play(story)


def test_keys_that_are_numbers_differ_in_every_digit() -> None:
    bench, queue = Bench(key="body.at", window="1h", arguments={"n": "body.n"}), Queue()
    keys = (1763532000.1, 1763532000.2, 1234567.0, 1234567, 1234567.5, 12345678901234567890)

    async def story() -> None:
        await bench.start(partial(FakeQueueSource, queue, bench.pace))
        for number, key in enumerate(keys):
            queue.put({"n": number, "at": key}, f"m{number}")
        await bench.until_taken(0, 1, 2, 4, 5)
        found = {msgspec.json.decode(job.payload)["k"]["n"]: job.key for job in await bench.jobs()}
        assert found == {
            0: "1763532000.1",
            1: "1763532000.2",
            2: "1234567",
            4: "1234567.5",
            5: "12345678901234567890",
        }

    bench.play(story)

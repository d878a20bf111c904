"""Messages that nobody can read, and those whose jobs the store refuses: nothing is held up by them."""

from functools import partial

import pytest
from tests.bridges.bench import Bench
from tests.bridges.fake_sources import FakeLogSource, Topic

from windlass.broker.contract import Options
from windlass.core.intake import UNREAD
from windlass.core.state import State


def test_what_nobody_can_read_is_a_dead_letter_with_its_bytes_and_the_reason() -> None:
    bench, topic = Bench(), Topic("0")
    bodies = [b"\xff\x00 no JSON", b"[1, 2]", b'{"m": 3}', None, b'{"n": "x"}', b"[" * 100_000]
    for body in bodies:
        topic.put(body)
    topic.put({"n": 1})

    async def story() -> None:
        await bench.start(partial(FakeLogSource, topic, bench.pace))
        await bench.until_taken(1)
        dead = [job for job in await bench.jobs() if job.state is State.DEAD]
        assert sorted(job.payload for job in dead) == sorted(body or b"" for body in bodies)
        assert {job.task for job in dead} == {"ship"}
        assert all(job.error is not None and job.error.type == "UnreadableMessage" for job in dead)
        reasons = " / ".join(job.error.message for job in dead if job.error is not None)
        for reason in ("not JSON", "tombstone", "ship()"):
            assert reason in reasons
        status = await bench.until_told(lambda told: told.partitions["0"].taken == 7)
        assert status.partitions["0"].dead == 6

    bench.play(story)


def test_tombstones_may_be_skipped() -> None:
    bench, topic = Bench(tombstones="skip"), Topic("0")
    topic.put(None, key="k")
    topic.put({"n": 1})

    async def story() -> None:
        await bench.start(partial(FakeLogSource, topic, bench.pace))
        await bench.until_taken(1)
        assert len(await bench.jobs()) == 1
        assert [offset.at for offset in await bench.model.offsets()] == ["2"]

    bench.play(story)


def test_a_message_names_one_of_the_tasks_that_are_listed_and_no_other() -> None:
    bench, topic = Bench(task="headers.task", tasks=["ship"]), Topic("0")
    topic.put({"n": 1}, headers={"task": "ship"})
    topic.put({"n": 2}, headers={"task": "bill"})
    topic.put({"n": 3}, headers={"task": "windlass.webhook"})
    topic.put({"n": 4})

    async def story() -> None:
        await bench.start(partial(FakeLogSource, topic, bench.pace))
        await bench.until_taken(1)
        dead = [job for job in await bench.jobs() if job.state is State.DEAD]
        assert [job.task for job in dead] == [UNREAD] * 3

    bench.play(story)


def test_a_queue_that_a_message_names_and_nobody_declared_makes_a_dead_letter() -> None:
    bench, topic = Bench(queue="headers.queue"), Topic("0")
    topic.put({"n": 1}, headers={"queue": "nowhere"})
    topic.put({"n": 2})

    async def story() -> None:
        await bench.start(partial(FakeLogSource, topic, bench.pace))
        await bench.until_taken(2)
        (dead,) = (job for job in await bench.jobs() if job.state is State.DEAD)
        assert (dead.queue, dead.payload) == ("default", b'{"n":1}')
        assert dead.error is not None
        assert (dead.error.type, "nowhere" in dead.error.message) == ("RefusedMessage", True)

    bench.play(story)


def test_a_full_store_refuses_no_message_for_good() -> None:
    bench, topic = Bench(store=Options(max_size=20_000)), Topic("0")
    for number in range(3_000):
        topic.put({"n": number})

    async def story() -> None:
        await bench.start(partial(FakeLogSource, topic, bench.pace))
        status = await bench.until_told(
            lambda told: "0" in told.partitions and "full" in told.partitions["0"].waits_for
        )
        assert not status.partitions["0"].stopped
        assert await bench.numbers(State.DEAD) == []
        bench.model._ns.options = Options()  # an operator has made room
        await bench.until_taken(*range(3_000))

    bench.play(story)


@pytest.mark.parametrize("size", [9 << 20, 3 << 20])
def test_a_message_of_any_size_is_kept_as_far_as_a_step_goes(size: int) -> None:
    bench, topic = Bench(), Topic("0")
    for _ in range(3):
        topic.put(b"x" * size)

    async def story() -> None:
        await bench.start(partial(FakeLogSource, topic, bench.pace))
        await bench.until_told(lambda told: "0" in told.partitions and told.partitions["0"].taken == 3)
        dead = await bench.jobs()
        assert [len(job.payload) for job in dead] == [min(size, 8 << 20)] * 3

    bench.play(story)


def test_refused_messages_that_are_larger_than_their_jobs_hold_up_nothing() -> None:
    """Their dead letters carry them whole, and are taken in as many steps as that needs."""
    bench = Bench(queue="headers.queue", arguments={"n": "body.n"})
    topic = Topic("0")
    for number in range(12):
        topic.put({"n": number, "more": "x" * (1 << 20)}, headers={"queue": "nowhere"})
    topic.put({"n": 12})

    async def story() -> None:
        await bench.start(partial(FakeLogSource, topic, bench.pace))
        await bench.until_taken(12)
        dead = [job for job in await bench.jobs() if job.state is State.DEAD]
        assert [len(job.payload) > 1 << 20 for job in dead] == [True] * 12

    bench.play(story)


@pytest.mark.parametrize("digits", [400, 5_000])
def test_a_number_that_is_too_large_for_anything_is_a_dead_letter(digits: int) -> None:
    bench, topic = Bench(priority="body.priority", arguments={"n": "body.n"}), Topic("0")
    topic.put(b'{"n": 1, "priority": 1%s}' % (b"0" * digits))
    topic.put({"n": 2})

    async def story() -> None:
        await bench.start(partial(FakeLogSource, topic, bench.pace))
        await bench.until_taken(2)
        (dead,) = (job for job in await bench.jobs() if job.state is State.DEAD)
        assert dead.error is not None
        assert dead.error.type == "UnreadableMessage"

    bench.play(story)

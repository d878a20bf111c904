"""Logs: every message becomes one job, whatever fails in between."""

import logging
import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from tests.bridges.bench import Bench, LosesAnswers, run
from tests.bridges.fake_sources import FakeLogSource, Topic, Trouble

from windlass.bridges.from_log import offset_of
from windlass.broker.memory import MemoryBroker
from windlass.core.intake import INTAKE_HEADER, PLACE_HEADER, IntakeStatus
from windlass.core.lease import Ask
from windlass.core.outcome import Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.take import Offset, Source, Take, Taken, TakeStatus
from windlass.errors import InvalidOption, StoreUnavailable


def test_each_message_becomes_one_job_that_says_where_it_came_from() -> None:
    bench, topic = Bench(lane="headers.tenant", priority="headers.priority"), Topic("0")
    topic.put({"n": 1}, headers={"tenant": "acme", "priority": "7"})
    topic.put({"n": 2})

    async def story() -> None:
        await bench.start(partial(FakeLogSource, topic, bench.pace))
        await bench.until_taken(1, 2)
        jobs = {msgspec.json.decode(job.payload)["k"]["n"]: job for job in await bench.jobs()}
        assert (jobs[1].lane, jobs[1].priority) == ("acme", 7)
        assert (jobs[2].lane, jobs[2].priority) == ("", bench.app.tasks["ship"].pattern.priority)
        assert jobs[2].headers == {INTAKE_HEADER: "orders", PLACE_HEADER: "0/1"}
        (offset,) = await bench.model.offsets()
        assert (offset.source, offset.at) == (Source("orders/0", "topic 1"), "2")
        assert topic.committed == {"0": "2"}

    bench.play(story)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_and_nothing_twice_through_lost_answers_outages_and_kills(seed: int) -> None:
    bench, topic = Bench(), Topic("0", "1", "2")
    draw, trouble = random.Random(seed), Trouble(seed)
    bench.broker = LosesAnswers(bench.model, seed)
    count = 400

    async def story() -> None:
        await bench.start(partial(FakeLogSource, topic, bench.pace, trouble))
        for number in range(count):
            topic.put({"n": number}, str(draw.randrange(3)))
            if draw.random() < 0.02:
                await bench.kill(len(bench.running) - 1)
                await bench.start(partial(FakeLogSource, topic, bench.pace, trouble))
            if draw.random() < 0.02:  # for a while two processes read
                await bench.start(partial(FakeLogSource, topic, bench.pace, trouble))
            await bench.pace.sleep(draw.random())
        await bench.until_taken(*range(count))
        assert trouble.happened > 0
        assert bench.broker.lost > 0

    bench.play(story)


def test_jobs_of_a_partition_are_taken_in_its_order() -> None:
    bench, topic = Bench(), Topic("0")
    for number in range(2_500):
        topic.put({"n": number})

    async def story() -> None:
        await bench.start(partial(FakeLogSource, topic, bench.pace))
        await bench.until_taken(*range(2_500))
        await bench.model.beat([Beat(session="s", open=SessionInfo(queues=("default",), slots=9_000))])
        got: list[int] = []
        for seq in range(1, 12):
            ask = Ask(session="s", seq=seq, queues=("default",), slots=500, limit=500)
            leases = (await bench.model.claim(ask)).leases
            got += [msgspec.json.decode(lease.payload)["k"]["n"] for lease in leases]
        assert got == list(range(2_500))

    bench.play(story)


def test_partitions_are_shared_and_taken_over_when_a_process_ends_or_is_killed() -> None:
    bench, topic = Bench(), Topic(*map(str, range(12)))

    async def story() -> None:
        for _ in range(3):
            await bench.start(partial(FakeLogSource, topic, bench.pace))
        sessions = [process.session for process in bench.processes]
        status = await bench.until_told(
            lambda told: {each.owner for each in told.partitions.values()} == set(sessions)
        )
        assert len(status.partitions) == 12
        await bench.stop(bench.running[0])
        await bench.until_told(
            lambda told: {each.owner for each in told.partitions.values()} == set(sessions[1:])
        )
        await bench.kill(1)
        await bench.until_told(
            lambda told: {each.owner for each in told.partitions.values()} == set(sessions[2:])
        )
        for number in range(12):
            topic.put({"n": number}, str(number))
        await bench.until_taken(*range(12))

    bench.play(story)


def test_a_new_partition_is_found() -> None:
    bench, topic = Bench(), Topic("0")

    async def story() -> None:
        await bench.start(partial(FakeLogSource, topic, bench.pace))
        topic.put({"n": 1})
        await bench.until_taken(1)
        topic.kept["1"] = []
        topic.put({"n": 2}, "1")
        await bench.until_taken(1, 2)

    bench.play(story)


def test_who_starts_at_the_end_leaves_out_what_was_there_and_nothing_else() -> None:
    bench, topic = Bench(start="last"), Topic("0")
    topic.put({"n": 1})

    async def story() -> None:
        first = await bench.start(partial(FakeLogSource, topic, bench.pace))

        async def begun() -> bool:
            return bool(await bench.model.offsets())

        await bench.until(begun)
        await bench.stop(first)
        topic.put({"n": 2})
        await bench.start(partial(FakeLogSource, topic, bench.pace))
        await bench.until_taken(2)

    bench.play(story)


@pytest.mark.parametrize("harm", ["made anew", "truncated"])
def test_a_replaced_log_stops_its_partition_until_an_operator_says_where_to_go_on(
    harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench, topic = Bench(), Topic("0", "1")
    topic.put({"n": 1})

    async def story() -> None:
        await bench.start(partial(FakeLogSource, topic, bench.pace))
        await bench.until_taken(1)
        if harm == "made anew":
            topic.make_anew()
        else:
            topic.first["0"] = 5
            for number in range(2, 8):
                topic.put({"n": number})
        status = await bench.until_told(lambda told: told.partitions["0"].stopped)
        assert "another log" in status.partitions["0"].error
        await bench.pace.sleep(60)
        assert await bench.numbers() == [1]
        offset = next(each for each in await bench.model.offsets() if each.source.name == "orders/0")
        forgotten = await bench.model.take(Take(source=offset.source, expect=offset.at, then=None))
        assert forgotten.status is TakeStatus.TAKEN
        if harm == "made anew":
            topic.put({"n": 9})
            await bench.until_taken(1, 9)
        else:
            await bench.until_taken(1, 6, 7)
        await bench.until_told(lambda told: not told.partitions["0"].stopped)

    with caplog.at_level(logging.WARNING, "windlass"):
        bench.play(story)
    assert "intake orders has stopped" in caplog.text


def test_reading_waits_while_jobs_enough_are_ready_whatever_else_there_is() -> None:
    bench, topic = Bench(backlog=1_500), Topic("0")
    for number in range(5_000):
        topic.put({"n": number})

    async def story() -> None:
        await bench.start(partial(FakeLogSource, topic, bench.pace))
        status = await bench.until_told(lambda told: "reading waits" in told.partitions["0"].waits_for)
        assert not status.partitions["0"].stopped
        await bench.pace.sleep(30)
        assert len(await bench.numbers()) == 1_500
        await bench.model.beat([Beat(session="s", open=SessionInfo(queues=("default",), slots=9_000))])
        for seq in range(1, 1_000):
            ask = Ask(session="s", seq=seq, queues=("default",), slots=500, limit=500)
            leases = (await bench.model.claim(ask)).leases
            settled = [Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DEAD) for lease in leases]
            if settled:
                await bench.model.settle(settled)
            elif len(await bench.numbers(State.DEAD)) == 5_000:
                return
            await bench.pace.sleep(1)
        pytest.fail("reading did not go on")

    bench.play(story)


def test_an_operator_pauses_and_resumes_it() -> None:
    bench, topic = Bench(), Topic("0")

    async def story() -> None:
        await bench.start(partial(FakeLogSource, topic, bench.pace))
        topic.put({"n": 1})
        await bench.until_taken(1)
        await bench.pause(True)
        await bench.until_told(lambda told: told.partitions["0"].waits_for == "paused")
        topic.put({"n": 2})
        await bench.pace.sleep(60)
        assert await bench.numbers() == [1]
        await bench.pause(False)
        await bench.until_taken(1, 2)

    bench.play(story)


def test_what_is_paused_reads_nothing_when_its_process_begins() -> None:
    """Not even while the store does not say whether it is."""
    bench, topic = Bench(), Topic("0")

    class Silent:
        """Its documents cannot be read at first."""

        def __init__(self) -> None:
            self.failures = 2

        def __getattr__(self, name: str) -> Any:
            return getattr(bench.model, name)

        async def documents(self, *asked: Any) -> Any:
            if self.failures:
                self.failures -= 1
                raise StoreUnavailable("away")
            return await bench.model.documents(*asked)

    async def story() -> None:
        await bench.app.declare(bench.model)
        await bench.pause(True)
        bench.broker = Silent()
        topic.put({"n": 1})
        await bench.start(partial(FakeLogSource, topic, bench.pace))
        await bench.until_told(lambda told: told.partitions["0"].waits_for == "paused")
        assert bench.broker.failures == 0
        assert await bench.numbers() == []
        await bench.pause(False)
        await bench.until_taken(1)

    bench.play(story)


def test_the_status_tells_lag_and_rate_and_the_outage_of_the_message_broker_and_its_end() -> None:
    bench, topic = Bench(), Topic("0")

    async def story() -> None:
        await bench.start(partial(FakeLogSource, topic, bench.pace))
        for number in range(30):
            topic.put({"n": number})
        status = await bench.until_told(
            lambda told: "0" in told.partitions and told.partitions["0"].taken == 30
        )
        part = status.partitions["0"]
        assert (part.at, part.place, part.dead, part.error) == ("30", "0/29", 0, "")
        assert part.rate > 0
        assert status.warnings == ("it has one replica: set three",)
        topic.away = True
        await bench.until_told(lambda told: "away" in told.partitions["0"].error)
        topic.put({"n": 30})
        topic.away = False
        await bench.until_told(lambda told: not told.partitions["0"].error)
        await bench.until_taken(*range(31))

    bench.play(story)


def test_a_short_outage_after_a_long_one_and_an_hour_of_work_is_over_soon() -> None:
    bench, topic = Bench(), Topic("0")

    async def story() -> None:
        await bench.start(partial(FakeLogSource, topic, bench.pace))
        for outage, work in ((300, 3_600), (4, 0)):
            topic.away = True
            await bench.pace.sleep(outage)
            topic.away = False
            await bench.pace.sleep(work)
        topic.put({"n": 1})
        await bench.pace.sleep(8)
        assert await bench.numbers() == [1]

    bench.play(story)


def test_an_offset_is_found_without_reading_all_others() -> None:
    broker, read = MemoryBroker(), 0

    class Counting:
        async def offsets(self, after: str = "", limit: int = 100) -> Sequence[Offset]:
            nonlocal read
            page = await broker.offsets(after, limit)
            read += len(page)
            return page

        async def take(self, take: Take) -> Taken:
            raise AssertionError(take)

    names = [
        f"{intake}/{number}" for intake in ("order", "orders", "orders 2") for number in range(0, 300, 2)
    ]

    async def story() -> None:
        for name in names:
            await broker.take(Take(source=Source(name, "topic 1"), expect=None, then=name))
        for name in names:
            found = await offset_of(Counting(), name)
            assert found is not None
            assert found.at == name
        for name in ("order/1", "orders/299", "orders 2/298x", "zebras/0", "orders/ü", "orders/\ue000"):
            assert await offset_of(Counting(), name) is None

    run(story())
    assert read <= len(names) + 6


def test_after_an_outage_a_process_tells_of_its_own_share_alone() -> None:
    bench, topic = Bench(), Topic(*map(str, range(12)))

    async def story() -> None:
        await bench.start(partial(FakeLogSource, topic, bench.pace))
        await bench.until_told(lambda told: len(told.partitions) == 12)
        topic.away = True
        await bench.until_told(lambda told: all("away" in each.error for each in told.partitions.values()))
        await bench.start(partial(FakeLogSource, topic, bench.pace))
        await bench.pace.sleep(30)
        topic.away = False
        sessions = {process.session for process in bench.processes}
        await bench.until_told(
            lambda told: {each.owner for each in told.partitions.values() if not each.error} == sessions
        )
        await bench.pace.sleep(30)
        owners = {name: each.owner for name, each in (await bench.status()).partitions.items()}
        assert len(owners) == 12
        for _ in range(60):
            await bench.pace.sleep(1)
            told = await bench.status()
            assert {name: each.owner for name, each in told.partitions.items()} == owners
            assert not _error(told)

    bench.play(story)


def test_an_error_of_ours_is_shown_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    bench, topic = Bench(), Topic("0")
    topic.put({"n": 1})

    class Broken(FakeLogSource):
        async def open(self, partition: str) -> object:  # type: ignore[override]
            if bench.pace.now() < broken_until:
                raise ZeroDivisionError("a mistake")
            return await super().open(partition)

    async def story() -> None:
        nonlocal broken_until
        broken_until = bench.pace.now() + 20
        await bench.start(partial(Broken, topic, bench.pace))
        await bench.until_told(
            lambda told: "0" in told.partitions and "ZeroDivisionError" in told.partitions["0"].error
        )
        await bench.until_taken(1)

    broken_until = 0.0
    with caplog.at_level(logging.ERROR, "windlass"):
        bench.play(story)
    assert "it is tried again" in caplog.text


def test_an_intake_whose_url_has_no_meaning_is_told_of_and_tried_again() -> None:
    """A file of certificates may come later; and the other intakes of the process go on."""
    bench, topic = Bench(), Topic("0")
    topic.put({"n": 1})
    refused = [InvalidOption("the certificates cannot be read"), RuntimeError("of an adapter")]

    def opens() -> FakeLogSource:
        if refused:
            raise refused[0]
        return FakeLogSource(topic, bench.pace)

    async def story() -> None:
        running = await bench.start(opens)
        await bench.until_told(lambda status: "certificates" in _error(status))
        del refused[0]
        await bench.until_told(lambda status: "RuntimeError: of an adapter" in _error(status))
        del refused[0]
        await bench.until_taken(1)
        assert not running.done()

    bench.play(story)


def _error(status: IntakeStatus) -> str:
    return "".join(each.error for each in status.partitions.values())

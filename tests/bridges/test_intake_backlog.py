"""Back-pressure: an intake reads no more while enough jobs are ready, however many readers it has."""

import asyncio
from collections import Counter
from functools import partial
from typing import Any

import msgspec
from tests.bridges.bench import Bench
from tests.bridges.fake_sources import FakeLogSource, FakeQueueSource, Queue, Topic
from tests.worker.virtual import run

from windlass.bridges.backlog import LOOK, Gate
from windlass.bridges.from_queue import QueueIntake
from windlass.bridges.going import Going
from windlass.bridges.mapped import Mapped
from windlass.bridges.message import Message
from windlass.bridges.taking import Taking
from windlass.core.lease import Ask
from windlass.core.outcome import Outcome
from windlass.core.query import Counts
from windlass.core.session import Beat, SessionInfo
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.take import Take, Taken


class Slow:
    """A broker that takes its time for every call, and counts the looks at what is ready."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.looks = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def take(self, take: Take) -> Taken:
        await asyncio.sleep(0.2)
        taken: Taken = await self._model.take(take)
        await asyncio.sleep(0.2)
        return taken

    async def counts(self) -> Counts:
        self.looks += 1
        await asyncio.sleep(0.1)
        counts: Counts = await self._model.counts()
        await asyncio.sleep(0.1)
        return counts


async def ready(bench: Bench) -> int:
    return sum(row.count for row in (await bench.model.counts()).rows if row.state is State.READY)


def test_partitions_share_the_room_and_the_looks_at_it() -> None:
    bench, topic = Bench(backlog=2_500), Topic(*map(str, range(30)))
    bench.broker = slow = Slow(bench.model)
    for partition in topic.kept:
        for number in range(1_000):
            topic.put({"n": number}, partition)

    async def story() -> None:
        await bench.start(partial(FakeLogSource, topic, bench.pace))

        async def full() -> bool:
            return await ready(bench) >= 2_500

        await bench.until(full)
        await bench.pace.sleep(5)
        before = slow.looks
        await bench.pace.sleep(60)
        assert slow.looks - before <= 60 / LOOK
        assert await ready(bench) <= 3_500

    bench.play(story)


def test_what_was_read_while_there_was_room_for_others_is_taken_later_and_once() -> None:
    bench, topic = Bench(backlog=150), Topic(*map(str, range(20)))
    bench.broker = Slow(bench.model)
    count = 2_000
    for number in range(count):
        topic.put({"n": number}, str(number % 20))
    most = ended = 0

    async def story() -> None:
        nonlocal most, ended
        await bench.start(partial(FakeLogSource, topic, bench.pace))
        await bench.model.beat(
            [Beat(session="s", open=SessionInfo(queues=("default",), slots=9_000, ttl=10**15))]
        )
        for seq in range(1, 1_000):
            most = max(most, await ready(bench))
            ask = Ask(session="s", seq=seq, queues=("default",), slots=40, limit=40)
            leases = (await bench.model.claim(ask)).leases
            await bench.model.settle(
                [Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DEAD) for lease in leases]
            )
            ended += len(leases)
            if ended == count:
                break
            await bench.pace.sleep(1)
        assert await bench.numbers(State.DEAD) == list(range(count))

    bench.play(story)
    assert most <= 300


def test_a_queue_whose_messages_are_many_jobs_stops_at_its_bound_and_gives_back_the_rest() -> None:
    bench, queue = Bench(), Queue()
    for number in range(500):
        queue.put({"n": number}, f"m{number}")

    class Wide:
        """Makes a hundred jobs of each message, as a front door's may be."""

        def map(self, message: Message) -> Mapped:
            n = msgspec.json.decode(message.body or b"")["n"]
            task = bench.app.tasks["ship"]
            jobs = (task.job(bench.app.new_id(), task.signature.encode((n,), {})) for _ in range(100))
            return Mapped(tuple(jobs))

        def unfit(self, message: Message, why: str) -> Mapped:
            raise AssertionError(why)

    async def nothing() -> None: ...

    async def story() -> None:
        await bench.app.declare(bench.model)
        intake = QueueIntake(
            bench.app.intakes["orders"].settings,
            FakeQueueSource(queue, bench.pace),
            taking=Taking(bench.model, Wide(), nothing),
            gate=Gate(bench.model, bench.pace, ["default"], 3_000),
            going=Going(bench.pace),
            pace=bench.pace,
            look_at_settings=nothing,
        )
        reading = asyncio.create_task(intake.run())
        await bench.pace.sleep(60)
        assert await ready(bench) == 3_000
        assert (len(queue.waiting), len(queue.held)) == (470, 0)
        await bench.model.beat([Beat(session="s", open=SessionInfo(queues=("default",), slots=9_000))])
        for seq in range(1, 20):
            ask = Ask(session="s", seq=seq, queues=("default",), slots=1_000, limit=1_000)
            leases = (await bench.model.claim(ask)).leases
            await bench.model.settle(
                [Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE) for lease in leases]
            )
            await bench.pace.sleep(5)
        assert len(queue.waiting) <= 470 - 19 * 10
        assert max(Counter(queue.received).values()) <= 2, (
            "a message broker may count how often it was received"
        )
        reading.cancel()

    run(story())

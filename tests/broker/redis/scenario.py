"""A short life of a namespace in which every verb is called."""

import asyncio
from typing import Any
from uuid import UUID

from windlass.broker.redis import RedisBroker
from windlass.clock import ManualClock
from windlass.core.event import FROM_START, Emit
from windlass.core.job import Edge, Mode, NewJob, OnFailure
from windlass.core.lease import Ask, Lease
from windlass.core.limits import Rate
from windlass.core.operate import Edit, Target
from windlass.core.outcome import Cause, CauseKind, Error, Outcome
from windlass.core.query import JobQuery
from windlass.core.session import Beat, Note, SessionInfo
from windlass.core.settings import Declaration, Kind, LaneSettings, QueueSettings, Subject
from windlass.core.settlement import HoldKey, Settlement
from windlass.core.state import State
from windlass.core.take import Source, Take
from windlass.core.timetable import Fire, NewSchedule
from windlass.core.units import HOUR, SECOND, JobId


def job_id(number: int) -> JobId:
    """The id of a job."""
    return str(UUID(int=(0x0190_0000_0000_7000_8000 << 48) + number))


async def live(broker: RedisBroker, clock: ManualClock) -> None:
    """Call everything at least once."""
    await _declare(broker)
    await _produce(broker, clock)
    await _take(broker)
    await _consume(broker, clock)
    await _take_short_ways(broker)
    await _operate(broker)
    await _read(broker)
    await _wait(broker)
    clock.advance(2 * HOUR)
    for _ in range(5):
        await broker.sweep(limit=3)


async def _declare(broker: RedisBroker) -> None:
    queues = {
        "plain": QueueSettings(emit=Emit.ALL),
        "laned": QueueSettings(lane_concurrency=1, lane_rate=Rate(5), retention=0),
        "line": QueueSettings(sequence=True),
        "fair": QueueSettings(lane_concurrency=2, retention=0),
        "simple": QueueSettings(),
    }
    await broker.declare(
        [Declaration(subject=Subject(Kind.QUEUE, name), body=body, app="a") for name, body in queues.items()]
    )
    lane = Subject(Kind.LANE, "laned", "a")
    await broker.declare([Declaration(subject=lane, body=LaneSettings(weight=2), app="a")])
    await broker.override(Subject(Kind.QUEUE, "plain"), QueueSettings(concurrency=50), 1)
    await broker.documents(Kind.QUEUE)


async def _produce(broker: RedisBroker, clock: ManualClock) -> None:
    numbers = iter(range(1, 1_000))
    plain = [NewJob(id=job_id(next(numbers)), task="t", queue="plain", payload=b"x") for _ in range(8)]
    laned = [
        NewJob(id=job_id(next(numbers)), task="t", queue="laned", lane=lane, expires=HOUR) for lane in "abab"
    ]
    line = [NewJob(id=job_id(next(numbers)), task="t", queue="line", lane="z") for _ in range(2)]
    keyed = [
        NewJob(id=job_id(next(numbers)), task="k", queue="plain", key="k", mode=mode, window=SECOND)
        for mode in (Mode.IGNORE, Mode.REPLACE, Mode.THROTTLE)
    ]
    later = NewJob(id=job_id(next(numbers)), task="t", queue="plain", delay=SECOND)
    children = [
        NewJob(
            id=job_id(next(numbers)), task="t", queue="plain", flow="f", after=(Edge(plain[0].id, policy),)
        )
        for policy in OnFailure
    ]
    lost = NewJob(id=job_id(next(numbers)), task="t", queue="nowhere")
    await broker.enqueue([[*plain, *children], laned, line, keyed, [later], [lost]])
    await broker.declare_schedule(NewSchedule(name="s", spec=b"x", next_at=clock.now(), app="a"))
    found = (await broker.schedules()).schedules[0]
    tick = NewJob(id=job_id(next(numbers)), task="t", queue="plain")
    wish = Fire(name="s", version=found.version, expect=clock.now(), then=clock.now() + HOUR, jobs=(tick,))
    await broker.fire(wish)
    await broker.override_schedule("s", b"y", clock.now(), found.version)
    await broker.pause_schedule("s", paused=True)
    await broker.delete_schedule("s")


async def _take(broker: RedisBroker) -> None:
    """Plain jobs and others, born dead, raced, refused, moved without jobs, forgotten."""
    source = Source("orders/0", "first")

    def jobs(first: int, queue: str, **more: Any) -> list[NewJob]:
        return [NewJob(id=job_id(first + n), task="t", queue=queue, **more) for n in range(3)]

    plain, laned = jobs(600, "simple"), jobs(610, "laned", lane="a")
    for take in (
        Take(source=source, expect=None, then="1", groups=[plain]),
        Take(source=source, expect="1", then="2", groups=[laned], dead={laned[0].id: Error(type="E")}),
        Take(source=source, expect="1", then="2", groups=[laned]),
        Take(source=source, expect="2", then="3", groups=[jobs(620, "nowhere")]),
        Take(source=Source("orders/0", "anew"), expect="2", then="3"),
        Take(source=source, expect="2", then="1"),
        Take(source=source, expect="1", then=None, groups=[jobs(630, "simple")]),
        Take(source=source, expect=None, then="4", groups=[laned]),
        Take(source=source, expect="4", then=None),
        Take(source=source, expect=None, then="9"),
    ):
        await broker.take(take)
    await broker.offsets()


async def _consume(broker: RedisBroker, clock: ManualClock) -> None:
    queues = ("plain", "laned", "line")
    info = SessionInfo(queues=queues, ttl=2 * SECOND)
    await broker.beat([Beat(session="one", open=info), Beat(session="two", open=info)])
    clock.advance(SECOND)
    leases = (await broker.claim(Ask(session="one", seq=1, queues=queues, slots=20, limit=20))).leases
    assert len(leases) > 8
    first = leases[0]
    await broker.annotate(
        [Note(job=first.job, fence=first.fence, permille=5, logs=("a", "b"), memo=("m", b"\xff"))]
    )
    error = Error(type="E", message="no")
    words = [
        _word(leases[0], Outcome.DONE, result=b"r", runtime=1),
        _word(leases[1], Outcome.RETRY, delay=SECOND, error=error),
        _word(leases[2], Outcome.DEAD, error=error),
        _word(leases[3], Outcome.HOLD, hold=HoldKey("task:t", "why")),
        _word(leases[4], Outcome.RELEASE),
        _word(leases[5], Outcome.SNOOZE, delay=SECOND),
        _word(leases[6], Outcome.DONE, spawn=(NewJob(id=job_id(900), task="t", queue="plain"),)),
    ]
    ask = Ask(session="one", seq=2, queues=queues, slots=5, limit=5)
    await broker.settle(words, ask)
    await broker.cancel([Target(leases[7].job)])
    await broker.beat([Beat(session="one")])
    await broker.end_session("one", Cause(CauseKind.CRASH, "signal 11"), [(leases[7].job, leases[7].fence)])
    await broker.claim(Ask(visibility=SECOND, queues=queues, slots=2, limit=2))
    for _ in range(4):
        clock.advance(SECOND)
        await broker.sweep(limit=100)


async def _take_short_ways(broker: RedisBroker) -> None:
    """Jobs that ask for nothing special, in lanes and without."""
    queues = ("fair", "simple")
    await broker.beat([Beat(session="short", open=SessionInfo(queues=queues))])
    for first in (700, 720):  # the first lane of a queue takes the long way
        fair = [
            NewJob(id=job_id(first + n), task="t", queue="fair", lane=lane)
            for n, lane in enumerate("abcabcaaa")
        ]
        simple = [NewJob(id=job_id(first + 10 + n), task="t", queue="simple") for n in range(3)]
        await broker.enqueue([fair, simple])
    leases: tuple[Lease, ...] = ()
    for seq in range(1, 9):
        words = [_word(lease, Outcome.DONE, runtime=1, result=b"r" if seq == 3 else None) for lease in leases]
        ask = Ask(session="short", seq=seq, queues=queues, slots=5, limit=5)
        claimed = (await broker.settle(words, ask)).claimed
        assert claimed is not None
        leases = claimed.leases
        if seq == 2:
            await broker.claim(Ask(session="short", seq=seq, queues=queues, slots=5, limit=5))
    assert not leases


def _word(lease: Lease, outcome: Outcome, **more: object) -> Settlement:
    return Settlement(job=lease.job, fence=lease.fence, outcome=outcome, **more)  # type: ignore[arg-type]


async def _operate(broker: RedisBroker) -> None:
    dead = [view.id for view in (await broker.list(JobQuery(states=frozenset({State.DEAD})))).jobs]
    await broker.replay([Target(job) for job in dead[:1]])
    await broker.discard([Target(job) for job in dead])
    waiting = [view.id for view in (await broker.list(JobQuery(states=frozenset({State.READY})))).jobs]
    await broker.edit([Edit(job=job, priority=5, payload=b"y", headers={"a": "b"}) for job in waiting[:2]])
    await broker.cancel([Target(job) for job in waiting[:1]])
    await broker.prune([Target(job) for job in waiting[:2]])
    await broker.unhold("task:t", 10)
    await broker.pause("plain")
    await broker.pause("laned", "a")
    await broker.resume("plain")
    for state in State:
        if state is not State.RUNNING:
            await broker.purge("plain", state, 1)


async def _read(broker: RedisBroker) -> None:
    jobs = [job_id(number) for number in range(1, 30)]
    await broker.get(jobs)
    await broker.watch(jobs, 0)
    await broker.flows()
    await broker.counts()
    await broker.lanes("laned")
    await broker.sessions()
    for job in jobs:
        await broker.explain(job)
    await broker.events(FROM_START, 10, 0)


async def _wait(broker: RedisBroker) -> None:
    for _ in range(3):
        await broker.wait(["plain", "laned", "line"], 0.01)
    waiting = asyncio.create_task(broker.wait(["line"], 30))
    await asyncio.sleep(0)
    while not waiting.done():
        await broker.enqueue([[NewJob(id=job_id(990), task="t", queue="line", lane="new")]])
        await broker.cancel([Target(job_id(990))])
        await asyncio.wait({waiting}, timeout=0.1)

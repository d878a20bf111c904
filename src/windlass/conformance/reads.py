"""Reads: jobs by id and by filter, lanes, sessions, and what a store declares of itself."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from windlass.broker.contract import Capabilities
from windlass.conformance.harness import Harness, ids, new_id
from windlass.core.job import Edge
from windlass.core.limits import Rate
from windlass.core.operate import Edit, Target
from windlass.core.order import STRIDE
from windlass.core.outcome import Cause, CauseKind
from windlass.core.query import FIRST_PAGE, JobQuery, LaneView, Parked
from windlass.core.session import Beat, SessionInfo, SessionState, SessionView
from windlass.core.state import TERMINAL, UNFINISHED, Reason, State
from windlass.core.units import DAY, HOUR, MINUTE, SECOND, Cursor, JobId
from windlass.errors import InvalidOption


async def test_warnings_are_for_people(store: Harness) -> None:
    warnings = await store.broker.warnings()
    assert all(len(text) > 20 and "\n" not in text for text in warnings)


async def test_capabilities_are_declared(store: Harness) -> None:
    declared = store.broker.capabilities
    assert isinstance(declared, Capabilities)
    assert declared.store
    assert len(declared.durability.split()) > 1, "the durability point is said in words"
    assert declared == store.broker.capabilities


async def test_get_answers_in_order(store: Harness) -> None:
    jobs = await store.add_many(3)
    asked = [jobs[2], new_id(), jobs[0], jobs[2], new_id(), jobs[1]]
    answers = await store.broker.get(asked)
    assert [answer and answer.id for answer in answers] == [jobs[2], None, jobs[0], jobs[2], None, jobs[1]]
    assert list(await store.broker.get([])) == []


async def test_get_remembers_how_it_ended(store: Harness) -> None:
    brief = await store.fresh(resend_window=10 * SECOND)
    await brief.queue("q", retention=0)
    worker = await brief.worker()
    done, cancelled = await brief.add(payload=b"secret"), await brief.add()
    lease = await worker.one()
    await brief.done(lease)
    await brief.cancel(cancelled)
    brief.advance(10 * SECOND - 1)
    await brief.sweep()
    memory = await brief.get(done)
    assert (memory.pruned, memory.id, memory.state, memory.fence) == (True, done, State.DONE, lease.fence)
    assert memory.payload == b""
    memory = await brief.get(cancelled)
    assert (memory.pruned, memory.id, memory.state) == (True, cancelled, State.CANCELLED)
    assert (memory.reason, memory.finished_at) == (Reason.CANCELLED, brief.clock.now() - 10 * SECOND + 1)
    assert await brief.listed() == []
    brief.advance(2)
    assert await brief.missing(done)
    assert await brief.missing(cancelled)


async def test_get_remembers_how_it_ended__only_of_what_was_not_kept(store: Harness) -> None:
    job = await store.add(payload=b"whole")
    await store.cancel(job)
    detail = await store.get(job)
    assert (detail.pruned, detail.state, detail.payload) == (False, State.CANCELLED, b"whole")


async def _mixed(store: Harness) -> list[JobId]:
    """Jobs in all states."""
    worker = await store.worker()
    done, dead, running = [await store.add() for _ in range(3)]
    await store.done(await worker.one())
    await store.dead(await worker.one())
    await worker.one()
    blocked = await store.add(after=(Edge(running),))
    scheduled, cancelled, ready = await store.add(delay=DAY), await store.add(), await store.add()
    await store.cancel(cancelled)
    return [done, dead, running, blocked, scheduled, cancelled, ready]


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
async def test_list_pages_cover_everything(store: Harness, limit: int) -> None:
    await store.queue("r")
    jobs = [*await _mixed(store), *await store.add_many(4, queue="r"), *await store.add_many(4, lane="acme")]
    seen: set[JobId] = set()
    page = await store.broker.list(JobQuery(), FIRST_PAGE, limit)
    assert len(page.jobs) <= limit
    seen.update(job.id for job in page.jobs)
    while page.cursor is not None:
        page = await store.broker.list(JobQuery(), page.cursor, limit)
        assert len(page.jobs) <= limit
        seen.update(job.id for job in page.jobs)
    assert seen == set(jobs)


async def test_list_pages_cover_everything__while_it_changes(store: Harness) -> None:
    """What matched throughout is returned, although others come, go and change on the way."""
    worker = await store.worker()
    jobs = await store.add_many(20)
    query = JobQuery(states=frozenset({State.READY, State.CANCELLED}))
    page = await store.broker.list(query, FIRST_PAGE, 3)
    seen = {job.id for job in page.jobs}
    await store.add_many(5)
    await store.broker.cancel([Target(jobs[0]), Target(jobs[10]), Target(jobs[19])])
    await store.broker.edit([Edit(job=jobs[8], priority=-9)])
    gone = set(ids(await worker.take(3)))
    while page.cursor is not None:
        page = await store.broker.list(query, page.cursor, 3)
        seen.update(job.id for job in page.jobs)
    assert set(jobs) - gone <= seen


async def test_list_pages_cover_everything__also_when_pages_are_short(store: Harness) -> None:
    """A page ends after so many rows, matching or not; its cursor goes on."""
    oldest = await store.add(task="rare", lane="acme")
    for _ in range(3):
        await store.add_many(500)
    newest = await store.add(task="rare", lane="acme")
    queries: list[dict[str, Any]] = [{"task": "rare"}, {"lane": "acme"}, {"queue": "q", "task": "rare"}]
    for query in queries:
        assert {job.id for job in await store.listed(**query)} == {oldest, newest}
    assert len({job.id for job in await store.listed(limit=1_000)}) == 1_502


async def test_list_filters(store: Harness) -> None:
    await store.queue("r")
    by_state = {await store.state(job): job for job in await _mixed(store)}
    assert by_state.keys() == set(State)
    other = await store.add(queue="r", task="u", lane="acme", flow="f", delay=DAY)
    mixed = set(by_state.values())

    async def listed(**query: Any) -> set[JobId]:
        views = await store.listed(**query)
        assert all(JobQuery(**query).matches(view) for view in views)
        return {view.id for view in views}

    assert await listed(queue="q") == mixed
    assert await listed(queue="r") == {other}
    assert await listed(queue="s") == set()
    for state, job in by_state.items():
        extra = {other} if state is State.SCHEDULED else set[JobId]()
        assert await listed(states=frozenset({state})) == {job} | extra
        assert await listed(states=frozenset({state}), queue="q") == {job}
    assert await listed(states=TERMINAL) == {by_state[state] for state in TERMINAL}
    assert await listed(states=frozenset[State]()) == set()
    assert await listed(task="t") == mixed
    assert await listed(task="u") == {other}
    assert await listed(lane="acme") == {other}
    assert await listed(lane="") == mixed
    assert await listed(flow="f") == {other}
    assert await listed(flow="") == mixed
    assert await listed(queue="r", task="u", lane="acme", flow="f", states=UNFINISHED) == {other}
    assert await listed(queue="q", task="u") == set()
    assert await listed(queue="r", states=TERMINAL) == set()


async def test_list_is_newest_first(store: Harness) -> None:
    """By acceptance, whatever ids, priorities and states say; inside a group the last is the newest."""
    identities = [new_id() for _ in range(6)]
    order = [identities[place] for place in (4, 0, 5, 2, 1, 3)]
    for job in order[:3]:
        await store.add(id=job)
    await store.enqueue(*(store.job(id=job) for job in order[3:]))
    await store.broker.edit([Edit(job=order[0], priority=50)])
    await (await store.worker()).one()
    await store.cancel(order[4])
    for limit in (1, 2, 4, 100):
        assert [job.id for job in await store.listed(limit=limit)] == order[::-1]
        assert [job.id for job in await store.listed(limit=limit, queue="q", task="t")] == order[::-1]


_IDLE_LANE = LaneView(
    queue="q",
    lane="",
    weight=1,
    ready=0,
    running=0,
    lag=0,
    concurrency=None,
    tokens=None,
    parked=None,
    paused=False,
)


def _lane(lane: str, **facts: Any) -> LaneView:
    """A lane of which nothing else is to be said."""
    return msgspec.structs.replace(_IDLE_LANE, lane=lane, **facts)


async def test_lanes_show_fairness_and_limits(store: Harness) -> None:
    await store.queue("q", lane_concurrency=2)
    await store.lane("q", "a", weight=2, concurrency=1)
    await store.lane("q", "c", rate=Rate(1, SECOND, burst=2))
    await store.lane("q", "d", concurrency=None)
    assert list((await store.broker.lanes("q")).lanes) == [
        _lane("a", weight=2, concurrency=1),
        _lane("c", concurrency=2, tokens=2),
        _lane("d"),
    ]
    await store.add_many(3, lane="a")
    await store.add_many(3, lane="b")
    await store.add_many(3, lane="c")
    assert list((await store.broker.lanes("q")).lanes) == [
        _lane("a", weight=2, ready=3, concurrency=1),
        _lane("b", ready=3, concurrency=2),
        _lane("c", ready=3, concurrency=2, tokens=2),
        _lane("d"),
    ]
    first = await (await store.worker()).one()
    assert (first.lane, await store.lane_view("a")) == (
        "a",
        _lane("a", weight=2, ready=2, running=1, lag=STRIDE // 2, concurrency=1, parked=Parked.CONCURRENCY),
    )
    await (await store.worker()).take(2)
    assert await store.lane_view("b") == _lane("b", ready=2, running=1, lag=STRIDE, concurrency=2)
    assert await store.lane_view("c") == _lane("c", ready=2, running=1, lag=STRIDE, concurrency=2, tokens=1)
    await store.done(first)
    assert await store.lane_view("a") == _lane("a", weight=2, ready=2, lag=STRIDE // 2, concurrency=1)


async def test_lanes_show_fairness_and_limits__the_rate(store: Harness) -> None:
    await store.queue("q", lane_rate=Rate(1, SECOND, burst=2))
    await store.add_many(4, lane="a")
    await (await store.worker()).take(2)
    view = await store.lane_view("a")
    assert (view.ready, view.running, view.tokens, view.parked) == (2, 2, 0, Parked.RATE)
    store.advance(SECOND - 1)
    await store.sweep()
    view = await store.lane_view("a")
    assert (view.tokens, view.parked) == (0, Parked.RATE)
    store.advance(1)
    await store.sweep()
    view = await store.lane_view("a")
    assert (view.tokens, view.parked) == (1, None)


async def test_lanes_show_fairness_and_limits__the_pause(store: Harness) -> None:
    await store.queue("q", lane_concurrency=1)
    await store.add_many(2, lane="a")
    await store.broker.pause("q", "a")
    await store.broker.pause("q", "idle")
    assert (await store.lane_view("a")) == _lane(
        "a", ready=2, concurrency=1, parked=Parked.PAUSED, paused=True
    )
    assert (await store.lane_view("idle")) == _lane("idle", concurrency=1, paused=True), "nothing to park"
    await store.broker.resume("q", "a")
    await store.broker.resume("q", "idle")
    assert list((await store.broker.lanes("q")).lanes) == [_lane("a", ready=2, concurrency=1)]
    await (await store.worker()).one()
    await store.broker.pause("q", "a")
    assert (await store.lane_view("a")).parked is Parked.PAUSED


async def test_lanes_show_fairness_and_limits__of_busy_lanes_only(store: Harness) -> None:
    """Scheduled, blocked and finished jobs do not make a lane listed."""
    worker = await store.worker()
    await store.add(lane="scheduled", delay=HOUR)
    running = await store.add(lane="running")
    await store.add(lane="blocked", after=(Edge(running),))
    lease = await worker.one()
    assert [(view.lane, view.ready, view.running) for view in (await store.broker.lanes("q")).lanes] == [
        ("running", 0, 1)
    ]
    await store.dead(lease)
    assert (await store.broker.lanes("q")).lanes == ()
    assert (await store.broker.lanes("unknown")).lanes == ()


async def test_lanes_show_fairness_and_limits__with_suspects(store: Harness) -> None:
    """A job that waits to run alone is ready all the same."""
    await store.add(lane="a", max_attempts=9)
    for _ in range(2):
        worker = await store.worker()
        await worker.end(CauseKind.CRASH, [await worker.one()])
    store.advance(SECOND)
    await store.sweep()
    assert [(view.lane, view.ready) for view in (await store.broker.lanes("q")).lanes] == [("a", 1)]


async def test_lanes_show_fairness_and_limits__in_a_sequence(store: Harness) -> None:
    await store.queue("q", sequence=True)
    await store.lane("q", "a", concurrency=5)
    await store.add_many(2, lane="a")
    assert (await store.lane_view("a")).concurrency == 1


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_lanes_show_fairness_and_limits__by_name(store: Harness, limit: int) -> None:
    names = sorted(["", "b", "a", "B", "é", "a b", "日本", "z"])
    await store.queue("r")
    for name in reversed(names):
        await store.add(lane=name)
    await store.add(queue="r", lane="elsewhere")
    seen: list[str] = []
    page = await store.broker.lanes("q", FIRST_PAGE, limit)
    seen += [view.lane for view in page.lanes]
    while page.cursor is not None:
        assert len(page.lanes) <= limit
        page = await store.broker.lanes("q", page.cursor, limit)
        seen += [view.lane for view in page.lanes]
    assert seen == names


_FOREIGN = (
    "x",
    ">",
    ">lane\x00",
    "-1",
    "١",
    "1" * 30,
    "end",
    "5:xyz",
    "5:00",
    "é",
    "a\x00b",
    "\ud800",
    "' OR 1=1 --",
    "@5",
    "0192e4a0-5b3c-7abc-8def-0123456789ab",
)


async def test_cursors_are_checked(store: Harness) -> None:
    await store.add_many(3, lane="a")
    await store.add_many(3, lane="b")
    broker = store.broker
    listings: dict[str, Callable[[Cursor], Awaitable[Any]]] = {
        "list": lambda cursor: broker.list(JobQuery(), cursor, 1),
        "list dead": lambda cursor: broker.list(JobQuery(states=frozenset({State.DEAD})), cursor, 1),
        "list flow": lambda cursor: broker.list(JobQuery(flow="f"), cursor, 1),
        "flows": lambda cursor: broker.flows(cursor, 1),
        "lanes": lambda cursor: broker.lanes("q", cursor, 1),
        "lanes of nothing": lambda cursor: broker.lanes("nowhere", cursor, 1),
        "schedules": lambda cursor: broker.schedules(cursor, 1),
        "events": lambda cursor: broker.events(cursor, 1, 0.0),
    }
    pages = [await listings["list"](FIRST_PAGE), await listings["lanes"](FIRST_PAGE)]
    cursors = [page.cursor for page in pages]
    assert None not in cursors
    for name, listing in listings.items():
        refused = 0
        for cursor in (*cursors, *map(Cursor, _FOREIGN)):
            try:
                await listing(cursor)
            except InvalidOption as error:
                assert "cursor" in str(error), name  # noqa: PT017 - some of them could be its own
                refused += 1
        assert refused >= 7, (name, refused)
    for wrong in (">b", "nobody", "1" * 30):
        for name in ("list", "list dead", "list flow", "events"):
            with pytest.raises(InvalidOption):
                await listings[name](Cursor(wrong))
    for wrong in ("5", "b", "5:"):
        with pytest.raises(InvalidOption):
            await listings["lanes"](Cursor(wrong))


async def _session(store: Harness, session: str) -> SessionView:
    return next(view for view in await store.broker.sessions() if view.id == session)


async def test_sessions_show_who_is_alive(store: Harness) -> None:
    assert list(await store.broker.sessions()) == []
    await store.sweep()
    info = SessionInfo(
        host="h",
        boot="b",
        pid_namespace="p",
        pid=7,
        process_started=9,
        supervisor="v",
        app="shop",
        version="1",
        queues=("q",),
        slots=4,
        ttl=HOUR,
    )
    opened_at = store.clock.now()
    await store.broker.beat([Beat(session="worker-1", open=info, memory=1_000)])
    expected = SessionView(
        id="worker-1",
        info=info,
        state=SessionState.ALIVE,
        opened_at=opened_at,
        silent_for=0,
        leases=0,
        memory=1_000,
    )
    assert list(await store.broker.sessions()) == [expected]
    store.advance(SECOND)
    await store.broker.beat([Beat(session="worker-1", memory=2_000)])
    view = await _session(store, "worker-1")
    assert (view.memory, view.opened_at, view.info) == (2_000, opened_at, info)


async def test_sessions_show_who_is_alive__with_their_leases(store: Harness) -> None:
    worker, other = await store.worker(), await store.worker()
    await store.add_many(4)
    first, second, _ = await worker.take(3)
    await other.one()
    assert [(await _session(store, w.id)).leases for w in (worker, other)] == [3, 1]
    await store.done(first)
    await store.release(second)
    assert [(await _session(store, w.id)).leases for w in (worker, other)] == [1, 1]
    await worker.end(CauseKind.STOP)
    assert [(await _session(store, w.id)).leases for w in (worker, other)] == [0, 1]


async def test_sessions_show_who_is_alive__by_their_silence(store: Harness) -> None:
    """On the liveness clock, which an outage does not move."""
    await store.sweep()
    silent, beating = await store.worker(), await store.worker()
    for _ in range(3):
        store.advance(SECOND)
        await store.sweep()
    await beating.beat()
    store.advance(SECOND // 2)
    await store.sweep()
    views = [await _session(store, worker.id) for worker in (silent, beating)]
    assert [view.silent_for for view in views] == [3 * SECOND + SECOND // 2, SECOND // 2]
    store.advance(DAY)
    assert (await _session(store, silent.id)).silent_for == 3 * SECOND + SECOND // 2
    await store.sweep()
    assert (await _session(store, silent.id)).silent_for == 4 * SECOND + SECOND // 2


async def test_sessions_show_who_is_alive__and_for_an_hour_who_ended(store: Harness) -> None:
    stopped, crashed, reaped = [await store.worker() for _ in range(3)]
    await stopped.end(CauseKind.STOP, detail="deploy")
    await crashed.end(CauseKind.CRASH, detail="signal 11")
    for _ in range(32):
        store.advance(SECOND)
        await store.sweep()
    views = {view.id: view for view in await store.broker.sessions()}
    assert {view.state for view in views.values()} == {SessionState.ENDED}
    assert views[stopped.id].cause == Cause(CauseKind.STOP, "deploy")
    assert views[crashed.id].cause == Cause(CauseKind.CRASH, "signal 11")
    lost = views[reaped.id].cause
    assert lost is not None
    assert lost.kind is CauseKind.LOST
    store.advance(HOUR - 33 * SECOND)
    await store.sweep()
    assert len(await store.broker.sessions()) == 3
    store.advance(MINUTE)
    await store.sweep()
    assert list(await store.broker.sessions()) == []


async def test_sessions_show_who_is_alive__by_id(store: Harness) -> None:
    for session in ("s2", "s10", "B", "a", "s1"):
        await store.broker.beat([Beat(session=session, open=SessionInfo())])
    names = ["B", "a", "s1", "s10", "s2"]
    assert [view.id for view in await store.broker.sessions()] == names
    for limit in (1, 2, 5, 100):
        seen: list[str] = []
        while page := await store.broker.sessions(seen[-1] if seen else "", limit):
            assert len(page) <= limit
            seen += [view.id for view in page]
        assert seen == names
    assert [view.id for view in await store.broker.sessions("s")] == ["s1", "s10", "s2"]

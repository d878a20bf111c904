"""Sessions: how they come to be, what a pulse tells them, and that an ended one never returns."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from windlass.conformance.endings import words
from windlass.conformance.harness import Harness, Worker, ids, same
from windlass.core.lease import Ask, Asker
from windlass.core.operate import Target
from windlass.core.outcome import Cause, CauseKind, Outcome
from windlass.core.session import END_LEASES, ENDED_KEPT, Beat, Ended, Pulse, SessionInfo, SessionState
from windlass.core.settings import Change, Kind, LaneSettings, QueueSettings, Subject
from windlass.core.state import State
from windlass.core.units import HOUR, SECOND, JobId


async def _open(store: Harness, session: str, **info: Any) -> Pulse:
    return (await store.broker.beat([Beat(session=session, open=SessionInfo(**info))]))[0]


# beat


async def test_only_open_creates_a_session(store: Harness) -> None:
    await store.add()
    (pulse,) = await store.broker.beat([Beat(session="s")])
    assert (pulse.session, pulse.alive, pulse.cancel) == ("s", False, ())
    ask = Ask(session="s", seq=1, queues=("q",), slots=1, limit=1)
    claimed = await store.broker.claim(ask)
    assert (claimed.session, claimed.leases) == (Asker.LOST, ())
    await store.broker.end_session("s", Cause(CauseKind.CRASH))
    assert list(await store.broker.sessions()) == []

    pulse = await _open(store, "s", host="h", pid=7)
    assert (pulse.session, pulse.alive) == ("s", True)
    (view,) = await store.broker.sessions()
    assert (view.id, view.state, view.info) == ("s", SessionState.ALIVE, SessionInfo(host="h", pid=7))
    assert view.opened_at == store.clock.now()
    assert len((await store.broker.claim(ask)).leases) == 1


async def test_only_open_creates_a_session__beats_are_answered_in_order(store: Harness) -> None:
    known = await store.worker()
    beats = [
        Beat(session="unknown"),
        Beat(session=known.id),
        Beat(session="new", open=SessionInfo()),
        Beat(session="new"),
    ]
    pulses = await store.broker.beat(beats)
    assert [(pulse.session, pulse.alive) for pulse in pulses] == [
        ("unknown", False),
        (known.id, True),
        ("new", True),
        ("new", True),
    ]


async def test_open_is_repeatable(store: Harness) -> None:
    worker = await store.worker(host="h", pid=7, ttl=20 * SECOND)
    await store.add_many(3)
    ask = worker.ask(slots=2)
    first = await store.broker.claim(ask)
    before = list(await store.broker.sessions())
    store.advance(SECOND)
    assert (await _open(store, worker.id, host="other", pid=8, ttl=5 * SECOND)).alive
    assert list(await store.broker.sessions()) == before
    again = await store.broker.claim(ask)
    assert [same(lease) for lease in again.leases] == [same(lease) for lease in first.leases]


async def _stop(worker: Worker) -> None:
    await worker.end(CauseKind.STOP)


async def _crash(worker: Worker) -> None:
    await worker.end(CauseKind.CRASH)


async def _lose(worker: Worker) -> None:
    await worker.end(CauseKind.LOST)


async def _reap(worker: Worker) -> None:
    assert [one.reaped for one in await worker.store.passes(3, SECOND)].count((worker.id,)) == 1


@pytest.mark.parametrize("end", [_stop, _crash, _lose, _reap], ids=words)
async def test_ended_session_never_returns(store: Harness, end: Callable[[Worker], Awaitable[None]]) -> None:
    worker = await store.worker(ttl=SECOND)
    await store.add_many(2)
    ask = worker.ask(slots=1)
    await store.broker.claim(ask)
    await end(worker)
    for pause in (0, SECOND, ENDED_KEPT - 2 * SECOND):
        store.advance(pause)
        await store.sweep()
        before = await store.everything()
        assert not (await worker.beat()).alive
        assert not (await _open(store, worker.id)).alive
        for repeated in (ask, worker.ask()):
            claimed = await store.broker.claim(repeated)
            assert (claimed.session, claimed.leases) == (Asker.LOST, ())
        settled = await store.broker.settle([], worker.ask())
        assert settled.claimed is not None
        assert settled.claimed.session is Asker.LOST
        assert await store.everything() == before
    (view,) = await store.broker.sessions()
    assert (view.id, view.state, view.leases) == (worker.id, SessionState.ENDED, 0)


async def test_pulse_names_what_to_cancel(store: Harness) -> None:
    worker, other = await store.worker(), await store.worker()
    await store.add_many(5)
    mine = await worker.take(3)
    (theirs,) = await other.take(1)
    assert (await worker.beat()).cancel == ()
    for lease in (mine[0], mine[2], theirs):
        await store.cancel(lease.job)
    await store.cancel((await store.listed(states=frozenset({State.READY})))[0].id)
    wanted = {(lease.job, lease.fence) for lease in (mine[0], mine[2])}
    for _ in range(2):
        pulses = await store.broker.beat([Beat(session=other.id), Beat(session=worker.id)])
        assert pulses[0].cancel == ((theirs.job, theirs.fence),)
        assert len(pulses[1].cancel) == 2
        assert set(pulses[1].cancel) == wanted
    await store.done(mine[0])
    assert (await worker.beat()).cancel == ((mine[2].job, mine[2].fence),)
    await store.settle(mine[2], Outcome.CANCELLED)
    assert (await worker.beat()).cancel == ()


async def test_pulse_names_what_to_cancel__a_thousand_at_a_time(store: Harness) -> None:
    worker = await store.worker()
    jobs = await store.add_many(1_000) + await store.add_many(2)
    leases = {lease.job: lease for lease in await worker.take(1_000) + await worker.take(2)}
    await store.broker.cancel([Target(job) for job in jobs[:1_000]])
    await store.broker.cancel([Target(job) for job in jobs[1_000:]])
    cancel = (await worker.beat()).cancel
    assert len(set(cancel)) == len(cancel) == 1_000
    for job, fence in cancel[:10]:
        assert leases[job].fence == fence
        await store.settle(leases[job], Outcome.CANCELLED)
    later = (await worker.beat()).cancel
    assert {job for job, _ in cancel} | {job for job, _ in later} == set(jobs)


async def test_pulse_tells_the_settings_version(store: Harness) -> None:
    worker, other = await store.worker(), await store.worker()
    version = (await worker.beat()).settings

    async def grew() -> bool:
        nonlocal version
        before, version = version, (await worker.beat()).settings
        assert (await other.beat()).settings == version >= before
        return version > before

    assert not await grew()
    await store.queue("new")
    assert await grew()
    await store.queue("new")
    await store.add()
    await store.done(await worker.one())
    assert not await grew()
    await store.queue("new", concurrency=1)
    assert await grew()
    await store.lane("new", "a", weight=2)
    assert await grew()
    await store.declare(Subject(Kind.STRIKE, "s"), b"document")
    assert await grew()
    queue = Subject(Kind.QUEUE, "new")
    (document,) = [one for one in await store.broker.documents(Kind.QUEUE) if one.subject == queue]
    changed = await store.broker.override(queue, QueueSettings(concurrency=2), document.version)
    assert await grew()
    await store.broker.override(queue, QueueSettings(concurrency=3), document.version)
    assert not await grew()
    await store.broker.override(queue, None, changed.version)
    assert await grew()
    lane = Subject(Kind.LANE, "new", "b")
    await store.broker.override(lane, LaneSettings(weight=3), 0)
    assert await grew()


# end_session


async def test_pulse_tells_the_settings_version__a_strike(store: Harness) -> None:
    """Overrides of what no code has declared, which is how operators strike jobs, and their lifting."""
    worker = await store.worker()
    subject = Subject(Kind.STRIKE, "some-strike")
    versions = [(await worker.beat()).settings]
    document = 0
    for body in (b"first", b"second", None, b"third"):
        changed = await store.broker.override(subject, body, document)
        assert changed.change is Change.APPLIED
        document = 0 if body is None else changed.version
        versions.append((await worker.beat()).settings)
    assert versions == sorted(set(versions)), "it grew each time"
    assert (await store.broker.override(subject, b"late", 99)).change is Change.CONFLICT
    assert (await worker.beat()).settings == versions[-1]


async def test_ending_an_unknown_session_is_a_no_op(store: Harness) -> None:
    worker = await store.worker()
    await store.add()
    lease = await worker.one()
    before = await store.everything()
    for kind in (CauseKind.STOP, CauseKind.CRASH, CauseKind.LOST):
        ended = await store.broker.end_session("unknown", Cause(kind), [(lease.job, lease.fence)])
        assert ended == Ended(known=False)
        assert await store.everything() == before
    assert (await _open(store, "unknown")).alive


async def test_ending_an_unknown_session_is_a_no_op__or_an_ended_one(store: Harness) -> None:
    first, second = await store.worker(), await store.worker()
    jobs = await store.add_many(2)
    leases = await first.take(2)
    await first.end(CauseKind.STOP, detail="asked to")
    again = await second.one()
    assert again.job == jobs[0]
    before = await store.everything()
    for kind in (CauseKind.CRASH, CauseKind.LOST):
        ended = await first.end(kind, [*leases, again], "too late")
        assert (ended.moved, ended.more) == ((), False)
        assert await store.everything() == before
    causes = {view.id: view.cause for view in await store.broker.sessions()}
    assert causes == {first.id: Cause(CauseKind.STOP, "asked to"), second.id: None}


async def _with_many_leases(store: Harness, extra: int) -> tuple[Worker, list[JobId]]:
    await store.time_task()
    worker = await store.worker()
    jobs = await store.add_many(END_LEASES) + await store.add_many(extra)
    leases = await worker.take(END_LEASES) + await worker.take(extra)
    assert ids(leases) == jobs
    return worker, jobs


async def _leases(store: Harness, worker: Worker) -> int:
    (count,) = [view.leases for view in await store.broker.sessions() if view.id == worker.id]
    return count


async def test_end_session_is_bounded(store: Harness) -> None:
    """Cause and starts are remembered from the first call."""
    worker, jobs = await _with_many_leases(store, 5)
    running = [await store.get(job) for job in jobs]
    cause = Cause(CauseKind.CRASH, "signal 11")
    first = await store.broker.end_session(worker.id, cause, [(job.id, job.fence) for job in running])
    assert (first.known, len(first.moved), first.more) == (True, END_LEASES, True)
    assert await _leases(store, worker) == 5
    assert not (await worker.beat()).alive
    assert (await worker.claim()).session is Asker.LOST

    rest = await worker.end(CauseKind.STOP, detail="again")
    assert (len(rest.moved), rest.more) == (5, False)
    assert {moved.job for moved in (*first.moved, *rest.moved)} == set(jobs)
    assert await _leases(store, worker) == 0
    details = [await store.get(job) for job in jobs]
    assert {(detail.state, detail.attempt, detail.crashes) for detail in details} == {(State.READY, 1, 1)}
    assert {detail.deliveries[-1].cause for detail in details} == {cause}


async def test_end_session_is_bounded__sweep_does_the_rest(store: Harness) -> None:
    worker, jobs = await _with_many_leases(store, 5)
    ended = await worker.end(CauseKind.STOP, detail="asked to")
    assert (len(ended.moved), ended.more) == (END_LEASES, True)
    store.advance(2 * ENDED_KEPT)
    swept = await store.broker.sweep(limit=3)
    assert (len(swept.moved), swept.reaped, swept.more) == (3, (), True)
    assert await _leases(store, worker) == 2
    swept = (await store.sweep())[-1]
    assert not swept.more
    details = [await store.get(job) for job in jobs]
    assert {(detail.state, detail.attempt, detail.crashes) for detail in details} == {(State.READY, 0, 0)}
    assert ids((await (await store.worker()).claim(slots=1_000)).leases) == jobs[:1_000]


async def test_end_session_is_bounded__at_its_bound(store: Harness) -> None:
    worker, jobs = await _with_many_leases(store, 0)
    ended = await worker.end(CauseKind.LOST)
    assert len(ended.moved) == END_LEASES
    if ended.more:
        assert await worker.end(CauseKind.LOST) == Ended(known=True)
    assert await store.count(State.READY) == len(jobs)
    store.advance(HOUR)
    assert await _leases(store, worker) == 0

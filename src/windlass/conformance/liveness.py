"""Liveness: the clock that only sweeps move, the sessions it reaps, and a store's clock that goes wrong."""

import pytest

from windlass.broker.contract import Options
from windlass.conformance.harness import Harness, Worker
from windlass.core.job import Edge, Moved, OnFailure
from windlass.core.lease import Asker
from windlass.core.outcome import CauseKind, Outcome, Verdict
from windlass.core.session import SESSION_TTL, SessionState, SessionView, Swept, liveness_move
from windlass.core.state import Move, State
from windlass.core.units import DAY, HOUR, MILLISECOND, SECOND, Micros, SessionId

_TTL = Options().session_ttl
_PASSES = SESSION_TTL // SECOND
"""Passes of a whole second that bring a silent session to its TTL, but not beyond."""


async def _worker(store: Harness, ttl: Micros = SESSION_TTL) -> Worker:
    """A session opened just after a pass, so that the next one counts from here."""
    await store.broker.sweep(limit=100)
    return await store.worker(ttl=ttl)


async def _view(store: Harness, worker: Worker) -> SessionView:
    return next(view for view in await store.broker.sessions() if view.id == worker.id)


async def _silence(store: Harness, worker: Worker) -> Micros:
    """For how long a session that must be alive was silent, on the liveness clock."""
    view = await _view(store, worker)
    assert view.state is SessionState.ALIVE
    return view.silent_for


def _reaped(passes: list[Swept]) -> list[SessionId]:
    return [session for swept in passes for session in swept.reaped]


# silence


async def test_silent_session_is_reaped(store: Harness) -> None:
    silent = await _worker(store)
    beating = await store.worker()
    jobs = await store.add_many(3)
    await silent.take(2)
    kept = await beating.one()
    for _ in range(_PASSES):
        assert (await beating.beat()).alive
        (swept,) = await store.passes(1, SECOND)
        assert (swept.reaped, swept.moved) == ((), ())
    assert await _silence(store, silent) == SESSION_TTL
    assert await store.states(jobs) == [State.RUNNING] * 3

    (swept,) = await store.passes(1, 1)
    assert swept.reaped == (silent.id,)
    assert sorted(swept.moved, key=lambda moved: moved.job) == [
        Moved(job=job, queue="q", task="t", lane="", move=Move.LOST, before=State.RUNNING, after=State.READY)
        for job in jobs[:2]
    ]
    view = await _view(store, silent)
    assert (view.state, view.leases) == (SessionState.ENDED, 0)
    assert view.cause is not None
    assert view.cause.kind is CauseKind.LOST
    details = [await store.get(job) for job in jobs]
    assert [(one.state, one.attempt, one.crashes) for one in details] == [
        (State.READY, 1, 1),
        (State.READY, 1, 1),
        (State.RUNNING, 1, 0),
    ]
    for detail in details[:2]:
        (delivery,) = detail.deliveries
        assert (delivery.outcome, delivery.settled) == (Outcome.RETRY, False)
        assert delivery.cause == view.cause
    assert await _silence(store, beating) == SECOND + 1
    assert (await store.passes(1, SECOND))[0].reaped == ()
    assert (await store.done(kept)).verdict is Verdict.APPLIED


async def test_silent_session_is_reaped__by_its_own_ttl(store: Harness) -> None:
    workers = [await _worker(store, ttl) for ttl in (2 * SECOND, 5 * SECOND, SESSION_TTL)]
    reaped = [swept.reaped for swept in await store.passes(6, SECOND)]
    assert reaped == [(), (), (workers[0].id,), (), (), (workers[1].id,)]
    assert await _silence(store, workers[2]) == 6 * SECOND


async def test_silent_session_is_reaped__when_swept_not_when_late(store: Harness) -> None:
    """A beat that comes before the pass saves its session, however late."""
    worker = await _worker(store)
    await store.passes(_PASSES, SECOND)
    store.advance(HOUR)
    assert (await worker.beat()).alive
    assert await _silence(store, worker) == 0
    # The first pass ends the outage, whose second the beat has counted already.
    assert _reaped(await store.passes(1 + _PASSES, SECOND)) == []
    assert _reaped(await store.passes(1, SECOND)) == [worker.id]
    assert not (await worker.beat()).alive


async def test_silent_session_is_reaped__other_words_are_no_beats(store: Harness) -> None:
    """Claims and settlements come from another process than the heart."""
    worker = await _worker(store)
    await store.add_many(_PASSES)
    for _ in range(_PASSES):
        await store.done(await worker.one())
        await store.passes(1, SECOND)
    assert await _silence(store, worker) == SESSION_TTL
    assert _reaped(await store.passes(1, SECOND)) == [worker.id]
    assert (await worker.claim()).session is Asker.LOST


# outages


@pytest.mark.parametrize("outage", [SESSION_TTL + 1, HOUR, 30 * DAY])
async def test_liveness_stands_still_without_sweeps(store: Harness, outage: Micros) -> None:
    worker = await _worker(store)
    job = await store.add()
    lease = await worker.one()
    for lasted in range(1, 6):
        (swept,) = await store.passes(1, outage)
        assert (swept.reaped, swept.moved) == ((), ())
        assert await _silence(store, worker) == lasted * SECOND
    assert (await worker.beat()).alive
    assert await _silence(store, worker) == 0
    await store.done(lease)
    assert await store.state(job) is State.DONE


async def test_liveness_stands_still_without_sweeps__and_catches_up_nothing(store: Harness) -> None:
    """The pass after an outage moves the clock by a second, those at the same moment by nothing."""
    worker = await _worker(store)
    store.advance(HOUR)
    for _ in range(2 * _PASSES):
        assert (await store.broker.sweep(limit=100)).reaped == ()
    assert await _silence(store, worker) == SECOND
    await store.passes(2, SECOND)
    assert await _silence(store, worker) == 3 * SECOND


async def test_liveness_stands_still_without_sweeps__whatever_else_is_called(store: Harness) -> None:
    worker, busy = await _worker(store), await store.worker()
    for _ in range(2 * _PASSES):
        store.advance(SECOND)
        await busy.beat()
        await store.add()
        await store.done(await busy.one())
    assert await _silence(store, worker) == 0
    assert _reaped(await store.passes(1, SECOND)) == []
    assert (await worker.beat()).alive


# stuttering sweepers


@pytest.mark.parametrize("gap", [SECOND, SECOND + 1, 5 * SECOND, _TTL // 5])
async def test_stuttering_sweeper_still_reaps(store: Harness, gap: Micros) -> None:
    """While passes are a fifth of the TTL apart or less, silence is as long as it lasts."""
    worker = await _worker(store)
    passes = SESSION_TTL // gap
    for lasted in range(1, passes + 1):
        assert _reaped(await store.passes(1, gap)) == []
        assert await _silence(store, worker) == lasted * gap
    assert _reaped(await store.passes(1, gap)) == [worker.id]


@pytest.mark.parametrize("gap", [_TTL // 5 + 1, SESSION_TTL, HOUR])
async def test_stuttering_sweeper_still_reaps__a_second_after_each_outage(
    store: Harness, gap: Micros
) -> None:
    worker = await _worker(store)
    for lasted in range(1, _PASSES + 1):
        assert _reaped(await store.passes(1, gap)) == []
        assert await _silence(store, worker) == lasted * SECOND
    assert _reaped(await store.passes(1, gap)) == [worker.id]


@pytest.mark.parametrize("gap", [1, MILLISECOND, 250 * MILLISECOND, 999_999])
async def test_stuttering_sweeper_still_reaps__short_passes_add_up(store: Harness, gap: Micros) -> None:
    worker = await _worker(store, ttl=40 * gap)
    for lasted in range(1, 41):
        assert _reaped(await store.passes(1, gap)) == []
        assert await _silence(store, worker) == lasted * gap
    assert _reaped(await store.passes(1, gap)) == [worker.id]


async def test_stuttering_sweeper_still_reaps__at_any_rhythm(store: Harness) -> None:
    worker = await _worker(store, ttl=4 * SECOND)
    silence = 0
    for gap in (1, HOUR, 0, 250 * MILLISECOND, 0, SECOND, 700 * MILLISECOND, DAY):
        assert _reaped(await store.passes(1, gap)) == []
        silence += liveness_move(gap, _TTL)
        assert await _silence(store, worker) == silence
    assert silence == 3_950_001
    assert _reaped(await store.passes(1, 50 * MILLISECOND)) == [worker.id]


@pytest.mark.parametrize("gap", [SECOND, 5 * SECOND, _TTL // 5])
async def test_beat_counts_from_now(store: Harness, gap: Micros) -> None:
    """A beat between two passes is as old as it is, however far apart they are."""
    worker = await _worker(store, ttl=3 * gap)
    store.advance(gap - MILLISECOND)
    assert (await worker.beat()).alive
    await store.passes(1, MILLISECOND)
    assert await _silence(store, worker) == MILLISECOND
    assert _reaped(await store.passes(2, gap)) == []
    assert await _silence(store, worker) == 2 * gap + MILLISECOND
    assert _reaped(await store.passes(1, gap)) == [worker.id]


async def test_beat_counts_from_now__also_the_first(store: Harness) -> None:
    await store.broker.sweep(limit=100)
    store.advance(5 * SECOND)
    worker = await store.worker()
    await store.passes(1, SECOND)
    assert await _silence(store, worker) == SECOND


async def test_beat_counts_from_now__but_an_outage_is_a_second(store: Harness) -> None:
    worker = await _worker(store)
    store.advance(HOUR)
    assert (await worker.beat()).alive
    assert _reaped(await store.passes(1, HOUR)) == []
    assert await _silence(store, worker) == 0
    await store.passes(1, SECOND)
    assert await _silence(store, worker) == SECOND


# the store's clock


async def test_clock_does_not_go_back(store: Harness) -> None:
    worker = await _worker(store)
    await store.add(delay=SECOND)
    mark = store.clock.now()
    for back in (SECOND, _TTL - SECOND):
        store.advance(-back)
        job = await store.add(priority=1)
        assert (await store.get(job)).accepted_at == mark
        assert (await worker.one()).fence == mark
        assert (await store.broker.sweep(limit=100)).stepped_back == 0
        assert (await store.get(await store.add(priority=-1))).accepted_at == mark
    assert await _silence(store, worker) == 0

    store.advance(_TTL)
    assert (await store.get(await store.add(priority=-1))).accepted_at == mark
    await store.passes(1, 250 * MILLISECOND)
    assert await _silence(store, worker) == 250 * MILLISECOND


async def test_clock_does_not_go_back__for_many_at_once(store: Harness) -> None:
    await _worker(store)
    mark = store.clock.now()
    store.advance(-SECOND)
    jobs = [store.job() for _ in range(3)]
    await store.broker.enqueue([jobs])
    assert [(await store.get(job.id)).accepted_at for job in jobs] == [mark] * 3


async def test_clock_does_not_go_back__so_nothing_due_becomes_undue(store: Harness) -> None:
    worker = await _worker(store)
    job = await store.add(delay=SECOND)
    await store.passes(1, SECOND)
    store.advance(-5 * SECOND)
    assert (await worker.one()).job == job


async def test_clock_does_not_go_back__and_reaps_nobody(store: Harness) -> None:
    """It stands still until the time it had is reached again; silence goes on from there."""
    worker = await _worker(store)
    store.advance(-20 * SECOND)
    assert _reaped(await store.passes(20, SECOND)) == []
    assert await _silence(store, worker) == 0
    assert _reaped(await store.passes(_PASSES, SECOND)) == []
    assert await _silence(store, worker) == SESSION_TTL
    assert _reaped(await store.passes(1, SECOND)) == [worker.id]


@pytest.mark.parametrize("back", [_TTL + 1, HOUR, 30 * DAY])
async def test_long_step_back_is_followed(store: Harness, back: Micros) -> None:
    worker = await _worker(store)
    assert _reaped(await store.passes(3, SECOND)) == []
    store.advance(-back)
    swept = await store.broker.sweep(limit=100)
    assert (swept.stepped_back, swept.reaped) == (back, ())
    assert await _silence(store, worker) == 3 * SECOND
    job = await store.add(delay=SECOND)
    assert (await store.get(job)).accepted_at == store.clock.now()

    swept = (await store.passes(1, SECOND))[0]
    assert (swept.stepped_back, swept.promoted) == (0, 1)
    assert (await worker.one()).fence == store.clock.now()
    assert _reaped(await store.passes(_PASSES - 4, SECOND)) == []
    assert await _silence(store, worker) == SESSION_TTL
    assert _reaped(await store.passes(1, SECOND)) == [worker.id]


async def test_long_step_back_is_followed__beyond_a_ttl_only(store: Harness) -> None:
    await store.broker.sweep(limit=100)
    mark = store.clock.now()
    store.advance(-_TTL)
    assert (await store.broker.sweep(limit=100)).stepped_back == 0
    assert (await store.get(await store.add())).accepted_at == mark
    store.advance(-1)
    assert (await store.broker.sweep(limit=100)).stepped_back == _TTL + 1
    assert (await store.get(await store.add())).accepted_at == store.clock.now()


async def test_long_step_back_is_followed__by_the_ttl_of_the_namespace(store: Harness) -> None:
    other = await store.fresh(session_ttl=SECOND)
    await other.broker.sweep(limit=100)
    other.advance(-SECOND)
    assert (await other.broker.sweep(limit=100)).stepped_back == 0
    other.advance(-1)
    assert (await other.broker.sweep(limit=100)).stepped_back == SECOND + 1


async def test_long_step_back_is_followed__by_next_in_once_a_pass_saw_it(store: Harness) -> None:
    """A child that was due long ago is freed after the step, so that it waits until that time comes again."""
    worker = await _worker(store)
    parent = await store.add(priority=1)
    child = await store.add(after=(Edge(parent, OnFailure.IGNORE),))
    await store.passes(1, SECOND)  # the mark is later than the time at which the child was due
    await store.dead(await worker.one())
    store.advance(-HOUR)
    await store.discard(parent)
    await store.broker.sweep(limit=100)

    assert (await worker.claim()).next_in == HOUR - SECOND
    store.advance(HOUR - SECOND - 1)
    assert (await worker.claim()).next_in == 1
    store.advance(1)
    assert (await worker.one()).job == child


async def test_long_step_back_is_followed__by_a_paced_fleet(store: Harness) -> None:
    """The time since the last pass is not over for hours: that must not keep the fleet from sweeping."""
    every = 250 * MILLISECOND
    worker = await _worker(store, ttl=SECOND)
    store.advance(-HOUR)
    assert (await store.broker.sweep(limit=100, every=every)).stepped_back == HOUR
    reaped: list[SessionId] = []
    for _ in range(5):
        store.advance(every)
        reaped.extend((await store.broker.sweep(limit=100, every=every)).reaped)
    assert reaped == [worker.id]

"""Annotate: what running jobs say of themselves."""

from windlass.conformance.endings import deadline_lease
from windlass.conformance.harness import Harness
from windlass.core.job import Progress
from windlass.core.lease import Lease
from windlass.core.outcome import CauseKind, Verdict
from windlass.core.session import LOG_LINE_CHARS, LOG_LINES, MEMO_BYTES, Note
from windlass.core.state import State
from windlass.core.units import HOUR, MINUTE, SECOND, Micros


async def _note(
    store: Harness,
    lease: Lease,
    *,
    extend: Micros | None = None,
    permille: int | None = None,
    message: str = "",
    logs: tuple[str, ...] = (),
    memo: tuple[str, bytes] | None = None,
) -> None:
    """Say something, and require that it counts."""
    note = Note(
        job=lease.job,
        fence=lease.fence,
        extend=extend,
        permille=permille,
        message=message,
        logs=logs,
        memo=memo,
    )
    assert list(await store.broker.annotate([note])) == [Verdict.APPLIED]


# extend


async def test_extend_moves_the_deadline(store: Harness) -> None:
    job = await store.add()
    lease = await deadline_lease(store, 30 * SECOND)
    assert lease.visibility == 30 * SECOND
    store.advance(20 * SECOND)
    await _note(store, lease, extend=30 * SECOND)
    await store.passes(1, 30 * SECOND - 1)
    assert await store.state(job) is State.RUNNING
    await store.passes(1, 1)
    assert await store.state(job) is State.READY


async def test_extend_moves_the_deadline__also_nearer(store: Harness) -> None:
    job = await store.add()
    lease = await deadline_lease(store, HOUR)
    await _note(store, lease, extend=SECOND)
    await store.passes(1, SECOND - 1)
    assert await store.state(job) is State.RUNNING
    await store.passes(1, 1)
    assert await store.state(job) is State.READY


async def test_extend_moves_the_deadline__of_a_late_lease(store: Harness) -> None:
    """A lease is dead when swept, not when late."""
    job = await store.add()
    lease = await deadline_lease(store, SECOND)
    store.advance(MINUTE)
    await _note(store, lease, extend=MINUTE)
    await store.passes(1, MINUTE - 1)
    assert await store.state(job) is State.RUNNING
    assert (await store.done(lease)).verdict is Verdict.APPLIED


async def test_extend_moves_the_deadline__of_that_lease_alone(store: Harness) -> None:
    jobs = await store.add_many(3)
    leases = [await deadline_lease(store, SECOND) for _ in jobs]
    await _note(store, leases[1], extend=MINUTE)
    await _note(store, leases[2], logs=("no more time",))
    await store.passes(1, 2 * SECOND)
    assert await store.states(jobs) == [State.READY, State.RUNNING, State.READY]


async def test_extend_moves_the_deadline__which_a_session_lease_has_not(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add()
    lease = await worker.one()
    assert lease.visibility is None
    await _note(store, lease, extend=SECOND)
    await store.passes(3, HOUR)
    assert await store.state(job) is State.RUNNING
    assert (await store.done(lease)).verdict is Verdict.APPLIED


# progress and logs


async def test_progress_and_logs_are_readable(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add()
    lease = await worker.one()
    assert ((await store.get(job)).progress, (await store.get(job)).logs) == (None, ())
    await _note(store, lease, permille=400, message="half ‘way’")
    await _note(store, lease, logs=("one", "two"))
    await _note(store, lease, logs=("three",))
    detail = await store.get(job)
    assert (detail.progress, detail.logs) == (Progress(400, "half ‘way’"), ("one", "two", "three"))
    assert (await store.listed())[0].progress == Progress(400, "half ‘way’")
    await _note(store, lease, permille=0, message="", logs=("four",))
    detail = await store.get(job)
    assert (detail.progress, detail.logs) == (Progress(0, ""), ("one", "two", "three", "four"))
    await store.done(lease)
    assert (await store.get(job)).logs == ("one", "two", "three", "four")


async def test_progress_and_logs_are_readable__the_last_lines(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add()
    lease = await worker.one()
    lines = tuple(f"line {number}" for number in range(250))
    await _note(store, lease, logs=lines[:LOG_LINES])
    assert (await store.get(job)).logs == lines[:LOG_LINES]
    await _note(store, lease, logs=lines[LOG_LINES : LOG_LINES + 1])
    assert (await store.get(job)).logs == lines[1 : LOG_LINES + 1]
    await _note(store, lease, logs=lines[LOG_LINES + 1 :])
    assert (await store.get(job)).logs == lines[-LOG_LINES:]


async def test_progress_and_logs_are_readable__long_lines_are_cut(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add()
    lease = await worker.one()
    whole, long = "é" * LOG_LINE_CHARS, "é" * LOG_LINE_CHARS + "x"
    await _note(store, lease, logs=(whole, long, ""))
    assert (await store.get(job)).logs == (whole, whole, "")


async def test_progress_and_logs_are_readable__several_notes_of_one_call(store: Harness) -> None:
    worker = await store.worker()
    jobs = await store.add_many(2)
    first, second = await worker.take(2)
    notes = [
        Note(job=first.job, fence=first.fence, permille=1, logs=("a",)),
        Note(job=second.job, fence=second.fence, permille=2),
        Note(job=first.job, fence=first.fence, permille=3, logs=("b",)),
    ]
    assert list(await store.broker.annotate(notes)) == [Verdict.APPLIED] * 3
    details = [await store.get(job) for job in jobs]
    assert [detail.progress for detail in details] == [Progress(3), Progress(2)]
    assert [detail.logs for detail in details] == [("a", "b"), ()]


# memos


async def test_memos_reach_the_next_run(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add(max_attempts=20)
    lease = await worker.one()
    assert lease.memos == {}
    await _note(store, lease, memo=("fetch", b"\x00\xff"))
    await _note(store, lease, memo=("store", b"old"))
    await _note(store, lease, memo=("store", b"new"))
    assert set((await store.get(job)).memos) == {"fetch", "store"}
    await store.retry(lease)

    lease = await worker.one()
    assert lease.memos == {"fetch": b"\x00\xff", "store": b"new"}
    await _note(store, lease, memo=("store", b""))
    await store.snooze(lease, 0)
    await store.release(await worker.one())
    crashing = await store.worker()
    await crashing.end(CauseKind.CRASH, [await crashing.one()])
    assert (await worker.one()).memos == {"fetch": b"\x00\xff", "store": b""}


async def test_memos_reach_the_next_run__of_the_same_job(store: Harness) -> None:
    worker = await store.worker()
    await store.add_many(2)
    first, second = await worker.take(2)
    await _note(store, first, memo=("step", b"first"))
    await store.retry(second)
    assert (await worker.one()).memos == {}


async def test_memos_reach_the_next_run__until_it_is_terminal(store: Harness) -> None:
    worker = await store.worker()
    done, dead, crashed, cancelled = jobs = await store.add_many(4, max_attempts=1)
    leases = await worker.take(4)
    for lease in leases:
        await _note(store, lease, memo=("step", b"1"))
    await store.cancel(cancelled)
    await store.done(leases[0])
    await store.dead(leases[1])
    await worker.end(CauseKind.CRASH, leases)
    assert await store.states(jobs) == [State.DONE, State.DEAD, State.DEAD, State.CANCELLED]
    assert [(await store.get(job)).memos for job in jobs] == [()] * 4
    assert (await store.get(done)).memos == ()
    for job in (dead, crashed):
        await store.replay(job)
        assert (await (await store.worker()).one()).memos == {}


async def test_too_many_memos_are_refused(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add()
    lease = await worker.one()
    notes = [Note(job=job, fence=lease.fence, memo=(f"step {number}", b"")) for number in range(101)]
    assert list(await store.broker.annotate(notes)) == [Verdict.APPLIED] * 100 + [Verdict.REFUSED]
    again = Note(job=job, fence=lease.fence, memo=("step 7", b"x" * MEMO_BYTES))
    more = Note(job=job, fence=lease.fence, memo=("step 8", b"x"), permille=10, logs=("line",))
    assert list(await store.broker.annotate([again, more])) == [Verdict.APPLIED, Verdict.REFUSED]
    detail = await store.get(job)
    assert (len(detail.memos), detail.progress, detail.logs) == (100, None, ())

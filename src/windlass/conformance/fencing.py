"""Fencing: a word about a lease that has ended changes nothing, however it ended and whatever came after."""

import msgspec
import pytest

from windlass.broker.contract import Options
from windlass.conformance.endings import (
    SAID,
    TAKEN,
    TAKEN_FOR_GOOD,
    WHILE_DEAD,
    WHILE_UNFINISHED,
    Later,
    Taken,
    claimed,
    deadline_lease,
    it_runs_again_with_a_deadline,
    lost,
    ran_out,
    words,
)
from windlass.conformance.harness import Harness, new_id
from windlass.core.job import NewJob, Status
from windlass.core.lease import Asker, Lease
from windlass.core.operate import Effect
from windlass.core.outcome import Answer, CauseKind, Outcome, Verdict
from windlass.core.session import END_LEASES, Note
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.units import HOUR, SECOND, Fence, JobId

_WINDOW = Options().resend_window
_TEN = 10
"""Ends of leases that are kept with a job."""


def _settlements(store: Harness, job: JobId, fence: Fence) -> list[Settlement]:
    """Every outcome, and done with a child."""
    plain = [Settlement(job=job, fence=fence, outcome=outcome, **said) for outcome, said in SAID.items()]
    return [*plain, msgspec.structs.replace(plain[0], spawn=(store.job(),))]


def _notes(job: JobId, fence: Fence) -> list[Note]:
    """Everything that can be said of a run that goes on."""
    return [
        Note(job=job, fence=fence, extend=HOUR),
        Note(job=job, fence=fence, permille=999, message="said"),
        Note(job=job, fence=fence, logs=("said",)),
        Note(job=job, fence=fence, memo=("step", b"said")),
    ]


async def _answers(store: Harness, job: JobId, fence: Fence) -> list[Answer]:
    """The answers to every settlement, none of which changed anything."""
    before = await store.everything(job)
    answers: list[Answer] = []
    for word in _settlements(store, job, fence):
        answers.extend((await store.broker.settle([word])).answers)
        assert await store.everything(job) == before, word
    return answers


async def _verdicts(store: Harness, job: JobId, fence: Fence) -> set[Verdict]:
    return {answer.verdict for answer in await _answers(store, job, fence)}


async def _note_verdicts(store: Harness, job: JobId, fence: Fence) -> set[Verdict]:
    """The verdicts on every note, none of which changed anything."""
    before = await store.everything(job)
    verdicts: set[Verdict] = set()
    for note in _notes(job, fence):
        verdicts.update(await store.broker.annotate([note]))
        assert await store.everything(job) == before, note
    return verdicts


# settle


@pytest.mark.parametrize("later", WHILE_UNFINISHED, ids=words)
@pytest.mark.parametrize("taken", TAKEN, ids=words)
async def test_settle_is_fenced(store: Harness, taken: Taken, later: Later) -> None:
    lease = await taken(store, 5)
    newer = await later(store, lease)
    assert await _verdicts(store, lease.job, lease.fence) == {Verdict.STALE}
    if newer is not None:
        assert (await store.done(newer, b"newer")).verdict is Verdict.APPLIED
        assert (await store.get(lease.job)).result == b"newer"


@pytest.mark.parametrize("later", WHILE_DEAD, ids=words)
@pytest.mark.parametrize("taken", TAKEN_FOR_GOOD, ids=words)
async def test_settle_is_fenced__at_the_last_attempt(store: Harness, taken: Taken, later: Later) -> None:
    lease = await taken(store, 1)
    await later(store, lease)
    assert await _verdicts(store, lease.job, lease.fence) == {Verdict.STALE}


async def test_settle_is_fenced__never_given(store: Harness) -> None:
    worker = await store.worker()
    running, waiting = await store.add(), await store.add()
    fence = (await worker.one()).fence
    for other in (0, 1, fence - 1, fence + 1):
        assert await _verdicts(store, running, other) == {Verdict.STALE}
    for other in (0, 1, fence, (await store.get(waiting)).fence):
        assert await _verdicts(store, waiting, other) == {Verdict.STALE}


async def test_settle_is_fenced__late_is_not_ended(store: Harness) -> None:
    """A lease is dead when swept, not when late."""
    await store.broker.sweep(limit=100)
    silent = await store.worker(ttl=SECOND)
    await store.add_many(2)
    late = [await silent.one(), await deadline_lease(store)]
    store.advance(HOUR)
    assert [(await store.done(lease)).verdict for lease in late] == [Verdict.APPLIED] * 2


async def test_settle_is_fenced__with_the_ask_of_a_lost_session(store: Harness) -> None:
    worker = await store.worker()
    await store.add_many(2)
    lease = await worker.one()
    await worker.end(CauseKind.LOST)
    word = Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE)
    settled = await store.broker.settle([word], worker.ask())
    assert settled.answers[0].verdict is Verdict.STALE
    assert settled.claimed is not None
    assert (settled.claimed.session, settled.claimed.leases) == (Asker.LOST, ())


async def _left_running(store: Harness, jobs: list[JobId]) -> int:
    """How many leases are not returned yet, of none of which a word counts."""
    found = [job for page in (jobs[:500], jobs[500:]) for job in await store.broker.get(page)]
    left = [job for job in found if job is not None and job.state is State.RUNNING]
    for job in left:
        assert await _verdicts(store, job.id, job.fence) == {Verdict.STALE}
        assert await _note_verdicts(store, job.id, job.fence) == {Verdict.STALE}
    return len(left)


async def test_settle_is_fenced__before_its_lease_went_back(store: Harness) -> None:
    """An ended session holds nothing, although its leases are returned in bounded steps."""
    await store.broker.sweep(limit=100)
    worker = await store.worker(ttl=1)
    jobs = await store.add_many(9)
    await worker.take(9)
    store.advance(SECOND)
    assert (await store.broker.sweep(limit=7)).reaped == (worker.id,)
    assert await _left_running(store, jobs) >= 2
    await store.sweep()
    assert await store.states(jobs) == [State.READY] * 9


async def test_settle_is_fenced__before_end_session_got_to_it(store: Harness) -> None:
    worker = await store.worker()
    jobs = await store.add_many(END_LEASES) + await store.add_many(2)
    await worker.take(END_LEASES)
    await worker.take(2)
    assert (await worker.end(CauseKind.STOP)).more
    assert await _left_running(store, jobs) == 2


async def test_settle_is_fenced__its_runtime_times_no_task(store: Harness) -> None:
    """A task that only a stale word timed is still not prefetched."""
    lease = await lost(store)
    await _answers(store, lease.job, lease.fence)
    await store.add_many(2)
    assert len((await (await store.worker()).claim(slots=1, limit=3)).leases) == 1


@pytest.mark.parametrize("outcome", SAID, ids=str)
async def test_settle_again_answers_already(store: Harness, outcome: Outcome) -> None:
    _, lease = await claimed(store, max_attempts=5)
    first = await store.settle(lease, outcome, **SAID[outcome])
    assert (first.verdict, first.outcome) == (Verdict.APPLIED, outcome)
    again = msgspec.structs.replace(first, verdict=Verdict.ALREADY)
    assert await _answers(store, lease.job, lease.fence) == [again] * (len(SAID) + 1)


@pytest.mark.parametrize("later", WHILE_UNFINISHED, ids=words)
@pytest.mark.parametrize("outcome", [Outcome.RETRY, Outcome.SNOOZE, Outcome.RELEASE, Outcome.HOLD], ids=str)
async def test_settle_again_answers_already__after_more(
    store: Harness, outcome: Outcome, later: Later
) -> None:
    _, lease = await claimed(store, max_attempts=5)
    await store.settle(lease, outcome, **SAID[outcome])
    newer = await later(store, lease)
    state = await store.state(lease.job)
    assert set(await _answers(store, lease.job, lease.fence)) == {Answer(Verdict.ALREADY, outcome, state)}
    if newer is not None:
        assert (await store.done(newer, b"newer")).verdict is Verdict.APPLIED
        assert (await store.get(lease.job)).result == b"newer"


@pytest.mark.parametrize("later", WHILE_DEAD, ids=words)
async def test_settle_again_answers_already__after_a_replay(store: Harness, later: Later) -> None:
    _, lease = await claimed(store, max_attempts=5)
    await store.dead(lease)
    await later(store, lease)
    already = Answer(Verdict.ALREADY, Outcome.DEAD, await store.state(lease.job))
    assert set(await _answers(store, lease.job, lease.fence)) == {already}


async def test_settle_again_answers_already__what_was_ruled(store: Harness) -> None:
    """The outcome that stands is the store's ruling, not the word that led to it."""
    worker = await store.worker()
    exhausted, cancelled = await store.add(max_attempts=1), await store.add()
    leases = await worker.take(2)
    await store.cancel(cancelled)
    for lease, ruled in zip(leases, (Outcome.DEAD, Outcome.CANCELLED), strict=True):
        assert (await store.retry(lease)).outcome is ruled
        again = await store.retry(lease)
        assert (again.verdict, again.outcome) == (Verdict.ALREADY, ruled)
    assert await store.states([exhausted, cancelled]) == [State.DEAD, State.CANCELLED]


async def test_settle_again_answers_already__the_last_ten(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add(max_attempts=100)
    leases: list[Lease] = []
    for _ in range(_TEN + 1):
        leases.append(await worker.one())
        await store.retry(leases[-1])
    verdicts = [(await store.retry(lease)).verdict for lease in leases]
    assert verdicts == [Verdict.STALE, *[Verdict.ALREADY] * _TEN]
    assert (await store.get(job)).attempt == _TEN + 1


_FINAL = [Outcome.DONE, Outcome.DEAD, Outcome.CANCELLED]


@pytest.mark.parametrize("retention", [0, 5 * SECOND])
@pytest.mark.parametrize("outcome", _FINAL, ids=str)
async def test_settle_after_prune_answers_already(store: Harness, outcome: Outcome, retention: int) -> None:
    await store.queue("q", retention=retention, dead_retention=retention, result_ttl=retention)
    worker = await store.worker()
    job = await store.add()
    lease = await worker.one()
    first = await store.settle(lease, outcome, **SAID[outcome])
    store.advance(retention)
    await store.sweep()
    assert (await store.get(job)).pruned
    store.advance(_WINDOW - retention - 1)
    await store.sweep()
    again = msgspec.structs.replace(first, verdict=Verdict.ALREADY)
    assert await _answers(store, job, lease.fence) == [again] * (len(SAID) + 1)
    assert await _verdicts(store, job, lease.fence - 1) == {Verdict.STALE}


@pytest.mark.parametrize("outcome", _FINAL, ids=str)
async def test_settle_after_prune_answers_already__removed_by_hand(store: Harness, outcome: Outcome) -> None:
    worker = await store.worker()
    job = await store.add()
    lease = await worker.one()
    first = await store.settle(lease, outcome, **SAID[outcome])
    assert (await store.broker.purge("q", State(outcome.value), 10)).count == 1
    again = msgspec.structs.replace(first, verdict=Verdict.ALREADY)
    assert await _answers(store, job, lease.fence) == [again] * (len(SAID) + 1)


@pytest.mark.parametrize("taken", TAKEN_FOR_GOOD, ids=words)
async def test_settle_after_prune_answers_already__unless_taken_away(store: Harness, taken: Taken) -> None:
    """A fence that never settled is stale, kept or not."""
    lease = await taken(store, 1)
    assert (await store.discard(lease.job)).effect is Effect.APPLIED
    assert await _verdicts(store, lease.job, lease.fence) == {Verdict.STALE}


async def test_settle_of_an_unknown_job_is_gone(store: Harness) -> None:
    unknown = new_id()
    assert await _verdicts(store, unknown, store.clock.now()) == {Verdict.GONE}
    assert await store.missing(unknown)


@pytest.mark.parametrize("outcome", _FINAL, ids=str)
async def test_settle_of_an_unknown_job_is_gone__forgotten(store: Harness, outcome: Outcome) -> None:
    await store.queue("q", retention=0, dead_retention=0, result_ttl=0)
    worker = await store.worker()
    job = await store.add()
    lease = await worker.one()
    await store.settle(lease, outcome, **SAID[outcome])
    store.advance(_WINDOW)
    await store.sweep()
    assert await _verdicts(store, job, lease.fence) == {Verdict.GONE}
    assert await store.missing(job)


# annotate


@pytest.mark.parametrize("later", WHILE_UNFINISHED, ids=words)
@pytest.mark.parametrize("taken", TAKEN, ids=words)
async def test_annotate_is_fenced(store: Harness, taken: Taken, later: Later) -> None:
    lease = await taken(store, 5)
    newer = await later(store, lease)
    assert await _note_verdicts(store, lease.job, lease.fence) == {Verdict.STALE}
    if newer is not None:
        await store.retry(newer)
    if await store.state(lease.job) is State.READY:
        assert (await (await store.worker()).one()).memos == {}


async def test_annotate_is_fenced__the_newer_deadline_stands(store: Harness) -> None:
    lease = await ran_out(store)
    newer = await it_runs_again_with_a_deadline(store, lease)
    assert await _note_verdicts(store, lease.job, lease.fence) == {Verdict.STALE}
    await store.passes(1, SECOND + 1)
    assert await store.state(newer.job) is State.READY


@pytest.mark.parametrize("later", WHILE_DEAD, ids=words)
@pytest.mark.parametrize("taken", TAKEN_FOR_GOOD, ids=words)
async def test_annotate_is_fenced__at_the_last_attempt(store: Harness, taken: Taken, later: Later) -> None:
    lease = await taken(store, 1)
    await later(store, lease)
    assert await _note_verdicts(store, lease.job, lease.fence) == {Verdict.STALE}


@pytest.mark.parametrize("outcome", SAID, ids=str)
async def test_annotate_is_fenced__after_its_own_settlement(store: Harness, outcome: Outcome) -> None:
    _, lease = await claimed(store, max_attempts=5)
    await store.settle(lease, outcome, **SAID[outcome])
    assert await _note_verdicts(store, lease.job, lease.fence) == {Verdict.ALREADY}
    store.advance(HOUR)
    if newer := (await (await store.worker()).claim()).leases:
        assert newer[0].memos == {}
        assert await _note_verdicts(store, lease.job, lease.fence) == {Verdict.ALREADY}


async def test_annotate_is_fenced__never_given(store: Harness) -> None:
    worker = await store.worker()
    running, waiting = await store.add(), await store.add()
    fence = (await worker.one()).fence
    for other in (0, fence - 1, fence + 1):
        assert await _note_verdicts(store, running, other) == {Verdict.STALE}
    for other in (0, fence, (await store.get(waiting)).fence):
        assert await _note_verdicts(store, waiting, other) == {Verdict.STALE}


async def test_annotate_is_fenced__pruned_then_forgotten(store: Harness) -> None:
    await store.queue("q", retention=0)
    worker = await store.worker()
    job = await store.add()
    lease = await worker.one()
    await store.done(lease)
    assert await _note_verdicts(store, job, lease.fence) == {Verdict.ALREADY}
    store.advance(_WINDOW)
    await store.sweep()
    assert await _note_verdicts(store, job, lease.fence) == {Verdict.GONE}


async def test_annotate_is_fenced__notes_are_independent(store: Harness) -> None:
    worker = await store.worker()
    await store.add_many(2)
    first, second = await worker.take(2)
    notes = [
        Note(job=first.job, fence=first.fence - 1, logs=("stale",)),
        Note(job=first.job, fence=first.fence, logs=("first",)),
        Note(job=new_id(), fence=first.fence, logs=("gone",)),
        Note(job=second.job, fence=second.fence, logs=("second",)),
    ]
    assert list(await store.broker.annotate(notes)) == [
        Verdict.STALE,
        Verdict.APPLIED,
        Verdict.GONE,
        Verdict.APPLIED,
    ]
    assert [(await store.get(lease.job)).logs for lease in (first, second)] == [("first",), ("second",)]


# fences


async def test_fence_grows_with_every_claim(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add()
    start = store.clock.now()
    fences: list[Fence] = []
    for pause in (0, 0, 0, SECOND, 0):
        store.advance(pause)
        lease = await worker.one()
        fences.append(lease.fence)
        assert (await store.get(job)).fence == lease.fence
        await store.release(lease)
    later = start + SECOND
    assert fences == [start, start + 1, start + 2, later, later + 1]


async def test_fence_grows_with_every_claim__while_the_clock_goes_back(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add()
    await store.broker.sweep(limit=100)
    mark = store.clock.now()
    store.advance(-10 * SECOND)
    first = await worker.one()
    assert first.fence == mark
    await store.release(first)
    store.advance(-HOUR)
    await store.sweep()
    second = await worker.one()
    assert (second.job, second.fence) == (job, mark + 1)


async def test_fence_grows_with_every_claim__after_a_replay(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add()
    first = await worker.one()
    await store.dead(first)
    await store.replay(job)
    assert (await worker.one()).fence == first.fence + 1


async def test_fence_is_never_reused_after_prune(store: Harness) -> None:
    """A new job under an old id starts above all fences of the old one, whose words are stale."""
    await store.queue("q", retention=0)
    worker = await store.worker()
    job = store.job()
    await _accept(store, job)
    fences: list[Fence] = []
    for _ in range(_TEN):
        lease = await worker.one()
        fences.append(lease.fence)
        await store.release(lease)
    last = await worker.one()
    await store.done(last)
    store.advance(_WINDOW)
    await store.sweep()
    assert await store.missing(job.id)

    await _accept(store, job)
    for fence in (*fences, last.fence):
        assert await _verdicts(store, job.id, fence) == {Verdict.STALE}
    newer = await worker.one()
    assert newer.fence > last.fence > max(fences)
    for fence in (*fences, last.fence):
        assert await _verdicts(store, job.id, fence) == {Verdict.STALE}
        assert await _note_verdicts(store, job.id, fence) == {Verdict.STALE}
    assert (await store.done(newer)).verdict is Verdict.APPLIED


async def _accept(store: Harness, job: NewJob) -> None:
    assert [receipt.status for receipt in await store.enqueue(job)] == [Status.CREATED]

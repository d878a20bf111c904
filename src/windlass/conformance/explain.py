"""Why a job is not running: every reason, and which goes first where several apply.

Whatever the state of a job says goes before what its queue says, so each of those tests pauses the queue.
"""

from windlass.conformance.harness import Harness, Worker, new_id
from windlass.core.job import Edge, Mode
from windlass.core.lease import Ask, Lease
from windlass.core.limits import Rate
from windlass.core.outcome import CauseKind, Error
from windlass.core.query import Explanation, Why
from windlass.core.state import State
from windlass.core.units import HOUR, MINUTE, SECOND, JobId

_ONE_AN_HOUR = Rate(1, HOUR, burst=1)


async def _lease(store: Harness, *queues: str) -> Lease:
    """A deadline lease: a run without a session, so that no worker serves the queue."""
    claimed = await store.broker.claim(Ask(queues=queues or ("q",), slots=1, limit=1, visibility=HOUR))
    return claimed.leases[0]


async def _why(store: Harness, *jobs: JobId) -> list[Why]:
    explanations = [await store.explain(job) for job in jobs]
    assert all(isinstance(explanation.detail, str) for explanation in explanations)
    return [explanation.why for explanation in explanations]


async def _crash(store: Harness, times: int) -> None:
    """Crash the next job of the queue `q`, and wait until it is ready again."""
    for _ in range(times):
        worker = await store.worker()
        await worker.end(CauseKind.CRASH, [await worker.one()])
    store.advance(MINUTE)
    await store.sweep()


async def test_explain_names_the_reason(store: Harness) -> None:
    """A job that meets every reason a ready job can have; they are taken away one by one."""
    suspect = await store.add(lane="a", max_attempts=9)
    await _crash(store, 2)
    limits = {"concurrency": 1, "rate": _ONE_AN_HOUR}
    await store.queue("q", **limits)
    await store.lane("q", "a", **limits)
    runner, first, second = await store.add_many(3, lane="a")
    assert (await _lease(store)).job == runner
    waiting = (suspect, first, second)
    await store.broker.pause("q")
    await store.broker.pause("q", "a")
    store.advance(10 * MINUTE)

    assert await _why(store, *waiting) == [Why.QUEUE_PAUSED] * 3
    await store.broker.resume("q")
    assert await _why(store, *waiting) == [Why.LANE_PAUSED] * 3
    await store.broker.resume("q", "a")
    assert await _why(store, *waiting) == [Why.QUEUE_CONCURRENCY] * 3
    assert (await store.explain(first)).next_in is None
    await store.queue("q", rate=_ONE_AN_HOUR)
    assert await _why(store, *waiting) == [Why.QUEUE_RATE] * 3
    assert (await store.explain(first)).next_in == 50 * MINUTE
    await store.queue("q")
    assert await _why(store, *waiting) == [Why.LANE_CONCURRENCY] * 3
    assert (await store.explain(first)).next_in is None
    await store.lane("q", "a", rate=_ONE_AN_HOUR)
    assert await _why(store, *waiting) == [Why.LANE_RATE] * 3
    assert (await store.explain(first)).next_in == 50 * MINUTE
    await store.lane("q", "a")
    assert await _why(store, *waiting) == [Why.NO_WORKER] * 3
    await store.worker(queues=("q",))
    assert await _why(store, *waiting) == [Why.SUSPECT, Why.NEXT, Why.AHEAD]
    assert await store.explain(first) == Explanation(job=first, state=State.READY, why=Why.NEXT, ahead=0)
    assert (await store.explain(second)).ahead == 1


async def test_explain_names_the_reason__unknown(store: Harness) -> None:
    job = new_id()
    assert await store.explain(job) == Explanation(job=job, state=None, why=Why.UNKNOWN)


async def test_explain_names_the_reason__finished(store: Harness) -> None:
    worker = await store.worker()
    done, dead, cancelled = await store.add_many(3)
    error = Error(type="ValueError", message="no")
    await store.done(await worker.one())
    await store.dead(await worker.one(), error=error)
    await store.cancel(cancelled)
    await store.broker.pause("q")
    assert await _why(store, done, dead, cancelled) == [Why.FINISHED] * 3
    for job, state in ((done, State.DONE), (dead, State.DEAD), (cancelled, State.CANCELLED)):
        explanation = await store.explain(job)
        assert explanation.state is state
        assert (explanation.ahead, explanation.next_in) == (0, None)
    assert (await store.explain(dead)).error == error


async def test_explain_names_the_reason__running(store: Harness) -> None:
    """Also when it is to be cancelled."""
    job = await store.add()
    await _lease(store)
    await store.broker.pause("q")
    await store.cancel(job)
    assert await _why(store, job) == [Why.RUNNING]
    assert (await store.explain(job)).state is State.RUNNING


async def test_explain_names_the_reason__parents(store: Harness) -> None:
    """Whatever its parents do, short of an end, and although it would not be due either."""
    first, second = await store.add_many(2)
    child = await store.add(after=(Edge(first), Edge(second)), delay=HOUR)
    await store.broker.pause("q")
    explanation = await store.explain(child)
    assert (explanation.why, explanation.state) == (Why.PARENTS, State.BLOCKED)
    assert explanation.next_in is None
    await store.broker.resume("q")
    await store.done(await _lease(store))
    assert await _why(store, child) == [Why.PARENTS]
    lease = await _lease(store)
    assert await _why(store, child) == [Why.PARENTS]
    await store.done(lease)
    assert await _why(store, child) == [Why.NOT_DUE]


async def test_explain_names_the_reason__parent_dead(store: Harness) -> None:
    """Also when another parent still waits: only an operator can help now."""
    dying, waiting = await store.add_many(2)
    child = await store.add(after=(Edge(waiting), Edge(dying)), delay=HOUR)
    await store.dead(await _lease(store))
    await store.broker.pause("q")
    explanation = await store.explain(child)
    assert (explanation.why, explanation.state) == (Why.PARENT_DEAD, State.BLOCKED)
    await store.replay(dying)
    assert await _why(store, child) == [Why.PARENTS]


async def test_explain_names_the_reason__follows(store: Harness) -> None:
    await store.add(key="k", mode=Mode.REPLACE)
    lease = await _lease(store)
    follower = await store.add(key="k", mode=Mode.REPLACE, delay=HOUR)
    await store.broker.pause("q")
    explanation = await store.explain(follower)
    assert (explanation.why, explanation.state) == (Why.FOLLOWS, State.BLOCKED)
    await store.done(lease)
    assert await _why(store, follower) == [Why.NOT_DUE]


async def test_explain_names_the_reason__held(store: Harness) -> None:
    """Also when it had failed before."""
    job = await store.add()
    await store.retry(await _lease(store))
    await store.hold(await _lease(store), "task:mail", "task mail is unknown")
    await store.broker.pause("q")
    store.advance(SECOND // 4)
    explanation = await store.explain(job)
    assert (explanation.why, explanation.state) == (Why.HELD, State.SCHEDULED)
    assert "task mail is unknown" in explanation.detail
    assert explanation.next_in == SECOND - SECOND // 4
    await store.broker.unhold("task:mail", 10)
    assert await _why(store, job) == [Why.QUEUE_PAUSED]


async def test_explain_names_the_reason__retrying(store: Harness) -> None:
    job = await store.add()
    error = Error(type="TimeoutError", message="upstream")
    await store.retry(await _lease(store), HOUR, error=error)
    await store.broker.pause("q")
    store.advance(MINUTE)
    explanation = await store.explain(job)
    assert (explanation.why, explanation.state) == (Why.RETRYING, State.SCHEDULED)
    assert (explanation.next_in, explanation.error) == (HOUR - MINUTE, error)


async def test_explain_names_the_reason__retrying_after_a_crash(store: Harness) -> None:
    job = await store.add()
    for _ in range(2):
        worker = await store.worker()
        await worker.end(CauseKind.CRASH, [await worker.one()])
    explanation = await store.explain(job)
    assert (explanation.why, explanation.next_in) == (Why.RETRYING, SECOND)


async def test_explain_names_the_reason__not_due(store: Harness) -> None:
    """Delayed, or snoozed: no attempt was spent."""
    snoozed = await store.add()
    await store.snooze(await _lease(store), HOUR)
    delayed = await store.add(delay=HOUR)
    await store.broker.pause("q")
    store.advance(MINUTE)
    for job in (snoozed, delayed):
        explanation = await store.explain(job)
        assert (explanation.why, explanation.state) == (Why.NOT_DUE, State.SCHEDULED)
        assert explanation.next_in == HOUR - MINUTE


async def test_explain_names_the_reason__sequence(store: Harness) -> None:
    """After the pause of its lane, before the limits, for every job behind the head."""
    await store.queue("q", sequence=True, concurrency=1, rate=_ONE_AN_HOUR)
    head, other, third = await store.add_many(3, lane="a")
    waiting = (other, third)
    assert await _why(store, *waiting) == [Why.SEQUENCE] * 2
    lease = await _lease(store)
    await store.broker.pause("q", "a")
    assert await _why(store, *waiting) == [Why.LANE_PAUSED] * 2
    await store.broker.resume("q", "a")
    assert await _why(store, *waiting) == [Why.SEQUENCE] * 2
    assert [(await store.explain(job)).ahead for job in waiting] == [0, 1], "the head is running, not ready"
    await store.retry(lease, MINUTE)
    assert await _why(store, head, *waiting) == [Why.RETRYING, Why.SEQUENCE, Why.SEQUENCE]
    await store.cancel(head)
    assert await _why(store, *waiting) == [Why.QUEUE_RATE, Why.SEQUENCE]
    alone_in_its_lane = await store.add(lane="b")
    await store.queue("q", sequence=True)
    await store.worker(queues=("q",))
    assert await _why(store, *waiting, alone_in_its_lane) == [Why.NEXT, Why.SEQUENCE, Why.NEXT]


async def test_explain_names_the_reason__sequence_before_suspect(store: Harness) -> None:
    await store.queue("q", sequence=True)
    suspect = await store.add(lane="a", max_attempts=9)
    behind = await store.add(lane="a")
    await _crash(store, 2)
    await store.worker(queues=("q",))
    assert await _why(store, suspect, behind) == [Why.SUSPECT, Why.SEQUENCE]


async def test_explain_names_the_reason__lane_limit_of_the_queue(store: Harness) -> None:
    """A lane without a limit of its own has the queue's for its lanes; other lanes are not concerned."""
    await store.queue("q", lane_concurrency=1, lane_rate=_ONE_AN_HOUR)
    await store.worker(queues=("q",))
    _, second = await store.add_many(2, lane="a")
    other = await store.add(lane="b")
    lease = await _lease(store)
    assert lease.lane == "a"
    assert await _why(store, second, other) == [Why.LANE_CONCURRENCY, Why.NEXT]
    await store.done(lease)
    explanation = await store.explain(second)
    assert (explanation.why, explanation.next_in) == (Why.LANE_RATE, HOUR)
    store.advance(HOUR)
    assert await _why(store, second) == [Why.NEXT]


async def test_explain_names_the_reason__no_worker(store: Harness) -> None:
    """A live session that said it serves this queue."""
    await store.queue("other")
    job = await store.add()
    await store.worker(queues=("other",))
    assert await _why(store, job) == [Why.NO_WORKER]
    worker: Worker = await store.worker(queues=("other", "q"))
    assert await _why(store, job) == [Why.NEXT]
    await worker.end(CauseKind.STOP)
    assert await _why(store, job) == [Why.NO_WORKER]


async def test_explain_names_the_reason__suspect(store: Harness) -> None:
    """From the second crash on; after one it is a job like others."""
    await store.worker(queues=("q",))
    job = await store.add(max_attempts=9)
    await _crash(store, 1)
    assert await _why(store, job) == [Why.NEXT]
    await _crash(store, 1)
    assert await _why(store, job) == [Why.SUSPECT]


async def test_explain_names_the_reason__ahead(store: Harness) -> None:
    """Ready jobs of its own lane: in a higher band, or earlier in its own."""
    await store.worker(queues=("q",))
    running = await store.add(lane="a", priority=9)
    first, second = await store.add_many(2, lane="a", priority=3)
    low = await store.add(lane="a", priority=1)
    assert (await _lease(store)).job == running
    await store.add_many(5, lane="b", priority=9)
    await store.add(lane="a", priority=9, delay=HOUR)
    assert [(await store.explain(job)).ahead for job in (first, second, low)] == [0, 1, 2]
    await store.add(lane="a", priority=4)
    assert [(await store.explain(job)).ahead for job in (first, second, low)] == [1, 2, 3]
    assert await _why(store, first, second, low) == [Why.AHEAD] * 3


async def test_explain_names_the_reason__up_to_a_thousand_ahead(store: Harness) -> None:
    jobs = await store.add_many(1_000)
    last = await store.add()
    past = await store.add()
    await store.worker(queues=("q",))
    assert [(await store.explain(job)).ahead for job in (jobs[998], jobs[999], last, past)] == [
        998, 999, 1_000, 1_000,
    ]  # fmt: skip

"""Calls of one task under the same options travel as columns, and nobody can tell from what is kept."""

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest
from tests.client.test_enqueue import detail

from windlass import Windlass
from windlass.client.task import Call, alike_jobs
from windlass.core.job import NewJob, Receipt, Status
from windlass.core.state import State
from windlass.errors import EnqueueRefused


def _made(call: Call[None]) -> NewJob:
    return call.job


def test_columns_are_the_jobs_that_each_call_would_make(app: Windlass) -> None:
    @app.task(revision=2)
    def send(number: int) -> None: ...

    sender = send.using(priority=3, headers={"a": "b"}, tags=["x"], delay=60)
    calls = [sender.call(number) for number in range(5)]
    jobs = alike_jobs(calls)
    assert jobs is not None
    assert len(jobs) == 5
    assert list(jobs) == [_made(call) for call in calls], "a call that was sent is the job that was sent"
    assert (jobs[-1], jobs[1:3]) == (calls[-1].job, [calls[1].job, calls[2].job])
    assert jobs.ids == sorted({job.id for job in jobs})
    assert jobs.payloads == [sender.call(number).payload for number in range(5)]
    for job in jobs:
        assert job == NewJob(
            id=job.id,
            task="send",
            priority=3,
            headers={"a": "b"},
            tags=("x",),
            delay=60_000_000,
            payload=job.payload,
            revision=2,
        )


def test_calls_that_are_not_alike_or_known_already_travel_as_jobs(app: Windlass) -> None:
    @app.task
    def send(number: int) -> None: ...

    @app.task
    def other(number: int) -> None: ...

    parent = send.enqueue(0)
    asked = send.call(1)
    assert asked.job.task == "send"
    twice, sent = send.call(2), send.call(3)
    assert alike_jobs([sent, send.call(4)]) is not None
    for calls in (
        [send.call(1), other.call(1)],
        [send.call(1), send.using(priority=1).call(1)],
        [send.using(after=parent).call(1)] * 2,
        [send.call(1), asked],
        [send.call(1), sent],
        [twice, twice],
    ):
        assert alike_jobs(calls) is None
    assert (twice.sent_id, twice.made) == (None, twice.payload), "nothing was given to what did not fit"


def test_alike_calls_are_kept_and_sent_again_without_a_second_job(app: Windlass) -> None:
    @app.task
    def send(number: int) -> None: ...

    calls = [send.call(number) for number in range(3)]
    first = app.enqueue_many(calls)
    assert [job.created for job in first] == [True] * 3
    for call, job in zip(calls, first, strict=True):
        kept = detail(app, job.id)
        assert (kept.id, kept.payload, kept.state) == (call.job.id, call.payload, State.READY)
    again = app.enqueue_many(calls)
    assert (again, [job.created for job in again]) == (first, [False] * 3)
    child = send.using(after=calls[1]).enqueue(4)
    assert [edge.parent for edge in detail(app, child.id).after] == [first[1].id]


def test_what_is_refused_is_refused_whole(app: Windlass) -> None:
    @app.task
    def send(number: int) -> None: ...

    async def sent(groups: Sequence[Sequence[NewJob]]) -> Sequence[Sequence[Receipt]]:
        return await (await app.broker()).enqueue(groups)

    lost = send.using(queue="nowhere")
    jobs = alike_jobs([lost.call(number) for number in range(2)])
    assert jobs is not None
    ((first, second),) = app.run(sent([jobs]))
    assert (first.status, second.status) == (Status.REFUSED, Status.REFUSED)
    with pytest.raises(EnqueueRefused, match="nowhere"):
        app.enqueue_many(lost.call(number) for number in range(2))


def test_threads_that_send_the_same_calls_make_one_job_of_each(app: Windlass) -> None:
    @app.task
    def send(number: int) -> None: ...

    calls = [send.call(number) for number in range(200)]
    start = threading.Barrier(4)
    found: list[list[str]] = []

    def run() -> None:
        start.wait(10)
        found.append([job.id for job in app.enqueue_many(calls)])

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 4
    assert {tuple(ids) for ids in found} == {tuple(call.job.id for call in calls)}


def test_alike_calls_are_kept_from_blocking_and_from_async_code(new_app: Callable[..., Windlass]) -> None:
    app = new_app()

    @app.task
    def send(number: int) -> None: ...

    calls = [send.call(number) for number in range(3)]
    jobs = app.enqueue_many(calls)
    assert [job.id for job in jobs] == [call.job.id for call in calls]
    calls = [send.call(number) for number in range(2)]
    jobs += asyncio.run(app.aenqueue_many(calls))
    assert [job.id for job in jobs[3:]] == [call.job.id for call in calls]
    for job in jobs:
        assert (job.created, job.state()) == (True, State.READY)
    assert app.enqueue_many(send.call(number) for number in ()) == []

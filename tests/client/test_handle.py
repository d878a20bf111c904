"""What a handle answers: a result, or which of the reasons there is none."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from windlass import Job, Windlass
from windlass.broker.contract import Broker
from windlass.broker.observed import Observation
from windlass.clock import ManualClock
from windlass.core.lease import Ask, Lease
from windlass.core.outcome import Error, Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.units import HOUR, SECOND
from windlass.errors import (
    InvalidOption,
    InvalidPayload,
    JobCancelled,
    JobFailed,
    JobLost,
    JobNotFound,
    ResultExpired,
    ResultTimeout,
    StoreError,
    UnreadablePayload,
)


class Bench:
    """An app, and a worker's part of the contract by hand."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock()
        self.app = Windlass(url, clock=self.clock)
        self._seq = 0

        @self.app.task
        def double(number: int) -> int:
            return 2 * number

        @self.app.task
        def nothing() -> None: ...

        self.double, self.nothing = double, nothing

    async def take(self) -> Lease:
        broker = await self.app.connection.broker()
        await broker.beat([Beat(session="s", open=SessionInfo())])
        self._seq += 1
        return (
            await broker.claim(Ask(session="s", seq=self._seq, queues=("default",), slots=1, limit=1))
        ).leases[0]

    async def settle(self, outcome: Outcome, **more: Any) -> None:
        lease = await self.take()
        broker: Broker = await self.app.connection.broker()
        await broker.settle(
            [Settlement(job=lease.job, fence=lease.fence, outcome=outcome, runtime=1, **more)]
        )

    def done(self, result: object = None) -> None:
        encoded = None if result is None else self.double.signature.encode_result(result)
        self.app.connection.run(self.settle(Outcome.DONE, result=encoded))

    async def sweep(self) -> None:
        broker = await self.app.connection.broker()
        while (await broker.sweep(limit=100)).more:
            pass


@pytest.fixture
def bench(url: str) -> Iterator[Bench]:
    made = Bench(url)
    yield made
    made.app.close()


def test_the_result_is_what_the_task_returned(bench: Bench) -> None:
    job = bench.double.enqueue(4)
    bench.done(8)
    assert job.result(timeout=1) == 8
    assert job.state() is State.DONE


def test_the_result_of_a_job_known_by_id_alone(bench: Bench) -> None:
    job = bench.double.enqueue(4)
    bench.done(8)
    again = bench.app.job(job.id)
    assert again == job
    assert hash(again) == hash(job)
    assert again.result(timeout=1) == 8


def test_a_task_without_a_result_gives_none(bench: Bench) -> None:
    job = bench.nothing.enqueue()
    bench.done()
    job.result(timeout=1)


def test_a_waiter_is_woken_by_the_end(bench: Bench) -> None:
    job = bench.double.enqueue(4)

    async def main() -> int:
        waiting = asyncio.create_task(job.aresult(timeout=60))
        await asyncio.sleep(0)
        encoded = bench.double.signature.encode_result(8)
        await bench.settle(Outcome.DONE, result=encoded)
        return await asyncio.wait_for(waiting, 10)

    assert asyncio.run(main()) == 8


def test_a_blocking_waiter_is_woken_from_another_thread(bench: Bench) -> None:
    job = bench.double.enqueue(4)
    worker = threading.Thread(target=bench.done, args=(8,))
    worker.start()
    assert job.result(timeout=60) == 8
    worker.join()


def test_unfinished_is_a_timeout(bench: Bench) -> None:
    job = bench.double.enqueue(4)
    with pytest.raises(ResultTimeout, match=f"job {job.id} has not finished within 0 s"):
        job.result(timeout=0)
    with pytest.raises(TimeoutError):
        job.result(timeout=0)


def test_dead_names_the_error(bench: Bench) -> None:
    job = bench.double.enqueue(4)
    error = Error(type="ValueError", message="no such number")
    bench.app.connection.run(bench.settle(Outcome.DEAD, error=error))
    with pytest.raises(JobFailed, match="ValueError: no such number"):
        job.result(timeout=1)


def test_cancelled_says_so(bench: Bench) -> None:
    job = bench.double.enqueue(4)
    assert job.cancel()
    assert not job.cancel()
    with pytest.raises(JobCancelled):
        job.result(timeout=1)


def test_cancel_of_a_running_job_asks_its_worker(bench: Bench) -> None:
    job = bench.double.enqueue(4)
    bench.app.connection.run(bench.take())
    assert job.cancel()
    assert job.state() is State.RUNNING


UNKNOWN = "0190163d-8694-739b-aea5-966c26f8ad91"


def test_an_unknown_id_is_not_found(bench: Bench) -> None:
    job: Job[Any] = bench.app.job(UNKNOWN)
    for ask in (job.state, job.cancel, lambda: job.result(timeout=0)):
        with pytest.raises(JobNotFound, match=UNKNOWN):
            ask()


def test_an_id_must_look_like_one(bench: Bench) -> None:
    with pytest.raises(InvalidOption):
        bench.app.job("42")


def test_a_result_past_its_time_is_expired(bench: Bench) -> None:
    job = bench.double.enqueue(4)
    bench.done(8)
    bench.clock.advance(2 * HOUR)
    bench.app.connection.run(bench.sweep())
    with pytest.raises(ResultExpired, match="its result is kept no longer"):
        job.result(timeout=0)
    assert job.state() is State.DONE


def test_a_job_that_is_gone_within_the_resend_window_is_lost(bench: Bench) -> None:
    job = Job[int](bench.app, UNKNOWN, exists=True, sent=time.monotonic())
    for ask in (job.state, job.cancel, lambda: job.result(timeout=0)):
        with pytest.raises(JobLost, match="it has lost data"):
            ask()


def test_a_job_that_is_gone_after_the_resend_window_may_be_finished_or_lost(bench: Bench) -> None:
    job = bench.nothing.enqueue()
    assert job._sent is not None
    job._sent -= 60
    bench.done()
    bench.clock.advance(48 * HOUR + SECOND)
    bench.app.connection.run(bench.sweep())
    with pytest.raises(
        JobNotFound, match=r"no record of job .*finished longer ago .* or the store has lost it"
    ):
        job.result(timeout=0)


def test_so_may_a_duplicate_of_a_job_that_is_gone(bench: Bench) -> None:
    sender = bench.nothing.using(key="k", window="3d")
    first = sender.enqueue()
    bench.done()
    bench.clock.advance(48 * HOUR + SECOND)
    bench.app.connection.run(bench.sweep())
    again = sender.enqueue()
    assert (again.id, again.created) == (first.id, False)
    for ask in (again.state, again.cancel, again.result):
        with pytest.raises(
            JobNotFound, match=r"no record of job .*finished longer ago .* or the store has lost it"
        ):
            ask()


def test_waiting_for_a_job_that_never_was_ends_at_once(bench: Bench) -> None:
    with pytest.raises(JobNotFound):
        bench.app.job(UNKNOWN).result(timeout=None)


def test_without_a_timeout_it_waits_until_the_end(bench: Bench) -> None:
    job = bench.double.enqueue(4)
    worker = threading.Thread(target=bench.done, args=(8,))
    worker.start()
    assert job.result() == 8
    worker.join()


@pytest.mark.parametrize("timeout", [-1, "soon", float("nan"), True], ids=str)
def test_a_timeout_is_a_duration(bench: Bench, timeout: Any) -> None:
    with pytest.raises(InvalidOption, match="timeout must"):
        bench.double.enqueue(4).result(timeout=timeout)


def test_a_result_that_cannot_be_read_names_its_job(bench: Bench) -> None:
    job = bench.double.enqueue(4)
    bench.app.connection.run(bench.settle(Outcome.DONE, result=b'{"v":1,"r":"eight"}'))
    with pytest.raises(InvalidPayload) as caught:
        job.result(timeout=1)
    assert str(caught.value).startswith(
        f"job {job.id} is done, and its result cannot be read: double(): result"
    )
    assert "eight" not in str(caught.value)


def test_a_result_of_another_version_names_its_job(bench: Bench) -> None:
    job = bench.double.enqueue(4)
    bench.app.connection.run(bench.settle(Outcome.DONE, result=b'{"v":2,"r":8}'))
    with pytest.raises(UnreadablePayload, match=f"job {job.id} is done"):
        job.result(timeout=1)


def test_a_handle_by_id_knows_the_task_s_result(bench: Bench) -> None:
    job = bench.double.enqueue(4)
    bench.done(8)
    bench.clock.advance(2 * HOUR)
    bench.app.connection.run(bench.sweep())
    for handle in (bench.app.job(job.id), bench.double.handle(job.id)):
        with pytest.raises(ResultExpired, match="its result is kept no longer"):
            handle.result(timeout=0)


def test_a_task_elsewhere_may_have_no_result(bench: Bench) -> None:
    job = bench.app.external("elsewhere").enqueue()
    bench.done()
    assert job.result(timeout=1) is None


def test_a_waiter_is_let_go_when_the_app_is_closed(bench: Bench) -> None:
    job = bench.double.enqueue(4)
    watching = threading.Event()

    @bench.app.observe
    def _(seen: Observation) -> None:
        if seen.verb == "get":  # a handle by id looks for its job before it waits
            watching.set()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(bench.app.job(job.id).result)
        assert watching.wait(10)
        bench.app.close()
        with pytest.raises(StoreError, match="the app was closed"):
            waiting.result(timeout=10)


def test_an_async_waiter_is_let_go_when_the_app_is_closed(bench: Bench) -> None:
    job = bench.double.enqueue(4)

    async def main() -> None:
        waiting = asyncio.create_task(job.aresult())
        await asyncio.sleep(0)
        await bench.app.aclose()
        with pytest.raises(StoreError, match=f"the app was closed while job {job.id} was waited for"):
            await asyncio.wait_for(waiting, 10)

    asyncio.run(main())

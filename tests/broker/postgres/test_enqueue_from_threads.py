"""Enqueue in the caller's own thread: many at once, in async code, after a fork."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asyncpg
import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.contract import BlockingProduce, Options
from windlass.broker.postgres import PostgresBroker
from windlass.broker.postgres import blocking as blocking_module
from windlass.broker.postgres.url import Location
from windlass.conformance.harness import APP, new_id
from windlass.core.job import NewJob, Status
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.errors import ContractError, StoreUnavailable

__all__ = ["namespaces"]

_END_ALL = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'windlass'"
"""And wait until they have ended."""


def _job(**given: str) -> NewJob:
    return NewJob(**{"id": new_id(), "task": "t", "queue": "q", **given})


def _run(namespaces: Namespaces, work: Callable[[PostgresBroker, BlockingProduce], Awaitable[None]]) -> None:
    async def test() -> None:
        broker = await namespaces.open(None, Options())
        try:
            await broker.declare(
                [Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(), app=APP)]
            )
            blocking = broker.blocking
            assert blocking is not None
            await work(broker, blocking)
        finally:
            await broker.close()

    asyncio.run(test())


def test_what_threads_send_at_once_is_kept_and_answered_to_each(namespaces: Namespaces) -> None:
    async def work(broker: PostgresBroker, blocking: BlockingProduce) -> None:
        jobs = [_job() for _ in range(200)]
        with ThreadPoolExecutor(16) as threads:
            sent = [threads.submit(blocking.enqueue, [[job]]) for job in jobs]
            receipts = [await asyncio.to_thread(future.result) for future in sent]
        assert [answer[0][0].job for answer in receipts] == [job.id for job in jobs]
        assert {answer[0][0].status for answer in receipts} == {Status.CREATED}
        assert len(await broker.get([job.id for job in jobs])) == len(jobs)

    _run(namespaces, work)


def test_what_is_wrong_with_one_call_is_wrong_for_that_one_alone(namespaces: Namespaces) -> None:
    async def work(broker: PostgresBroker, blocking: BlockingProduce) -> None:
        jobs = [_job(id="not a uuid") if number % 10 == 5 else _job() for number in range(60)]
        with ThreadPoolExecutor(12) as threads:
            sent = [threads.submit(blocking.enqueue, [[job]]) for job in jobs]
            errors = [await asyncio.to_thread(future.exception) for future in sent]
        assert [type(error) for error in errors] == [
            ContractError if job.id == "not a uuid" else type(None) for job in jobs
        ]

    _run(namespaces, work)


def test_it_wakes_those_who_wait_in_the_same_process(namespaces: Namespaces) -> None:
    async def work(broker: PostgresBroker, blocking: BlockingProduce) -> None:
        waiting = asyncio.create_task(broker.wait(["q"], 30))
        await asyncio.to_thread(blocking.enqueue, [[_job()]])
        async with asyncio.timeout(10):
            await waiting

    _run(namespaces, work)


def test_a_blocking_call_in_async_code_works(namespaces: Namespaces) -> None:
    async def work(broker: PostgresBroker, blocking: BlockingProduce) -> None:
        assert blocking.enqueue([[_job(), _job()]])[0][1].status is Status.CREATED

    _run(namespaces, work)


def test_one_job_after_the_other_goes_the_way_that_it_needs(namespaces: Namespaces) -> None:
    """The first opens the connection, so that those after it can go the shortest way."""

    async def work(broker: PostgresBroker, blocking: BlockingProduce) -> None:
        jobs = [_job(), _job(), _job(lane="a"), _job(key="k"), _job()]
        twice = [*jobs, jobs[1], _job(key="k"), _job(queue="nowhere")]
        answers = [(await asyncio.to_thread(blocking.enqueue, [[job]]))[0][0] for job in twice]
        assert [answer.status for answer in answers] == [
            *[Status.CREATED] * 5,
            *[Status.DUPLICATE] * 2,
            Status.REFUSED,
        ]
        assert [answer.of for answer in answers[5:7]] == [jobs[1].id, jobs[3].id]
        assert len(await broker.get([job.id for job in jobs])) == len(jobs)

    _run(namespaces, work)


def test_a_connection_that_was_lost_meanwhile_is_replaced(namespaces: Namespaces) -> None:
    async def work(broker: PostgresBroker, blocking: BlockingProduce) -> None:
        for _ in range(2):
            await asyncio.to_thread(blocking.enqueue, [[_job()]])
        operator: Any = await asyncpg.connect(namespaces.server.dsn)
        await operator.execute(_END_ALL)
        await operator.close()
        receipts = await asyncio.to_thread(blocking.enqueue, [[_job()]])
        assert receipts[0][0].status is Status.CREATED

    _run(namespaces, work)


def test_a_server_that_does_not_answer_is_waited_for_so_long(
    namespaces: Namespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking_module, "PATIENCE", 0.2)
    monkeypatch.setattr(blocking_module, "_LOOK", 0.05)

    async def work(broker: PostgresBroker, blocking: BlockingProduce) -> None:
        job = _job()
        operator: Any = await asyncpg.connect(namespaces.server.dsn)
        for _ in range(2):  # also by the connection that replaces the first
            async with operator.transaction():
                await operator.execute(f"LOCK TABLE {broker.namespace}.job IN ACCESS EXCLUSIVE MODE")
                with pytest.raises(StoreUnavailable, match="did not answer"):
                    await asyncio.to_thread(blocking.enqueue, [[job]])
            await operator.execute(_END_ALL)  # the server has not noticed, and would keep the job
        await operator.close()
        receipts = await asyncio.to_thread(blocking.enqueue, [[job]])
        assert receipts[0][0].status in (Status.CREATED, Status.DUPLICATE)

    _run(namespaces, work)


def test_a_child_of_a_fork_has_a_connection_of_its_own(namespaces: Namespaces) -> None:
    async def work(broker: PostgresBroker, blocking: BlockingProduce) -> None:
        job, of_child = _job(), _job()
        await asyncio.to_thread(blocking.enqueue, [[job]])
        assert await asyncio.to_thread(_forked, lambda: blocking.enqueue([[of_child]])) == 0
        found = await asyncio.to_thread(blocking.enqueue, [[job], [of_child]])
        assert [group[0].status for group in found] == [Status.DUPLICATE, Status.DUPLICATE]

    _run(namespaces, work)


def _forked(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_closed_broker_says_so(namespaces: Namespaces) -> None:
    async def work(broker: PostgresBroker, blocking: BlockingProduce) -> None:
        await asyncio.to_thread(blocking.enqueue, [[_job()]])
        await PostgresBroker.close(broker)
        with pytest.raises(StoreUnavailable, match="closed"):
            await asyncio.to_thread(blocking.enqueue, [[_job()]])

    _run(namespaces, work)


def test_with_few_connections_none_is_set_apart(namespaces: Namespaces) -> None:
    async def work() -> None:
        place = Location(namespaces.server.dsn, connections=2)
        broker = await PostgresBroker.open(place, options=Options(namespace="few"))
        assert broker.blocking is None
        await broker.close()

    asyncio.run(work())

"""Verbs that share a transaction: each is whole or not there, and none harms a neighbour."""

import asyncio
import threading
from pathlib import Path

import msgspec
import pytest
from tests.broker.sqlite.blocking import run
from tests.broker.sqlite.children import QUEUE, new_job
from tests.broker.sqlite.files import new_file

from windlass.broker.sqlite import SqliteBroker
from windlass.broker.sqlite.broker import enqueue_step
from windlass.broker.sqlite.log import Log
from windlass.broker.sqlite.transaction import Transaction
from windlass.broker.sqlite.writer import WriterCall
from windlass.core.job import NewJob, Receipt, Refusal, Status
from windlass.errors import StoreUnavailable


class _Mistake(Exception):
    pass


def _mistaken(tx: Transaction) -> None:
    """A verb that has written half of what it should when it fails."""
    tx.run("INSERT INTO task (name) VALUES ('half')")
    tx.number()
    tx.armed.add("q")
    raise _Mistake


def test_a_verb_that_fails_harms_no_neighbour(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = await SqliteBroker.open(new_file(tmp_path))
        await broker.declare([QUEUE])
        writer = broker.store.writer
        jobs = [new_job(f"t{number}") for number in range(50)]
        calls = [
            asyncio.ensure_future(writer.submit(_mistaken) if number % 10 == 5 else broker.enqueue([[job]]))
            for number, job in enumerate(jobs)
        ]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        failed = [number for number, answer in enumerate(answers) if isinstance(answer, _Mistake)]
        assert failed == [5, 15, 25, 35, 45]
        found = await broker.get([job.id for job in jobs])
        assert [number for number, job in enumerate(found) if job is None] == failed
        assert sum(row.count for row in (await broker.counts()).rows) == 45
        await broker.close()

    asyncio.run(scenario())


def test_256_concurrent_enqueues_and_one_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = await SqliteBroker.open(new_file(tmp_path))
        await broker.declare([QUEUE])
        jobs = [new_job() for _ in range(256)]
        calls = [
            broker.enqueue([[job if number != 100 else _elsewhere()]]) for number, job in enumerate(jobs)
        ]
        receipts = [answer[0][0] for answer in await asyncio.gather(*calls)]
        refused: list[Receipt] = [receipt for receipt in receipts if receipt.status is not Status.CREATED]
        assert [receipt.refusal for receipt in refused] == [Refusal.UNKNOWN_QUEUE]
        await broker.close()

    asyncio.run(scenario())


def _elsewhere() -> NewJob:
    return msgspec.structs.replace(new_job(), queue="nowhere")


def test_a_job_that_came_with_many_is_known_to_the_verbs_behind_it(tmp_path: Path) -> None:
    """Also if a verb before it, in the same transaction, has looked for its id in vain."""
    broker = SqliteBroker(new_file(tmp_path))
    run(broker).declare([QUEUE])
    jobs = [new_job() for _ in range(20)]
    refused = msgspec.structs.replace(jobs[3], queue="nowhere")
    groups = ([refused], jobs, [jobs[3]])
    calls = [WriterCall(enqueue_step(broker.store, [group])) for group in groups]
    broker.store.writer._execute(calls)
    statuses = [call.outcome()[0][0].status for call in calls]
    assert statuses == [Status.REFUSED, Status.CREATED, Status.DUPLICATE]
    run(broker).close()


def test_threads_and_coroutines_write_together(tmp_path: Path) -> None:
    broker = SqliteBroker(new_file(tmp_path))
    run(broker).declare([QUEUE])

    def some() -> None:
        for _ in range(20):
            broker.blocking.enqueue([[new_job()]])

    async def others() -> None:
        await asyncio.gather(*(broker.enqueue([[new_job()]]) for _ in range(40)))

    threads = [threading.Thread(target=some) for _ in range(4)]
    for thread in threads:
        thread.start()
    asyncio.run(others())
    for thread in threads:
        thread.join()
    assert sum(row.count for row in run(broker).counts().rows) == 120
    run(broker).close()


def test_a_closed_broker_says_so(tmp_path: Path) -> None:
    broker = SqliteBroker(new_file(tmp_path))
    run(broker).close()
    with pytest.raises(StoreUnavailable, match="is closed"):
        run(broker).declare([QUEUE])
    with pytest.raises(StoreUnavailable, match="is closed"):
        asyncio.run(broker.declare([QUEUE]))


def test_who_is_interrupted_behind_the_commit_spoils_nobody_elses_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blocking caller takes along what waits; Ctrl-C while it sees to the log is nobody's but its own."""

    def interrupted(_log: Log) -> None:
        raise KeyboardInterrupt

    async def scenario() -> None:
        broker = await SqliteBroker.open(new_file(tmp_path))
        await broker.declare([QUEUE])
        monkeypatch.setattr(Log, "tend", interrupted)
        own, thread, coroutine = (WriterCall(lambda _tx, number=number: number) for number in range(3))
        thread.done = threading.Event()
        coroutine.loop = asyncio.get_running_loop()
        coroutine.future = coroutine.loop.create_future()
        broker.store.writer._execute([own, thread, coroutine])
        with pytest.raises(KeyboardInterrupt):
            own.outcome()
        assert thread.done.is_set()
        assert thread.outcome() == 1
        assert await coroutine.future == 2
        monkeypatch.undo()
        await broker.close()

    asyncio.run(scenario())

"""Large jobs sent as rows: callers that stop in the middle hold up nobody, and leave all or nothing."""

import asyncio
import contextlib
import os
import signal
import threading

import asyncpg
import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces
from tests.broker.postgres.test_copied import _begun, _Copies, _enqueue, _jobs, _opened, copies

from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker
from windlass.broker.postgres.wire import Wire
from windlass.conformance.harness import Harness
from windlass.core.job import Status
from windlass.core.state import State
from windlass.errors import StoreUnavailable

__all__ = ["copies", "namespaces"]


class _Halt:
    """Stops a caller after so many parts of its rows and of what follows them, until it may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, parts: int, cut: bool = False) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        left: int | None = None  # None: no rows yet
        whole = Wire.send

        def send(wire: Wire, *message: bytes) -> None:
            nonlocal left
            if left is None and len(message) > 1:
                left = parts
            if left is None or len(message) < left or self.reached.is_set():
                whole(wire, *message)
                left = None if left is None else left - len(message)
                return
            if message[:left]:
                whole(wire, *message[:left])
            self.reached.set()
            if cut:
                wire.connection.terminate()
                raise ConnectionError("cut")
            assert self.go_on.wait(60)
            if message[left:]:
                whole(wire, *message[left:])

        monkeypatch.setattr(Wire, "send", send)


@pytest.mark.parametrize("parts", range(11))
def test_a_connection_that_is_cut_anywhere_leaves_all_or_nothing(
    namespaces: Namespaces, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    async def test() -> None:
        broker, blocking = await _opened(namespaces)
        _Halt(monkeypatch, parts, cut=True)
        jobs = _jobs()
        with pytest.raises(StoreUnavailable):
            await _enqueue(blocking, jobs)
        # Whether the last part was read before the end is not known; that it is all or nothing is.
        statuses = {receipt.status for receipt in await _enqueue(blocking, jobs)}
        assert statuses == {Status.CREATED} or (parts == 10 and statuses == {Status.DUPLICATE})
        assert len(await broker.get([job.id for job in jobs])) == len(jobs)
        await broker.close()

    asyncio.run(test())


def test_a_call_that_is_given_up_half_way_leaves_no_transaction_open(
    namespaces: Namespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even until the next call of its process, and not if nothing more can be said to the server."""
    served: list[int] = []
    whole = Wire.send

    def send(wire: Wire, *message: bytes) -> None:
        if len(message) == 1:
            whole(wire, *message)
            return
        served.append(wire.connection.get_server_pid())
        os.kill(served[0], signal.SIGSTOP)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(wire._fileno, b"".join(message))
        raise TimeoutError

    async def test() -> None:
        broker, blocking = await _opened(namespaces)
        monkeypatch.setattr(Wire, "send", send)
        try:
            with pytest.raises(StoreUnavailable):
                await _enqueue(blocking, _jobs())
        finally:
            os.kill(served[0], signal.SIGCONT)
        link = await asyncpg.connect(broker._pool._place.dsn)
        async with asyncio.timeout(30):
            while await link.fetch("SELECT FROM pg_stat_activity WHERE pid = $1", served[0]):
                pass
        await link.close()
        await broker.close()

    asyncio.run(test())


@pytest.mark.parametrize("parts", [1, 2, 6, 9])
def test_nobody_waits_for_who_is_frozen(
    namespaces: Namespaces, copies: _Copies, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    async def test() -> None:
        store = await Harness.open(namespaces.open, Options())
        broker = store.broker
        blocking = await _begun(broker)
        halt = _Halt(monkeypatch, parts)
        jobs, others = _jobs(), _jobs(3)
        sending = asyncio.create_task(_enqueue(blocking, jobs))
        await asyncio.to_thread(halt.reached.wait)
        await broker.sweep(limit=100)
        await store.queue("another")  # alone in the namespace, as a sweep is
        await broker.enqueue([others])
        worker = await store.worker()
        leases = (await worker.claim(slots=10)).leases
        assert [lease.job for lease in leases] == [job.id for job in others]
        for lease in leases:
            await store.done(lease)
        assert await store.count(State.READY) == 0
        assert await store.missing(jobs[0].id)
        halt.go_on.set()
        assert {receipt.status for receipt in await sending} == {Status.CREATED}
        assert await store.count(State.READY) == len(jobs)
        assert copies.sent == 1
        await store.close()

    asyncio.run(test())


def test_rows_that_others_wait_for_give_way(
    namespaces: Namespaces, copies: _Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who sends the same ids waits for these rows, with the lock; a sweep waits for that, and these then."""

    async def test() -> None:
        broker, blocking = await _opened(namespaces)
        halt = _Halt(monkeypatch, 9)  # all rows, and not what follows them
        jobs = _jobs()
        sending = asyncio.create_task(_enqueue(blocking, jobs))
        await asyncio.to_thread(halt.reached.wait)
        again = asyncio.create_task(broker.enqueue([jobs]))
        await _waits(broker, "transactionid")
        sweep = asyncio.create_task(broker.sweep(limit=100))
        await _waits(broker, "advisory")
        halt.go_on.set()
        mine, (theirs,) = await sending, await again
        await sweep
        assert copies.refused == ["55P03"]
        assert not blocking._ways.may_copy("q")  # for a while others come first
        assert {receipt.status for receipt in mine} == {Status.DUPLICATE}
        assert {receipt.status for receipt in theirs} == {Status.CREATED}
        await broker.close()

    asyncio.run(test())


async def _waits(broker: PostgresBroker, event: str) -> None:
    """Wait until somebody waits so."""
    link = await asyncpg.connect(broker._pool._place.dsn)
    found = None
    while not found:
        found = await link.fetch("SELECT FROM pg_stat_activity WHERE wait_event = $1", event)
    await link.close()

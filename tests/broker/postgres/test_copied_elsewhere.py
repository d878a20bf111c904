"""Large jobs sent as rows: what others know of their ids, and who waits for them elsewhere."""

import asyncio

import asyncpg
import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces
from tests.broker.postgres.test_copied import _all_are, _Copies, _enqueue, _jobs, _opened, copies

from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker
from windlass.broker.postgres import broker as broker_module
from windlass.broker.postgres.driver import PATIENCE, connect
from windlass.broker.postgres.listening import ROOM
from windlass.broker.postgres.url import Place
from windlass.core.job import Status

__all__ = ["copies", "namespaces"]

_KEEPALIVES = (
    "SELECT replace(name, 'tcp_keepalives_', '') AS name, reset_val::integer AS asked "
    "FROM pg_settings WHERE name LIKE 'tcp\\_keepalives\\_%'"
)
_IS_LISTENED_TO = (
    "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = $1 AND granted)"
)


def test_an_id_that_a_key_absorbed_is_told(namespaces: Namespaces, copies: _Copies) -> None:
    async def test() -> None:
        broker, blocking = await _opened(namespaces)
        jobs = _jobs()
        await broker.enqueue([_jobs(1, key="k")])
        await broker.enqueue([_jobs(1, key="k", id=jobs[7].id)])
        receipts = await _enqueue(blocking, jobs)
        assert copies.refused == ["WL004"]
        assert [place for place, receipt in enumerate(receipts) if receipt.status is Status.DUPLICATE] == [7]
        await broker.close()

    asyncio.run(test())


def test_they_wake_who_waits_elsewhere(
    namespaces: Namespaces, copies: _Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        broker, blocking = await _opened(namespaces)
        monkeypatch.setattr(broker_module, "_WAIT_FLOOR", 60.0)  # nobody looks by himself
        options = Options(namespace=broker.namespace)
        other = await PostgresBroker.open(Place(namespaces.server.dsn), options=options)
        waiter = asyncio.create_task(other.wait(["q"], 60.0))
        link = await asyncpg.connect(namespaces.server.dsn)
        while not await link.fetchval(_IS_LISTENED_TO, ROOM):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.01)
        await _all_are(blocking, _jobs(), Status.CREATED)
        assert copies.sent == 1
        await asyncio.wait_for(waiter, 20)
        await link.close()
        await other.close()
        await broker.close()

    asyncio.run(test())


def test_a_client_that_is_gone_is_found_out_before_it_sends_the_same_again(namespaces: Namespaces) -> None:
    """Its rows would be waited for, by whoever sends them again and by all behind that."""

    async def told() -> dict[str, int]:
        connection = await connect(namespaces.server.dsn, pooled=False)
        try:
            # What was asked for: over the socket of the tests it is shown as 0.
            rows = await connection.fetch(_KEEPALIVES)
            return {row["name"]: row["asked"] for row in rows}
        finally:
            await connection.close()

    after = asyncio.run(told())
    assert 0 < after["idle"] + after["interval"] * after["count"] < PATIENCE

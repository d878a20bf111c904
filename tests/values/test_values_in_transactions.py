"""Large values in the transactions of others: a rollback leaves an object, and no job."""

import asyncio
from pathlib import Path

import psycopg
from tests.broker.postgres.namespaces import Namespaces
from tests.values.seen import seen

from windlass import Windlass, current
from windlass.core.codec import is_reference
from windlass.core.state import State


def test_a_large_payload_is_enqueued_with_the_transaction_of_its_caller(
    namespaces: Namespaces, tmp_path: Path
) -> None:
    app = Windlass(namespaces.server.dsn, namespace="values_on", values=f"file://{tmp_path}/values")

    @app.task(name="length")
    def length(text: str) -> int:
        return len(text)

    async def main() -> None:
        connection = await psycopg.AsyncConnection.connect(namespaces.server.dsn)
        sender = length.using(connection=connection)
        undone = await sender.aenqueue("x" * 100_000)
        await connection.rollback()
        kept = await sender.aenqueue("x" * 200_000)
        await connection.commit()
        await connection.close()
        broker = await app.broker()
        first, second = await broker.get([undone.id, kept.id])
        assert first is None
        assert second is not None
        assert is_reference(second.payload)
        assert app.values is not None
        assert len(await app.values.bucket.page("p/", "", 10)) == 2
        async with app.worker():
            assert await kept.aresult(30) == 200_000
        await app.aclose()

    asyncio.run(main())


def test_a_job_that_ends_in_its_transaction_may_spawn_large_children(
    namespaces: Namespaces, tmp_path: Path
) -> None:
    app = Windlass(namespaces.server.dsn, namespace="values_in", values=f"file://{tmp_path}/values")

    @app.task(name="length")
    def length(text: str) -> int:
        return len(text)

    @app.task(name="parent")
    async def parent() -> None:
        children.append(current.spawn(length.call("x" * 100_000)))
        async with current.transaction():
            pass

    children: list[str] = []

    async def main() -> None:
        async with app.worker():
            job = await parent.aenqueue()
            await seen(app, job.id, lambda found: found.state is State.DONE)
            assert await app.job(children[0]).aresult(30) == 100_000
            child = (await (await app.broker()).get(children))[0]
            assert child is not None
            assert is_reference(child.payload)
        await app.aclose()

    asyncio.run(main())

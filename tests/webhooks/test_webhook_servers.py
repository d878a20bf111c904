"""Webhooks and alerts on stores that are servers: from the end of a job to its receiver."""

import asyncio
import os
from typing import Any

import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces
from tests.broker.redis.fixtures import redis_server
from tests.broker.redis.servers import Server
from tests.webhooks.receiver import receiving

from windlass import Windlass
from windlass.admin.dead import Selection
from windlass.admin.operations import Operations
from windlass.admin.webhooks import Webhooks

__all__ = ["namespaces", "redis_server"]


def told_on(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.worker.delivering._rings", {})
    for name in ("SOON", "LATER"):
        monkeypatch.setattr(f"windlass.worker.webhooks.{name}", 0.05)
    app = Windlass(url, namespace=f"hooks{os.getpid()}", webhooks=True, webhook_allow=["127.0.0.1"])

    @app.task(queue="mail")
    async def send(to: str) -> str:
        return to

    async def story() -> None:
        async with receiving() as receiver:
            broker = await app.broker()
            hooks = Webhooks(app, broker)
            await hooks.put("all", queue="mail", url=receiver.url("/queue"), on=["done"], by="me")
            async with app.worker(concurrency=4):
                jobs = [await send.using(callback=receiver.url("/own")).aenqueue(str(n)) for n in range(5)]
                got = await receiver.wait_for(10)
            secret = (await hooks.secret(receiver.url())).secret
            assert all(each.is_signed_with(secret) for each in got)
            for path in ("/queue", "/own"):
                told = sorted(each.said["job"]["id"] for each in got if path in each.line)
                assert told == sorted(job.id for job in jobs)
            await hooks.remove("all")
            await _discards_nothing(app, broker)
        await app.aclose()

    async def whole() -> None:
        async with asyncio.timeout(60):
            await story()

    asyncio.run(whole())


async def _discards_nothing(app: Windlass, broker: Any) -> None:
    """An operation is kept by these stores, too."""
    operations = Operations(app, broker)
    started = await operations.start("discard", Selection(), chosen={"all": "yes"}, by="me")
    await operations.close()
    assert (await operations.one(started.id)).state in ("done", "stopped")


def test_on_redis(redis_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    told_on(redis_server.url, monkeypatch)


def test_on_postgres(namespaces: Namespaces, monkeypatch: pytest.MonkeyPatch) -> None:
    told_on(namespaces.server.dsn.replace("postgres://", "postgresql://"), monkeypatch)

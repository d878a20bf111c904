"""A server that lost everything: programs that run go on."""

import asyncio

import redis
from tests.broker.redis.servers import redis_binary, running

from windlass import Windlass


def empty(url: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.flushall()


def test_a_running_producer_declares_anew_what_the_store_has_lost() -> None:
    with running(redis_binary()) as server:
        app = Windlass(server.url)
        app.queue("mail", concurrency=3)

        @app.task(queue="mail")
        def send(to: str) -> None: ...

        send.enqueue("before")
        empty(server.url)
        assert send.enqueue("after").state() == "ready"
        empty(server.url)

        async def more() -> str:
            try:
                return await (await send.aenqueue("once more")).astate()
            finally:
                await (await app.broker()).close()  # the connections of this loop

        assert asyncio.run(more()) == "ready"
        app.close()

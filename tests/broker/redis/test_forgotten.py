"""A server that lost everything: programs that run go on."""

import asyncio
from contextlib import ExitStack
from pathlib import Path

import redis
from tests.broker.redis.servers import redis_binary, running, running_in
from tests.worker.blackbox.bb_app import build
from tests.worker.blackbox.conftest import QUICK
from tests.worker.blackbox.fleet import eventually, fleet_in

from windlass import Windlass
from windlass.errors import WindlassError


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
            return await (await send.aenqueue("once more")).astate()

        assert asyncio.run(more()) == "ready"
        app.close()


def test_a_running_worker_declares_anew_what_the_store_has_lost(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    url = f"unix://{folder / 'socket'}"
    with ExitStack() as servers, fleet_in(tmp_path, build, url=url, **QUICK) as fleet:
        server = servers.enter_context(running_in(folder, redis_binary()))
        worker = fleet.start("processes=1, concurrency=2")
        # Nobody else declares the queue: this program knows the task by its name alone.
        outside = Windlass(url, name="outside")
        send = outside.external("short", queue="other", max_attempts=1)

        def is_done() -> bool:
            try:
                return send.enqueue(pause=0.0).result(timeout=10) > 0
            except WindlassError:
                return False  # refused, or run by a worker whose session is lost

        assert is_done()
        server.process.kill()
        server.process.wait(10)
        (folder / "socket").unlink()
        servers.enter_context(running_in(folder, redis_binary()))
        eventually("a job is run", is_done, hint=worker.log.read_text)
        outside.close()
        assert worker.stop() == 0
        assert not worker.said("Traceback"), worker.log.read_text()


def test_an_embedded_worker_declares_anew_what_the_store_has_lost() -> None:
    async def main(url: str) -> None:
        app = Windlass(url, session_ttl="3s", beat="0.5s")
        outside = Windlass(url, name="outside")

        @app.task(queue="other")
        async def double(number: int) -> int:
            return 2 * number

        send = outside.external("double", queue="other")
        async with app.worker(concurrency=2):
            assert await (await send.aenqueue(number=4)).aresult(timeout=10) == 8
            await asyncio.to_thread(empty, url)
            async with asyncio.timeout(30):
                while True:
                    try:
                        job = await send.aenqueue(number=5)
                        break
                    except WindlassError:
                        await asyncio.sleep(0.05)  # until the worker has heard that its session is lost
            assert await job.aresult(timeout=10) == 10
        await outside.aclose()
        await app.aclose()

    with running(redis_binary()) as server:
        asyncio.run(main(server.url))

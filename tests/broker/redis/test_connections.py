"""How many connections there are, what goes over them, and when they are closed."""

import asyncio
import gc
import itertools
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.broker.redis.cluster import free_ports, until
from tests.broker.redis.fixtures import new_namespace
from tests.broker.redis.servers import Server, redis_binary, running
from tests.worker.blackbox.bb_app import build
from tests.worker.blackbox.fleet import Fleet, eventually, fleet_in

from windlass import Windlass
from windlass.broker.contract import Options
from windlass.broker.redis import RedisBroker
from windlass.broker.redis.listener import Listener
from windlass.broker.redis.scripts import script
from windlass.broker.redis.url import read_url
from windlass.broker.redis.wire import Wire

_namespaces = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(redis_binary()) as one:
        yield one


@pytest.fixture
def admin(server: Server) -> Iterator["redis.Redis"]:
    with redis.Redis(unix_socket_path=str(server.socket)) as client:
        until(lambda: not ours(client))
        yield client


def ours(admin: "redis.Redis") -> list[Any]:
    return [one for one in admin.client_list() if one["name"] == "windlass"]


# --- when they are closed -----------------------------------------------------------------------------------


def test_a_loop_that_ends_closes_what_it_had_open(server: Server, admin: "redis.Redis") -> None:
    async def main() -> None:
        broker = await RedisBroker.open(server.url, options=new_namespace(Options()))
        await broker.wait(["q"], 0.01)
        assert len(ours(admin)) == 2

    asyncio.run(main())
    until(lambda: not ours(admin))
    gc.collect()  # a connection that nobody closed would be complained of here


def test_a_script_of_many_loops_keeps_what_threads_share_alone(server: Server, admin: "redis.Redis") -> None:
    app = Windlass(server.url, namespace=f"c{next(_namespaces)}")

    @app.task
    def send(number: int) -> None: ...

    async def main(number: int) -> str:
        job = await send.aenqueue(number)
        asyncio.create_task(job.aresult(timeout=60)).add_done_callback(lambda _: None)  # left behind
        return await job.astate()

    for number in range(5):
        assert asyncio.run(main(number)) == "ready"
    gc.collect()
    until(lambda: len(ours(admin)) == 1)  # of the thread that opened the store
    app.close()
    until(lambda: not ours(admin))


def test_closing_an_app_closes_what_other_loops_have_open(server: Server, admin: "redis.Redis") -> None:
    app = Windlass(server.url, namespace=f"c{next(_namespaces)}")

    @app.task
    def send() -> None: ...

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    job = asyncio.run_coroutine_threadsafe(send.aenqueue(), loop).result(10)
    watching = asyncio.run_coroutine_threadsafe(job.aresult(timeout=60), loop)
    until(lambda: len(ours(admin)) == 3)  # the app's own, and two of the loop
    app.close()
    with pytest.raises(Exception, match="the app was closed while"):
        watching.result(10)
    until(lambda: not ours(admin))
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@pytest.mark.parametrize("turns", range(6))
def test_a_loop_that_ends_while_another_closes_leaves_nothing_open(
    server: Server, admin: "redis.Redis", turns: int
) -> None:
    """An app that is closed from its own thread has its connections closed by the loops that they belong to.
    A loop that ends at that moment cancels it half-way.
    """

    async def main() -> None:
        broker = await RedisBroker.open(server.url, options=new_namespace(Options()))
        await broker.wait(["q"], 0.01)
        assert len(ours(admin)) == 2
        await asyncio.to_thread(lambda: asyncio.run(broker.close()))
        for _ in range(turns):
            await asyncio.sleep(0)

    asyncio.run(main())
    until(lambda: not ours(admin))
    gc.collect()


def test_a_close_that_is_cancelled_before_its_turn_leaves_nothing_open(
    server: Server, admin: "redis.Redis"
) -> None:
    """A loop that ends cancels who closes on it, also while that waits for its turn."""

    async def main() -> None:
        wire = Wire(read_url(server.url), b"key")
        listener = Listener(read_url(server.url), wire, "n")
        await wire.connected()
        await listener.wait_here()
        assert len(ours(admin)) == 2
        async with wire._lock, listener._opening:
            for each in (listener, wire):
                closing = asyncio.create_task(each.close())
                await asyncio.sleep(0)
                closing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await closing
        await asyncio.to_thread(until, lambda: not ours(admin))

    asyncio.run(main())


def test_an_embedded_worker_that_is_left_leaves_nothing_open(server: Server, admin: "redis.Redis") -> None:
    app = Windlass(server.url, namespace=f"c{next(_namespaces)}")

    @app.task
    def double(number: int) -> int:
        return 2 * number

    async def main() -> None:
        for number in range(3):
            async with app.worker(concurrency=2):
                assert await (await double.aenqueue(number)).aresult(timeout=30) == 2 * number
        # The app's own, and two of this loop, which enqueues and watches. It goes on meanwhile: a transport
        # that was closed lets go of its socket at the next turn.
        await asyncio.to_thread(until, lambda: len(ours(admin)) == 3)
        await app.aclose()

    asyncio.run(main())
    until(lambda: not ours(admin))
    gc.collect()


# --- of a real worker ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of a server that is reached by TCP, so that the kernel tells whose connections there are."""
    (free,) = free_ports(1)
    with running(redis_binary(), "--port", str(free)):
        yield free


@pytest.fixture
def fleet(port: int, tmp_path: Path) -> Iterator[Fleet]:
    """As it comes: beat 5 s, TTL 30 s."""
    with fleet_in(tmp_path, build, url=f"redis://127.0.0.1:{port}") as made:
        yield made


def connections_of(pid: int, port: int) -> int:
    """How many connections a process has to a port of this machine."""
    open_here = {link.readlink().name for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(
        int(row[2].partition(":")[2], 16) == port and f"socket:[{row[9]}]" in open_here for row in rows
    )


@contextmanager
def monitored(port: int, said: list[tuple[str, str]]) -> Iterator[None]:
    """Write down what clients say to a server meanwhile, as (client, command), but for this one."""
    with redis.Redis(port=port) as talker, redis.Redis(port=port) as client, ExitStack() as listening:
        talker.ping()  # it is connected before anybody listens
        monitor = listening.enter_context(client.monitor())

        def listen() -> None:
            for heard in monitor.listen():
                if heard["command"].startswith("ECHO the end"):
                    return
                if heard["client_type"] != "lua":
                    said.append((heard["client_port"], heard["command"]))

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield
        finally:
            talker.echo("the end")
            thread.join(10)
            assert not thread.is_alive()


NAMES = (
    "enqueue claim settle beat sweep wait leave open declare finished get counts sessions documents unhold "
    "end_session annotate schedules explain"
)
SCRIPTS = {script(name).sha.decode(): name for name in NAMES.split()}


def verbs(said: list[tuple[str, str]]) -> Counter[str]:
    """How often each script was called; other commands by their names."""
    names = [re.match(r"EVALSHA (\w+)", command) for _, command in said]
    return Counter(
        SCRIPTS[match[1]] if match else command.split()[0]
        for match, (_, command) in zip(names, said, strict=True)
    )


@pytest.mark.slow
def test_a_worker_has_two_connections_a_process_and_one_round_trip_a_batch(fleet: Fleet, port: int) -> None:
    worker = fleet.start("processes=1, concurrency=8")
    app = fleet.app
    app.enqueue_many(app.tasks["tiny"].call() for _ in range(50))
    fleet.finished()
    said: list[tuple[str, str]] = []
    jobs = 2_000
    with monitored(port, said):
        app.enqueue_many(app.tasks["tiny"].call() for _ in range(jobs))
        fleet.finished()
    (child,) = worker.children
    assert connections_of(child, port) == 2, "one for calls and one to listen on"
    assert connections_of(worker.pid, port) == 1
    by_client: dict[str, list[tuple[str, str]]] = {}
    for client, command in said:
        by_client.setdefault(client, []).append((client, command))
    # Settling and asking for more is one call.
    busy = max((verbs(lines) for lines in by_client.values()), key=lambda found: found["settle"])
    assert set(busy) <= {"settle", "claim", "wait", "leave", "EVAL"}, busy
    assert busy["EVAL"] <= 4, busy  # each script that this server meets for the first time
    assert busy["settle"] < jobs / 4, busy
    assert busy["claim"] <= 3 + busy["wait"], busy  # only when there is nothing to settle
    assert worker.stop() == 0


@pytest.mark.slow
def test_an_idle_worker_says_nothing_but_waits_beats_and_sweeps(fleet: Fleet, port: int) -> None:
    worker = fleet.start("processes=2, concurrency=8")
    app = fleet.app
    app.tasks["tiny"].enqueue().result(timeout=60)
    app.close()
    said: list[tuple[str, str]] = []
    eventually("quiet", lambda: _is_quiet(port, said))
    said.clear()
    seconds = 4
    with monitored(port, said):
        time.sleep(seconds)  # the measure itself: what is said in a time
    found = verbs(said)
    assert set(found) <= {"wait", "leave", "claim", "settle", "beat", "sweep", "documents", "counts"}, found
    # Twice a second for each of two processes, and a sweep a second: no more than a shell would cost.
    assert found.total() <= 8 * seconds, found
    assert worker.stop() == 0


def _is_quiet(port: int, said: list[tuple[str, str]]) -> bool:
    said.clear()
    with monitored(port, said):
        time.sleep(0.5)
    return len(said) <= 4

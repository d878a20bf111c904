"""What a worker says to probes: whether it should be started anew, and whether it may start jobs."""

import asyncio
import json
from typing import Any

import pytest
from tests.worker.simulated import World, scenario

from windlass.errors import InvalidOption, StoreUnavailable
from windlass.worker.health import Health, health_address, health_served
from windlass.worker.messages import Failed
from windlass.worker.options import WorkerOptions, check_options


def health_of(world: World) -> Health:
    health = Health()
    health.supervisors = [world.supervisor]
    return health


@scenario()
async def test_a_worker_is_ready_when_a_child_may_start_jobs(world: World) -> None:
    health = health_of(world)
    assert (health.trouble(), (health.not_ready() or "").partition(":")[0]) == (
        None,
        "no process may start jobs",
    )
    await world.begin()
    assert (health.trouble(), health.not_ready()) == (None, None)


@scenario()
async def test_a_store_that_is_away_makes_it_not_ready_and_no_reason_to_start_anew(world: World) -> None:
    health = health_of(world)
    await world.begin()
    beat, away = world.broker.beat, [True]

    async def unavailable(beats: Any) -> Any:
        if away[0]:
            raise StoreUnavailable("away")
        return await beat(beats)

    world.broker.beat = unavailable
    await world.pace.advance(24)
    assert health.not_ready() is None  # children start jobs as long as their sessions are alive for sure
    await world.pace.advance(10)
    assert "the store does not answer" in (health.not_ready() or "")
    assert health.trouble() is None
    away[0] = False
    await world.pace.advance(2)
    assert health.not_ready() is None


@scenario(processes=2)
async def test_one_child_that_works_is_enough(world: World) -> None:
    health = health_of(world)
    await world.begin()
    world.spawner.obedient = False
    world.spawner.children[0].die(1)
    await world.pace.rest()
    assert (health.trouble(), health.not_ready()) == (None, None)


@scenario(processes=1)
async def test_a_worker_whose_children_cannot_work_any_more_should_be_started_anew(world: World) -> None:
    """It had started, so it does not give up by itself."""
    health = health_of(world)
    await world.begin()
    world.spawner.obedient = False
    world.spawner.on_spawn = lambda child: (child.say(Failed("no module shop")), child.die(3))
    world.spawner.children[0].die(1)
    await world.pace.advance(60)
    assert health.trouble() == "no module shop"
    assert health.not_ready() == "no module shop"
    world.spawner.obedient = True
    world.spawner.on_spawn = lambda _: None
    await world.pace.advance(60)
    assert (health.trouble(), health.not_ready()) == (None, None)


@scenario(processes=1)
async def test_a_worker_that_stops_is_alive_and_not_ready(world: World) -> None:
    health = health_of(world)
    await world.begin()
    world.supervisor.stop()
    assert (health.trouble(), health.not_ready()) == (None, "stopping")


def test_all_namespaces_have_to_be_ready() -> None:
    class Fixed:
        stopping = False
        hopeless = None

        def __init__(self, *, ready: bool) -> None:
            self._ready = ready

        def may_start_jobs(self) -> bool:
            return self._ready

    health = Health()
    health.supervisors = [Fixed(ready=True), Fixed(ready=True)]
    assert health.not_ready() is None
    health.supervisors = [Fixed(ready=True), Fixed(ready=False)]
    assert health.not_ready() is not None


def test_it_is_told_over_http_to_whoever_asks() -> None:
    """A kubelet asks by the address of the pod, as no browser would."""

    async def ask(url: str, path: str, method: str = "GET") -> tuple[str, bytes]:
        port = int(url.split(":")[2].partition("/")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: 10.1.2.3:8701\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return head.decode().split("\r\n")[0], body

    async def main() -> None:
        async with health_served("0", Health()) as url:
            assert url is not None
            assert await ask(url, "/healthz") == ("HTTP/1.1 200 OK", b'{"status":"ok"}')
            status, body = await ask(url, "/readyz?verbose")
            assert status == "HTTP/1.1 503 Service Unavailable"
            assert json.loads(body) == {"status": "the store has not answered yet"}
            assert await ask(url, "/readyz", "HEAD") == (status, b"")
            assert (await ask(url, "/metrics"))[0] == "HTTP/1.1 404 Not Found"
            assert (await ask(url, "/healthz", "POST"))[0] == "HTTP/1.1 405 Method Not Allowed"

    asyncio.run(main())


def test_an_address_is_a_port_of_this_machine_unless_it_says_more() -> None:
    assert health_address("8701") == ("127.0.0.1", 8701)
    assert health_address("0.0.0.0:8701") == ("0.0.0.0", 8701)  # noqa: S104 - for a cluster
    assert health_address("[::]:8701") == ("::", 8701)


@pytest.mark.parametrize("text", ["", "health", "70000", ":8701", "localhost:", "-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="health is served at PORT"):
        check_options(WorkerOptions(health=text))

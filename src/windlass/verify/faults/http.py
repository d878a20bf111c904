"""Faults of the part that speaks HTTP: workers and server killed, frozen; slow, cut, unanswered."""

import asyncio
from typing import Any

from windlass.verify import http_part
from windlass.verify.faults.kind import Kind
from windlass.verify.faults.workers import freeze_free
from windlass.verify.http_part import SERVER, WORKERS, HttpPart
from windlass.verify.processes import Started
from windlass.verify.scene import Scene


def _part(scene: Scene) -> HttpPart:
    assert scene.http is not None
    return scene.http


def _worker(scene: Scene) -> Started | None:
    running = [scene.fleet.now[place] for place in WORKERS if place in scene.fleet.now]
    running = [each for each in running if each.is_running]
    return scene.draw.choice(running) if running else None


async def kill_worker(scene: Scene) -> None:
    """Kill a worker: what it held comes back when its time is over."""
    worker = _worker(scene)
    if worker is None:
        return scene.miss("kill http worker")
    async with scene.fault("kill http worker", worker.name):
        await asyncio.to_thread(worker.kill_tree)
    return None


async def kill_server(scene: Scene) -> None:
    """Kill the server in the middle of whatever it was asked: leases stand, and callers ask again."""
    server = scene.fleet.now.get(SERVER)
    if server is None or not server.children:
        return scene.miss("kill http server")
    async with scene.fault("kill http server", server.name):
        await asyncio.to_thread(server.kill_tree)
    return None


async def freeze_worker(scene: Scene) -> None:
    """Stop a worker for longer than its leases stand; what it says then is stale."""
    await _frozen(scene, "freeze http worker", _worker(scene))


async def freeze_server(scene: Scene) -> None:
    """Stop the server: it accepts, says nothing, and does later what it was asked meanwhile."""
    await _frozen(scene, "freeze http server", scene.fleet.now.get(SERVER))


async def _frozen(scene: Scene, kind: str, program: Started | None) -> None:
    if program is None or not program.is_running:
        return scene.miss(kind)
    length = scene.ttl + scene.draw.uniform(1.0, 3.0)
    async with scene.fault(kind, program.name, seconds=f"{length:.1f}"):
        stopped = await asyncio.to_thread(freeze_free, scene, [], program)
        try:
            await asyncio.sleep(length)
        finally:
            scene.fleet.thaw(reversed(stopped))
    return None


async def _weather(scene: Scene, kind: str, longest: float, **how: Any) -> None:
    """Between callers and server; the store is not touched, so this excuses nothing."""
    network, length = _part(scene).network, scene.draw.uniform(2.0, longest)
    doors = list(WORKERS) if scene.draw.random() < 0.3 else [scene.draw.choice(WORKERS)]
    async with scene.fault(kind, " ".join(doors), seconds=f"{length:.1f}"):
        try:
            await asyncio.to_thread(network.weather, doors, **how)
            await asyncio.sleep(length)
        finally:
            await asyncio.to_thread(network.weather, doors)


async def slow(scene: Scene) -> None:
    """500 ms ± 400 ms."""
    await _weather(scene, "slow http", 6.0, delay=0.5, jitter=0.4)


async def cut(scene: Scene) -> None:
    """Connections are reset, and refused."""
    await _weather(scene, "cut http", scene.ttl + 3, refuse=True)


async def lose_replies(scene: Scene) -> None:
    """The server does what it is asked, and nobody hears of it."""
    await _weather(scene, "lose http replies", scene.ttl + 3, down="lose")


def _no_http(scene: Scene) -> str | None:
    return None if scene.http is not None else http_part.why_not()


HTTP = tuple(
    Kind(name, family, inject, _no_http, share=share)
    for name, family, inject, share in (
        ("kill http worker", "workers", kill_worker, 1.0),
        ("kill http server", "workers", kill_server, 1.0),
        ("freeze http worker", "workers", freeze_worker, 0.7),
        ("freeze http server", "workers", freeze_server, 0.5),
        ("slow http", "network", slow, 0.7),
        ("cut http", "network", cut, 1.0),
        ("lose http replies", "network", lose_replies, 1.0),
    )
)

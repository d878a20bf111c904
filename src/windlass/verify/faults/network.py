"""Faults of the network: the doors of the proxy misbehave, one or all of them."""

import asyncio
from typing import Any

from windlass.verify.faults.kind import Kind
from windlass.verify.network import Network
from windlass.verify.scene import Scene


def _network(scene: Scene) -> Network:
    assert scene.network is not None
    return scene.network


def _doors(scene: Scene) -> list[str]:
    """One door, or all: a partition of one host lets the others notice, one of all reaps nobody."""
    doors = list(_network(scene).doors)
    return doors if scene.draw.random() < 0.3 else [scene.draw.choice(doors)]


async def _weather(scene: Scene, kind: str, shortest: float, longest: float, **how: Any) -> None:
    doors, length = _doors(scene), scene.draw.uniform(shortest, longest)
    details = {name: str(value) for name, value in how.items()}
    async with scene.fault(kind, " ".join(doors), seconds=f"{length:.1f}", outage="yes", **details):
        try:
            await asyncio.to_thread(_network(scene).weather, doors, **how)
            await asyncio.sleep(length)
        finally:
            await asyncio.to_thread(_network(scene).weather, doors)


async def slow(scene: Scene) -> None:
    """500 ms ± 400 ms."""
    await _weather(scene, "slow", 5, 10, delay=0.5, jitter=0.4)


async def partition(scene: Scene) -> None:
    """Nothing passes for longer than the TTL; then all of it arrives."""
    await _weather(scene, "partition", scene.ttl, scene.ttl + 3, up="hold", down="hold")


async def lose_requests(scene: Scene) -> None:
    """What is sent to the store is swallowed."""
    await _weather(scene, "lose requests", 2, scene.ttl + 3, up="lose")


async def lose_replies(scene: Scene) -> None:
    """The store does what it is asked, and nobody hears of it."""
    await _weather(scene, "lose replies", 2, scene.ttl + 3, down="lose")


async def half_open(scene: Scene) -> None:
    """The store's end of connections is gone, and nobody says so."""
    await _weather(scene, "half-open", 2, 6, half_open=True)


async def cut(scene: Scene) -> None:
    """Connections are reset, and refused, for a while."""
    await _weather(scene, "cut", 1, scene.ttl + 3, refuse=True)


async def reset_burst(scene: Scene) -> None:
    """Connections are reset, again and again."""
    doors, times = _doors(scene), scene.draw.randint(5, 20)
    async with scene.fault("reset burst", " ".join(doors), times=str(times)):
        for _ in range(times):
            await asyncio.to_thread(_network(scene).weather, doors, reset=True)
            await asyncio.to_thread(_network(scene).weather, doors)
            await asyncio.sleep(scene.draw.uniform(0.02, 0.4))


def _no_network(scene: Scene) -> str | None:
    return (
        "the store is reached without a TCP address that a proxy could stand in for"
        if (scene.network is None)
        else None
    )


NETWORK = tuple(
    Kind(name, "network", inject, _no_network)
    for name, inject in (
        ("slow", slow),
        ("partition", partition),
        ("lose requests", lose_requests),
        ("lose replies", lose_replies),
        ("half-open", half_open),
        ("reset burst", reset_burst),
        ("cut", cut),
    )
)

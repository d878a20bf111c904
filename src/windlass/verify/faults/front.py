"""Faults of the front door: the message broker that producers send to is killed, stopped or frozen."""

import asyncio
from collections.abc import Callable

from windlass.verify.faults.kind import Kind
from windlass.verify.scene import Scene
from windlass.verify.stores.own import Server


def _server(scene: Scene) -> Server:
    assert scene.front is not None
    return scene.front.server


async def start_again(scene: Scene) -> None:
    """Start the message broker if it does not run."""
    server = _server(scene)
    if server.process is None or not server.process.is_running:
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)


async def _away(scene: Scene, kind: str, end: Callable[[], object], seconds: float) -> None:
    async with scene.fault(kind, "front", seconds=f"{seconds:.1f}"):
        try:
            await asyncio.to_thread(end)
            await asyncio.sleep(seconds)
        finally:
            await asyncio.shield(start_again(scene))


async def killed(scene: Scene) -> None:
    """Kill -9, and a start."""
    await _away(scene, "front killed", _server(scene).kill, scene.draw.uniform(0, 1.5))


async def restarted(scene: Scene) -> None:
    """An orderly stop, and a start."""
    await _away(scene, "front restarted", _server(scene).stop, scene.draw.uniform(0, 1))


async def frozen(scene: Scene) -> None:
    """It holds its connections and says nothing."""
    server, seconds = _server(scene), scene.draw.uniform(1, 6)
    async with scene.fault("front frozen", "front", seconds=f"{seconds:.1f}"):
        try:
            await asyncio.to_thread(server.freeze)
            await asyncio.sleep(seconds)
        finally:
            server.thaw()


def _no_front(scene: Scene) -> str | None:
    return "for a front door" if scene.front is None else None


FRONT = (
    Kind("front killed", "store", killed, _no_front),
    Kind("front restarted", "store", restarted, _no_front),
    Kind("front frozen", "store", frozen, _no_front, share=0.7),
)

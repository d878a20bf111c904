"""Faults that only a Redis server knows."""

import asyncio
from typing import Any

from windlass.verify.faults.kind import Kind
from windlass.verify.scene import Scene
from windlass.verify.stores.redis import OwnRedis


def _redis(scene: Scene) -> OwnRedis:
    assert isinstance(scene.own, OwnRedis)
    return scene.own


async def script_flush(scene: Scene) -> None:
    """The server forgets its scripts."""
    async with scene.fault("script flush", "store"):
        for _ in range(5):
            await asyncio.to_thread(_redis(scene).say, "SCRIPT", "FLUSH")
            await asyncio.sleep(scene.draw.uniform(0.05, 0.3))


async def clients_killed(scene: Scene) -> None:
    """An operator closes all connections, again and again."""
    async with scene.fault("clients killed", "store"):
        for _ in range(5):
            await asyncio.to_thread(_redis(scene).say, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            await asyncio.to_thread(_redis(scene).say, "CLIENT", "KILL", "TYPE", "pubsub")
            await asyncio.sleep(scene.draw.uniform(0.1, 0.6))


async def memory_limit(scene: Scene) -> None:
    """No memory for more: enqueue is refused, draining works."""
    own, seconds = _redis(scene), scene.draw.uniform(3, 6)

    def limit() -> None:
        info: dict[str, Any] = own.say("INFO", "memory")
        own.say("CONFIG", "SET", "maxmemory", str(int(info["used_memory"])))

    async with scene.fault("memory limit", "store", seconds=f"{seconds:.1f}"):
        try:
            await asyncio.to_thread(limit)
            await asyncio.sleep(seconds)
        finally:
            await asyncio.to_thread(own.say, "CONFIG", "SET", "maxmemory", "0")


async def rewritten(scene: Scene) -> None:
    """The append-only file is rewritten while it is written to."""
    async with scene.fault("file rewritten", "store"):
        await asyncio.to_thread(_redis(scene).say, "BGREWRITEAOF")


def _no_redis(scene: Scene) -> str | None:
    return None if isinstance(scene.own, OwnRedis) else "for a Redis of the run's own (--own redis)"


REDIS = tuple(
    Kind(name, "store", inject, _no_redis, share=0.6)
    for name, inject in (
        ("script flush", script_flush),
        ("clients killed", clients_killed),
        ("memory limit", memory_limit),
        ("file rewritten", rewritten),
    )
)

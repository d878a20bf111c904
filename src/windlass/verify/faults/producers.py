"""Faults of producers: killed in the middle of a call, or frozen in it."""

import asyncio

from windlass.verify.faults.kind import Kind
from windlass.verify.faults.workers import freeze_free
from windlass.verify.scene import Scene


async def kill_producer(scene: Scene) -> None:
    """Kill one: nobody knows whether its last call was kept."""
    running = scene.producers.running
    if not running:
        return scene.miss("kill producer")
    chosen = scene.draw.choice(running)
    async with scene.fault("kill producer", chosen.name):
        await asyncio.to_thread(chosen.kill_tree)
    return None


async def freeze_producer(scene: Scene) -> None:
    """Stop one for a while, in the middle of whatever it does."""
    running = scene.producers.running
    if not running:
        return scene.miss("freeze producer")
    chosen = scene.draw.choice(running)
    length = scene.draw.uniform(2.0, 6.0)
    async with scene.fault("freeze producer", chosen.name, seconds=f"{length:.1f}"):
        stopped = await asyncio.to_thread(freeze_free, scene, [chosen.pid], None)
        try:
            await asyncio.sleep(length)
        finally:
            scene.fleet.thaw(stopped)
    return None


PRODUCERS = (
    Kind("kill producer", "producers", kill_producer),
    Kind("freeze producer", "producers", freeze_producer, share=0.7),
)

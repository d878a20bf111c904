"""Faults of producers: killed in the middle of a call, frozen or interrupted in it, or forked between two."""

import asyncio
import signal

from windlass.verify.faults.kind import Kind
from windlass.verify.faults.workers import freeze_free
from windlass.verify.scene import Scene

BLOCKING = "blocking"
"""The style of the producer whose calls block: signal handlers cut into those."""
INTERRUPTIONS = 100


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


async def interrupt_producer(scene: Scene) -> None:
    """Let a signal handler raise in the middle of its calls, again and again."""
    chosen = scene.producers.now.get(BLOCKING)
    if chosen is None or not chosen.is_running:
        return scene.miss("interrupt producer")
    async with scene.fault("interrupt producer", chosen.name, signals=f"{INTERRUPTIONS}"):
        for _ in range(INTERRUPTIONS):
            chosen.signal(signal.SIGUSR1)
            await asyncio.sleep(scene.draw.uniform(0.000_5, 0.03))
    return None


async def fork_producer(scene: Scene) -> None:
    """Let one fork and its child enqueue, while the parent goes on, closes its app, or ends."""
    chosen = scene.producers.now.get(BLOCKING)
    if chosen is None or not chosen.is_running:
        return scene.miss("fork producer")
    async with scene.fault("fork producer", chosen.name):
        chosen.signal(signal.SIGUSR2)
    return None


PRODUCERS = (
    Kind("kill producer", "producers", kill_producer),
    Kind("freeze producer", "producers", freeze_producer, share=0.7),
    Kind("interrupt producer", "producers", interrupt_producer),
    Kind("fork producer", "producers", fork_producer),
)

"""Faults of workers: killed, frozen, restarted, with a wrong clock."""

import asyncio
import signal
import time
from pathlib import Path

from windlass.verify.faults.kind import Kind
from windlass.verify.processes import Started, families, freeze_tree, send
from windlass.verify.scene import Scene
from windlass.verify.stores.sqlite import OwnSqlite

_TRIES = 40
_PATIENCE = 10.0
"""Seconds for hosts to come up again after a fault before."""


async def _host(scene: Scene) -> Started | None:
    """One that has begun to work."""
    end = time.monotonic() + _PATIENCE
    while True:
        hosts = [host for host in scene.fleet.running if host.children and host.said("worker started")]
        if hosts or time.monotonic() > end:
            return scene.draw.choice(hosts) if hosts else None
        await asyncio.sleep(0.2)


async def _child(scene: Scene) -> int | None:
    """A worker process of one that has."""
    host = await _host(scene)
    children = host.children if host is not None else []
    return scene.draw.choice(children) if children else None


async def kill_child(scene: Scene) -> None:
    """Kill one worker process. Its supervisor sees it."""
    child = await _child(scene)
    if child is None:
        return scene.miss("kill child")
    async with scene.fault("kill child", f"pid {child}"):
        send(child, signal.SIGKILL)
    return None


async def kill_job_process(scene: Scene) -> None:
    """Kill a process that runs jobs for a worker process."""
    await _host(scene)
    for _ in range(_TRIES):
        known = families()
        children = [child for host in scene.fleet.running for child in known.get(host.pid, [])]
        processes = [each for child in children for each in known.get(child, [])]
        if processes:
            chosen = scene.draw.choice(processes)
            async with scene.fault("kill job process", f"pid {chosen}"):
                send(chosen, signal.SIGKILL)
            return
        await asyncio.sleep(0.05)
    scene.miss("kill job process")


async def kill_supervisor(scene: Scene) -> None:
    """Kill a supervisor alone. Its children see it."""
    host = await _host(scene)
    if host is None:
        return scene.miss("kill supervisor")
    async with scene.fault("kill supervisor", host.name):
        host.signal(signal.SIGKILL)
        await asyncio.to_thread(host.wait, 5)
    return None


async def kill_tree(scene: Scene) -> None:
    """Kill a supervisor and all of its processes at once, as the end of a host does."""
    host = await _host(scene)
    if host is None:
        return scene.miss("kill tree")
    async with scene.fault("kill tree", host.name):
        await asyncio.to_thread(host.kill_tree)
    return None


async def freeze_child(scene: Scene) -> None:
    """Stop one worker process past its TTL, and let it go on."""
    child = await _child(scene)
    if child is None:
        return scene.miss("freeze child")
    await _frozen(scene, "freeze child", [child], None)
    return None


async def freeze_host(scene: Scene) -> None:
    """Stop a supervisor and all of its processes past their TTL, and let them go on."""
    host = await _host(scene)
    if host is None:
        return scene.miss("freeze tree")
    await _frozen(scene, "freeze tree", [], host)
    return None


async def _frozen(scene: Scene, kind: str, pids: list[int], host: Started | None) -> None:
    target = f"pid {pids[0]}" if host is None else host.name
    length = scene.ttl + scene.draw.uniform(1.0, 3.0)
    async with scene.fault(kind, target, seconds=f"{length:.1f}"):
        stopped = await asyncio.to_thread(freeze_free, scene, pids, host)
        try:
            await asyncio.sleep(length)
        finally:
            scene.fleet.thaw(reversed(stopped))


def freeze_free(scene: Scene, pids: list[int], host: Started | None) -> list[int]:
    """Stop processes; on SQLite not while one of them holds the file's lock, which stops everybody: that is
    a fault of its own.
    """
    stopped: list[int] = []
    for _ in range(_TRIES):
        stopped = (
            [pid for pid in pids if send(pid, signal.SIGSTOP)] if host is None else freeze_tree(host.pid)
        )
        if not isinstance(scene.own, OwnSqlite) or scene.own.is_free():
            break
        scene.fleet.thaw(stopped)
    return stopped


async def restart_rolling(scene: Scene) -> None:
    """Replace one host after the other, as a deploy does: SIGTERM, wait, start."""
    async with scene.fault("rolling restart", "all hosts"):
        for host in list(scene.fleet.running):
            host.signal(signal.SIGTERM)
            await asyncio.to_thread(host.wait, 15)
            await asyncio.sleep(1.5)


async def stop_impatiently(scene: Scene) -> None:
    """Ask a host to stop, and again at once: running jobs go back before they have ended."""
    host = await _host(scene)
    if host is None:
        return scene.miss("impatient stop")
    async with scene.fault("impatient stop", host.name):
        host.signal(signal.SIGTERM)
        await asyncio.sleep(scene.draw.uniform(0.0, 0.3))
        host.signal(signal.SIGTERM)
        await asyncio.to_thread(host.wait, 15)
    return None


def faketime_library() -> str | None:
    """The library that shifts a program's clock, where the machine has it."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    return str(found[0]) if found else None


async def shift_clock(scene: Scene) -> None:
    """Restart a host with its wall clock an hour off, and after a while with the right one."""
    host = await _host(scene)
    library = faketime_library()
    if host is None or library is None:
        return scene.miss("shift clock")
    shift = scene.draw.choice(("-1h", "+1h", "-3d"))
    async with scene.fault("shift clock", host.name, shift=shift):
        scene.fleet.extra = {
            "LD_PRELOAD": library,
            "FAKETIME": shift,
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        host.signal(signal.SIGTERM)
        await asyncio.to_thread(host.wait, 15)
        await asyncio.sleep(8)
        scene.fleet.extra = {}
        for again in scene.fleet.running:
            if again.name.startswith(host.name.rpartition("-")[0]):
                again.signal(signal.SIGTERM)
                await asyncio.to_thread(again.wait, 15)
    return None


def _no_faketime(scene: Scene) -> str | None:
    if isinstance(scene.own, OwnSqlite) or (scene.own is None and scene.network is None):
        return "the clock of a file is its machine's, which all processes share"
    if faketime_library() is None:
        return "needs faketime (Debian: apt install faketime)"
    return None


WORKERS = (
    Kind("kill child", "workers", kill_child, share=2),
    Kind("kill job process", "workers", kill_job_process),
    Kind("kill supervisor", "workers", kill_supervisor),
    Kind("kill tree", "workers", kill_tree),
    Kind("freeze child", "workers", freeze_child),
    Kind("freeze tree", "workers", freeze_host),
    Kind("rolling restart", "workers", restart_rolling, share=0.7),
    Kind("impatient stop", "workers", stop_impatiently),
    Kind("shift clock", "workers", shift_clock, _no_faketime, share=0.5),
)

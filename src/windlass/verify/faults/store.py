"""Faults of any store of the run's own: killed, stopped, frozen, full, restored, without power."""

import asyncio
import shutil
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from windlass.verify import disk
from windlass.verify.disk import Disk
from windlass.verify.faults.kind import Kind
from windlass.verify.scene import Scene
from windlass.verify.stores.own import OwnStore, Server
from windlass.verify.stores.sqlite import OwnSqlite


def _own(scene: Scene) -> OwnStore:
    assert scene.own is not None
    return scene.own


def server(scene: Scene) -> Server:
    """The store, which is a process."""
    assert isinstance(scene.own, Server)
    return scene.own


def _disk(scene: Scene) -> Disk:
    assert scene.disk is not None
    return scene.disk


async def start_again(scene: Scene) -> None:
    """Start the server if it does not run."""
    own = server(scene)
    if own.process is None or not own.process.is_running:
        await asyncio.to_thread(own.kill)
        await asyncio.to_thread(own.start)


async def _away(scene: Scene, kind: str, end: Callable[[], object], seconds: float) -> None:
    async with scene.fault(kind, "store", seconds=f"{seconds:.1f}"):
        try:
            await asyncio.to_thread(end)
            await asyncio.sleep(seconds)
        finally:
            await asyncio.shield(start_again(scene))


async def killed(scene: Scene) -> None:
    """Kill -9 of all its processes, and a start."""
    await _away(scene, "store killed", server(scene).kill, scene.draw.uniform(0, 1.5))


async def restarted(scene: Scene) -> None:
    """An orderly stop, and a start."""
    await _away(scene, "store restarted", server(scene).stop, scene.draw.uniform(0, 1))


async def away(scene: Scene) -> None:
    """Away for longer than the TTL: nobody may be reaped for that."""
    seconds = scene.ttl + scene.draw.uniform(2, 4)
    await _away(scene, "store away past the TTL", server(scene).kill, seconds)


async def frozen(scene: Scene) -> None:
    """It accepts connections and says nothing, for longer than the TTL."""
    own, seconds = server(scene), scene.ttl + scene.draw.uniform(0, 2)
    async with scene.fault("store frozen", "store", seconds=f"{seconds:.1f}"):
        try:
            await asyncio.to_thread(own.freeze)
            await asyncio.sleep(seconds)
        finally:
            own.thaw()


# --- an older point -----------------------------------------------------------------------------------------


async def restored(scene: Scene) -> None:
    """An operator puts back a copy that is some seconds old: what was accepted since is gone, by its hand."""
    own, copy = _own(scene), scene.folder / "copy"
    taken = time.monotonic()
    await asyncio.to_thread(own.backup, copy)
    await asyncio.sleep(scene.draw.uniform(2, 5))
    # What was answered in the moment of the copy may be in it or not.
    lost = f"{time.monotonic() - taken + 0.5:.3f}"
    async with scene.fault("store restored", "store", lost_seconds=lost):
        if isinstance(own, Server):
            await asyncio.to_thread(own.stop)
            await asyncio.to_thread(own.restore, copy)
            await asyncio.shield(start_again(scene))
        else:
            async with nobody(scene):
                await asyncio.to_thread(own.restore, copy)
    await asyncio.to_thread(shutil.rmtree, copy, ignore_errors=True)


@asynccontextmanager
async def nobody(scene: Scene) -> AsyncGenerator[None]:
    """End all programs and let nobody start: the machine itself is what fails."""
    scene.keeping = False
    try:
        await scene.reader.leave()
        for staff in (scene.fleet, scene.producers):
            await asyncio.to_thread(staff.kill_all)
        yield
    finally:
        scene.reader.come_back()
        scene.keeping = True


# --- the disk -----------------------------------------------------------------------------------------------


async def disk_full(scene: Scene) -> None:
    """No room at all, for a while. Verbs fail; when there is room again, work goes on by itself."""
    seconds = scene.draw.uniform(2, scene.ttl + 2)
    async with scene.fault("disk full", "store", seconds=f"{seconds:.1f}", outage="yes"):
        try:
            await asyncio.to_thread(_disk(scene).fill)
            await asyncio.sleep(seconds)
        finally:
            _disk(scene).free()
            if isinstance(scene.own, Server):
                await asyncio.shield(start_again(scene))


async def power_cut(scene: Scene) -> None:
    """All that was not synced is gone."""
    async with scene.fault("power cut", "store", durable=_own(scene).durable, outage="yes"):
        if isinstance(scene.own, OwnSqlite):
            await _machine_without_power(scene)
        else:
            await _server_without_power(scene)


async def _server_without_power(scene: Scene) -> None:
    own, image = server(scene), _disk(scene)

    def cut() -> None:
        own.freeze()
        image.cut_power()
        own.kill()
        image.put_back()

    try:
        await asyncio.to_thread(cut)
    finally:
        await asyncio.shield(start_again(scene))


async def _machine_without_power(scene: Scene) -> None:
    """A file has no server: those who write to it lose their power, too."""
    image = _disk(scene)
    scene.keeping = False
    try:
        await scene.reader.leave()

        def cut() -> None:
            for staff in (scene.fleet, scene.producers):
                staff.freeze_all()
            image.cut_power()
            for staff in (scene.fleet, scene.producers):
                staff.kill_all()
            image.put_back()

        await asyncio.to_thread(cut)
    finally:
        scene.reader.come_back()
        scene.keeping = True


# --- SQLite -------------------------------------------------------------------------------------------------


async def file_locked(scene: Scene) -> None:
    """A process hangs in a write for longer than the TTL."""
    assert isinstance(scene.own, OwnSqlite)
    seconds = scene.ttl + scene.draw.uniform(1, 4)
    async with scene.fault("file locked past the TTL", "store", seconds=f"{seconds:.1f}", outage="yes"):
        lock = scene.own.locked()
        await asyncio.to_thread(lock.__enter__)
        try:
            await asyncio.sleep(seconds)
        finally:
            lock.__exit__(None, None, None)


# --- which of them are possible -----------------------------------------------------------------------------


def _no_own(scene: Scene) -> str | None:
    return "touches the store itself: only with --own" if scene.own is None else None


def _no_server(scene: Scene) -> str | None:
    return _no_own(scene) or (None if isinstance(scene.own, Server) else "for a store that is a server")


def _no_sqlite(scene: Scene) -> str | None:
    return _no_own(scene) or (None if isinstance(scene.own, OwnSqlite) else "for SQLite")


def _no_copy(scene: Scene) -> str | None:
    return _no_own(scene) or (None if isinstance(scene.own, Server | OwnSqlite) else "for a single store")


def _no_disk(scene: Scene) -> str | None:
    return _no_copy(scene) or (None if scene.disk is not None else disk.why_not() or "no disk of its own")


STORE = (
    Kind("store killed", "store", killed, _no_server),
    Kind("store restarted", "store", restarted, _no_server),
    Kind("store away past the TTL", "store", away, _no_server, share=0.7),
    Kind("store frozen", "store", frozen, _no_server, share=0.7),
    Kind("file locked past the TTL", "store", file_locked, _no_sqlite),
    Kind("disk full", "store", disk_full, _no_disk),
    Kind("power cut", "store", power_cut, _no_disk, alone=True),
    Kind("store restored", "store", restored, _no_copy, alone=True, usual=False),
)

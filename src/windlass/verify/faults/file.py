"""Faults that only a file knows: somebody replaces it under the programs that use it."""

import asyncio
import shutil
from pathlib import Path

from windlass.verify.faults.kind import Kind
from windlass.verify.ground import sign
from windlass.verify.scene import Scene
from windlass.verify.stores.sqlite import OwnSqlite


def _rename_over(copy: Path, path: Path) -> None:
    copy.replace(path)


def _delete(_copy: Path, path: Path) -> None:
    path.unlink()


_WAYS = {"renamed over": _rename_over, "deleted": _delete}


async def replaced(scene: Scene) -> None:
    """An operator puts a copy into the place of the file, or nothing at all, and stops nobody.

    The copy is as new as the file: everybody stands still while it is made. So nothing that was accepted is
    lost by the operator's hand, and everything that is accepted afterwards, into a file that nobody reads any
    more, is lost by ours. Then all is put right, as docs/backup.md says.

    A process that is only starting would open what is in the place of the file, and that is put away in the
    end: it waits outside.
    """
    own = scene.own
    assert isinstance(own, OwnSqlite)
    way = scene.draw.choice(list(_WAYS))
    copy, closed = scene.folder / "copy", sign(scene.folder)
    async with scene.fault("file replaced", "store", way=way, outage="yes"):
        scene.keeping = False
        closed.touch()
        try:
            await scene.reader.leave()
            await asyncio.to_thread(_replace, scene, own, copy, way)
            await asyncio.sleep(scene.draw.uniform(1.5, 3))
            for staff in (scene.fleet, scene.producers):
                await asyncio.to_thread(staff.kill_all)
            await asyncio.to_thread(own.restore, copy)
        finally:
            closed.unlink()
            scene.reader.come_back()
            scene.keeping = True
    await asyncio.to_thread(shutil.rmtree, copy, ignore_errors=True)


def _replace(scene: Scene, own: OwnSqlite, copy: Path, way: str) -> None:
    staffs = (scene.fleet, scene.producers)
    with own.locked():  # nobody is in the middle of a write
        stopped = [pid for staff in staffs for pid in staff.freeze_all()]
        try:
            own.backup(copy)
            second = own.path.with_name("second.db")  # on the same disk, so that it can be renamed
            shutil.copyfile(copy / own.path.name, second)
            _WAYS[way](second, own.path)
            second.unlink(missing_ok=True)
        finally:
            scene.fleet.thaw(reversed(stopped))


def _no_file(scene: Scene) -> str | None:
    if scene.own is None:
        return "touches the store itself: only with --own"
    return None if isinstance(scene.own, OwnSqlite) else "for SQLite"


FILE = (Kind("file replaced", "store", replaced, _no_file, share=0.5, alone=True),)

"""A folder as object storage: what its disk refuses, and a file system that is not mounted."""

import asyncio
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from windlass import Windlass
from windlass.completed import complete
from windlass.errors import ValuesUnavailable
from windlass.values.bucket import Bucket
from windlass.values.place import read_url


class Disk:
    """Stands for a disk: notes what is synced, and fails as a test says."""

    def __init__(self) -> None:
        self.refuses: Callable[[int], int | None] = lambda _: None
        self.synced: list[str] = []
        self._fsync = os.fsync

    def fsync(self, file: int) -> None:
        if (number := self.refuses(os.fstat(file).st_mode)) is not None:
            raise OSError(number, os.strerror(number))
        self._fsync(file)
        self.synced.append(Path(f"/proc/self/fd/{file}").readlink().name)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(os, "fsync", made.fsync)
    return made


def io_error(_: int) -> int:
    return errno.EIO


def no_folders(mode: int) -> int | None:
    """As some file systems of a network or of user space."""
    return errno.EINVAL if stat.S_ISDIR(mode) else None


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("refuses", [io_error, no_folders])
def test_a_disk_that_does_not_sync_is_object_storage_that_is_away(
    disk: Disk, tmp_path: Path, refuses: Callable[[int], int | None], blocking: bool
) -> None:
    app = Windlass("memory://", values=f"file://{tmp_path}/values")

    @app.task
    def length(text: str) -> int:
        return len(text)

    async def main() -> None:
        disk.refuses = refuses
        text = "x" * 100_000
        sending = asyncio.to_thread(length.enqueue, text) if blocking else length.aenqueue(text)
        with pytest.raises(ValuesUnavailable, match=r"does not do it: \[Errno"):
            await sending
        await app.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("blocking", [True, False])
def test_an_object_that_is_put_again_is_synced_again(disk: Disk, tmp_path: Path, blocking: bool) -> None:
    """Whoever put it first may have died before its sync."""
    bucket = Bucket(read_url(f"file://{tmp_path}/values"))

    async def main() -> None:
        disk.refuses = io_error
        with pytest.raises(ValuesUnavailable):
            await bucket.put("r/shop/1/7", b"one", blocking=blocking)
        disk.refuses = lambda _: None
        assert not await bucket.put("r/shop/1/7", b"one", blocking=blocking)
        assert disk.synced == ["7", "1", "shop", "r", "values"]

    asyncio.run(main())


@pytest.mark.parametrize("blocking", [True, False])
def test_a_folder_whose_file_system_is_not_mounted_is_away_and_not_made(
    tmp_path: Path, blocking: bool
) -> None:
    mount = tmp_path / "mount"
    bucket = Bucket(read_url(f"file://{mount}/values"))

    async def main() -> None:
        async def all_of_it_is_away() -> None:
            with pytest.raises(ValuesUnavailable, match="there is no folder"):
                await bucket.put("p/shop/2", b"two", blocking=blocking)
            with pytest.raises(ValuesUnavailable, match="there is no folder"):
                await bucket.get("p/shop/1", blocking=blocking)
            with pytest.raises(ValuesUnavailable, match="there is no folder"):
                await bucket.page("p/shop/", "", 10)
            with pytest.raises(ValuesUnavailable, match="there is no folder"):
                await bucket.remove(["p/shop/1"])

        await all_of_it_is_away()
        assert not mount.exists()
        mount.mkdir()
        await bucket.put("p/shop/1", b"one", blocking=blocking)
        mount.rename(tmp_path / "elsewhere")  # it is unmounted while a process uses it
        await all_of_it_is_away()
        mount.mkdir()  # the place where it was mounted
        await all_of_it_is_away()
        assert list(mount.iterdir()) == []
        mount.rmdir()
        (tmp_path / "elsewhere").rename(mount)
        assert await bucket.get("p/shop/1", blocking=blocking) == b"one"
        assert complete(bucket.put("p/shop/2", b"two", blocking=True))

    asyncio.run(main())


def test_an_object_that_is_said_to_be_there_and_is_not_given_is_not_put_for_ever(tmp_path: Path) -> None:
    app = Windlass("memory://", values=f"file://{tmp_path}/values")

    @app.task
    def repeat(text: str) -> str:
        return text * 2

    job = repeat.call("x" * 100_000).job
    (tmp_path / "values" / "p" / "windlass" / job.id).mkdir(parents=True)
    with pytest.raises(ValuesUnavailable, match="says that it has p/windlass/"):
        app.connection.enqueue([[job]])
    app.close()

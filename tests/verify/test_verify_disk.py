import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.verify.disk import Disk, why_not

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"a disk of its own {why_not()}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path, 64 << 20)
    yield made
    made.remove()


def written(path: Path, text: bytes, *, synced: bool) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.write(file, text)
    if synced:
        os.fsync(file)
    os.close(file)


def test_a_power_cut_takes_what_was_not_synced_and_nothing_else(disk: Disk) -> None:
    for round_ in range(3):
        written(disk.place / f"kept-{round_}", b"x" * 10_000, synced=True)
        written(disk.place / f"lost-{round_}", b"x" * 10_000, synced=False)
        disk.cut_power()
        disk.put_back()
    for round_ in range(3):
        assert (disk.place / f"kept-{round_}").read_bytes() == b"x" * 10_000
        lost = disk.place / f"lost-{round_}"
        assert not lost.exists() or lost.read_bytes() != b"x" * 10_000


def test_a_full_disk_is_full_and_has_room_again(disk: Disk) -> None:
    disk.fill()
    with pytest.raises(OSError, match="No space left"):
        written(disk.place / "more", b"x" * 100_000, synced=True)
    disk.free()
    written(disk.place / "again", b"x" * 100_000, synced=True)
    assert (disk.place / "again").stat().st_size == 100_000


def test_a_power_cut_after_a_full_disk_leaves_room(disk: Disk) -> None:
    disk.fill()
    os.sync()
    disk.free()
    disk.cut_power()
    disk.put_back()
    written(disk.place / "again", b"x" * 100_000, synced=True)

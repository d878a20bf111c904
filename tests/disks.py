"""Disks that lose their power: an image of a file system, and its copy as a power cut would leave it.

Killing a process shows nothing of this, since the page cache survives it. Here the files live on an image
that is mounted: what a process has not synced is not in the image, so a copy of the image, taken while the
process stands still, has what a disk would have after a power cut.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def why_not() -> str | None:
    """Why this machine has no such disks; None if it has."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None or not Path("/dev/loop-control").exists():
        return "a power cut needs root, mkfs.ext4 and loop devices"
    return None


def make_image(path: Path, *, mebibytes: int = 128) -> Path:
    """An empty file system in a file."""
    with path.open("wb") as file:
        file.truncate(mebibytes << 20)
    subprocess.run(["mkfs.ext4", "-q", str(path)], check=True)
    return path


@contextmanager
def mounted(image: Path, place: Path) -> Iterator[Path]:
    """Use a file system. Nobody may have a file of it open in the end."""
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def cut(image: Path, after: Path, pids: Sequence[int]) -> Path:
    """The image as a power cut at this moment leaves it. The processes that write to it are stopped for that,
    and stay so: they are the caller's to kill.
    """
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    subprocess.run(["cp", "--sparse=always", str(image), str(after)], check=True)
    return after

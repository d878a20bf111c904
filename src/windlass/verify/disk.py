"""A disk of its own for a store: an image of a file system, so that it can be full and lose its power.

Killing a process does not test durability: the page cache survives it. Here the image is copied while those
who write are stopped; what they had not synced is not in the copy. The copy is mounted in the place of the
original. The file system commits by itself every ten minutes only, so that nothing moves while it is copied.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path

from windlass.errors import StoreError

SIZE = 6 << 30
"""Bytes; the image is sparse."""
_BLOCK = 4096
_LETTING_GO = 20.0


def why_not() -> str | None:
    """Why there can be no such disk here; None if there can."""
    if os.geteuid() != 0:
        return "needs root, to mount an image"
    if shutil.which("mkfs.ext4") is None:
        return "needs mkfs.ext4 (e2fsprogs)"
    if not Path("/dev/loop-control").exists():
        return "needs loop devices"
    return None


class Disk:
    """A mounted image."""

    def __init__(self, folder: Path, size: int = SIZE) -> None:
        self._folder = folder
        self._number = 0
        self._mounted = False
        self.place = folder / "disk"
        self.place.mkdir(parents=True)
        self._image = folder / "image-0"
        with self._image.open("wb") as file:
            file.truncate(size)
        _run("mkfs.ext4", "-q", "-T", "largefile", "-m", "0", str(self._image))
        self._mount()

    def cut_power(self) -> None:
        """Lose all that was not synced. Those who write must stand still; `put_back` follows when they are
        dead.
        """
        self._number += 1
        copy = self._folder / f"image-{self._number}"
        _run("cp", "--sparse=always", str(self._image), str(copy))

    def put_back(self) -> None:
        """Mount what a power cut has left, in the place of what was."""
        self.unmount()
        before, self._image = self._image, self._folder / f"image-{self._number}"
        before.unlink()
        self._mount()
        self.free()  # its removal may be among what was not synced

    def fill(self) -> None:
        """Leave no room."""
        file = os.open(self.place / "ballast", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            size, step = 0, SIZE
            while step >= _BLOCK:
                try:
                    os.posix_fallocate(file, size, step)
                    size += step
                except OSError:
                    step //= 2
        finally:
            os.close(file)

    def free(self) -> None:
        """Give the room back."""
        (self.place / "ballast").unlink(missing_ok=True)

    def unmount(self) -> None:
        """Take it away."""
        end = time.monotonic() + _LETTING_GO
        while self._mounted:
            try:
                _run("umount", str(self.place))
            except StoreError:  # a process that was killed still lets go of its files
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
            else:
                self._mounted = False

    def remove(self) -> None:
        """Take it away from the processes that use it, and delete it."""
        if self._mounted:
            subprocess.run(["umount", "-l", str(self.place)], check=False, capture_output=True)  # noqa: S603, S607
            self._mounted = False
        for image in self._folder.glob("image-*"):
            image.unlink(missing_ok=True)

    def _mount(self) -> None:
        _run("mount", "-o", "loop,commit=600", str(self._image), str(self.place))
        self._mounted = True


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - our own words
    if done.returncode:
        raise StoreError(f"{command[0]} failed: {done.stderr.strip() or done.returncode}")

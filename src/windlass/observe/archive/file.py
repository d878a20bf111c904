"""An archive of JSON lines in a file, which any number of processes of a machine write.

One at a time writes, under a lock on a file beside it. What a killed process has left of a line is cut off by
the next one: nothing was removed for it yet, so it comes again.
"""

import asyncio
import fcntl
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from windlass.errors import StoreUnavailable
from windlass.observe.archive.archive import ArchiveUrl
from windlass.observe.archive.entry import Entry, blanked, encode

_T = TypeVar("_T")
_MODE = 0o600
"""Only its owner reads it: it has what dead letters were called with."""
_ANEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_TAIL = 64 * 1024
"""Bytes that are read at once to find the end of the last whole line."""


class FileArchive:
    """A file and those that it was rotated to. Its calls run on threads."""

    def __init__(self, place: ArchiveUrl) -> None:
        self._path = Path(place.path)
        self._rotate = place.rotate
        self._keep = place.keep_files

    async def write(self, entries: Sequence[Entry]) -> None:
        """See `Archive`."""
        lines = b"".join(encode(entry) + b"\n" for entry in entries)
        if lines:
            await asyncio.to_thread(self._locked, lambda: self._append(lines))

    async def forget(self, namespace: str, tag: str) -> int:
        """See `Archive`."""

        def blank_all() -> int:
            return sum(_blank(path, namespace, tag) for path in (*self._rotated(), self._path))

        return await asyncio.to_thread(self._locked, blank_all)

    async def close(self) -> None:
        """Nothing stays open between two calls."""

    # --- under the lock -------------------------------------------------------------------------------------

    def _locked(self, work: Callable[[], _T]) -> _T:
        try:
            with _lock(self._path):
                return work()
        except OSError as error:
            raise StoreUnavailable(f'the archive "{self._path}" does not take it: {error}') from error

    def _append(self, lines: bytes) -> None:
        is_new = not self._path.exists()
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        try:
            size = _whole(file)
            os.ftruncate(file, size)
            written = 0
            while written < len(lines):
                written += os.pwrite(file, lines[written:], size + written)
            os.fsync(file)
        finally:
            os.close(file)
        if size + len(lines) >= self._rotate:
            self._turn()
        elif is_new:
            _sync_folder(self._path.parent)

    def _turn(self) -> None:
        """Begin a new file; the full one gets the time in its name."""
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        self._path.rename(self._path.with_name(f"{self._path.stem}-{now}{self._path.suffix}"))
        if self._keep is not None:
            rotated = self._rotated()
            for old in rotated[: max(0, len(rotated) - self._keep)]:
                old.unlink()
        _sync_folder(self._path.parent)

    def _rotated(self) -> list[Path]:
        """Oldest first."""
        digits = "[0-9]" * 8 + "T" + "[0-9]" * 12
        return sorted(self._path.parent.glob(f"{_escaped(self._path.stem)}-{digits}{self._path.suffix}"))


def _escaped(text: str) -> str:
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in text)


@contextmanager
def _lock(path: Path) -> Generator[None]:
    file = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _whole(file: int) -> int:
    """Bytes up to the end of the last whole line."""
    end = os.fstat(file).st_size
    while end:
        start = max(0, end - _TAIL)
        if (at := os.pread(file, end - start, start).rfind(b"\n")) >= 0:
            return start + at + 1
        end = start
    return 0


def _blank(path: Path, namespace: str, tag: str) -> int:
    """Write a file anew with the entries of a tag blanked; how many they were."""
    if not path.exists():
        return 0
    found = 0
    new = path.with_name(f".{path.name}.new")
    with path.open("rb") as old, os.fdopen(os.open(new, _ANEW, _MODE), "wb") as file:
        for line in old:
            blank = blanked(line, namespace, tag)
            found += blank is not None
            file.write(blank or line)
        file.flush()
        os.fsync(file.fileno())
    if found:
        new.replace(path)
        _sync_folder(path.parent)
    else:
        new.unlink()
    return found


def _sync_folder(folder: Path) -> None:
    """What was made or renamed in a folder outlasts the machine once the folder is written."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)

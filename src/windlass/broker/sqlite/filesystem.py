"""What must be true of the place where a file lies: local, writable, with room."""

import os
import time
from pathlib import Path

from windlass.errors import InvalidOption, StoreError

RESERVE = 64 * 1024 * 1024
"""Enqueue is refused while less than this is free, so that what was accepted can be worked off."""
_LOOK_AGAIN = 1.0
_REMOTE = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "afs",
        "ncpfs",
        "coda",
        "ceph",
        "lustre",
        "glusterfs",
        "gpfs",
        "beegfs",
        "orangefs",
        "pvfs2",
        "davfs",
    ]
)
"""File systems on which the shared memory of WAL, or locks, do not reach the other machines."""
_MOUNTS = Path("/proc/self/mountinfo")


def check_place(path: Path) -> None:
    """Refuse a place where a file cannot be kept safely."""
    folder = path.parent
    if not folder.is_dir():
        raise InvalidOption(f'the folder "{folder}" for the SQLite file does not exist; create it first')
    if path.is_dir():
        raise InvalidOption(f'"{path}" is a folder; name a file inside it')
    kind = file_system(folder, _MOUNTS)
    if is_remote(kind):
        raise InvalidOption(
            f'"{path}" is on a network file system ({kind}), where SQLite loses data; '
            "use a local disk, or Redis or PostgreSQL to share a queue between machines"
        )
    for place, needed in ((path, os.R_OK | os.W_OK), (folder, os.R_OK | os.W_OK | os.X_OK)):
        if place.exists() and not os.access(place, needed):
            raise StoreError(f'no permission to read and write "{place}"; give this user access to it')


def is_remote(kind: str) -> bool:
    """Whether a file system lies on another machine. Every FUSE file system counts: most of them do."""
    return kind in _REMOTE or kind.startswith("fuse.")


def file_system(folder: Path, mounts: Path) -> str:
    """The type of the file system that a folder is on; empty where the system does not tell."""
    try:
        lines = mounts.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return ""
    target = os.path.realpath(folder)
    best, kind = "", ""
    for line in lines:
        left, _, right = line.partition(" - ")
        point = left.split()[4].encode().decode("unicode_escape", "surrogateescape")
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        # A later mount on the same point hides the earlier one.
        if inside and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind


class Space:
    """How much room there is, looked up once a second at the most."""

    def __init__(self, path: Path) -> None:
        self._folder = path.parent
        self._looked = -_LOOK_AGAIN
        self._short: str | None = None

    def shortage(self) -> str | None:
        """Why nothing can be accepted for want of room; None if there is enough."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            found = os.statvfs(self._folder)
            free = found.f_bavail * found.f_frsize
            self._short = None if free >= RESERVE else _shortage(self._folder, free)
        return self._short


def _shortage(folder: Path, free: int) -> str:
    mebibyte = 1024 * 1024
    return f'{free // mebibyte} MiB are free where "{folder}" is, less than {RESERVE // mebibyte} MiB'

"""What must be true of the place where a file lies: local, writable, with room."""

import errno
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from windlass.errors import DescriptorClosed, InvalidOption, StoreError, StoreUnavailable

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
            raise _forbidden(f'"{place}"')


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
            try:
                found = os.statvfs(self._folder)
            except OSError:  # the folder was moved: the transaction that follows says so
                return self._short
            free = found.f_bavail * found.f_frsize
            self._short = None if free >= RESERVE else _shortage(self._folder, free)
        return self._short


def _shortage(folder: Path, free: int) -> str:
    mebibyte = 1024 * 1024
    return f'{free // mebibyte} MiB are free where "{folder}" is, less than {RESERVE // mebibyte} MiB'


def is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is what is at a path."""
    try:
        found = path.stat()
    except OSError:
        return False
    mine = os.fstat(descriptor)
    return (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)


@contextmanager
def in_words_of_system(path: Path) -> Generator[None]:
    """Say errors of the system in words."""
    try:
        yield
    except OSError as error:
        raise said(error, path) from error


def said(error: OSError, path: Path) -> StoreError:
    """What an error of the system means for a file, and for those beside it."""
    about = f'"{error.filename or path}"'
    match error.errno:
        case errno.ENOLCK:
            return StoreUnavailable(
                f"the system has no file lock left for {about} (ENOLCK), or its file system has none; "
                "end processes that hold locks, or use a local disk"
            )
        case errno.EBADF | errno.EINVAL:
            return DescriptorClosed(
                f"this program has closed the lock of {about} ({error.strerror}); nothing was written: "
                "find what closes descriptors that are not its own, and start the program anew"
            )
        case errno.EMFILE | errno.ENFILE:
            return StoreUnavailable(
                f"{about} cannot be opened: too many files are open ({error.strerror}); "
                "raise the limit (ulimit -n, LimitNOFILE), or close some"
            )
        case errno.ENOSPC | errno.EDQUOT:
            return StoreError(f"the disk is full where {about} is; make room and try again")
        case errno.EROFS:
            return StoreError(f"{about} is on a file system that is mounted read-only; mount it writable")
        case errno.EACCES | errno.EPERM:
            return _forbidden(about)
        case errno.ENOENT | errno.ENOTDIR:
            return StoreError(f"{about} cannot be made: its folder is gone; create it, or correct the URL")
        case _:
            return StoreError(f"{about} cannot be used: {error.strerror or error}")


def _forbidden(about: str) -> StoreError:
    return StoreError(
        f"no permission to read and write {about}; give this user access to it, "
        "or name a file elsewhere (WINDLASS_URL)"
    )

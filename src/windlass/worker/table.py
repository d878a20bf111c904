"""The table of leases that a child and its supervisor share: what the child holds, and what had started.

The child files each lease when it arrives, marks it just before the first line of its task runs, and clears
it after the store has answered its settlement. The supervisor reads the table when the child is dead, so that
a crash is charged to what had started and to nothing else; and it takes back what a child that gives no sign
of life has not started.

Start and take-back exclude each other. A lock around each start would cost ten times as much as the two bytes
used here (measured: 1.4 µs against 0.13 µs, and a turn of the interpreter's lock). Each side writes its own
byte first and then reads the other's:

    child        started = 1, then reads taken: 0 means run, else ask for the lock and read again
    supervisor   under the lock: taken = 1, waits `SETTLING`, reads started: 1 means taken = 0, else taken

A processor may let a write be seen later than the read that follows it, by far less than the time the
supervisor waits. So if the supervisor reads 0, the child has not written yet and will read taken = 1. A child
that waits for the lock waits for one such decision. A supervisor that cannot get the lock takes nothing.

The file outlives its processes: a supervisor that starts after all of them were killed finds in it what had
started. It is in memory where the system has a place for that, readable by its user alone.
"""

import contextlib
import fcntl
import mmap
import os
import stat
import struct
import tempfile
import time
from collections.abc import Collection, Generator, Iterable, Iterator
from pathlib import Path

import msgspec

from windlass.core.units import Fence, JobId, SessionId
from windlass.errors import StoreError

FREE, WAITING, STARTED, PREPARING = 0, 1, 2, 3
SETTLING = 0.01
"""Seconds that a supervisor waits between writing its byte and reading the child's."""

_HEADER = struct.Struct("<4sIddB")
"""Mark, capacity, the sending time of the last beat that was answered, how long that counts, clean end."""
_BEAT = struct.Struct("<dd")
_BEAT_AT = 8
_CLEAN_AT = 24
_HEADER_SIZE = 64
_RECORD = struct.Struct("<36sQd")
_RECORD_SIZE = 52
_DEADLINE = struct.Struct("<d")
_DEADLINE_AT = 44
_MARK = b"WLT1"
_PREFIX = "windlass-"


class Entry(msgspec.Struct, frozen=True):
    """A lease in the table."""

    slot: int
    job: JobId
    fence: Fence
    deadline: float
    """When it costs the process, on the machine's monotonic clock; 0: never."""


def table_path(session: SessionId) -> Path:
    """Where the table of a session is."""
    folder = Path("/dev/shm")  # noqa: S108 - made with O_EXCL and owned by us, see `Table.create`
    if not os.access(folder, os.W_OK):
        folder = Path(tempfile.gettempdir())
    return folder / f"{_PREFIX}{session}"


class Table:
    """A table of leases; both sides open it."""

    def __init__(self, path: Path, file: int, capacity: int) -> None:
        self.path = path
        self.capacity = capacity
        self._file = file
        self._map = mmap.mmap(file, _size(capacity))
        self._taken_at = _HEADER_SIZE + capacity
        self._records_at = _HEADER_SIZE + 2 * capacity

    @classmethod
    def create(cls, path: Path, capacity: int) -> "Table":
        """Make a new one. The name has never been used: a session's id is random."""
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _reserve(file, _size(capacity))
            table = cls(path, file, capacity)
        except BaseException:
            os.close(file)
            path.unlink(missing_ok=True)
            raise
        _HEADER.pack_into(table._map, 0, _MARK, capacity, 0.0, 0.0, 0)
        return table

    @classmethod
    def open(cls, path: Path) -> "Table":
        """Open one that this user has made; `StoreError` if it is not one."""
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(file)
            mine = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
            head = os.pread(file, _HEADER_SIZE, 0)
            capacity = int.from_bytes(head[4:8], "little")
            whole = len(head) == _HEADER_SIZE and head[:4] == _MARK and found.st_size == _size(capacity)
            if mine and whole:
                return cls(path, file, capacity)
        except BaseException:
            os.close(file)
            raise
        os.close(file)
        raise StoreError(f"{path} is not a table of leases that this user has made")

    def close(self) -> None:
        """Close it; the file stays."""
        self._map.close()
        os.close(self._file)

    def remove(self) -> None:
        """Close it and delete the file."""
        self.close()
        self.path.unlink(missing_ok=True)

    @property
    def descriptor(self) -> int:
        """The descriptor of its file, for as long as it is open."""
        return self._file

    # --- the heart ------------------------------------------------------------------------------------------

    def heartbeat_answered(self, sent: float, counts_for: float) -> None:
        """Note that the store answered a heartbeat: until `sent + counts_for` the child may start jobs."""
        _BEAT.pack_into(self._map, _BEAT_AT, sent, counts_for)
        os.utime(self._file)  # a file that was not touched for long is removed, see `remove_stale`

    def alive_until(self) -> float:
        """Until when the child may start jobs, on the machine's monotonic clock."""
        sent, counts_for = _BEAT.unpack_from(self._map, _BEAT_AT)
        return sent + counts_for

    def end_cleanly(self) -> None:
        """The child says that it ends because it was told to."""
        self._map[_CLEAN_AT] = 1

    @property
    def clean(self) -> bool:
        """Whether the child said so."""
        return self._map[_CLEAN_AT] == 1

    # --- the child ------------------------------------------------------------------------------------------

    def file(self, slot: int, job: JobId, fence: Fence) -> None:
        """File a lease that has arrived."""
        self._map[self._taken_at + slot] = 0
        _RECORD.pack_into(self._map, self._records_at + slot * _RECORD_SIZE, job.encode(), fence, 0.0)
        self._map[_HEADER_SIZE + slot] = WAITING

    def prepare(self, slot: int) -> bool:
        """Its process is being started: it has not started, and is not stuck either. False: taken back."""
        return self._enter(slot, PREPARING)

    def start(self, slot: int, deadline: float = 0.0) -> bool:
        """Just before the task's first line. False: the supervisor has taken the job back."""
        if deadline:
            self.set_deadline(slot, deadline)
        return self._enter(slot, STARTED)

    def _enter(self, slot: int, state: int) -> bool:
        table = self._map
        table[_HEADER_SIZE + slot] = state
        if not table[self._taken_at + slot]:
            return True
        with _locked(self._file):
            if not self._map[self._taken_at + slot]:
                return True
            self._map[_HEADER_SIZE + slot] = FREE
            return False

    def set_deadline(self, slot: int, deadline: float) -> None:
        """When the job costs its process; 0: not at all. A thread that outlived its worker is not heard."""
        if self._map.closed:
            return
        _DEADLINE.pack_into(self._map, self._records_at + slot * _RECORD_SIZE + _DEADLINE_AT, deadline)

    def clear(self, slot: int) -> None:
        """Free a slot: the store has answered the settlement, or the job was given back."""
        self._map[_HEADER_SIZE + slot] = FREE

    def clear_all(self, slots: Iterable[int]) -> None:
        """Clear many at once."""
        table = self._map
        for slot in slots:
            table[_HEADER_SIZE + slot] = FREE

    # --- the supervisor -------------------------------------------------------------------------------------

    def started(self) -> list[Entry]:
        """The leases that had started."""
        return list(self._entries(STARTED))

    def waiting(self) -> list[Entry]:
        """The leases that have arrived and have not started."""
        return [entry for entry in self._entries(WAITING) if not self._map[self._taken_at + entry.slot]]

    def take_back(self, entries: Collection[Entry]) -> list[Entry]:
        """Take back leases that have not started. Those that it returns will not start: release them."""
        with contextlib.suppress(BlockingIOError), _locked(self._file, wait=False):
            same = [entry for entry in entries if self._entry(entry.slot).fence == entry.fence]
            for entry in same:
                self._map[self._taken_at + entry.slot] = 1
            time.sleep(SETTLING)  # a hundredth of a second, and only for a child that is stuck
            taken: list[Entry] = []
            for entry in same:
                if self._map[_HEADER_SIZE + entry.slot] == WAITING and self._entry(entry.slot) == entry:
                    taken.append(entry)
                else:
                    self._map[self._taken_at + entry.slot] = 0
            return taken
        return []

    def _entries(self, state: int) -> Iterator[Entry]:
        states = self._map[_HEADER_SIZE : _HEADER_SIZE + self.capacity]
        slot = states.find(state)
        while slot >= 0:
            yield self._entry(slot)
            slot = states.find(state, slot + 1)

    def _entry(self, slot: int) -> Entry:
        job, fence, deadline = _RECORD.unpack_from(self._map, self._records_at + slot * _RECORD_SIZE)
        return Entry(slot, job.decode("ascii", "replace"), fence, deadline)


def remove_stale(folder: Path, older_than: float) -> int:
    """Delete tables without a heartbeat for so many seconds; returns how many. A supervisor that dies before
    it has opened a session leaves one that no store knows of.
    """
    removed = 0
    for path in folder.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            found = path.lstat()
            mine = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
            if mine and time.time() - found.st_mtime > older_than:
                path.unlink()
                removed += 1
    return removed


def _size(capacity: int) -> int:
    return _HEADER_SIZE + capacity * (2 + _RECORD_SIZE)


def _reserve(file: int, size: int) -> None:
    """Make room now: on a full disk a write through the map would be a bus error, in the child."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:
        os.ftruncate(file, size)


@contextlib.contextmanager
def _locked(file: int, *, wait: bool = True) -> Generator[None]:
    fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)

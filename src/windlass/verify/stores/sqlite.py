"""A SQLite file of the run's own."""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import apsw

from windlass.broker.sqlite.library import library
from windlass.verify.stores.own import OwnStore, sync_tree


class OwnSqlite(OwnStore):
    """A file; those who use it are its server."""

    kind = "sqlite"
    durable = "synced with every commit (synchronous=FULL)"

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / "windlass.db"

    @property
    def locks(self) -> list[Path]:
        """What a writer holds while it writes."""
        return [Path(f"{self.path}-{name}") for name in ("turn", "lock")]

    def url(self, address: tuple[str, int] | None = None) -> str:
        """There is only one way."""
        assert address is None
        return f"sqlite:///{self.path}"

    def start(self) -> None:
        """The first process that opens the file makes it."""

    def close(self) -> None:
        """Its folder is removed with the run's."""

    def backup(self, to: Path) -> None:
        """A consistent copy, while it is in use."""
        to.mkdir(parents=True, exist_ok=True)
        copy = to / self.path.name
        copy.unlink(missing_ok=True)
        with library:
            source, target = apsw.Connection(str(self.path)), apsw.Connection(str(copy))
            try:
                source.set_busy_timeout(30_000)
                with target.backup("main", source, "main") as work:
                    while not work.done:
                        work.step(-1)
            finally:
                target.close()
                source.close()

    def restore(self, copy: Path) -> None:
        """Put the copy back; nobody may have the file open."""
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        shutil.copyfile(copy / self.path.name, self.path)
        sync_tree(self.folder)

    @contextmanager
    def locked(self) -> Generator[None]:
        """Hold the lock that every writer needs, as a process that hangs in a write does."""
        file = os.open(self.locks[1], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)

    def is_free(self, within: float = 0.5) -> bool:
        """Whether nobody holds a lock for longer than a write takes."""
        end = time.monotonic() + within
        for lock in self.locks:
            if not lock.exists():
                continue
            with lock.open("rb") as file:
                while True:
                    with contextlib.suppress(BlockingIOError):
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    if time.monotonic() > end:
                        return False
                    time.sleep(0.005)
        return True

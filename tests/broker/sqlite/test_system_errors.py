"""Errors of the operating system around the file: each is one of ours, and says what to do."""

import errno
import fcntl
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tests.broker.sqlite.blocking import run
from tests.broker.sqlite.children import QUEUE, new_job
from tests.broker.sqlite.files import new_file

from windlass.broker.sqlite import SqliteBroker, lock
from windlass.broker.sqlite.filesystem import said
from windlass.errors import StoreError, StoreUnavailable

WORDS = {
    errno.ENOLCK: (StoreUnavailable, "no file lock left"),
    errno.EMFILE: (StoreUnavailable, "too many files are open"),
    errno.ENFILE: (StoreUnavailable, "too many files are open"),
    errno.ENOSPC: (StoreError, "the disk is full"),
    errno.EDQUOT: (StoreError, "the disk is full"),
    errno.EROFS: (StoreError, "mounted read-only"),
    errno.EACCES: (StoreError, "no permission"),
    errno.EPERM: (StoreError, "no permission"),
    errno.ENOENT: (StoreError, "its folder is gone"),
    errno.EIO: (StoreError, "cannot be used: Input/output error"),
}


@pytest.mark.parametrize("number", WORDS)
def test_each_is_said_in_words(number: int) -> None:
    kind, words = WORDS[number]
    told = said(OSError(number, os.strerror(number), "/the/file.db-lock"), Path("/the/file.db"))
    assert type(told) is kind
    assert words in str(told)
    assert "/the/file.db-lock" in str(told)


def _refuse_locks(monkeypatch: pytest.MonkeyPatch, *, waiting: bool) -> None:
    """From now on the system gives no lock: at once, or only to those who wait for one."""
    flock = fcntl.flock

    def refusing(file: int, operation: int) -> None:
        if operation == fcntl.LOCK_UN:
            flock(file, operation)
        elif waiting and operation & fcntl.LOCK_NB:
            raise BlockingIOError
        else:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(lock.fcntl, "flock", refusing)


@pytest.mark.parametrize("waiting", [True, False])
def test_a_system_without_locks_is_one_of_our_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, waiting: bool
) -> None:
    broker = SqliteBroker(new_file(tmp_path))
    run(broker).declare([QUEUE])
    with monkeypatch.context() as patch:
        _refuse_locks(patch, waiting=waiting)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="no file lock left"):
                broker.blocking.enqueue([[new_job()]])
    broker.blocking.enqueue([[new_job()]])
    run(broker).close()


_FILES_LEFT = """
import os, resource, sys
from pathlib import Path
from windlass.broker.sqlite import SqliteBroker, queries
from windlass.errors import StoreError
path, spare = Path(sys.argv[1]), int(sys.argv[2])
used = len(os.listdir("/proc/self/fd")) - 1
resource.setrlimit(resource.RLIMIT_NOFILE, (used + spare, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
try:
    SqliteBroker(path).store.readers.read(queries.counts)
except StoreError as error:
    print("told", error)
else:
    print("opened")
"""


def test_too_many_open_files_are_one_of_our_errors_wherever_they_come_up(tmp_path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 100
    path, seen = new_file(tmp_path), []
    for spare in range(14):
        done = subprocess.run(
            [sys.executable, "-c", _FILES_LEFT, str(path), str(spare)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (spare, done.stderr)
        seen.append(done.stdout.partition(" ")[0].strip())
    assert seen[0] == "told"
    assert seen[-1] == "opened"

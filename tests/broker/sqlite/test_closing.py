"""Closing a file: the last one writes the log to it, unless others have gone on with the log."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.sqlite.blocking import run
from tests.broker.sqlite.opened import WARM, Opened

from windlass.broker.sqlite import SqliteBroker, files
from windlass.broker.sqlite.files import connect
from windlass.broker.sqlite.handle import Connection, Handle
from windlass.broker.sqlite.identity import Identity, file_id
from windlass.broker.sqlite.library import library
from windlass.broker.sqlite.lock import FileLock
from windlass.errors import StoreReplaced


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    made = Opened(tmp_path)
    yield made
    run(made.broker).close()


def test_nothing_is_lost_if_the_index_is_deleted_while_the_last_connection_is_closed(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueued: list[str] = []

    def close_late(connection: Connection) -> None:
        if len(library._open) == 1:
            opened.beside("-shm").unlink()
            enqueued.extend(opened.enqueued_by_a_new_process(5, lock_timeout=0.1))
        close(connection)

    close = library.close
    before = opened.jobs_of_a_new_process()
    with monkeypatch.context() as patched:
        patched.setattr(library, "close", close_late)
        run(opened.broker).close()
    assert not opened.beside("-shm").exists()
    assert opened.jobs_of_a_new_process() == before + len(enqueued)


def test_nothing_is_lost_if_the_index_is_deleted_twice(opened: Opened) -> None:
    opened.beside("-shm").unlink()
    enqueued = opened.jobs_of_a_new_process(more=5)
    opened.beside("-shm").unlink()
    run(opened.broker).close()
    assert opened.jobs_of_a_new_process() == enqueued


def test_nothing_is_lost_if_the_index_is_deleted_while_a_file_is_prepared(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueued: list[int] = []

    def check_and_delete(connection: Connection, path: Path, namespace: str) -> None:
        check(connection, path, namespace)
        opened.beside("-shm").unlink()
        enqueued.append(opened.jobs_of_a_new_process(more=5))

    run(opened.broker).close()
    check = files._check_namespace
    with monkeypatch.context() as patched:
        patched.setattr(files, "_check_namespace", check_and_delete)
        run(SqliteBroker(opened.path)).close()
    assert [opened.jobs_of_a_new_process()] == enqueued


def test_nothing_is_lost_if_the_index_is_deleted_while_a_file_is_opened(opened: Opened) -> None:
    enqueued: list[int] = []

    def connect_beside_another() -> Handle:
        handle = connect(opened.path, writes=False)
        opened.beside("-shm").unlink()
        enqueued.append(opened.jobs_of_a_new_process(more=5))
        return handle

    run(opened.broker).close()
    with library, pytest.raises(StoreReplaced, match=r"-shm.* was replaced by another file"):
        Identity(opened.path, file_id(opened.path)).connected(connect_beside_another)
    assert [opened.jobs_of_a_new_process()] == enqueued


def test_who_cannot_take_the_lock_leaves_the_log_to_the_next_process(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.broker.sqlite.lock.CLOSING", 0.0)
    hung = FileLock(opened.path, 1.0)
    hung.acquire()
    run(opened.broker).close()
    assert opened.beside("-wal").stat().st_size
    hung.close()
    assert opened.jobs_of_a_new_process() == WARM + 1
    assert not opened.beside("-wal").exists()


def test_processes_that_close_at_the_same_time_leave_no_log(opened: Opened) -> None:
    others = [SqliteBroker(opened.path) for _ in range(4)]

    async def close_all() -> None:
        await asyncio.gather(*(broker.close() for broker in (opened.broker, *others)))

    asyncio.run(close_all())
    assert not opened.beside("-wal").exists()

"""The file, or one beside it, is deleted, replaced, overwritten or moved under processes that use it."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest
from tests.broker.sqlite.blocking import run
from tests.broker.sqlite.children import QUEUE, new_job
from tests.broker.sqlite.files import new_file
from tests.broker.sqlite.opened import WARM, Opened

from windlass.broker.sqlite import SqliteBroker, log
from windlass.broker.sqlite.files import connect
from windlass.broker.sqlite.handle import Handle
from windlass.broker.sqlite.identity import Identity, file_id
from windlass.broker.sqlite.library import library
from windlass.broker.sqlite.transaction import Transaction
from windlass.errors import StoreError, StoreReplaced


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    made = Opened(tmp_path)
    yield made
    run(made.broker).close()


def _delete(opened: Opened) -> None:
    opened.path.unlink()


def _delete_all(opened: Opened) -> None:
    for suffix in ("", "-wal", "-shm"):
        opened.beside(suffix).unlink()


def _rename_over(opened: Opened) -> None:
    opened.copy.replace(opened.path)


def _truncate(opened: Opened) -> None:
    os.truncate(opened.path, 0)


def _move_folder(opened: Opened) -> None:
    opened.path.parent.rename(opened.path.parent.with_name("moved"))


WAYS: dict[str, tuple[Callable[[Opened], None], str]] = {
    "deleted": (_delete, "was deleted or moved"),
    "deleted with its log": (_delete_all, "was deleted or moved"),
    "renamed over": (_rename_over, "was replaced by another file"),
    "truncated": (_truncate, "was overwritten"),
    "its folder moved": (_move_folder, "was deleted or moved"),
    "its log deleted": (lambda opened: opened.beside("-wal").unlink(), r"-wal.* was deleted or moved"),
    "its index deleted": (lambda opened: opened.beside("-shm").unlink(), r"-shm.* was deleted or moved"),
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_accepted_any_more(opened: Opened, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.broker.sqlite.identity.EVERY", 0.0)  # the log is looked into each time
    harm, words = WAYS[way]
    harm(opened)
    for _ in range(3):
        with pytest.raises(StoreReplaced, match=words) as caught:
            opened.enqueue()
    assert str(opened.path) in str(caught.value)
    assert "stop all processes that use it" in str(caught.value)
    if way == "its folder moved":
        opened.path.parent.with_name("moved").rename(opened.path.parent)


@pytest.mark.parametrize("way", WAYS)
def test_nor_by_coroutines(opened: Opened, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.broker.sqlite.identity.EVERY", 0.0)
    harm, words = WAYS[way]
    harm(opened)

    async def scenario() -> None:
        answers = await asyncio.gather(
            *(opened.broker.enqueue([[new_job()]]) for _ in range(20)), return_exceptions=True
        )
        for answer in answers:
            assert isinstance(answer, StoreReplaced)
        with pytest.raises(StoreReplaced, match=words):
            await opened.broker.enqueue([[new_job()]])

    asyncio.run(scenario())
    if way == "its folder moved":
        opened.path.parent.with_name("moved").rename(opened.path.parent)


@pytest.mark.parametrize("way", WAYS)
def test_readers_are_refused_within_a_second(
    opened: Opened, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harm, words = WAYS[way]
    harm(opened)
    monkeypatch.setattr("windlass.broker.sqlite.identity.EVERY", 0.0)  # the second is over
    with pytest.raises(StoreReplaced, match=words):
        run(opened.broker).counts()
    if way == "its folder moved":
        opened.path.parent.with_name("moved").rename(opened.path.parent)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_the_next_commit_after_a_deletion_is_refused(
    opened: Opened, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.broker.sqlite.identity.EVERY", 3600.0)  # not only once a second
    opened.beside(suffix).unlink()
    with pytest.raises(StoreReplaced, match="was deleted or moved"):
        opened.enqueue()


@pytest.mark.parametrize("left", [0, 32, 9_000])
def test_a_log_that_was_truncated_is_refused_before_it_is_written_to(
    opened: Opened, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.broker.sqlite.identity.EVERY", 3600.0)
    os.truncate(opened.beside("-wal"), left)
    with pytest.raises(StoreReplaced, match=r"-wal.* was truncated while"):
        opened.enqueue()
    assert opened.beside("-wal").stat().st_size == left
    run(opened.broker).close()


def test_a_log_that_was_truncated_is_not_written_to_the_file(opened: Opened) -> None:
    os.truncate(opened.beside("-wal"), 32 + 4_120)
    run(opened.broker).close()
    assert apsw.Connection(str(opened.path)).pragma("integrity_check") == "ok"


def test_a_log_that_is_truncated_in_the_middle_of_a_transaction_is_refused(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finish(tx: Transaction) -> None:
        os.truncate(opened.beside("-wal"), 0)
        done(tx)

    done = Transaction.finish
    monkeypatch.setattr(Transaction, "finish", finish)
    with pytest.raises(StoreReplaced, match=r"-wal.* was truncated while"):
        opened.enqueue()


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_a_process_does_not_take_what_was_replaced_while_it_opened_the_file(
    opened: Opened, suffix: str
) -> None:
    identity = Identity(opened.path, file_id(opened.path))

    def connect_beside_another() -> Handle:
        handle = connect(opened.path, writes=True)
        opened.beside(suffix).unlink()
        opened.beside(suffix).touch()
        return handle

    with library, pytest.raises(StoreReplaced, match=rf"{suffix}.* was replaced by another file"):
        identity.connected(connect_beside_another)


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("suffixes", [("-wal", "-shm"), ("-shm",)])
def test_a_process_leaves_what_others_have_committed_since(
    opened: Opened, suffixes: tuple[str, ...], *, asks: bool
) -> None:
    for suffix in suffixes:
        opened.beside(suffix).unlink()
    enqueued = opened.jobs_of_a_new_process(more=40)
    if asks:
        with pytest.raises(StoreReplaced):
            opened.enqueue()
    run(opened.broker).close()
    assert opened.jobs_of_a_new_process() == enqueued
    assert apsw.Connection(str(opened.path)).pragma("integrity_check") == "ok"


def test_what_was_committed_before_the_log_was_deleted_is_written_by_the_last_to_close(
    opened: Opened,
) -> None:
    opened.beside("-wal").unlink()
    with pytest.raises(StoreReplaced):
        opened.enqueue()
    run(opened.broker).close()
    assert opened.jobs_of_a_new_process() >= WARM + 1


def test_a_process_that_starts_after_the_log_was_deleted_is_told_what_may_have_happened(
    opened: Opened,
) -> None:
    opened.beside("-wal").unlink()
    with pytest.raises(subprocess.CalledProcessError) as refused:
        opened.jobs_of_a_new_process()
    assert "was deleted or replaced while processes had them open" in refused.value.stderr


def test_who_waits_for_a_result_is_told(opened: Opened) -> None:
    job = opened.enqueue()
    _delete(opened)
    with pytest.raises(StoreReplaced, match="was deleted or moved"):
        run(opened.broker).watch([job], 60)


def test_it_stays_refused_when_the_file_is_back(opened: Opened) -> None:
    aside = opened.path.with_name("aside")
    opened.path.rename(aside)
    with pytest.raises(StoreReplaced):
        opened.enqueue()
    aside.rename(opened.path)
    with pytest.raises(StoreReplaced, match="was deleted or moved"):
        opened.enqueue()


def test_a_file_made_anew_is_not_switched_to(opened: Opened) -> None:
    _delete_all(opened)
    assert opened.jobs_of_a_new_process() == 0  # it has made a file
    with pytest.raises(StoreReplaced, match="was replaced by another file"):
        opened.enqueue()
    assert opened.jobs_of_a_new_process() == 0


def test_a_reader_that_connects_late_makes_no_file(opened: Opened) -> None:
    readers = opened.broker.store.readers
    with pytest.raises(StoreReplaced):
        # One reads, so that the next needs a connection of its own.
        readers.read(lambda _: (opened.path.unlink(), readers.read(lambda _: None)))
    assert not opened.path.exists()


def test_a_child_of_a_fork_does_not_go_over_to_another_file(opened: Opened) -> None:
    _delete_all(opened)
    run(SqliteBroker(opened.path)).close()  # somebody has made another
    child = os.fork()
    if not child:
        try:
            opened.enqueue()
        except StoreReplaced:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_file_that_is_mounted_by_itself_and_deleted_elsewhere_is_refused(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside.db", new_file(tmp_path)
    inside.touch()
    if os.getuid() or subprocess.run(["mount", "--bind", str(outside), str(inside)], check=False).returncode:
        pytest.skip("a file can be mounted by root only")
    try:
        broker = SqliteBroker(inside)
        run(broker).declare([QUEUE])
        outside.unlink()
        with pytest.raises(StoreReplaced, match="was replaced by another file"):
            broker.blocking.enqueue([[new_job()]])
        run(broker).close()
    finally:
        subprocess.run(["umount", str(inside)], check=True)


# --- what is no harm ----------------------------------------------------------------------------------------


def test_checkpoints_of_our_own_are_no_harm(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "FEW_PAGES", 20)
    monkeypatch.setattr(log, "MOST_PAGES", 20)
    monkeypatch.setattr(log, "AGAIN_PAGES", 5)
    other = SqliteBroker(opened.path)
    for _ in range(60):
        opened.enqueue()
        other.blocking.enqueue([[new_job(), new_job()]])
        run(opened.broker).counts()
    run(other).close()


@pytest.mark.parametrize(
    "sql", ["PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM", "PRAGMA wal_checkpoint(PASSIVE)"]
)
def test_another_program_that_speaks_sqlite_is_no_harm(opened: Opened, sql: str) -> None:
    for _ in range(3):
        opened.enqueue()
        program = apsw.Connection(str(opened.path))
        program.set_busy_timeout(5_000)
        program.execute(sql)
        program.close()
        run(opened.broker).counts()
        opened.enqueue()


def test_a_restore_with_all_processes_stopped_is_no_harm(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    run(opened.broker).close()
    for suffix in ("-wal", "-shm"):
        opened.beside(suffix).unlink(missing_ok=True)
    shutil.copyfile(opened.copy, opened.path)
    first, second = SqliteBroker(opened.path), SqliteBroker(opened.path)
    first.blocking.enqueue([[new_job()]])
    second.blocking.enqueue([[new_job()]])
    first.blocking.enqueue([[new_job()]])
    assert sum(row.count for row in run(second).counts().rows) == 4
    run(first).close()
    run(second).close()


def test_a_path_that_is_relative_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    broker = SqliteBroker(Path("here.db"))
    run(broker).declare([QUEUE])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    broker.blocking.enqueue([[new_job()]])
    assert sum(row.count for row in run(broker).counts().rows) == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []
    run(broker).close()


# --- what heals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["-lock", "-turn"])
def test_a_lock_that_was_deleted_is_made_anew(
    opened: Opened, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.broker.sqlite.lock.EVERY", 0.0)
    opened.beside(suffix).unlink()
    other = SqliteBroker(opened.path, lock_timeout=0.1)
    opened.enqueue()
    lock = opened.broker.store.lock
    lock.acquire()
    with pytest.raises(StoreError, match=r"waited 0\.1 s to write"):  # both hold on to the same again
        other.blocking.enqueue([[new_job()]])
    lock.release()
    other.blocking.enqueue([[new_job()]])
    run(other).close()


def test_a_lock_that_was_truncated_kills_nobody(opened: Opened) -> None:
    code = (
        "import os, sys; from pathlib import Path; from windlass.broker.sqlite import SqliteBroker;"
        "from tests.broker.sqlite.children import new_job; b = SqliteBroker(Path(sys.argv[1]));"
        "os.truncate(f'{sys.argv[1]}-lock', 0); b.blocking.enqueue([[new_job()]])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(opened.path)], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("whole", [True, False])
def test_wakes_go_on_when_their_folder_was_deleted(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, *, whole: bool
) -> None:
    monkeypatch.setattr("windlass.broker.sqlite.bells.AGAIN", 0.0)
    folder = opened.beside("-wake")

    async def scenario() -> None:
        await opened.broker.wait(["q"], 0.0)  # it has opened the FIFO, and takes the wake that is there
        other = SqliteBroker(opened.path)
        if whole:
            shutil.rmtree(folder)
        else:
            for fifo in folder.iterdir():
                fifo.unlink()
        waiting = asyncio.create_task(other.wait(["q"], 60))
        await asyncio.sleep(0)
        await opened.broker.enqueue([[new_job()]])
        await asyncio.wait_for(waiting, 30)
        await other.close()

    asyncio.run(scenario())

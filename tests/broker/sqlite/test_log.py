"""The write-ahead log stays short, whoever reads, and commits find room in its file."""

import shutil
import struct
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from tests.broker.sqlite.blocking import run
from tests.broker.sqlite.children import QUEUE, new_job
from tests.broker.sqlite.files import new_file

from windlass.broker.sqlite import SqliteBroker, filesystem, log, writer
from windlass.broker.sqlite.broker import enqueue_step
from windlass.broker.sqlite.filesystem import Space
from windlass.broker.sqlite.log import Log
from windlass.broker.sqlite.transaction import Transaction
from windlass.core.lease import Ask
from windlass.core.session import Beat, SessionInfo
from windlass.errors import StoreError

_HEADER, _FRAME = 32, 24 + 4096


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "FEW_PAGES", 40)
    monkeypatch.setattr(log, "MOST_PAGES", 200)
    monkeypatch.setattr(log, "AGAIN_PAGES", 20)
    monkeypatch.setattr(log, "ROOM_PAGES", 30)


def opened(path: Path) -> SqliteBroker:
    broker = SqliteBroker(path)
    run(broker).declare([QUEUE])
    broker.blocking.enqueue([[new_job()]])
    return broker


def log_of(path: Path) -> Path:
    return Path(f"{path}-wal")


def length(path: Path) -> int:
    """Pages in the log, by its index: its file may be longer."""
    return struct.unpack_from("=I", Path(f"{path}-shm").read_bytes(), 16)[0]


def enqueued(broker: SqliteBroker, path: Path, calls: int, jobs: int = 1) -> int:
    """How long the log was at the most while jobs were enqueued."""
    lengths: list[int] = []
    for _ in range(calls):
        broker.blocking.enqueue([[new_job() for _ in range(jobs)]])
        lengths.append(length(path))
    return max(lengths)


def counted(broker: SqliteBroker) -> int:
    return sum(row.count for row in run(broker).counts().rows)


def test_commits_let_it_grow_and_no_further(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    broker = opened(path)
    assert 200 <= enqueued(broker, path, 100, jobs=10) < 250
    run(broker).close()


def test_commits_of_several_verbs_let_it_grow_and_no_further(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    broker = opened(path)
    lengths: list[int] = []
    for _ in range(100):
        calls = [
            writer.WriterCall(enqueue_step(broker.store, [[new_job() for _ in range(5)]])) for _ in range(2)
        ]
        broker.store.writer._execute(calls)
        lengths.append(length(path))
    assert 200 <= max(lengths) < 250
    run(broker).close()


def test_commits_keep_it_short_while_the_disk_is_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it would grow into what is kept free so that workers can go on."""
    path = new_file(tmp_path)
    broker = opened(path)
    enqueued(broker, path, 1, jobs=200)
    monkeypatch.setattr(filesystem, "RESERVE", 2**62)
    monkeypatch.setattr(filesystem, "_LOOK_AGAIN", 0)
    run(broker).beat([Beat(session="s", open=SessionInfo())])
    lengths: list[int] = []
    for number in range(60):
        ask = Ask(session="s", seq=number + 1, queues=("q",), slots=3, limit=3)
        assert run(broker).claim(ask).leases
        lengths.append(length(path))
    assert max(lengths[1:]) < 60
    run(broker).close()


def test_it_begins_anew_after_a_commit_that_found_the_disk_full(tmp_path: Path) -> None:
    """What is in it has its place in the file: with the room of the log itself, workers can go on."""
    path = new_file(tmp_path)
    broker = opened(path)
    enqueued(broker, path, 5, jobs=10)
    before = length(path)
    assert before > 20

    def full(_tx: Transaction) -> None:
        raise apsw.FullError

    with pytest.raises(StoreError, match="disk is full"):
        broker.store.writer.call(full)
    enqueued(broker, path, 1, jobs=10)
    assert length(path) < before
    assert counted(broker) == 61
    run(broker).close()


def test_a_reader_is_waited_for_and_the_log_begun_anew_when_it_has_gone(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    broker = opened(path)
    with closing(apsw.Connection(str(path))) as reader:
        reader.execute("BEGIN")
        before = reader.execute("SELECT COUNT(*) FROM job").fetchall()
        assert enqueued(broker, path, 60) > 300
        assert reader.execute("SELECT COUNT(*) FROM job").fetchall() == before
        reader.execute("COMMIT")
        enqueued(broker, path, 10)  # until the next try
        assert enqueued(broker, path, 100) < 250
    assert counted(broker) == 171
    run(broker).close()


def test_jobs_are_written_where_the_file_of_the_log_has_room(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    broker = opened(path)
    sizes: set[int] = set()
    enqueued(broker, path, 1)
    files = len(list(Path("/dev/fd").iterdir()))
    for _ in range(100):
        enqueued(broker, path, 1)
        sizes.add(log_of(path).stat().st_size)
        assert log_of(path).stat().st_size >= _HEADER + (length(path) + 4) * _FRAME, "the next has no room"
    assert max(sizes) < _HEADER + (250 + 30 + 16) * _FRAME
    assert len(sizes) < 12, "room is made for many at once"
    assert len(list(Path("/dev/fd").iterdir())) == files, "a file was left open"
    run(broker).close()


def test_room_in_the_log_is_nothing_to_who_finds_it_after_a_crash(tmp_path: Path) -> None:
    path, found = new_file(tmp_path), tmp_path / "found.db"
    broker = opened(path)
    for crash in range(1, 30):
        enqueued(broker, path, 1)
        shutil.copyfile(path, found)
        shutil.copyfile(log_of(path), log_of(found))
        after = SqliteBroker(found)
        assert counted(after) == 1 + crash
        assert enqueued(after, found, 3)
        assert counted(after) == 4 + crash
        run(after).close()
        with closing(apsw.Connection(str(found))) as file:
            assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    run(broker).close()


def test_room_is_appended_to_what_another_program_wrote(tmp_path: Path) -> None:
    connection = _Connection(tmp_path / "log")
    seen = Log(connection, Space(tmp_path))
    connection.wrote(20 * b"x" * _FRAME)
    seen._committed(connection, "main", 3)
    seen.tend()  # there is some
    connection.wrote(b"y" * 10)
    seen._committed(connection, "main", 15)
    seen.tend()
    assert connection.path.read_bytes() == 20 * b"x" * _FRAME + b"y" * 10 + bytes(16 * _FRAME)


def test_no_room_is_no_harm(tmp_path: Path) -> None:
    seen = Log(_Connection(tmp_path / "nowhere" / "log"), Space(tmp_path))
    seen.tend()


class _Connection:
    """Counts how often pages were to be written to the file, which fails."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.filename_wal = str(path)
        self.tried = 0

    def pragma(self, name: str) -> int:
        assert name == "page_size"
        return 4096

    def wrote(self, frames: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(frames)

    def set_wal_hook(self, hook: object) -> None:
        self.hook = hook

    def wal_checkpoint(self, *, mode: int) -> None:
        assert mode == apsw.SQLITE_CHECKPOINT_PASSIVE
        self.tried += 1
        raise apsw.FullError


def test_what_fails_harms_nobody_and_is_tried_again_but_not_at_every_commit(tmp_path: Path) -> None:
    connection = _Connection(tmp_path / "log")
    seen = Log(connection, Space(tmp_path))
    for pages in range(1, 251):
        seen._committed(connection, "main", pages)
        seen.tend()
    assert connection.tried == 3, "at 200, 220 and 240 pages"


def test_who_finds_it_begun_anew_by_others_tries_at_the_same_length(tmp_path: Path) -> None:
    connection = _Connection(tmp_path / "log")
    seen = Log(connection, Space(tmp_path))
    for pages in (205, 5, 204):
        seen._committed(connection, "main", pages)
        seen.tend()
    assert connection.tried == 2

"""The write-ahead log stays short: for single jobs shorter than for others, and whoever reads meanwhile."""

from pathlib import Path

import apsw
import pytest
from tests.broker.sqlite.children import QUEUE, new_job
from tests.broker.sqlite.files import new_file

from windlass.broker.sqlite import SqliteBroker, log, writer
from windlass.broker.sqlite.log import Log

_FRAME = 24 + 4096


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "SINGLE_PAGES", 40)
    monkeypatch.setattr(writer, "SHARED_PAGES", 200)
    monkeypatch.setattr(log, "AGAIN_PAGES", 20)


def opened(path: Path) -> SqliteBroker:
    broker = SqliteBroker(path)
    broker.blocking.declare([QUEUE])
    broker.blocking.enqueue([[new_job()]])
    return broker


def longest(path: Path) -> int:
    """Pages that the log ever had: what is begun anew is written over from its beginning."""
    return (Path(f"{path}-wal").stat().st_size - 32) // _FRAME


def single(broker: SqliteBroker, count: int) -> None:
    for _ in range(count):
        broker.blocking.enqueue([[new_job()]])


def counted(broker: SqliteBroker) -> int:
    return sum(row.count for row in broker.blocking.counts().rows)


def test_single_jobs_keep_it_short(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    broker = opened(path)
    single(broker, 100)
    assert longest(path) < 60
    broker.blocking.close()


def test_other_commits_let_it_grow_and_no_further(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    broker = opened(path)
    for _ in range(100):
        broker.blocking.enqueue([[new_job() for _ in range(10)]])
    assert 200 <= longest(path) < 250
    broker.blocking.close()


def test_single_jobs_shorten_what_others_left(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    broker = opened(path)
    while longest(path) < 100:
        broker.blocking.enqueue([[new_job() for _ in range(10)]])
    left = longest(path)
    single(broker, left)  # three pages and more each
    assert longest(path) < left + 10
    broker.blocking.close()


def test_a_reader_is_waited_for_and_the_log_begun_anew_when_it_has_gone(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    broker = opened(path)
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN")
    before = reader.execute("SELECT COUNT(*) FROM job").fetchall()
    single(broker, 60)
    assert longest(path) > 150
    assert reader.execute("SELECT COUNT(*) FROM job").fetchall() == before
    reader.execute("COMMIT")
    single(broker, 10)  # until the next try
    most = longest(path)
    single(broker, 100)
    assert longest(path) == most
    reader.close()
    assert counted(broker) == 171
    broker.blocking.close()


class _Connection:
    """Counts how often pages were to be written to the file, which fails."""

    def __init__(self) -> None:
        self.tried = 0

    def set_wal_hook(self, hook: object) -> None:
        self.hook = hook

    def wal_checkpoint(self, *, mode: int) -> None:
        assert mode == apsw.SQLITE_CHECKPOINT_PASSIVE
        self.tried += 1
        raise apsw.FullError


def test_what_fails_harms_nobody_and_is_tried_again_but_not_at_every_commit() -> None:
    connection = _Connection()
    seen = Log(connection)
    for pages in range(1, 101):
        seen._committed(connection, "main", pages)
        seen.shorten(41)
    assert connection.tried == 3, "at 41, 61 and 81 pages"


def test_who_finds_it_begun_anew_by_others_tries_at_the_same_length() -> None:
    connection = _Connection()
    seen = Log(connection)
    for pages in (45, 5, 44):
        seen._committed(connection, "main", pages)
        seen.shorten(41)
    assert connection.tried == 2

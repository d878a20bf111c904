"""What is refused, in one clear line, and how a file comes to its layout."""

import os
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from tests.broker.sqlite.blocking import run
from tests.broker.sqlite.children import QUEUE, new_job
from tests.broker.sqlite.files import new_file

from windlass.broker.contract import Options
from windlass.broker.sqlite import SqliteBroker, files, read_url
from windlass.broker.sqlite.filesystem import file_system, is_remote
from windlass.broker.sqlite.statements import migrations
from windlass.core.job import Status
from windlass.errors import InvalidOption, StoreError


@pytest.mark.parametrize("version", ["3.7.0", "3.40.1", "3.51.2"])
def test_a_library_that_corrupts_is_refused(version: str) -> None:
    with pytest.raises(StoreError, match=f"SQLite {version} can corrupt"):
        files.check_library(version)


@pytest.mark.parametrize("version", ["3.6.23", "3.51.3", "3.54.1"])
def test_other_libraries_are_not(version: str) -> None:
    files.check_library(version)


_MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:44 / /srv/shared\\040files rw shared:2 - nfs4 host:/export rw
31 22 0:45 / /home/me/remote rw - fuse.sshfs me@host: rw
32 30 0:46 / /srv/shared\\040files/local rw - tmpfs tmpfs rw
"""


def test_network_file_systems_are_known(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(_MOUNTS)
    kinds = {
        folder: file_system(Path(folder), mounts)
        for folder in (
            "/var/lib",
            "/srv/shared files/x",
            "/srv/shared files",
            "/srv/shared files/local/x",
            "/home/me/remote",
            "/home/me/remoter",
        )
    }
    assert list(kinds.values()) == ["ext4", "nfs4", "nfs4", "tmpfs", "fuse.sshfs", "ext4"]
    assert [is_remote(kind) for kind in kinds.values()] == [False, True, True, False, True, False]


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"folder .* does not exist; create it"):
        SqliteBroker(tmp_path / "nowhere" / "file.db")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="is a folder"):
        SqliteBroker(tmp_path)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("nothing that SQLite has written, but long enough to have a header " * 20)
    with pytest.raises(StoreError, match="is not a SQLite database"):
        SqliteBroker(path)


def test_the_file_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(InvalidOption, match="another program"):
        SqliteBroker(path)


def test_a_newer_layout_is_refused(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA user_version = {len(migrations()) + 1}")
    connection.close()
    with pytest.raises(StoreError, match="newer Windlass"):
        SqliteBroker(path)


def test_a_file_holds_one_namespace(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match='holds the namespace "windlass", not "other"'):
        SqliteBroker(new_file(tmp_path), options=Options(namespace="other"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    path.chmod(0o400)
    with pytest.raises(StoreError, match="no permission"):
        SqliteBroker(path)


def test_a_migration_that_was_cut_short_is_done_again(tmp_path: Path) -> None:
    """A process died in the middle: nothing of the layout is there, and the next opens the file."""
    path = tmp_path / "half.db"
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(migrations()[0].partition("CREATE INDEX")[0])
    connection.close()
    broker = SqliteBroker(path)
    assert run(broker).counts().rows == ()
    run(broker).close()


def test_a_second_migration_keeps_what_is_there_and_those_who_have_the_file_open_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rolling upgrade: the first process of the next version migrates the file while others use it."""
    path = new_file(tmp_path)
    old = SqliteBroker(path)
    run(old).declare([QUEUE])
    before = [new_job(), new_job()]
    old.blocking.enqueue([before])
    second = "ALTER TABLE queue ADD COLUMN note TEXT; CREATE TABLE added (n INTEGER PRIMARY KEY) STRICT;"
    monkeypatch.setattr(files, "migrations", lambda: (*migrations(), second))
    new = SqliteBroker(path)
    later = new_job()
    assert old.blocking.enqueue([[later]])[0][0].status is Status.CREATED
    assert [job and job.id for job in run(new).get([before[0].id, later.id])] == [before[0].id, later.id]
    for broker in (old, new):
        run(broker).close()
    with closing(apsw.Connection(str(path))) as file:
        assert file.pragma("user_version") == len(migrations()) + 1
        assert file.execute("SELECT COUNT(*) FROM added").fetchall() == [(0,)]
    monkeypatch.undo()
    with pytest.raises(StoreError, match="newer Windlass"):
        SqliteBroker(path)


def test_a_second_migration_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = new_file(tmp_path)
    with monkeypatch.context() as patched:
        broken = "CREATE TABLE added (n INTEGER PRIMARY KEY) STRICT; SELECT * FROM nowhere;"
        patched.setattr(files, "migrations", lambda: (*migrations(), broken))
        with pytest.raises(StoreError, match="nowhere"):
            SqliteBroker(path)
    broker = SqliteBroker(path)
    assert run(broker).counts().rows == ()
    run(broker).close()


@pytest.mark.parametrize(
    ("url", "path", "timeout"),
    [
        ("sqlite:///jobs.db", "jobs.db", 30.0),
        ("sqlite:///a%20b/jobs.db", "a b/jobs.db", 30.0),
        ("sqlite:////var/lib/jobs.db?lock_timeout=2.5", "/var/lib/jobs.db", 2.5),
    ],
)
def test_a_url_names_a_file(url: str, path: str, timeout: float) -> None:
    assert read_url(url) == (Path(path), timeout)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite://jobs.db", "names no host"),
        ("sqlite://", "names a file"),
        ("sqlite:///", "names a file"),
        ("sqlite:///jobs.db?mode=ro", 'no option "mode"'),
        ("sqlite:///jobs.db?lock_timeout=soon", 'not "soon"'),
        ("sqlite:///jobs.db?lock_timeout=nan", 'not "nan"'),
    ],
)
def test_a_url_that_means_nothing_is_refused(url: str, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        read_url(url)


def test_a_file_that_another_process_makes_at_this_moment_is_not_anothers(tmp_path: Path) -> None:
    path = tmp_path / "w.db"

    class Slow(apsw.Connection):
        """Another process makes the file behind its first look at it."""

        looks = 0

        def execute(self, *said: object, **more: object) -> apsw.Cursor:
            self.looks += 1
            if self.looks == 2:
                run(SqliteBroker(path, options=Options())).close()
            return super().execute(*said, **more)  # type: ignore[arg-type]

    connection = Slow(str(path))
    files._check_owner(connection, path)
    assert connection.looks == 2
    connection.close()

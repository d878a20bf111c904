"""The table that a child and its supervisor share: what had started is known, and a job starts once."""

import fcntl
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.conformance.harness import new_id
from windlass.errors import StoreError
from windlass.worker import table as tables
from windlass.worker.table import Entry, Table, table_path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "table"


def test_both_sides_see_the_same(path: Path) -> None:
    supervisor = Table.create(path, 10)
    child = Table.open(path)
    first, second = new_id(), new_id()
    child.file(3, first, 2**53 - 1)
    child.file(4, second, 7)
    assert supervisor.waiting() == [Entry(3, first, 2**53 - 1, 0.0), Entry(4, second, 7, 0.0)]
    assert child.start(3, deadline=12.5)
    assert supervisor.started() == [Entry(3, first, 2**53 - 1, 12.5)]
    assert supervisor.waiting() == [Entry(4, second, 7, 0.0)]
    child.clear(3)
    child.clear(4)
    assert supervisor.started() == supervisor.waiting() == []
    assert child.capacity == 10
    child.close()
    supervisor.remove()
    assert not path.exists()


def test_what_is_prepared_has_not_started_and_is_not_taken(path: Path) -> None:
    supervisor = Table.create(path, 2)
    child = Table.open(path)
    for slot in (0, 1):
        child.file(slot, new_id(), 1)
    stuck = supervisor.waiting()
    assert child.prepare(0)
    assert [entry.slot for entry in supervisor.take_back(stuck)] == [1]
    assert supervisor.started() == supervisor.waiting() == []
    assert not child.prepare(1)
    assert child.start(0)
    assert [entry.slot for entry in supervisor.started()] == [0]


def test_a_deadline_does_not_outlive_its_lease(path: Path) -> None:
    table = Table.create(path, 1)
    table.file(0, new_id(), 1)
    table.start(0, deadline=5.0)
    table.clear(0)
    table.file(0, new_id(), 2)
    table.start(0)
    assert [entry.deadline for entry in table.started()] == [0.0]


def test_a_beat_counts_from_when_it_was_sent(path: Path) -> None:
    supervisor = Table.create(path, 1)
    child = Table.open(path)
    assert child.alive_until() == 0.0
    supervisor.heartbeat_answered(1_000.0, 25.0)
    assert child.alive_until() == 1_025.0


def test_a_clean_end_is_said(path: Path) -> None:
    supervisor = Table.create(path, 1)
    child = Table.open(path)
    assert not supervisor.clean
    child.end_cleanly()
    assert supervisor.clean


def test_it_outlives_those_who_have_it_open(path: Path) -> None:
    table = Table.create(path, 2)
    table.file(1, new_id(), 5)
    table.start(1)
    table.close()
    assert [entry.fence for entry in Table.open(path).started()] == [5]


# --- take back ----------------------------------------------------------------------------------------------


def test_what_was_taken_back_does_not_start(path: Path) -> None:
    supervisor = Table.create(path, 2)
    child = Table.open(path)
    child.file(0, new_id(), 1)
    (entry,) = supervisor.waiting()
    assert supervisor.take_back([entry]) == [entry]
    assert supervisor.waiting() == []
    assert not child.start(0)
    assert supervisor.started() == []
    child.file(0, new_id(), 2)
    assert child.start(0), "the place can be used again"


def test_what_has_started_is_not_taken_back(path: Path) -> None:
    supervisor = Table.create(path, 2)
    child = Table.open(path)
    child.file(0, new_id(), 1)
    (entry,) = supervisor.waiting()
    assert child.start(0)
    assert supervisor.take_back([entry]) == []
    assert [each.slot for each in supervisor.started()] == [0]


def test_another_lease_in_the_same_place_is_not_taken_back(path: Path) -> None:
    supervisor = Table.create(path, 2)
    child = Table.open(path)
    child.file(0, new_id(), 1)
    (entry,) = supervisor.waiting()
    child.clear(0)
    child.file(0, new_id(), 2)
    assert supervisor.take_back([entry]) == []
    assert child.start(0)


def test_a_supervisor_that_cannot_get_the_lock_takes_nothing(path: Path) -> None:
    supervisor = Table.create(path, 2)
    child = Table.open(path)
    child.file(0, new_id(), 1)
    (entry,) = supervisor.waiting()
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert supervisor.take_back([entry]) == []
    assert child.start(0)


def test_start_and_take_back_exclude_each_other(path: Path) -> None:
    """Both at once, many times: each job is started or taken, never both and never neither."""
    rounds = 60
    supervisor = Table.create(path, rounds)
    child = Table.open(path)
    for slot in range(rounds):
        child.file(slot, new_id(), slot + 1)
    entries = supervisor.waiting()
    started: set[int] = set()
    taken: set[int] = set()
    meet = threading.Barrier(2)

    def start() -> None:
        for slot in range(rounds):
            if slot % 10 == 0:
                meet.wait(10)
            if child.start(slot):
                started.add(slot)

    running = threading.Thread(target=start)
    running.start()
    for at in range(0, rounds, 10):
        meet.wait(10)
        taken |= {entry.slot for entry in supervisor.take_back(entries[at : at + 10])}
    running.join(10)
    assert not started & taken
    assert started | taken == set(range(rounds))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["file", "start", "clear", "take"]), st.integers(0, 3)), max_size=30)
)
def test_any_order_of_words_leaves_each_lease_in_one_state(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    path = tmp_path_factory.mktemp("tables") / "table"
    supervisor, state, fence = Table.create(path, 4), {}, 0
    child = Table.open(path)
    settling, tables.SETTLING = tables.SETTLING, 0.0
    try:
        for word, slot in steps:
            now = state.get(slot, "free")
            if word == "file" and now == "free":
                fence += 1
                child.file(slot, new_id(), fence)
                state[slot] = "waiting"
            elif word == "start" and now in ("waiting", "taken"):
                assert child.start(slot) is (now == "waiting")
                state[slot] = "started" if now == "waiting" else "free"
            elif word == "clear":
                child.clear(slot)
                state[slot] = "free"
            elif word == "take":
                wanted = [entry for entry in supervisor.waiting() if entry.slot == slot]
                assert supervisor.take_back(wanted) == wanted
                state[slot] = "taken" if wanted else now
            assert {entry.slot for entry in supervisor.waiting()} == _in(state, "waiting")
            assert {entry.slot for entry in supervisor.started()} == _in(state, "started")
    finally:
        tables.SETTLING = settling
        child.close()
        supervisor.remove()


def _in(state: dict[int, str], wanted: str) -> set[int]:
    return {slot for slot, now in state.items() if now == wanted}


# --- files --------------------------------------------------------------------------------------------------


def test_a_file_is_made_once_and_for_its_user_alone(path: Path) -> None:
    Table.create(path, 1).close()
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        Table.create(path, 1)
    assert path.exists()


def test_its_room_is_taken_when_it_is_made(path: Path) -> None:
    Table.create(path, 1_000).close()
    found = path.stat()
    assert found.st_blocks * 512 >= found.st_size


def test_a_table_that_cannot_be_made_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tables, "_reserve", full)
    with pytest.raises(OSError, match="No space"):
        Table.create(path, 1)
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"WLT1", b"x" * 118, b"WLT1\x01\x00\x00\x00" + b"\0" * 55])
def test_what_is_not_a_table_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    descriptors = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    with pytest.raises(StoreError, match="is not a table"):
        Table.open(path)
    if descriptors:
        assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_a_link_is_not_followed(path: Path) -> None:
    Table.create(path, 1).close()
    link = path.with_name("link")
    link.symlink_to(path)
    with pytest.raises(OSError, match="symbolic"):
        Table.open(link)


def test_each_session_has_a_place_of_its_own() -> None:
    assert table_path("a") != table_path("b")
    assert table_path("a").parent.is_dir()


def test_two_threads_of_a_child_wait_for_the_same_decision(tmp_path: Path) -> None:
    """The rows of a decision: one was taken, the other not; a thread that comes later finds the lock free."""
    child = Table.create(tmp_path / "table", 4)
    supervisor = Table.open(tmp_path / "table")
    for slot in range(2):
        child.file(slot, f"{slot:036d}", slot + 1)
    first, second = supervisor.waiting()
    assert supervisor.take_back([first]) == [first]
    assert not child.start(0)
    assert child.start(1)
    assert supervisor.take_back([second]) == []
    assert [entry.slot for entry in supervisor.started()] == [1]
    supervisor.close()
    child.remove()


def test_a_row_that_is_used_anew_during_a_decision_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = Table.create(tmp_path / "table", 1)
    supervisor = Table.open(tmp_path / "table")
    old, new = f"{1:036d}", f"{2:036d}"

    def meanwhile(_seconds: float) -> None:
        child.clear(0)
        child.file(0, new, 2)

    child.file(0, old, 1)
    found = supervisor.waiting()
    monkeypatch.setattr(tables, "time", SimpleNamespace(sleep=meanwhile))
    assert supervisor.take_back(found) == []
    assert [entry.job for entry in supervisor.waiting()] == [new]
    assert child.start(0)
    supervisor.close()
    child.remove()


def test_a_table_that_is_beaten_is_never_stale(tmp_path: Path) -> None:
    """However old its file is: it may belong to a worker that has run for months."""
    kept, left = (Table.create(tmp_path / f"windlass-{name}", 1) for name in ("kept", "left"))
    for each in (kept, left):
        os.utime(each.path, (0, 0))
    kept.heartbeat_answered(1.0, 25.0)
    assert tables.remove_stale(tmp_path, 86_400) == 1
    assert (kept.path.exists(), left.path.exists()) == (True, False)
    kept.remove()
    left.remove()

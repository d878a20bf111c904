"""A fork closes every SQLite connection of the process; where it cannot, the child is refused."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker.sqlite.blocking import run
from tests.broker.sqlite.children import QUEUE, new_job

from windlass.broker.sqlite import SqliteBroker
from windlass.broker.sqlite.library import library
from windlass.errors import StoreError
from windlass.observe.history.attempt import Batch, Slots
from windlass.observe.history.sink import Window, open_sink

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def in_child(work: Callable[[], object]) -> str:
    """What became of it in a child: its answer, or its error."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = str(work())
        except BaseException as error:  # noqa: BLE001 - told to the parent
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said


@pytest.fixture
def broker(tmp_path: Path) -> SqliteBroker:
    made = SqliteBroker(tmp_path / "windlass.db")
    asyncio.run(made.declare([QUEUE]))
    return made


def enqueue(broker: SqliteBroker) -> str:
    return broker.blocking.enqueue([[new_job()]])[0][0].job


def opened(path: Path) -> int:
    """How many descriptors of a file, its log and its shared memory this process has."""
    files = {Path(f"{path}{suffix}") for suffix in ("", "-wal", "-shm")}
    found = 0
    for descriptor in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):
            found += descriptor.readlink() in files
    return found


def test_nothing_is_open_across_a_fork(broker: SqliteBroker) -> None:
    path = broker._path
    enqueue(broker)
    run(broker).counts()
    assert opened(path) > 0
    assert in_child(lambda: opened(path)) == "0"
    assert run(broker).counts().rows[0].count == 1
    enqueue(broker)
    assert run(broker).counts().rows[0].count == 2
    run(broker).close()


def test_who_listens_hears_of_commits_after_a_fork(broker: SqliteBroker) -> None:
    heard = threading.Event()
    job = enqueue(broker)

    def watch() -> None:
        run(broker).watch([job], 30)
        heard.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert in_child(lambda: enqueue(broker))
    other = SqliteBroker(broker._path)
    run(other).purge("q", run(other).get([job])[0].state, 10)
    run(other).close()
    watcher.join(30)
    assert heard.is_set()
    run(broker).close()


def test_descriptors_that_other_files_got_after_a_fork_say_nothing_of_the_log(
    broker: SqliteBroker, tmp_path: Path
) -> None:
    job = enqueue(broker)
    assert in_child(lambda: "forked") == "forked"
    other = tmp_path / "other"
    other.write_bytes(bytes(range(1, 65)))  # read as an index, it speaks of a log that is far longer
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(other.open("rb"))
        assert run(broker).get([job])[0] is not None
        assert not run(broker).watch([job], 0)
    enqueue(broker)
    run(broker).close()


def test_a_child_forked_in_the_middle_of_a_call_is_refused(
    broker: SqliteBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "_patience", 0.01)
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with library:
            inside.set()
            leave.wait(30)

    worker = threading.Thread(target=stay)
    worker.start()
    assert inside.wait(10)
    said = in_child(lambda: in_child(lambda: enqueue(broker)))  # a child of it is no better off
    leave.set()
    worker.join(10)
    assert said.startswith(f"{StoreError.__name__}: this process was forked while another thread")
    assert "spawn" in said
    enqueue(broker)
    assert "Error" not in in_child(lambda: enqueue(broker))
    run(broker).close()


def test_a_process_that_was_never_told_of_its_fork_is_refused(
    broker: SqliteBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(library, "_pid", 1)
        for use in (lambda: enqueue(broker), run(broker).counts, lambda: SqliteBroker(broker._path)):
            with pytest.raises(StoreError, match="without Python's fork hooks"):
                use()
    enqueue(broker)
    run(broker).close()


def test_history_goes_on_after_a_fork(tmp_path: Path) -> None:
    async def main() -> None:
        sink = await open_sink(f"sqlite:///{tmp_path / 'history.db'}")
        assert await sink.turn("s", "r", 1.0, 2.0) is not None
        fork = asyncio.to_thread(in_child, lambda: opened(tmp_path / "history.db"))
        assert await fork == "0"
        await sink.write("s", "r", Batch(slots=[Slots(at=1, host="a", processes=1, slots=2, leases=1)]), "c")
        assert await sink.used("s", Window(since=0, until=10))
        await sink.close()

    asyncio.run(main())

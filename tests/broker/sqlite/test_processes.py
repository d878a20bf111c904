"""Many processes on one file: nobody is locked out, nobody starves, and who is killed takes nothing along."""

import os
import random
import signal
import threading
from contextlib import ExitStack
from pathlib import Path

import apsw
import pytest
from tests.broker.sqlite.blocking import run
from tests.broker.sqlite.children import QUEUE, new_job
from tests.broker.sqlite.files import new_file
from tests.broker.sqlite.processes import child, line_of

from windlass.broker.sqlite import SqliteBroker
from windlass.core.job import Status
from windlass.core.query import JobQuery
from windlass.core.state import State
from windlass.errors import StoreUnavailable


def _declared(where: Path) -> SqliteBroker:
    broker = SqliteBroker(new_file(where))
    run(broker).declare([QUEUE])
    return broker


def test_eight_writers_are_served_fairly(tmp_path: Path) -> None:
    broker = _declared(tmp_path)
    with ExitStack() as stack:
        writers = [stack.enter_context(child("enqueue", broker.store.path, 40, 1)) for _ in range(8)]
        outputs = [writer.communicate()[0] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 8
    assert [sum(line.startswith("!") for line in output.splitlines()) for output in outputs] == [40] * 8
    assert sum(row.count for row in run(broker).counts().rows) == 320
    run(broker).close()


@pytest.mark.parametrize(("group", "writers"), [(1, 3), (50, 3)])
def test_killed_writers_lose_nothing_that_was_accepted(tmp_path: Path, group: int, writers: int) -> None:
    broker = _declared(tmp_path)
    draw = random.Random(group)
    accepted: set[str] = set()
    groups: list[list[str]] = []
    with ExitStack() as stack:
        for _ in range(writers):
            process = stack.enter_context(child("enqueue", broker.store.path, 100_000, group))
            for _ in range(draw.randrange(10, 30)):
                word, *jobs = line_of(process).split()
                if word == "!":
                    accepted.update(jobs)
            process.send_signal(signal.SIGKILL)
            rest, _ = process.communicate()
            for line in rest.splitlines():
                word, *jobs = line.split() or [""]
                groups += [jobs] if word == "?" and len(jobs) == group else []
                accepted.update(jobs if word == "!" and len(jobs) == group else ())
    found = {view.id for view in _listed(broker)}
    assert accepted <= found
    for jobs in groups:
        assert len(found & set(jobs)) in (0, group), "a group is whole or not there"
    path = broker.store.path
    run(broker).close()
    assert apsw.Connection(str(path)).execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def _listed(broker: SqliteBroker) -> list[object]:
    page = run(broker).list(JobQuery(), limit=1_000)
    found = list(page.jobs)
    while page.cursor is not None:
        page = run(broker).list(JobQuery(), page.cursor, 1_000)
        found += page.jobs
    return found


def test_a_verb_that_waits_too_long_names_the_holder(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    broker = SqliteBroker(path, lock_timeout=0.2)
    with child("hold", path) as holder:
        assert line_of(holder) == "! held"
        with pytest.raises(StoreUnavailable, match=rf"process {holder.pid} writes"):
            run(broker).declare([QUEUE])
        assert run(broker).counts().rows == (), "readers do not wait"
        holder.kill()
        holder.wait()
        run(broker).declare([QUEUE])  # its death has freed the lock
    run(broker).close()


def test_who_waits_gets_the_lock_when_it_is_free(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    broker = SqliteBroker(path)
    answers: list[object] = []
    with child("hold", path) as holder:
        assert line_of(holder) == "! held"
        waiting = threading.Thread(target=lambda: answers.extend(run(broker).declare([QUEUE])))
        waiting.start()
        holder.kill()
        waiting.join(10)
    assert len(answers) == 1
    run(broker).close()


def test_two_processes_open_a_new_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    with child("open", path) as one, child("open", path) as other:
        assert line_of(one) == line_of(other) == "! ready"
        for process in (one, other):
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert line_of(one) == line_of(other) == "! opened"
    run(SqliteBroker(path)).close()


def test_a_forked_child_opens_its_own(tmp_path: Path) -> None:
    broker = _declared(tmp_path)
    broker.blocking.enqueue([[new_job("parent")]])
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            receipts = broker.blocking.enqueue([[new_job("child")]])
            status = 0 if receipts[0][0].status is Status.CREATED else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    broker.blocking.enqueue([[new_job("parent")]])
    counts = {row.task: row.count for row in run(broker).counts().rows if row.state is State.READY}
    assert counts == {"parent": 2, "child": 1}
    run(broker).close()


def test_a_child_does_not_keep_the_lock_of_a_parent_that_died(tmp_path: Path) -> None:
    """`flock` belongs to the open file, which a fork shares."""
    broker = _declared(tmp_path)
    read, write = os.pipe()
    middle = os.fork()
    if middle == 0:
        broker.store.lock.acquire()
        if os.fork() == 0:
            os.close(write)
            os.read(read, 1)  # lives on until the test has written
            os._exit(0)
        os._exit(0)  # dies with the lock
    os.waitpid(middle, 0)
    broker.blocking.enqueue([[new_job()]])
    os.write(write, b"x")
    os.close(read)
    os.close(write)
    run(broker).close()

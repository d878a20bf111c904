"""Tasks that harm their own process: it is replaced, they are charged, others go on, a stop ends in time."""

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.postgres.servers import Server, programs
from tests.broker.redis.servers import redis_binary, running
from tests.worker.blackbox.bb_rude_tasks import PAGE
from tests.worker.blackbox.conftest import QUICK
from tests.worker.blackbox.fleet import Fleet, eventually, fleet_in, measured

from windlass import Windlass
from windlass.core.job import JobDetail
from windlass.core.state import State
from windlass.errors import JobFailed

APP = "tests.worker.blackbox.bb_rude_tasks:app"
OTHERS = ("well", "awell", "well_apart")
TASKS = (
    *("does", "adoes", "does_apart", "stays", "stays_apart"),
    *("forks", "aforks", "forks_apart", "forks_and_dies_apart", "late_apart", *OTHERS),
)


def _build(url: str) -> Windlass:
    made = Windlass(url, name="rude")
    for name in TASKS:
        made.external(name, max_attempts=2)
    return made


@pytest.fixture
def lair(tmp_path: Path) -> Iterator[Fleet]:
    with fleet_in(tmp_path, _build, **QUICK) as made:
        made.start("processes=1, concurrency=4", app=APP)
        yield made


@pytest.fixture(params=["redis", "postgres"])
def remote(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """The same on a server."""
    if request.param == "redis":
        with running(redis_binary()) as redis, fleet_in(tmp_path, _build, url=redis.url, **QUICK) as made:
            made.start("processes=1, concurrency=4", app=APP)
            yield made
        return
    server = Server(programs())
    try:
        with fleet_in(tmp_path, _build, url=server.dsn, **QUICK) as made:
            made.start("processes=1, concurrency=4", app=APP)
            yield made
    finally:
        server.remove()


def _others_go_on(fleet: Fleet) -> None:
    """Whichever process takes them."""
    for name in OTHERS:
        assert fleet.app.tasks[name].enqueue().result(timeout=60)


def _stops_in_time(fleet: Fleet) -> None:
    worker = fleet.supervisors[0]
    began = time.monotonic()
    assert worker.stop() == 0
    measured(f"stopped within {time.monotonic() - began:.2f} s")
    assert not worker.said("outlasted its grace"), worker.log.read_text()


def _ends(fleet: Fleet, task: str, what: str) -> None:
    """Done or dead, but not running for ever."""
    job = fleet.app.tasks[task].enqueue(what)
    eventually("it ends", lambda: fleet.detail(job.id).state in (State.DONE, State.DEAD), hint=fleet.trouble)


def _is_charged(fleet: Fleet, task: str, what: str) -> JobDetail:
    """Two runs, both charged; each has cost its process."""
    job = fleet.app.tasks[task].enqueue(what)
    with pytest.raises(JobFailed):
        job.result(timeout=40)
    detail = fleet.detail(job.id)
    assert (detail.state, detail.attempt) == (State.DEAD, 2), fleet.trouble()
    assert len({run.pid for run in fleet.ledger.of(job.id)}) == 2
    return detail


slow = pytest.mark.slow


@pytest.mark.parametrize(
    "task",
    [
        "does",
        "adoes",
        pytest.param("does_apart", marks=slow),
        pytest.param("stays", marks=slow),
        "stays_apart",
    ],
)
def test_task_that_closes_everything_is_charged(lair: Fleet, task: str) -> None:
    detail = _is_charged(lair, task, "closes_all")
    measured(f"{task}: {detail.error}")
    _others_go_on(lair)
    _stops_in_time(lair)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["does", "adoes"])
@pytest.mark.parametrize(
    "what", ["closes_sockets", "closes_selectors", *(f"closes_pair_{number}" for number in range(5))]
)
def test_task_that_closes_what_its_process_lives_by_is_charged(lair: Fleet, task: str, what: str) -> None:
    _is_charged(lair, task, what)
    _others_go_on(lair)
    _stops_in_time(lair)


@pytest.mark.parametrize(
    "what",
    [pytest.param("closes_all_and_opens_files", marks=slow), "closes_the_database_and_opens_files"],
)
def test_files_of_a_task_that_got_the_numbers_of_the_store_are_not_written_to(lair: Fleet, what: str) -> None:
    _is_charged(lair, "does", what)
    files = list(lair.folder.glob("mine-*/*"))
    assert files
    assert all(PAGE.startswith(file.read_bytes()) for file in files), "written to by somebody else"
    _others_go_on(lair)
    _stops_in_time(lair)
    lair.app.close()  # the second SQLite of this process drops the locks of the first when it closes the file
    with contextlib.closing(sqlite3.connect(lair.folder / "windlass.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["closes_the_store", "closes_pipes"])
def test_task_that_closes_the_files_of_the_store(lair: Fleet, what: str) -> None:
    """Those by which workers wake each other are opened anew."""
    _ends(lair, "does", what)
    _others_go_on(lair)
    _stops_in_time(lair)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["does", "adoes"])
@pytest.mark.parametrize("what", ["closes_all", "closes_sockets", "closes_the_store"])
def test_task_that_closes_connections_to_a_server(remote: Fleet, task: str, what: str) -> None:
    """Those to the server alone can be made anew."""
    if what == "closes_the_store":
        _ends(remote, task, what)
    else:
        _is_charged(remote, task, what)
    _others_go_on(remote)
    _stops_in_time(remote)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["lowers_the_limit_of_files", "lowers_the_recursion_limit"])
def test_task_that_leaves_its_process_no_room(lair: Fleet, what: str) -> None:
    _ends(lair, "does", what)
    _others_go_on(lair)
    _stops_in_time(lair)


HARMLESS = (
    "ignores_signals",
    "blocks_signals",
    "leaves_the_session",
    "removes_the_folder",
    "sets_a_timeout_for_sockets",
    "takes_the_loop_over",
    "fills_the_executor",
    "leaves_threads",
)


@pytest.mark.parametrize(
    "acts",
    [pytest.param(HARMLESS, id="all"), *(pytest.param((act,), marks=slow, id=act) for act in HARMLESS)],
)
def test_rude_task_harms_nobody_else(lair: Fleet, acts: tuple[str, ...]) -> None:
    """All of it in the loop's thread, where most is allowed. A process for a job is started after it."""
    for act in acts:
        assert lair.app.tasks["adoes"].enqueue(act).result(timeout=40)
    _others_go_on(lair)
    first, second = (lair.app.tasks["well_apart"].enqueue().result(timeout=40) for _ in range(2))
    assert first == second, "a process of a job is kept for the next"
    late = lair.app.tasks["late_apart"].using(max_attempts=1).enqueue(20.0)
    with pytest.raises(JobFailed, match="timeout"):
        late.result(timeout=40)
    assert len(lair.ledger.of(late.id)) == 1
    _stops_in_time(lair)


def test_rude_task_in_a_process_harms_no_later_job_there(lair: Fleet) -> None:
    for act in ("ignores_signals", "blocks_signals", "leaves_threads", "sets_a_timeout_for_sockets"):
        assert lair.app.tasks["does_apart"].enqueue(act).result(timeout=40)
    late = lair.app.tasks["late_apart"].using(max_attempts=1).enqueue(20.0)
    with pytest.raises(JobFailed, match="timeout"):
        late.result(timeout=40)
    _others_go_on(lair)
    _stops_in_time(lair)


@pytest.mark.parametrize(
    ("task", "args"),
    [
        ("forks", ()),
        pytest.param("aforks", (False,), marks=slow),
        ("aforks", (True,)),
        ("forks_apart", ()),
    ],
)
def test_fork_of_a_task_neither_settles_nor_runs_anything(
    lair: Fleet, task: str, args: tuple[bool, ...]
) -> None:
    """It ends where its parent's task ends."""
    app = lair.app
    job, *others = app.enqueue_many(
        [app.tasks[task].call(*args), *(app.tasks[name].call() for name in OTHERS for _ in range(20))]
    )
    assert job.result(timeout=40)
    for other in others:
        other.result(timeout=40)
    _others_go_on(lair)
    (twin,) = eventually("it has forked", lambda: lair.ledger.said("twin"), hint=lair.trouble)
    eventually("the twin ends", lambda: not Path(f"/proc/{twin['pid']}").exists() or _is_zombie(twin["pid"]))
    detail = lair.detail(job.id)
    assert (detail.state, detail.attempt, detail.crashes) == (State.DONE, 1, 0)
    ran = [run for run in lair.ledger.runs if run.job != job.id]
    assert len(ran) == len({run.job for run in ran}), "the twin has run jobs"
    assert all(run.pid != twin["pid"] for run in ran)
    _stops_in_time(lair)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_process_that_dies_while_its_fork_lives_is_seen(lair: Fleet) -> None:
    job = lair.app.tasks["forks_and_dies_apart"].enqueue()
    with pytest.raises(JobFailed):
        job.result(timeout=25)
    assert lair.detail(job.id).attempt == 2
    for twin in lair.ledger.said("twin"):
        os.kill(twin["pid"], 9)
    _others_go_on(lair)
    _stops_in_time(lair)

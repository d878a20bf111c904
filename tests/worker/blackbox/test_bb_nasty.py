"""Tasks that do what no task should do: the worker survives, and says what happened."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.worker.blackbox.checker import Checker
from tests.worker.blackbox.conftest import QUICK
from tests.worker.blackbox.fleet import Fleet, Supervisor, eventually, fleet_in, measured, send

from windlass import Windlass
from windlass.core.state import State
from windlass.errors import JobFailed

pytestmark = pytest.mark.slow
APP = "tests.worker.blackbox.bb_nasty:app"


def _build(url: str) -> Windlass:
    """As seen from another program: how often a job is tried is the caller's word."""
    made = Windlass(url, name="nasty")
    for name in ONCE:
        made.external(name, max_attempts=1)
    for name in THRICE:
        made.external(name, max_attempts=3)
    return made


ONCE = (
    "raises",
    "araises",
    "big_result",
    "leaves_tasks_behind",
    "leaves_a_thread_behind",
    "enqueues",
    "aenqueues",
    "leaves_a_process_behind",
    "forks",
    "uses_multiprocessing",
    "changes_directory",
    "takes_signals",
    "closes_output",
    "floods",
    "waits_for_another",
    "apart_from_here",
)
THRICE = ("stops_the_loop", "cancels_everything", "child")


@pytest.fixture(scope="module")
def den(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One worker for all tests that leave it alive."""
    with fleet_in(tmp_path_factory.mktemp("den"), _build, **QUICK) as made:
        made.start("processes=1, concurrency=4", app=APP)
        yield made


@pytest.fixture
def lair(tmp_path: Path) -> Iterator[Fleet]:
    """A worker that may suffer."""
    with fleet_in(tmp_path, _build, **QUICK) as made:
        made.start("processes=1, concurrency=4", app=APP)
        yield made


def _is_well(fleet: Fleet) -> None:
    assert fleet.app.tasks["child"].enqueue().result(timeout=60)


@pytest.mark.parametrize(
    "what",
    [
        "huge",
        "surrogate",
        "unspeakable",
        "base",
        "generator exit",
        "recursion",
        "group",
        "chain",
        "stop iteration",
        "memory",
    ],
)
def test_whatever_is_raised_is_an_error_with_a_type(den: Fleet, what: str) -> None:
    children = den.supervisors[0].children
    job = den.app.tasks["raises"].enqueue(what)
    with pytest.raises(JobFailed):
        job.result(timeout=60)
    detail = den.detail(job.id)
    assert (detail.state, detail.crashes) == (State.DEAD, 0)
    assert detail.error is not None
    assert detail.error.type
    assert len(detail.error.message) <= 2_000
    assert len(detail.error.traceback) <= 20_000
    assert den.supervisors[0].children == children


@pytest.mark.parametrize("what", ["unspeakable", "base", "generator exit", "stop iteration"])
def test_whatever_is_raised_in_the_loop_is_an_error(den: Fleet, what: str) -> None:
    children = den.supervisors[0].children
    job = den.app.tasks["araises"].enqueue(what)
    with pytest.raises(JobFailed):
        job.result(timeout=60)
    assert (den.detail(job.id).state, den.detail(job.id).crashes) == (State.DEAD, 0)
    assert den.supervisors[0].children == children


def test_result_that_is_too_large_is_dead_with_the_limit(den: Fleet) -> None:
    job = den.app.tasks["big_result"].enqueue(2_000_000)
    with pytest.raises(JobFailed, match=r"1,048,576|1 MiB|1048576"):
        job.result(timeout=60)
    assert len(den.app.tasks["big_result"].enqueue(1_000_000).result(timeout=60)) == 1_000_000


def test_many_large_results_at_once(den: Fleet) -> None:
    jobs = den.app.enqueue_many(den.app.tasks["big_result"].call(900_000) for _ in range(30))
    assert {len(job.result(timeout=60)) for job in jobs} == {900_000}


def test_flood_of_progress_and_logs(den: Fleet) -> None:
    began = time.monotonic()
    job = den.app.tasks["floods"].enqueue(20_000)
    job.result(timeout=60)
    measured(f"20,000 progress and log calls within {time.monotonic() - began:.2f} s")
    detail = den.detail(job.id)
    assert detail.logs[-1] == "line 19999"
    assert len(detail.logs) == 100


def test_tasks_enqueue_and_wait_for_others(den: Fleet) -> None:
    tasks = den.app.tasks
    for name in ("enqueues", "aenqueues"):
        ids = tasks[name].enqueue(20).result(timeout=60)
        for one in ids:
            den.app.job(one).result(timeout=60)
    assert tasks["waits_for_another"].enqueue().result(timeout=60)


def test_what_a_task_leaves_running_harms_nobody(den: Fleet) -> None:
    assert den.app.tasks["leaves_tasks_behind"].enqueue().result(timeout=60)
    _is_well(den)


def test_multiprocessing_in_a_task(den: Fleet) -> None:
    assert den.app.tasks["uses_multiprocessing"].enqueue().result(timeout=60) == [n * n for n in range(10)]
    _is_well(den)


def test_changed_directory_does_not_matter(lair: Fleet) -> None:
    assert lair.app.tasks["changes_directory"].enqueue().result(timeout=60) == "/"
    assert lair.app.tasks["apart_from_here"].enqueue().result(timeout=60)
    _is_well(lair)


def test_closed_output_does_not_matter(lair: Fleet) -> None:
    assert lair.app.tasks["closes_output"].enqueue().result(timeout=60)
    _is_well(lair)
    assert lair.supervisors[0].stop() == 0


def test_child_that_is_told_to_end_by_others_is_replaced(lair: Fleet) -> None:
    """SIGTERM to a child: it drains, nobody is charged, another takes its place."""
    first = lair.supervisors[0].children
    job = lair.app.tasks["takes_signals"].enqueue()
    assert job.result(timeout=60)
    _is_well(lair)
    eventually("replaced", lambda: (now := lair.supervisors[0].children) and now != first, hint=lair.trouble)
    detail = lair.detail(job.id)
    assert (detail.attempt, detail.crashes, len(lair.ledger.of(job.id))) == (1, 0, 1)


@pytest.mark.parametrize("name", ["stops_the_loop", "cancels_everything"])
def test_task_that_ends_the_loop_is_charged(lair: Fleet, name: str) -> None:
    """It ends its process, as a crash or as an error of its own: dead after its attempts, others go on."""
    job = lair.app.tasks[name].enqueue()
    others = lair.app.enqueue_many(lair.app.tasks["child"].call() for _ in range(20))
    with pytest.raises(JobFailed):
        job.result(timeout=40)
    for other in others:
        other.result(timeout=60)
    detail = lair.detail(job.id)
    assert (detail.state, detail.attempt) == (State.DEAD, 3)
    jobs = {job.id: detail, **lair.details([other.id for other in others])}
    Checker(lair.ledger, jobs, may_die=frozenset([job.id])).check()


def test_thread_left_behind_does_not_keep_the_worker(lair: Fleet) -> None:
    assert lair.app.tasks["leaves_a_thread_behind"].enqueue().result(timeout=60)
    began = time.monotonic()
    assert lair.supervisors[0].stop() == 0
    took = time.monotonic() - began
    measured(f"stopped within {took:.2f} s although a thread goes on")
    assert took < 4


@pytest.mark.parametrize("name", ["leaves_a_process_behind", "forks"])
def test_process_left_behind_does_not_hide_a_death(lair: Fleet, name: str) -> None:
    """It holds what it inherited; the child's own death is seen all the same, at once."""
    worker = lair.supervisors[0]
    left = lair.app.tasks[name].enqueue().result(timeout=60)
    try:
        (child,) = worker.children
        os.kill(child, signal.SIGKILL)
        began = time.monotonic()
        eventually("replaced", lambda: [pid for pid in worker.children if pid != child], hint=lair.trouble)
        _is_well(lair)
        measured(f"well again {time.monotonic() - began:.2f} s after the child's death")
    finally:
        send(left, signal.SIGKILL)


def test_supervisor_dies_while_a_fork_of_its_child_lives(lair: Fleet) -> None:
    """The child still learns of it, and ends."""
    worker = lair.supervisors[0]
    left = lair.app.tasks["forks"].enqueue().result(timeout=60)
    (child,) = worker.children
    worker.process.kill()
    worker.process.wait()
    try:
        eventually("the child ends", lambda: not _is_alive(child), hint=lair.trouble)
        second: Supervisor = lair.start("processes=1", app=APP)
        _is_well(lair)
        assert second.stop() == 0
    finally:
        send(left, signal.SIGKILL)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

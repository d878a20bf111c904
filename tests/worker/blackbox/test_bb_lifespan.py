"""A lifespan in real processes: entered once in each before its first job, left when it stops."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker.blackbox.fleet import Fleet, eventually, fleet_in

from windlass import Windlass
from windlass.core.state import State

APP = "tests.worker.blackbox.bb_lifespan:app"
QUICK = {"WINDLASS_SESSION_TTL": "3s", "WINDLASS_BEAT": "0.5s", "WINDLASS_GRACE": "5s"}


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    paths = {"BB_TOLD": str(tmp_path / "told"), "BB_DOOR": str(tmp_path / "door")}
    for name, value in paths.items():
        monkeypatch.setenv(name, value)

    def build(url: str) -> Windlass:
        from tests.worker.blackbox import bb_lifespan  # noqa: PLC0415 - it reads the environment

        return bb_lifespan.build(url)

    with fleet_in(tmp_path, build, **QUICK, **paths) as made:
        yield made


def words(fleet: Fleet) -> list[tuple[str, int]]:
    from tests.worker.blackbox.bb_lifespan import told  # noqa: PLC0415

    return [(each["what"], each["pid"]) for each in told(fleet.folder / "told")]


def of_each(fleet: Fleet) -> dict[int, list[str]]:
    """What each process told."""
    found: dict[int, list[str]] = {}
    for what, pid in words(fleet):
        found.setdefault(pid, []).append(what)
    return found


def sent(fleet: Fleet, *names: str) -> dict[str, Any]:
    return {name: fleet.app.tasks[name].enqueue() for name in names}


WHOLE = ["entered", "started", "stopped", "left"]


def test_each_process_enters_it_once_and_leaves_it(fleet: Fleet) -> None:
    worker = fleet.start("processes=2, concurrency=4", app=APP)
    names = ("in_loop", "in_process_loop", "in_thread", "in_process", "inline")
    rounds = [sent(fleet, *names) for _ in range(3)]
    fleet.finished()
    for jobs in rounds:
        results = {name: job.result(timeout=10) for name, job in jobs.items()}
        assert all(result["ours"] and result["tenant"] == "acme" for result in results.values()), results
        assert [name for name in names if results[name]["loop"]] == ["in_loop", "in_process_loop", "inline"]
        assert results["in_process"]["main"], "the function of a job's own process has its main thread"
        assert results["in_process"]["given"]["loop"], "and what it depends on has the loop"
    assert worker.stop() == 0
    processes = of_each(fleet)
    assert len(processes) >= 3, "two children, and a process of theirs"
    assert all(told == WHOLE for told in processes.values()), (processes, fleet.trouble())


def test_middleware_is_around_jobs_wherever_they_run(fleet: Fleet) -> None:
    worker = fleet.start("processes=1, concurrency=4", app=APP, BB_MIDDLEWARE="1")
    jobs = sent(fleet, "in_loop", "in_process_loop", "in_thread", "in_process", "inline")
    late = fleet.app.tasks["hangs"].enqueue()
    fleet.finished()
    for name, job in jobs.items():
        result = job.result(timeout=10)
        assert result["around"]["loop"], name
        assert result["value"]["loop"] is (name in ("in_loop", "in_process_loop", "inline")), name
        assert result["value"]["tenant"] == result["around"]["tenant"] == "acme"
    assert result_of(fleet, late.id) == (State.DEAD, "windlass.worker.failure.RunTimedOut")
    assert "late" in [what for what, _ in words(fleet)]
    assert worker.stop() == 0


def result_of(fleet: Fleet, job: str) -> tuple[State, str]:
    detail = fleet.detail(job)
    assert detail.error is not None
    return detail.state, detail.error.type


@pytest.mark.slow
def test_the_child_that_runs_suspects_has_one_of_its_own(fleet: Fleet) -> None:
    fleet.start("processes=1, concurrency=4", app=APP)
    job = fleet.app.tasks["poison"].enqueue()
    fleet.finished()
    assert fleet.detail(job.id).state is State.DEAD
    ran = [pid for what, pid in words(fleet) if what == "poison"]
    assert len(set(ran)) == 3
    assert all(of_each(fleet)[pid][:2] == ["entered", "started"] for pid in ran), of_each(fleet)


@pytest.mark.parametrize("middleware", [True, False])
def test_a_copy_that_a_task_forks_ends_with_its_function(fleet: Fleet, *, middleware: bool) -> None:
    """What is around the task happens once, in the process that has the job."""
    more = {"BB_MIDDLEWARE": "1"} if middleware else {}
    worker = fleet.start("processes=1, concurrency=1", app=APP, **more)
    jobs = sent(fleet, "forks", "aforks", "forks_apart")
    fleet.finished()
    results = [job.result(timeout=10) for job in jobs.values()]
    assert [each["value"] for each in results] == [1, 1, 1] if middleware else results == [1, 1, 1]
    assert worker.stop() == 0
    counted = Counter(what for what, _ in words(fleet))
    assert counted["given back"] == 3
    assert counted["ran"] == (3 if middleware else 0)
    assert fleet.trouble().count("has forked, and came back in the copy") == 3


def test_a_worker_waits_for_what_its_lifespan_needs(fleet: Fleet) -> None:
    """It is tried again, ever more seldom; no job is charged, and the log says why, without the password."""
    door = fleet.folder / "door"
    door.touch()
    job = fleet.app.tasks["in_loop"].enqueue()
    worker = fleet.start("processes=1, concurrency=4", app=APP, wait=False)
    eventually(
        "three tries", lambda: Counter(dict.fromkeys(words(fleet), 1)).total() >= 3, hint=fleet.trouble
    )
    assert fleet.detail(job.id).attempt == 0
    door.unlink()
    assert job.result(timeout=60)["ours"]
    log = worker.log.read_text()
    assert fleet.detail(job.id).attempt == 1
    assert (
        "the lifespan cannot be entered: ConnectionRefusedError: no database at postgresql://[secret]@db"
        in log
    )
    assert "bb_lifespan.py, line " in log
    assert "a child has failed; the next starts in 0.5 s" in log
    assert "hunter22" not in log
    assert worker.stop() == 0


def test_a_job_is_held_while_its_own_process_cannot_enter_it(fleet: Fleet) -> None:
    door = fleet.folder / "door"
    door.touch()
    fleet.start("processes=1, concurrency=2", app=APP, BB_APART="1")
    job = fleet.app.tasks["in_process"].enqueue()

    def held() -> str:
        found = fleet.detail(job.id).held
        return "" if found is None else found.reason

    why = eventually("it is held", held, hint=fleet.trouble)
    assert (
        "the lifespan cannot be entered: ConnectionRefusedError: no database at postgresql://[secret]@db"
        in why
    )
    assert fleet.detail(job.id).attempt == 0
    door.unlink()
    assert job.result(timeout=60)["ours"]
    assert fleet.detail(job.id).attempt == 1


def test_many_jobs_whose_processes_cannot_begin_start_few(fleet: Fleet) -> None:
    door = fleet.folder / "door"
    door.touch()
    worker = fleet.start("processes=1, concurrency=4", app=APP, BB_APART="1")
    jobs = [fleet.app.tasks["in_process"].enqueue() for _ in range(60)]

    def held_again() -> bool:
        found = [fleet.detail(job.id).held for job in jobs]
        return all(each is not None and each.times >= 2 for each in found)

    eventually("all are held, and held again", held_again, hint=fleet.trouble)
    refused = [what for what, _ in words(fleet)].count("refused")
    assert 1 <= refused <= 4 + 10, "four at once, and tries that get more seldom"
    assert "process:in_process" in {found.key for job in jobs if (found := fleet.detail(job.id).held)}
    door.unlink()
    assert all(job.result(timeout=60)["ours"] for job in jobs)
    assert {fleet.detail(job.id).attempt for job in jobs} == {1}
    assert worker.stop() == 0


def test_a_background_task_that_fails_charges_no_job(fleet: Fleet) -> None:
    worker = fleet.start("processes=1, concurrency=2, grace=1", app=APP, BB_CONSUMES="1")
    job = fleet.app.tasks["harm"].enqueue()
    assert job.result(timeout=60) > 0
    detail = fleet.detail(job.id)
    assert (detail.attempt, detail.crashes) == (1, 0)
    log = worker.log.read_text()
    assert (
        "the lifespan has ended before its process: ConnectionResetError: no broker at amqp://[secret]@mq"
        in log
    )
    assert "in consume" in log
    assert "hunter22" not in log
    assert "a child has failed; the next starts in 0.5 s" in log
    assert worker.stop() == 0


def test_a_process_of_a_job_ends_with_its_lifespan(fleet: Fleet) -> None:
    worker = fleet.start("processes=1, concurrency=1", app=APP, BB_CONSUMES="1", BB_APART="1")
    first = fleet.app.tasks["harm_apart"].enqueue().result(timeout=30)
    again = fleet.app.tasks["in_process"].enqueue()
    assert again.result(timeout=30)["ours"]
    assert fleet.detail(again.id).attempt == 1
    assert worker.stop() == 0
    assert of_each(fleet)[first] == ["entered", "started", "stopped"]
    assert sum(told == WHOLE for told in of_each(fleet).values()) == 2, "the worker's own, and another's"
    assert "ConnectionResetError: no broker at amqp://[secret]@mq" in fleet.trouble()


def test_a_stop_ends_a_worker_that_cannot_begin(fleet: Fleet) -> None:
    (fleet.folder / "door").touch()
    worker = fleet.start("processes=1", app=APP, wait=False)
    eventually("a try", lambda: words(fleet), hint=fleet.trouble)
    assert worker.stop() == 0


@pytest.mark.slow
def test_leaving_it_is_bounded(fleet: Fleet) -> None:
    worker = fleet.start("processes=1, concurrency=2", app=APP, BB_HANGS="1")
    fleet.app.tasks["in_loop"].enqueue().result(timeout=20)
    assert worker.stop() == 0
    assert [what for what, _ in words(fleet)].count("left") == 1

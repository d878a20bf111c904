"""What tasks say to their worker: retry, snooze, give up, spawn, progress, steps; and where they run."""

import pytest
from tests.worker.blackbox.checker import Checker
from tests.worker.blackbox.fleet import Fleet, eventually

from windlass.core.outcome import Outcome
from windlass.core.state import Reason, State
from windlass.errors import JobFailed


def _outcomes(shop: Fleet, job: str) -> list[Outcome]:
    return [each.outcome for each in shop.detail(job).deliveries]


@pytest.mark.parametrize("what", ["retry", "retry now", "value error", "exit", "interrupt"])
def test_failed_run_is_tried_again(shop: Fleet, what: str) -> None:
    job = shop.app.tasks["says"].enqueue(what)
    assert job.result(timeout=60) == "attempt 2"
    assert _outcomes(shop, job.id) == [Outcome.RETRY, Outcome.DONE]
    assert [run.attempt for run in shop.ledger.of(job.id)] == [1, 2]


def test_retry_after_waits_so_long(shop: Fleet) -> None:
    job = shop.app.tasks["says"].enqueue("retry later")
    assert job.result(timeout=60) == "attempt 2"
    first, second = shop.ledger.of(job.id)
    assert first.end is not None
    assert 0.5 <= second.start - first.end < 2.5


@pytest.mark.parametrize("what", ["retry", "value error", "exit", "interrupt"])
def test_last_attempt_is_dead_with_its_error(shop: Fleet, what: str) -> None:
    job = shop.app.tasks["says"].enqueue(what, 99)
    with pytest.raises(JobFailed):
        job.result(timeout=60)
    detail = shop.detail(job.id)
    assert (detail.state, detail.reason, detail.attempt) == (State.DEAD, Reason.EXHAUSTED, 3)
    assert detail.error is not None
    assert detail.error.type
    assert detail.error.fingerprint
    assert len({each.error.fingerprint for each in detail.deliveries if each.error}) == 1
    assert "bb_app.py" in detail.error.traceback
    assert len(shop.ledger.of(job.id)) == 3


@pytest.mark.parametrize("what", ["exit", "interrupt", "cancelled"])
def test_async_task_cannot_end_its_worker(shop: Fleet, what: str) -> None:
    children = shop.supervisors[0].children
    job = shop.app.tasks["asays"].enqueue(what)
    with pytest.raises(JobFailed):
        job.result(timeout=60)
    assert (shop.detail(job.id).state, len(shop.ledger.of(job.id))) == (State.DEAD, 3)
    assert shop.supervisors[0].children == children


def test_snooze_spends_no_attempt(shop: Fleet) -> None:
    job = shop.app.tasks["says"].using(max_attempts=1).enqueue("snooze", 3)
    assert job.result(timeout=60) == "attempt 1"
    assert _outcomes(shop, job.id) == [Outcome.SNOOZE] * 3 + [Outcome.DONE]


@pytest.mark.parametrize(("task", "what"), [("says", "give up"), ("picky", "key error")])
def test_giving_up_is_dead_at_once(shop: Fleet, task: str, what: str) -> None:
    job = shop.app.tasks[task].enqueue(what)
    with pytest.raises(JobFailed):
        job.result(timeout=60)
    detail = shop.detail(job.id)
    assert (detail.reason, detail.attempt, len(shop.ledger.of(job.id))) == (Reason.GAVE_UP, 1, 1)
    assert detail.error is not None
    assert not detail.error.retryable


def test_other_errors_of_a_picky_task_are_tried_again(shop: Fleet) -> None:
    assert shop.app.tasks["picky"].enqueue("value error").result(timeout=60) == "attempt 2"


def test_result_that_cannot_be_encoded_is_dead_and_not_repeated(shop: Fleet) -> None:
    job = shop.app.tasks["odd_result"].enqueue()
    with pytest.raises(JobFailed):
        job.result(timeout=60)
    assert len(shop.ledger.of(job.id)) == 1
    assert shop.detail(job.id).state is State.DEAD


def test_children_exist_exactly_when_their_parent_is_done(shop: Fleet) -> None:
    good, bad = (shop.app.tasks["spawns"].enqueue(3, fail) for fail in (False, True))
    ids = good.result(timeout=60)
    assert len(ids) == 3
    for child in ids:
        shop.app.job(child).result(timeout=60)
        assert shop.detail(child).parent == good.id
    with pytest.raises(JobFailed):
        bad.result(timeout=60)
    unborn = [child for line in shop.ledger.said("spawned") if line["job"] == bad.id for child in line["ids"]]
    assert len(unborn) == 9
    known = set(shop.listed(task="short"))
    assert not known & set(unborn)
    assert set(ids) <= known


def test_many_children(shop: Fleet) -> None:
    ids = shop.app.tasks["spawns"].enqueue(1_000, False).result(timeout=60)
    assert len(ids) == 1_000
    eventually(
        "all children are done", lambda: all(d.state is State.DONE for d in shop.details(ids).values())
    )


def test_progress_and_log_can_be_read_while_it_runs(shop: Fleet) -> None:
    job = shop.app.tasks["reports"].enqueue()
    eventually(
        "its last words",
        lambda: (
            (detail := shop.detail(job.id)).progress is not None
            and detail.progress.permille == 900
            and detail.logs
        ),
        hint=lambda: str(shop.detail(job.id)),
    )
    detail = shop.detail(job.id)
    assert detail.progress is not None
    assert detail.progress.message == "ninety"
    assert detail.logs == tuple(f"line {number}" for number in range(20, 120)), "the last hundred, in order"
    (shop.folder / "reported").touch()
    job.result(timeout=60)


def test_steps_of_a_process_are_done_once_although_it_dies(shop: Fleet) -> None:
    children = shop.supervisors[0].children
    job = shop.app.tasks["steps_process"].enqueue(True)
    assert job.result(timeout=60) == [1, 2]
    steps = [line["step"] for line in shop.ledger.said("step") if line["job"] == job.id]
    assert steps == ["one", "two"]
    assert shop.supervisors[0].children == children


def test_process_speaks_like_any_other_run(shop: Fleet) -> None:
    tasks = shop.app.tasks
    reports = tasks["reports_process"].enqueue()
    eventually(
        "its last words",
        lambda: (progress := shop.detail(reports.id).progress) is not None and progress.permille == 900,
        hint=lambda: str(shop.detail(reports.id)),
    )
    (shop.folder / "reported").touch()
    reports.result(timeout=60)
    assert shop.detail(reports.id).logs[-1] == "line 119"
    ids = tasks["spawns_process"].enqueue(3, False).result(timeout=60)
    assert [shop.app.job(one).result(timeout=60) > 0 for one in ids] == [True] * 3
    for what in ("retry", "value error", "exit", "interrupt", "snooze"):
        assert tasks["says_process"].enqueue(what).result(timeout=60).startswith("attempt ")
    assert {tasks["leaves_context_process"].enqueue().result(timeout=60) for _ in range(6)} == {"clean"}


def test_child_that_cannot_be_is_a_failure_of_its_parent(shop: Fleet) -> None:
    job = shop.app.tasks["spawns_nowhere"].enqueue()
    with pytest.raises(JobFailed, match="undeclared"):
        job.result(timeout=60)
    assert shop.detail(job.id).attempt == 3


def test_steps_are_done_once_across_a_failure(shop: Fleet) -> None:
    job = shop.app.tasks["asteps"].enqueue(True)
    assert job.result(timeout=60) == [1, 2]
    steps = [line["step"] for line in shop.ledger.said("step") if line["job"] == job.id]
    assert steps == ["one", "two"]


@pytest.mark.slow
def test_steps_are_done_once_across_a_crash(fleet: Fleet) -> None:
    fleet.start("processes=1, concurrency=2")
    job = fleet.app.tasks["steps"].enqueue(True)
    assert job.result(timeout=60) == [1, 2]
    steps = [line["step"] for line in fleet.ledger.said("step") if line["job"] == job.id]
    assert steps == ["one", "two"]
    Checker(fleet.ledger, {job.id: fleet.detail(job.id)}).check()


@pytest.mark.parametrize("kind", ["where", "awhere"])
def test_tasks_run_where_they_are_told_to(shop: Fleet, kind: str) -> None:
    children = set(shop.supervisors[0].children)
    places = {
        run: shop.app.tasks[f"{kind}_{run}"].enqueue().result(timeout=60)
        for run in ("thread", "process", "inline", "loop")
    }
    for run in ("inline", "loop"):
        pid, thread = places[run]
        assert pid in children
        assert thread == pid, "on the main thread, where the loop is"
    pid, thread = places["thread"]
    assert pid in children
    assert thread != pid
    assert places["process"][0] not in children


@pytest.mark.parametrize("task", ["leaves_context", "aleaves_context"])
def test_context_does_not_leak_from_job_to_job(shop: Fleet, task: str) -> None:
    jobs = shop.app.enqueue_many(shop.app.tasks[task].call() for _ in range(40))
    assert {job.result(timeout=60) for job in jobs} == {"clean"}


def test_tiny_and_apart_tasks_are_recorded_like_others(shop: Fleet) -> None:
    jobs = shop.app.enqueue_many(
        [
            *(shop.app.tasks["tiny"].call() for _ in range(100)),
            *(shop.app.tasks["apart"].call() for _ in range(5)),
        ]
    )
    for job in jobs:
        job.result(timeout=60)
    ids = {job.id for job in jobs}
    ledger = shop.ledger
    ledger.runs = [run for run in ledger.runs if run.job in ids]
    Checker(ledger, shop.details(list(ids)), calm=True).check()

"""How a worker divides its slots, and how it replaces its processes."""

from collections import Counter
from pathlib import Path

import pytest
from tests.worker.blackbox.checker import Checker
from tests.worker.blackbox.fleet import Fleet, eventually, measured

pytestmark = pytest.mark.slow


def test_weights_share_the_slots(fleet: Fleet) -> None:
    app = fleet.app
    for queue in ("default", "other", "third"):
        app.enqueue_many(app.tasks["tiny"].using(queue=queue).call() for _ in range(1_000))
    ids = {queue: set(fleet.listed(queue=queue)) for queue in ("default", "other", "third")}
    fleet.start('processes=1, concurrency=4, queues=("default=5", "other=2", "third=1")')
    fleet.finished()
    first = fleet.ledger.runs[:800]
    counts = Counter(queue for run in first for queue, jobs in ids.items() if run.job in jobs)
    measured(f"of the first 800 starts with weights 5, 2, 1: {dict(counts)}")
    assert counts["default"] > counts["other"] > counts["third"] > 0
    assert 350 <= counts["default"] <= 650


def test_reserved_slots_are_free_for_their_queues(fleet: Fleet) -> None:
    gate = fleet.folder / "gate"
    app = fleet.app
    app.enqueue_many(app.tasks["gated"].call(str(gate)) for _ in range(10))
    fleet.start('processes=1, groups=("2:default", "1:other,third")')
    eventually(
        "the slots of the first group are taken", lambda: len(fleet.ledger.runs) == 2, hint=fleet.trouble
    )
    for queue in ("other", "third"):
        assert app.tasks["short"].using(queue=queue).enqueue().result(timeout=10)
    assert len([run for run in fleet.ledger.runs if run.task == "gated"]) == 2
    gate.touch()
    fleet.finished()


def test_process_is_replaced_after_so_many_jobs(fleet: Fleet) -> None:
    fleet.start("processes=2, concurrency=4, max_jobs=50")
    app = fleet.app
    jobs = app.enqueue_many(app.tasks[name].call(0.01) for name in ("short", "ashort") for _ in range(400))
    fleet.finished()
    ledger = fleet.ledger
    pids = Counter(run.pid for run in ledger.runs)
    measured(f"800 jobs in {len(pids)} processes: {sorted(pids.values())}")
    assert len(pids) >= 4
    Checker(ledger, fleet.details([job.id for job in jobs]), calm=True).check()


def test_process_is_replaced_when_it_holds_too_much(fleet: Fleet) -> None:
    fleet.start("processes=1, concurrency=2, max_memory=150")
    app = fleet.app
    first = app.tasks["eats"].enqueue(200).result(timeout=60)
    eventually("the large process ends", lambda: not Path(f"/proc/{first}").exists(), hint=fleet.trouble)
    assert app.tasks["eats"].enqueue(1).result(timeout=60) != first
    assert all(run.how == "ok" for run in fleet.ledger.runs)


TASKS = """
from windlass import Windlass
app = Windlass(name="reloaded")

@app.task
def version() -> int:
    return {version}
"""


def test_reload_runs_the_new_code(fleet: Fleet) -> None:
    from windlass import Windlass  # noqa: PLC0415

    source = fleet.folder / "reloaded.py"
    source.write_text(TASKS.format(version=1))
    worker = fleet.start("processes=1, reload=True", app="reloaded:app")
    sender = Windlass(fleet.url, name="reloaded")
    version = sender.external("version")
    assert version.enqueue().result(timeout=60) == 1
    source.write_text(TASKS.format(version=22))
    eventually(
        "it has started anew", lambda: worker.log.read_text().count("worker started") == 2, hint=fleet.trouble
    )
    assert version.enqueue().result(timeout=60) == 22
    source.write_text("this is no Python")
    eventually("it says so", lambda: worker.said("SyntaxError"), hint=fleet.trouble)
    source.write_text(TASKS.format(version=333))
    eventually(
        "it has started anew", lambda: worker.log.read_text().count("worker started") == 3, hint=fleet.trouble
    )
    assert version.enqueue().result(timeout=60) == 333
    assert worker.stop() == 0
    sender.close()


@pytest.mark.parametrize(
    ("options", "app", "why"),
    [
        ("", "nowhere:app", "nowhere"),
        ("", "os:app", "no app"),
        ('queues=("default", "nope",)', "", ""),
        ("processes=0", "", "processes"),
    ],
)
def test_worker_that_cannot_start_says_why(fleet: Fleet, options: str, app: str, why: str) -> None:
    named = {"app": app} if app else {}
    worker = fleet.start(options, wait=False, **named)  # pyright: ignore[reportArgumentType]
    if why:
        assert worker.process.wait(60) != 0
        assert worker.said(why), worker.log.read_text()
    else:
        worker.started()
        assert worker.stop() == 0


def test_many_slots(fleet: Fleet) -> None:
    """A thousand waiting jobs are no more than that."""
    fleet.start("processes=1, concurrency=1_000")
    jobs = fleet.app.enqueue_many(fleet.app.tasks["ashort"].call(1.0) for _ in range(2_000))
    fleet.finished()
    runs = fleet.ledger.runs
    took = max(run.end or 0 for run in runs) - runs[0].start
    measured(f"2,000 jobs of 1 s in 1,000 slots within {took:.2f} s")
    assert took < 10
    Checker(fleet.ledger, fleet.details([job.id for job in jobs]), calm=True).check()


def test_large_payloads(fleet: Fleet) -> None:
    text = "x" * 900_000
    jobs = [fleet.app.tasks["weighs"].enqueue(text) for _ in range(40)]
    fleet.start("processes=2")
    assert {job.result(timeout=60) for job in jobs} == {900_000}


def test_store_that_cannot_be_opened(fleet: Fleet) -> None:
    worker = fleet.start("", wait=False, WINDLASS_URL="sqlite:////nowhere/at/all.db")
    assert worker.process.wait(60) != 0
    assert '"/nowhere/at" for the SQLite file does not exist; create it first' in worker.log.read_text()

"""The command as operators start it: a real app, real children, a real file, real signals."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass import Windlass
from windlass.errors import InvalidOption
from windlass.worker.command import supervise
from windlass.worker.options import WorkerOptions
from windlass.worker.plan import plan_of

APP = """
import os
from windlass import Windlass
app = Windlass("sqlite:///store.db", name="shop")
app.queue("mail")

@app.task
def add(a: int, b: int) -> int:
    return a + b
"""
START = """
import logging, sys
logging.basicConfig(level="INFO", format="%(levelname)s %(message)s", stream=sys.stdout)
from windlass.worker.options import WorkerOptions
from windlass.worker.command import supervise
sys.exit(supervise("shop_tasks:app", WorkerOptions(processes=2, concurrency=3)))
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def lines_of(worker: "subprocess.Popen[str]") -> Iterator[str]:
    assert worker.stdout is not None
    return (line.rstrip("\n") for line in worker.stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop_tasks.py").write_text(APP)
    return tmp_path


def started(folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", START], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.mark.parametrize("word", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_starts_runs_jobs_and_stops_as_asked(folder: Path, word: signal.Signals) -> None:
    worker = started(folder)
    try:
        lines = lines_of(worker)
        assert next(lines) == (
            "INFO worker started: 2 processes x 3 slots on queues default, mail (sqlite, session ttl 30 s)"
        )
        client = Windlass(f"sqlite:///{folder}/store.db", name="shop")
        assert client.external("add").enqueue(1, b=2).result(timeout=20) == 3
        client.close()
        os.kill(worker.pid, word)
        stopping, stopped = lines
        # Its result is there when the worker has not heard yet that it is settled.
        assert re.fullmatch("INFO stopping: (0 jobs|1 job) running, up to 30 s", stopping)
        assert stopped == "INFO stopped"
        assert worker.wait(20) == 0
    finally:
        worker.kill()
        worker.communicate()


def test_an_app_that_only_children_cannot_import_ends_the_worker_with_one_line(folder: Path) -> None:
    guard = (
        "\nimport sys\nif 'windlass.worker.child' in ' '.join(sys.orig_argv): raise OSError('no licence')\n"
    )
    (folder / "shop_tasks.py").write_text(APP + guard)
    worker = started(folder)
    try:
        lines = list(lines_of(worker))
        assert worker.wait(20) == 1
        assert len(lines) == 1
        assert lines[0].startswith("ERROR the worker cannot start: cannot import shop_tasks: OSError")
    finally:
        worker.kill()
        worker.communicate()


def test_a_store_that_cannot_be_opened_ends_the_worker_with_one_line(folder: Path) -> None:
    (folder / "store.db").write_bytes(b"this is not a database " * 100)
    worker = started(folder)
    try:
        lines = list(lines_of(worker))
        assert worker.wait(20) == 1
        assert len(lines) == 1
        assert lines[0].startswith("ERROR the worker cannot start: ")
    finally:
        worker.kill()
        worker.communicate()


def test_a_store_in_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in_memory.py").write_text("from windlass import Windlass\napp = Windlass('memory://')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidOption, match="lives in one process"):
        supervise("in_memory:app", WorkerOptions())


def test_options_without_meaning_are_refused_before_anything_is_opened(folder: Path) -> None:
    app = Windlass("memory://")
    with pytest.raises(InvalidOption, match="processes"):
        plan_of("a:app", app, WorkerOptions(processes=0))


def test_a_plan_says_what_the_options_amount_to() -> None:
    app = Windlass("memory://", name="shop", grace=12)
    plan = plan_of("a:app", app, WorkerOptions(groups=("7:high,default", "1:low=3"), max_memory=10))
    assert (plan.app, plan.name, plan.grace, plan.max_memory) == ("a:app", "shop", 12.0, 10 << 20)
    assert plan.queues == ("high", "default", "low")
    assert [(group.slots, group.queues) for group in plan.alone()] == [(1, ("high", "default", "low"))]
    assert plan_of("a:app", app, WorkerOptions(grace=5_000_000)).grace == 5.0

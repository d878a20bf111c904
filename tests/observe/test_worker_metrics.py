"""`windlass worker --metrics`: right over several processes, one of which is killed."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from windlass import Windlass

TASKS = """
import logging, os, time
from pathlib import Path
from windlass import RetryPolicy, Windlass

app = Windlass("sqlite:///windlass.db", history="sqlite:///history.db", poll_floor=0.2)

@app.task
def quick(number: int) -> int:
    return number

@app.task(run="process")
def apart(password: str) -> None:
    logging.getLogger("shop").warning("trying %s", password)

@app.task
async def loud(password: str) -> None:
    logging.getLogger("shop").warning("trying %s", password)

@app.task(retry=RetryPolicy(max_attempts=3, base=0))
def held(name: str) -> None:
    Path(f"{name}.pid").write_text(str(os.getpid()))
    while not Path(name).exists():
        time.sleep(0.01)
"""
PATIENCE = 40.0

Sums = dict[str, float]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def worker(folder: Path, *options: str) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "windlass", "worker", "tasks:app", "--grace", "5", *options]
    with (folder / "worker.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def read(port: int, **headers: str) -> Sums:
    """The sum of each metric over its labels; attempts also by outcome."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - ours
        text = answer.read().decode()
    sums: Sums = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels["namespace"] == "windlass"
            names = [sample.name]
            if sample.name == "windlass_attempts_total":
                names.append(f"attempts {sample.labels['task']} {sample.labels['outcome']}")
            for name in names:
                sums[name] = sums.get(name, 0) + sample.value
    return sums


def until(look: Callable[[], bool], folder: Path) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with contextlib.suppress(OSError, KeyError):
            if look():
                return
        time.sleep(0.05)
    pytest.fail((folder / "worker.log").read_text())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(TASKS)
    return tmp_path


def test_counters_are_right_over_processes_and_never_go_back(folder: Path) -> None:
    app = Windlass(f"sqlite:///{folder / 'windlass.db'}")
    quick, held = app.external("quick"), app.external("held")
    port = free_port()
    quick.enqueue_many(quick.call(number=number) for number in range(200))
    with worker(folder, "--processes", "2", "--concurrency", "2", "--metrics", f"127.0.0.1:{port}"):
        until(lambda: read(port)["attempts quick done"] == 200, folder)
        until(lambda: read(port)["windlass_jobs_finished_total"] == 200, folder)
        before = read(port)
        assert before["windlass_worker_processes"] == 2
        assert before["windlass_worker_slots"] == 4
        assert before["windlass_worker_slots_busy"] == 0
        assert before["windlass_slots"] == 4
        assert before["windlass_store_up"] == 1
        assert before["windlass_job_run_seconds_count"] == before["windlass_job_wait_seconds_count"] == 200
        assert before["windlass_jobs_finished_total"] == 200
        assert before["windlass_store_call_seconds_count"] > 0
        assert before["windlass_sweep_lag_seconds"] < 30

        held.enqueue(name="gate")
        pid = folder / "gate.pid"
        until(lambda: read(port)["windlass_worker_slots_busy"] == 1 and pid.exists(), folder)
        victim = int(pid.read_text())
        pid.unlink()
        os.kill(victim, signal.SIGKILL)
        until(pid.exists, folder)
        after = read(port)
        assert after["windlass_worker_crashes_total"] == 1
        assert after["windlass_interrupted_total"] == 1
        assert after["attempts held retry"] == 1
        counters = [name for name in before if name.endswith(("_total", "_count", "_bucket", "_sum"))]
        assert all(after[name] >= before[name] for name in counters)
        (folder / "gate").touch()
        until(lambda: read(port)["attempts held done"] == 1, folder)
        assert read(port)["attempts quick done"] == 200
    app.close()
    log = (folder / "worker.log").read_text()
    assert re.search(rf"metrics: http://127\.0\.0\.1:{port}/metrics", log)
    with pytest.raises(urllib.error.URLError):
        read(port)


def test_the_history_of_a_worker_can_be_asked_for(folder: Path) -> None:
    """In another process: what a worker copies in the background, the command tells."""
    app = Windlass(f"sqlite:///{folder / 'windlass.db'}", history=f"sqlite:///{folder / 'history.db'}")
    quick = app.external("quick")

    def told() -> str:
        command = [sys.executable, "-m", "windlass", "history", "tasks:app", "--since", "1h"]
        return subprocess.run(
            command, cwd=folder, check=True, capture_output=True, text=True, timeout=60
        ).stdout

    with worker(folder, "--processes", "1"):
        quick.enqueue_many(quick.call(number=number) for number in range(20))
        until(lambda: "20 attempts, 0.0% failed" in told(), folder)
        assert re.search(r"^quick +20 +0 +0\.0% +0", told(), re.MULTILINE)
    app.close()


def test_every_process_of_a_worker_writes_json(folder: Path) -> None:
    app = Windlass(f"sqlite:///{folder / 'windlass.db'}", history=f"sqlite:///{folder / 'history.db'}")
    jobs = [
        app.external(name).using(lane="acme").enqueue(password="hunter2-hunter2")
        for name in ("apart", "loud")
    ]

    def lines() -> list[dict[str, Any]]:
        return [json.loads(line) for line in (folder / "worker.log").read_text().splitlines()]

    with worker(folder, "--processes", "1", "--log-format", "json"):
        until(lambda: sum(line["logger"] == "shop" for line in lines()) == 2, folder)
    app.close()
    shop = {line["task"]: line for line in lines() if line["logger"] == "shop"}
    assert [shop[name]["job"] for name in ("apart", "loud")] == [job.id for job in jobs]
    assert {(line["queue"], line["lane"], line["attempt"]) for line in shop.values()} == {
        ("default", "acme", 1)
    }
    assert shop["apart"]["pid"] != shop["loud"]["pid"]
    assert "hunter2" not in (folder / "worker.log").read_text()
    assert any(line["message"].startswith("worker started") for line in lines())


TRACED = """
import json, os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from windlass import Windlass

class ToFile(SpanExporter):
    def export(self, spans):
        with open("spans.jsonl", "a") as file:
            for span in spans:
                parent = span.parent and span.parent.span_id
                file.write(json.dumps([span.name, os.getpid(), span.context.trace_id, parent]) + "\\n")
        return SpanExportResult.SUCCESS

trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(ToFile()))
app = Windlass("sqlite:///windlass.db")

@app.task(run="process")
def apart() -> int:
    return os.getpid()

@app.task
def beside() -> int:
    return os.getpid()
"""


@pytest.mark.parametrize("name", ["apart", "beside"])
def test_a_run_is_traced_in_the_process_that_it_runs_in(folder: Path, name: str) -> None:
    (folder / "tasks.py").write_text(TRACED)
    app = Windlass(f"sqlite:///{folder / 'windlass.db'}")
    job = app.external(name, headers={"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}).enqueue()
    with worker(folder, "--processes", "1"):
        pid = job.result(timeout=PATIENCE)
    app.close()
    (span,) = [json.loads(line) for line in (folder / "spans.jsonl").read_text().splitlines()]
    assert span == ["process default", pid, int("ab" * 16, 16), int("cd" * 8, 16)]


def test_metrics_are_off_unless_asked_for_and_a_public_address_needs_a_token(folder: Path) -> None:
    command = [sys.executable, "-m", "windlass", "worker", "tasks:app", "--metrics", "0.0.0.0:9464"]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "WINDLASS_METRICS_TOKEN" in done.stderr

"""Workers in a shell and in Node, as they stand in `examples/`, against a server in processes of its own."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.served import PATIENCE, Served, environment

EXAMPLES = Path(__file__).parents[2] / "examples"
needs_curl = pytest.mark.skipif(
    shutil.which("curl") is None, reason="no curl: apt-get install curl, or whatever your system has for that"
)
needs_node = pytest.mark.skipif(
    shutil.which("node") is None, reason="no node: install Node 18 or newer to run examples/worker.mjs"
)


@contextmanager
def worker(served: Served, name: str, **variables: str) -> Iterator["subprocess.Popen[bytes]"]:
    program = "node" if name.endswith(".mjs") else "sh"
    with (served.folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [program, str(EXAMPLES / name)],
            env={**environment(), "WINDLASS_API": served.url, **variables},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE)


def enqueued(served: Served, count: int = 1, task: str = "resize", **payload: object) -> list[str]:
    jobs = [{"task": task, "payload": {"path": f"{n}.png", **payload}} for n in range(count)]
    return [job["id"] for job in served.post("/v1/jobs/batch", jobs=jobs).json()["jobs"]]


def ended(served: Served, job: str) -> dict[str, Any]:
    return served.get(f"/v1/jobs/{job}", wait=30).json()


def until_running(served: Served, job: str) -> dict[str, Any]:
    until = time.monotonic() + PATIENCE
    while (shown := served.get(f"/v1/jobs/{job}").json())["state"] != "running":
        assert time.monotonic() < until, shown
        time.sleep(0.02)
    return shown


@needs_curl
def test_a_worker_in_a_shell_does_jobs(served: Served) -> None:
    jobs = enqueued(served, 3)
    with worker(served, "worker.sh", JOBS="3") as process:
        assert process.wait(PATIENCE) == 0
    for number, job in enumerate(jobs):
        shown = ended(served, job)
        assert shown["state"] == "done"
        assert shown["result"] == {"resized": f"{number}.png"}


@needs_curl
def test_the_job_of_a_killed_shell_worker_runs_again(served: Served) -> None:
    (job,) = enqueued(served, sleep=30)
    with worker(served, "worker.sh", VISIBILITY="2") as process:
        before = until_running(served, job)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)
        lease = served.post("/v1/leases", queues=["images"], wait=30).json()["leases"][0]
    assert lease["job"] == job
    assert lease["attempt"] == 2
    assert lease["fence"] > before["fence"]
    assert served.post(f"/v1/leases/{lease['lease']}/settle", outcome="ack").json()["verdict"] == "applied"
    runs = ended(served, job)["deliveries"]
    assert [run["outcome"] for run in runs] == ["retry", "done"]


@needs_node
def test_a_worker_in_node_does_jobs_and_stops_when_told(served: Served) -> None:
    jobs = enqueued(served, 6)
    # Only an app that names a task can enqueue it; the worker is told of one that it does not have, too.
    with worker(served, "worker.mjs") as process:
        for job in jobs:
            shown = ended(served, job)
            assert shown["state"] == "done"
            assert shown["result"]["by"] == "node"
            assert shown["progress"]["fraction"] == 0.5
            assert shown["deliveries"][0]["runtime"] is not None
        workers = served.get("/v1/workers").json()
        assert "node" in str(workers)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


@pytest.mark.slow
@needs_node
def test_the_job_of_a_killed_node_worker_runs_again_once(served: Served) -> None:
    (job,) = enqueued(served, sleep=2)
    with worker(served, "worker.mjs") as process:
        until_running(served, job)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)
    with worker(served, "worker.mjs"):
        shown = ended(served, job)
    assert shown["state"] == "done"
    assert shown["attempt"] == 2
    assert shown["deliveries"][0]["cause"]["kind"] == "lost"


@pytest.mark.slow
@needs_node
def test_a_restart_of_the_server_takes_no_lease_away(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.start()
    try:
        (job,) = enqueued(served)
        lease = served.post("/v1/leases", queues=["images"], visibility="10m").json()["leases"][0]
        assert lease["job"] == job
        (long,) = enqueued(served, sleep=6)
        with worker(served, "worker.mjs"):
            until_running(served, long)
            served.kill()
            with pytest.raises(httpx.TransportError):
                served.get("/healthz")
            served.start()
            assert (
                served.post(f"/v1/leases/{lease['lease']}/settle", outcome="ack").json()["verdict"]
                == "applied"
            )
            shown = ended(served, long)
        assert shown["state"] == "done"
        assert shown["attempt"] == 1, "its worker kept it through the restart"
    finally:
        served.stop()

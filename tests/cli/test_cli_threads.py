"""Modules that start threads when they are imported: no command waits for them for ever."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.worker.blackbox.fleet import eventually, tree_of

NEVER_ENDS = """
import threading, time
from windlass import Windlass

threading.Thread(target=time.sleep, args=(3_600,), name="collector").start()
app = Windlass("sqlite:///windlass.db")


@app.task
def add(a: int, b: int = 0) -> int:
    return a + b
"""
ENDS_WITH_THE_PROGRAM = """
import atexit, os, threading
from pathlib import Path
from windlass import Windlass


def collect() -> None:
    threading.main_thread().join()


threading.Thread(target=collect, name="collector").start()
atexit.register(lambda: Path(f"ended-{os.getpid()}").touch())
app = Windlass("sqlite:///windlass.db")


@app.task
async def add(a: int, b: int = 0) -> int:
    return a + b
"""
EMBEDDED = """
import asyncio, os, sys
import tasks


async def main() -> None:
    async with tasks.app.worker(grace="30s"):
        job = await tasks.add.aenqueue(1, 2)
        print(await job.aresult(timeout=60), flush=True)
    print("left", flush=True)


asyncio.run(main())
print("goes on", flush=True)
sys.stdin.read()
os._exit(5)
"""
WORD = "ended without waiting any longer for threads of the program: collector"
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")}
PROGRAM = [sys.executable, "-m", "windlass"]
LONG = 60.0
"""Seconds: far less than the thread lives."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(NEVER_ENDS)
    return tmp_path


@contextmanager
def started(folder: Path, *tokens: str) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """A command that goes on, and its log."""
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*PROGRAM, *tokens], cwd=folder, env=ENVIRONMENT, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield process, log
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("tokens", "code"),
    [
        (("enqueue", "tasks:app", "add", '{"a": 1}'), 0),
        (("check", "tasks:app", "--depth", "0"), 0),
        (("jobs", "tasks:app", "show", "0192e4a0-5b3c-7abc-8def-0123456789ab"), 1),
    ],
)
def test_command_that_has_answered_ends(folder: Path, tokens: tuple[str, ...], code: int) -> None:
    ended = subprocess.run(
        [*PROGRAM, *tokens],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    assert WORD in ended.stderr
    assert WORD not in ended.stdout


def test_worker_that_has_stopped_ends_and_so_do_its_processes(folder: Path) -> None:
    with started(folder, "worker", "tasks:app", "--processes", "1") as (worker, log):
        eventually("it has started", lambda: "worker started" in log.read_text(), hint=log.read_text)
        tree = tree_of(worker.pid)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(LONG) == 0
        said = log.read_text()
    assert said.count(WORD) == 2, said
    assert "outlasted" not in said
    assert not [pid for pid in tree if Path(f"/proc/{pid}").exists()]


def test_threads_that_end_with_the_program_and_handlers_of_its_end_are_waited_for(folder: Path) -> None:
    (folder / "tasks.py").write_text(ENDS_WITH_THE_PROGRAM)
    with started(folder, "worker", "tasks:app", "--processes", "1") as (worker, log):
        eventually("it has started", lambda: "worker started" in log.read_text(), hint=log.read_text)
        tree = tree_of(worker.pid)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(LONG) == 0
        said = log.read_text()
    assert WORD not in said
    assert {path.name for path in folder.glob("ended-*")} == {f"ended-{pid}" for pid in tree}


@pytest.mark.parametrize("command", ["serve", pytest.param("dev", marks=pytest.mark.slow)])
def test_server_ends(folder: Path, command: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with started(folder, command, "tasks:app", "--port", str(port)) as (server, log):
        eventually("it answers", lambda: _answers(port), hint=log.read_text)
        tree = tree_of(server.pid)
        server.send_signal(signal.SIGTERM)
        assert server.wait(LONG) == 0
        said = log.read_text()
    assert WORD in said
    assert "refused to gracefully stop" not in said
    # The tracker of multiprocessing ends when it sees that all others have.
    eventually("all of it ends", lambda: not [pid for pid in tree if Path(f"/proc/{pid}").exists()])


def _answers(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def test_worker_inside_an_application_is_left_and_the_application_goes_on(folder: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", EMBEDDED],
        cwd=folder,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    assert ended.stdout.split("\n") == ["3", "left", "goes on", ""], ended.stderr
    assert ended.returncode == 5
    assert WORD not in ended.stderr

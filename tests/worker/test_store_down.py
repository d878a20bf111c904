"""A worker and a server that find their store down when they start: they wait and say so, or exit if told."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.api.served import environment, free_port
from tests.broker.redis.servers import redis_binary, running_in

from windlass import Windlass

TASKS = """
from windlass import Windlass
app = Windlass("unix://{folder}/socket", session_ttl="2s", beat="500ms")

@app.task
def add(a: int, b: int) -> int:
    return a + b
"""
PATIENCE = 30.0
WAITS = "opening the store: there is no socket of the Redis server at"


class Program:
    """A command that runs, and what it prints."""

    def __init__(self, folder: Path, *words: str) -> None:
        command = [sys.executable, "-m", "windlass", *words]
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def says(self, text: str) -> str:
        """Wait for a line."""
        assert self.process.stdout is not None
        seen: list[str] = []
        for line in self.process.stdout:
            seen.append(line)
            if text in line:
                return line
        raise AssertionError(f"it never said {text!r}: {seen}")

    def ends(self) -> tuple[int, str]:
        """Its exit code, and the rest of what it printed."""
        rest, _ = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, rest

    def stop(self) -> tuple[int, str]:
        """Stop it as asked."""
        os.kill(self.process.pid, signal.SIGTERM)
        return self.ends()


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short path: that of a socket must be."""
    with tempfile.TemporaryDirectory(prefix="windlass-down-") as name:
        (Path(name) / "tasks.py").write_text(TASKS.format(folder=name))
        yield Path(name)


@contextmanager
def started(folder: Path, *words: str) -> Iterator[Program]:
    program = Program(folder, *words)
    try:
        yield program
    finally:
        program.process.kill()
        program.process.communicate()


def status(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_worker_waits_for_its_store_and_works_when_it_is_there(folder: Path) -> None:
    port = free_port()
    with started(folder, "worker", "tasks:app", "--queues", "default", "--health", str(port)) as worker:
        worker.says(WAITS)
        assert (status(port, "/healthz"), status(port, "/readyz")) == (200, 503)
        with running_in(folder, redis_binary()) as server:
            worker.says("opening the store: done")
            worker.says("worker started")
            assert (status(port, "/healthz"), status(port, "/readyz")) == (200, 200)
            client = Windlass(server.url)
            assert client.external("add").enqueue(a=1, b=2).result(timeout=PATIENCE) == 3
            client.close()
        # The server is down again: no reason to start this worker anew.
        eventually(lambda: status(port, "/readyz") == 503)
        assert status(port, "/healthz") == 200


def test_a_worker_that_waits_ends_when_it_is_told_to(folder: Path) -> None:
    with started(folder, "worker", "tasks:app") as worker:
        worker.says(WAITS)
        code, rest = worker.stop()
        assert code == 0
        assert "stopped" in rest


def test_a_worker_that_is_not_to_wait_exits_at_once(folder: Path) -> None:
    with started(folder, "worker", "tasks:app", "--exit-if-store-is-down") as worker:
        code, said = worker.ends()
        assert code == 1
        assert "the worker cannot start: there is no socket of the Redis server at" in said


def test_a_login_that_is_refused_is_an_error_at_once(folder: Path) -> None:
    with running_in(folder, redis_binary()) as server:
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(server.socket))
            link.sendall(b"CONFIG SET requirepass secret\r\n")
            assert link.recv(16) == b"+OK\r\n"
        with started(folder, "worker", "tasks:app") as worker:
            code, said = worker.ends()
    assert code == 1
    assert "wants a password" in said


def test_queues_that_are_not_declared_are_refused_once_the_store_answers(folder: Path) -> None:
    with started(folder, "worker", "tasks:app", "--queues", "mial") as worker:
        worker.says(WAITS)
        with running_in(folder, redis_binary()):
            code, said = worker.ends()
    assert code == 2
    assert '"mial"' in said


def test_a_server_waits_for_its_store_too(folder: Path) -> None:
    port = free_port()
    with started(folder, "serve", "tasks:app", "--port", str(port)) as server:
        server.says(WAITS)
        with running_in(folder, redis_binary()):
            server.says(f"Serving tasks:app on http://127.0.0.1:{port}")
            eventually(lambda: _answers(port))
            assert server.stop()[0] == 0


def test_a_server_that_is_not_to_wait_exits_at_once(folder: Path) -> None:
    with started(folder, "serve", "tasks:app", "--exit-if-store-is-down") as server:
        code, said = server.ends()
    assert code == 1
    assert "there is no socket of the Redis server" in said


def test_a_server_that_waits_ends_when_it_is_told_to(folder: Path) -> None:
    with started(folder, "serve", "tasks:app") as server:
        server.says(WAITS)
        assert server.stop()[0] == 0


def _answers(port: int) -> bool:
    try:
        return status(port, "/readyz") == 200
    except OSError:
        return False

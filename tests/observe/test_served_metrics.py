"""`windlass serve --workers 2`: whichever process is asked, the counters are those of both."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

TASKS = """
from windlass import Windlass

app = Windlass("sqlite:///windlass.db")

@app.task
def quick(number: int) -> int:
    return number
"""
PATIENCE = 40.0
TOKEN = "the-token-of-this-server"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(port: int, path: str, body: Any = None) -> str:
    given = None if body is None else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=given, headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - ours
        return answer.read().decode()


def enqueued(port: int) -> float:
    return sum(
        sample.value
        for family in text_string_to_metric_families(ask(port, "/metrics"))
        for sample in family.samples
        if sample.name == "windlass_enqueued_total"
    )


def test_the_processes_of_a_server_count_together(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    port = free_port()
    command = [sys.executable, "-m", "windlass", "serve", "tasks:app", "--port", str(port), "--workers", "2"]
    with (tmp_path / "serve.log").open("ab") as log:
        own = {**os.environ, "WINDLASS_TOKEN": TOKEN}
        server = subprocess.Popen(command, cwd=tmp_path, env=own, stdout=log, stderr=log)
    try:
        end = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError):
                ask(port, "/readyz")
                break
            if time.monotonic() > end:
                pytest.fail((tmp_path / "serve.log").read_text())
            time.sleep(0.05)
        seen = 0.0
        for number in range(40):
            ask(port, "/enqueue", {"type": "quick", "payload": {"number": number}})
            now = enqueued(port)
            assert now >= seen, "a counter went back"
            seen = now
        while enqueued(port) != 40:
            assert time.monotonic() < end
            time.sleep(0.05)
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()

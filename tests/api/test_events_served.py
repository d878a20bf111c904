"""Events from a server in a process of its own: through sockets, and to their end."""

import threading
import time
from pathlib import Path

import httpx
import pytest
from tests.api.served import Served


@pytest.mark.slow
def test_a_stream_tells_of_jobs_and_does_not_hold_up_the_end_of_the_server(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.start()
    stopped: list[int] = []
    try:
        httpx.patch(f"{served.url}/v1/queues/default/override", json={"emit": "all"}).raise_for_status()
        with httpx.stream("GET", f"{served.url}/v1/events", timeout=30) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = stream.iter_lines()
            assert next(lines) == "event: hello"
            made = httpx.post(f"{served.url}/v1/jobs", json={"task": "add", "payload": {"a": 1}})
            job = made.raise_for_status().json()["id"]
            told = next(line for line in lines if line.startswith("data:") and "enqueue" in line)
            assert job in told
            began = time.monotonic()
            ending = threading.Thread(target=lambda: stopped.append(served.stop()))
            ending.start()
            assert any(line == "event: bye" for line in lines)
            ending.join()
        assert stopped == [0]
        assert time.monotonic() - began < 20  # a grace is 30
    finally:
        served.stop()

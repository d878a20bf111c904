"""A gibibyte of results of 10 MiB: none is lost or another's; store and processes stay small."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CALLER = """
import asyncio, json, os, sys, time
from windlass import Windlass
from tests.values.program import filled, peak_memory

JOBS, SIZE = 103, 10 * 2**20

async def main():
    app = Windlass(os.environ["WINDLASS_URL"], values=os.environ["WINDLASS_VALUES"])
    fill = app.external("fill")
    begun = time.monotonic()
    jobs = await app.aenqueue_many(fill.call(number, SIZE) for number in range(JOBS))
    wrong = []
    for number, job in enumerate(jobs):
        result = await job.aresult(240)
        if result != filled(number, SIZE):
            wrong.append(number)
    took = time.monotonic() - begun
    again = await jobs[50].aresult(60)
    worker = await (await app.external("peak").aenqueue()).aresult(60)
    await app.aclose()
    print(json.dumps({"wrong": wrong, "again": len(again), "took": round(took, 1),
                      "worker": worker, "caller": peak_memory()}))

asyncio.run(main())
"""


def _measured(folder: Path, values_url: str) -> dict[str, Any]:
    environment = {
        **os.environ,
        "WINDLASS_URL": f"sqlite:///{folder / 'windlass.db'}",
        "WINDLASS_VALUES": values_url,
    }
    command = [sys.executable, "-m", "windlass", "worker", "tests.values.program:app"]
    worker = subprocess.Popen(
        [*command, "--processes", "1", "--concurrency", "4"], env=environment, stderr=subprocess.PIPE
    )
    try:
        caller = subprocess.run(
            [sys.executable, "-c", CALLER], env=environment, timeout=500, check=False, capture_output=True
        )
    finally:
        worker.send_signal(signal.SIGTERM)
        _, log = worker.communicate(timeout=60)
    assert caller.returncode == 0, caller.stderr.decode() + log.decode()
    assert worker.returncode == 0
    return json.loads(caller.stdout)


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the memory of a process is read from /proc"
)
def test_a_gibibyte_of_results(values_url: str, tmp_path: Path) -> None:
    measured = _measured(tmp_path, values_url)
    store = sum(path.stat().st_size for path in tmp_path.glob("windlass.db*"))
    assert measured["wrong"] == []
    assert measured["again"] == 10 * 2**20
    assert store < 8 * 2**20
    # Four slots have a few copies each of 10 MiB; the caller reads one at a time.
    assert measured["worker"] < 600 * 2**20
    assert measured["caller"] < 300 * 2**20

"""Webhooks of a worker in processes of its own, killed while its receiver is ill."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.webhooks.receiver import receiving

from windlass import Windlass

TASKS = """\
from windlass import Windlass

app = Windlass(
    "sqlite:///windlass.db", webhooks=True, webhook_allow="127.0.0.1", session_ttl="2s", beat="500ms"
)


@app.task
def add(a: int) -> int:
    return a
"""


def _worker(folder: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "windlass", "worker", "tasks:app", "--processes", "1"]
    with (folder / "worker.log").open("ab") as log:
        return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)


@pytest.mark.slow
def test_a_message_outlives_the_worker_that_could_not_deliver_it(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    url = f"sqlite:///{tmp_path / 'windlass.db'}"
    app = Windlass(url, webhooks=True, session_ttl="2s", beat="500ms")

    @app.task
    def add(a: int) -> int:
        return a

    async def story() -> None:
        async with receiving([500, 500, 204]) as receiver:
            worker = _worker(tmp_path)
            try:
                job = await add.using(callback=receiver.url()).aenqueue(1)
                await receiver.wait_for(1)
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait(30)
                worker = _worker(tmp_path)
                async with asyncio.timeout(60):
                    while len(receiver.got) < 3:  # noqa: ASYNC110 - longer than the receiver waits by itself
                        await asyncio.sleep(0.1)
                assert {got.said["job"]["id"] for got in receiver.got} == {job.id}
                assert len({got.headers["webhook-id"] for got in receiver.got}) == 1
            finally:
                worker.send_signal(signal.SIGTERM)
                assert worker.wait(60) == 0, (tmp_path / "worker.log").read_text()
        await app.aclose()

    asyncio.run(story())

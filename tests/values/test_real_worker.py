"""Real worker processes carry large values, wherever a task runs."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from windlass import Windlass

LARGE = "x" * (10 * 2**20)


def test_a_worker_carries_large_values_for_tasks_of_every_kind(tmp_path: Path) -> None:
    values_url = f"file://{tmp_path / 'values'}"
    url = f"sqlite:///{tmp_path / 'windlass.db'}"
    command = [sys.executable, "-m", "windlass", "worker", "tests.values.program:app", "--processes", "1"]
    environment = {**os.environ, "WINDLASS_URL": url, "WINDLASS_VALUES": values_url}
    app = Windlass(url, values=values_url)
    worker = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    async def main() -> None:
        names = ("echo_in_thread", "echo_in_loop", "echo_in_process")
        jobs = [await app.external(name).aenqueue(LARGE) for name in names]
        results = [await job.aresult(60) for job in jobs]
        assert results[:2] == [LARGE, LARGE]
        assert results[2].endswith(f" {LARGE}")
        await app.aclose()

    try:
        asyncio.run(main())
    finally:
        worker.send_signal(signal.SIGTERM)
        _, log = worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert b"xxxx" not in log


def test_a_fork_of_a_process_that_used_object_storage_is_told_so(tmp_path: Path) -> None:
    """The threads of the library are not there in the child: it would wait for them for ever."""
    program = f"""
import os
from windlass import Windlass
from windlass.errors import ValuesError

app = Windlass("sqlite:///{tmp_path}/windlass.db", values="file://{tmp_path}/values", values_over=10)
send = app.external("send")
if os.fork() == 0:
    send.enqueue("the child is the first to use it")
    os._exit(0)
assert os.wait()[1] == 0
send.enqueue("the parent uses it")
if os.fork() == 0:
    try:
        send.enqueue("the child cannot")
    except ValuesError as error:
        os._exit(0 if "Fork before the first of them" in str(error) else 1)
    os._exit(2)
assert os.wait()[1] == 0
app.close()
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert done.returncode == 0

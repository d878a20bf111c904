"""Programs end: whatever they leave open, without a word."""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

BEGIN = """
    import asyncio, atexit, os, signal, sys, threading
    from windlass import Windlass
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    app = Windlass(sys.argv[1], name="script")

    @app.task
    def send(number: int) -> int: ...
"""


def ran(url: str, script: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(BEGIN) + textwrap.dedent(script))
    return subprocess.run(
        [sys.executable, "-W", "error", str(path), url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "script",
    [
        "print(send.enqueue(1).state())",
        "print(asyncio.run(send.aenqueue(1)).state())",
        """
        async def main():
            jobs = await asyncio.gather(*(send.aenqueue(number) for number in range(50)))
            print(await jobs[0].astate())
        asyncio.run(main())
        """,
        """
        send.enqueue(1)
        atexit.register(lambda: print("ready" if send.enqueue(2).created else ""))
        """,
        """
        job = send.enqueue(1)
        threading.Thread(target=job.result, daemon=True).start()  # waits for ever
        print(job.state())
        """,
        """
        job = send.enqueue(1)
        app.close()
        print(send.enqueue(1).state())
        del app, send, job
        """,
    ],
    ids=["blocking", "async", "many", "atexit", "waiter", "closed"],
)
def test_a_program_that_leaves_the_app_open_ends_quietly(url: str, script: str, tmp_path: Path) -> None:
    finished = ran(url, script, tmp_path)
    assert (finished.stdout, finished.stderr, finished.returncode) == ("ready\n", "", 0)


def test_an_interrupt_ends_a_waiting_call(url: str, tmp_path: Path) -> None:
    script = """
    job = send.enqueue(1)
    @app.observe
    def interrupt(seen):
        if seen.verb == "get":
            os.kill(os.getpid(), signal.SIGINT)
    try:
        app.job(job.id).result()
    except KeyboardInterrupt:
        print(app.job(job.id).cancel())
    app.close()
    """
    finished = ran(url, script, tmp_path)
    assert (finished.stdout, finished.stderr, finished.returncode) == ("True\n", "", 0)


def test_an_interrupt_that_nobody_catches_ends_the_program(url: str, tmp_path: Path) -> None:
    script = """
    job = send.enqueue(1)
    @app.observe
    def interrupt(seen):
        if seen.verb == "get":
            os.kill(os.getpid(), signal.SIGINT)
    app.job(job.id).result()
    """
    finished = ran(url, script, tmp_path)
    assert finished.returncode == -signal.SIGINT
    assert finished.stderr.rstrip().endswith("KeyboardInterrupt")
    assert "never awaited" not in finished.stderr

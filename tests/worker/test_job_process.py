"""The program of a `run="process"` job, at the other end of a socket that the test holds."""

import socket
import subprocess
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from windlass.worker.failure import users_frames
from windlass.worker.process import Prepare, framed

APP = """
import contextlib
import pathlib

from windlass import Windlass


@contextlib.asynccontextmanager
async def lifespan():
    pathlib.Path("entered").touch()
    yield


app = Windlass("memory://", lifespan=lifespan)
"""


@contextmanager
def job_process(folder: Path) -> Generator[tuple[socket.socket, "subprocess.Popen[str]"]]:
    """It runs until its end of the socket is closed."""
    (folder / "job_process_app.py").write_text(APP)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "windlass.worker.process_main", str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            cwd=folder,
            stderr=subprocess.PIPE,
            text=True,
        )
        theirs.close()
        try:
            yield ours, process
        finally:
            process.kill()
            process.wait()


def test_a_process_whose_worker_is_gone_enters_no_lifespan_and_ends_in_silence(tmp_path: Path) -> None:
    with job_process(tmp_path) as (ours, process):
        ours.sendall(
            framed(Prepare(app="job_process_app:app", table=str(tmp_path / "removed with the worker")))
        )
        ours.close()
        _, errors = process.communicate(timeout=60)
    assert errors == ""
    assert not (tmp_path / "entered").exists()


def test_a_worker_that_goes_while_the_process_starts_leaves_no_traceback(tmp_path: Path) -> None:
    with job_process(tmp_path) as (ours, process):
        ours.sendall(framed(Prepare(app="job_process_app:app", table="")))
        ours.close()
        _, errors = process.communicate(timeout=60)
    assert "Traceback" not in errors
    assert "destroyed" not in errors


def test_frames_of_a_module_that_is_run_as_the_program_count_as_its_own() -> None:
    """`python -m windlass.worker.process_main` calls its module __main__."""
    names = {"__name__": "__main__", "__spec__": sys.modules["windlass.worker.failure"].__spec__}
    call_as_program = FunctionType(_call.__code__, names)

    def fails() -> None:
        raise ValueError

    with pytest.raises(ValueError) as caught:  # noqa: PT011 - of this test
        call_as_program(fails)
    found: Any = caught.value.__traceback__
    kept = traceback.extract_tb(users_frames(found.tb_next))
    assert [frame.name for frame in kept] == ["fails"]


def _call(function: Any) -> None:
    function()

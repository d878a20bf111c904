"""An app for real workers; where it keeps what, the environment says."""

import os
import re
from pathlib import Path

from windlass import Windlass

app = Windlass(values_over=1_000)


@app.task(name="echo_in_thread")
def echo_in_thread(text: str) -> str:
    return text


@app.task(name="echo_in_loop")
async def echo_in_loop(text: str) -> str:
    return text


@app.task(name="echo_in_process", run="process")
def echo_in_process(text: str) -> str:
    return f"{os.getpid()} {text}"


@app.task(name="fill")
def fill(number: int, size: int) -> str:
    return filled(number, size)


@app.task(name="peak")
def peak() -> int:
    """Of the worker's process."""
    return peak_memory()


def filled(number: int, size: int) -> str:
    """A text that tells whose it is, all along."""
    return (f"{number:03d}" * (size // 3 + 1))[:size]


def peak_memory() -> int:
    """The most bytes that this process has had in memory."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10

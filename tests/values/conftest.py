"""Places for large values: a folder, and a bucket of a server that speaks S3."""

import contextlib
import http.client
import itertools
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.each_store import namespaces, redis_server, store

__all__ = ["namespaces", "redis_server", "store"]

_buckets = itertools.count()


@pytest.fixture(scope="session")
def s3_port() -> Iterator[int]:
    """A server that stands in for S3, for all tests of a process."""
    for _ in range(5):  # another process may take the port first
        port = _free_port()
        program = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
        server = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            if _answers(server, port):
                yield port
                return
        finally:
            server.kill()
            server.wait()
    raise AssertionError("the server did not answer")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def _answers(server: "subprocess.Popen[bytes]", port: int) -> bool:
    end = time.monotonic() + 60
    while time.monotonic() < end and server.poll() is None:
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with contextlib.suppress(OSError, http.client.HTTPException):
            link.request("GET", "/moto-api/")
            return link.getresponse().status == 200 and server.poll() is None
        link.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(0.05)
    return False


@pytest.fixture
def bucket(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an empty bucket."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret")
    name = f"values-{next(_buckets)}"
    link = http.client.HTTPConnection("127.0.0.1", s3_port, timeout=30)
    link.request("PUT", f"/{name}")
    assert link.getresponse().status == 200
    link.close()
    return name


@pytest.fixture
def s3_url(bucket: str, s3_port: int) -> str:
    return f"s3://{bucket}/shop?region=us-east-1&endpoint=http://127.0.0.1:{s3_port}"


@pytest.fixture(params=["folder", "s3"])
def values_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return f"file://{tmp_path / 'the values'}"
    url: str = request.getfixturevalue("s3_url")
    return url


@pytest.fixture
def unused_port() -> int:
    """A port at which nobody answers."""
    return _free_port()

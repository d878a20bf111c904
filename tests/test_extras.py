"""A part that lacks a package says what to install. The package is hidden from an interpreter of its own."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("statement", "package", "install"),
    [
        ("import windlass.api", "litestar", "windlass-queue[serve]"),
        ("import windlass.sentry", "sentry_sdk", "windlass-queue[sentry]"),
        ("from windlass.django import app", "django", "django"),
    ],
)
def test_a_module_says_what_it_lacks(statement: str, package: str, install: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules[{package!r}] = None; {statement}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert f"needs the package {package}: pip install '{install}'" in told.stderr.splitlines()[-1]


def test_an_app_with_object_storage_says_what_it_lacks() -> None:
    program = (
        "import sys; sys.modules['obstore'] = None; from windlass import Windlass; "
        "Windlass('memory://', values='file:///tmp/values')"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert "values= needs the package obstore: pip install 'windlass-queue[values]'" in told.stderr


def test_an_archive_in_object_storage_says_what_it_lacks() -> None:
    program = (
        "import sys; sys.modules['obstore'] = None; import asyncio; "
        "from windlass.observe.archive.archive import open_archive; "
        "asyncio.run(open_archive('s3://shop', None))"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    said = "an archive in object storage needs the package obstore: pip install 'windlass-queue[values]'"
    assert told.stderr.splitlines()[-1].endswith(said)


@pytest.mark.parametrize(
    ("url", "package", "install"),
    [
        ("redis://localhost", "redis", "windlass-queue[redis]"),
        ("postgresql://localhost/db", "psycopg", "windlass-queue[postgres]"),
    ],
)
def test_a_store_says_what_it_lacks(url: str, package: str, install: str) -> None:
    program = (
        f"import sys; sys.modules[{package!r}] = None; from windlass import Windlass; "
        f"Windlass({url!r}).enqueue_many([Windlass({url!r}).external('send').call()])"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert f"needs the package {package}: pip install '{install}'" in told.stderr.splitlines()[-1]

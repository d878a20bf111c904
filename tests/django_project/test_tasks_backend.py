"""Django's settings are one for a process, so these cases run in processes of their own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.postgres.servers import Server, programs


@pytest.fixture
def dsn() -> Iterator[str]:
    server = Server(programs())
    yield server.dsn
    server.remove()


def test_the_backend_does_what_django_says_of_one() -> None:
    _run("backend_cases.py")


def test_a_job_is_part_of_the_transaction_of_django(dsn: str) -> None:
    _run("transaction_cases.py", CASES_DSN=dsn)


def _run(cases: str, **environment: str) -> None:
    path = Path(__file__).with_name(cases)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", str(path)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

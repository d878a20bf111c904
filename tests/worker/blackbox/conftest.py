"""A folder with a store and workers, for each test or for all tests of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.worker.blackbox.bb_app import build
from tests.worker.blackbox.fleet import Fleet, fleet_in

QUICK = {"WINDLASS_SESSION_TTL": "3s", "WINDLASS_BEAT": "0.5s", "WINDLASS_GRACE": "5s"}
"""Short times, so that silence is noticed within seconds."""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Without workers yet."""
    with fleet_in(tmp_path, build, **QUICK) as made:
        yield made


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """With one worker of two processes, for all tests of a module that leave it as they found it."""
    with fleet_in(tmp_path_factory.mktemp("shop"), build, **QUICK) as made:
        made.start("processes=2, concurrency=8")
        yield made

"""The SQLite broker keeps the contract."""

import itertools
import shutil
from pathlib import Path

import pytest

from windlass.broker.contract import Broker, Options
from windlass.broker.sqlite import SqliteBroker
from windlass.clock import ManualClock
from windlass.conformance.harness import OpenBroker
from windlass.conformance.suite import *  # noqa: F403


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new file, to be copied: making its layout takes longer than most tests."""
    path = tmp_path_factory.mktemp("sqlite") / "empty.db"
    SqliteBroker(path).blocking.close()
    return path


@pytest.fixture
def open_broker(empty_file: Path, tmp_path: Path) -> OpenBroker:
    numbers = itertools.count(1)

    async def opened(clock: ManualClock, options: Options) -> Broker:
        path = tmp_path / f"{next(numbers)}.db"
        shutil.copyfile(empty_file, path)
        return SqliteBroker(path, clock=clock, options=options)

    return opened

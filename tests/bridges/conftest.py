"""Servers of message brokers that tests of bridges share."""

from collections.abc import Iterator

import pytest

from windlass.verify.guardian import Guardian
from windlass.verify.processes import Starter


@pytest.fixture(scope="session")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    """Starts servers; whatever is left of them is ended with the tests."""
    guardian = Guardian()
    yield Starter(tmp_path_factory.mktemp("servers"), guardian)
    guardian.close()

"""A server in the test's own process, on each store that runs there: real routes, gate and store."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.api.house import House
from tests.api.served import Served


@pytest.fixture(params=["memory", "sqlite"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'windlass.db'}"
    made = House(url)
    yield made
    made.close()


@pytest.fixture
def memory_house() -> Iterator[House]:
    """For what does not depend on the store."""
    made = House("memory://")
    yield made
    made.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server as users start it, on a SQLite file, without keys."""
    made = Served(tmp_path_factory.mktemp("served"))
    made.start()
    yield made
    made.stop()

"""A server in the test's own process, on each store that runs there: real routes, gate and store."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.api.house import House


@pytest.fixture(params=["memory", "sqlite"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'windlass.db'}"
    made = House(url)
    yield made
    made.close()

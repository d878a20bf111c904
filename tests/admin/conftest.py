"""An application on each store that runs inside the process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.admin.admin_bench import Bench


@pytest.fixture(params=["memory", "sqlite"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'windlass.db'}"
    made = Bench(url)
    yield made
    made.app.close()

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worker.virtual import Bench

from windlass import Windlass


@pytest.fixture
def app() -> Windlass:
    return Windlass("memory://")


@pytest.fixture
def bench(tmp_path: Path) -> Callable[[Windlass], Bench]:
    return lambda app: Bench(app, tmp_path)

"""An application on each store that runs inside the process."""

from collections.abc import Iterator

import pytest

from windlass import Windlass


@pytest.fixture
def app() -> Iterator[Windlass]:
    made = Windlass("memory://")
    yield made
    made.close()

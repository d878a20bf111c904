"""An application on each store that runs inside the process."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from windlass import Windlass
from windlass.broker import registry


@pytest.fixture(params=sorted({"memory", "sqlite"} & registry._OPENERS.keys()))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'windlass.db'}"


@pytest.fixture
def new_app(url: str) -> Iterator[Callable[..., Windlass]]:
    """Makes apps on the same store (in memory, each has one of its own), closed in the end."""
    made: list[Windlass] = []

    def make(**settings: Any) -> Windlass:
        made.append(Windlass(url, **settings))
        return made[-1]

    yield make
    for app in made:
        app.close()


@pytest.fixture
def app(new_app: Callable[..., Windlass]) -> Windlass:
    return new_app()

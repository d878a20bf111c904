"""What every test may ask for."""

import logging
from collections.abc import Iterator

import pytest

pytest_plugins = ["windlass.conformance.plugin"]


@pytest.fixture(autouse=True)
def _level_of_the_logs() -> Iterator[None]:
    """A command that is run in this process sets the level of our loggers, as it would in its own."""
    logger = logging.getLogger("windlass")
    before = logger.level
    yield
    logger.setLevel(before)

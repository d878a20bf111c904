"""A server that a test needs is there, or the test is skipped with the line that says how to get it."""

import os
from typing import NoReturn

import pytest

from windlass.verify.brokers.places import Missing


def without(missing: Missing) -> NoReturn:
    """Skip the test; where all servers must be there ($WINDLASS_SERVERS_REQUIRED, as in .ci/run), fail."""
    if os.environ.get("WINDLASS_SERVERS_REQUIRED"):
        pytest.fail(str(missing))
    pytest.skip(str(missing))

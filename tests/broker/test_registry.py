"""A URL names a broker."""

import asyncio

import pytest

from windlass.broker.contract import Options
from windlass.broker.registry import open_broker
from windlass.clock import ManualClock, SystemClock
from windlass.errors import InvalidOption


def test_memory_is_known() -> None:
    broker = asyncio.run(open_broker("memory://", options=Options(), clock=ManualClock()))
    assert broker.capabilities.store == "memory"


@pytest.mark.parametrize("url", ["", "nonsense", "pickle://user:secret@host/0", "memory"])
def test_unknown_scheme_is_named_without_the_rest(url: str) -> None:
    with pytest.raises(InvalidOption, match="known: memory://") as caught:
        asyncio.run(open_broker(url))
    assert "secret" not in str(caught.value)


def test_the_system_clock_tells_microseconds() -> None:
    assert 1_700_000_000_000_000 < SystemClock().now() < 2**53

"""A child whose store is away when it starts: it waits, and says so once."""

import asyncio
import logging
from types import SimpleNamespace

import pytest

from windlass.broker.memory import MemoryBroker
from windlass.errors import StoreUnavailable
from windlass.worker import child


class _Pace:
    def __init__(self) -> None:
        self.slept = 0

    def jitter(self) -> float:
        return 0.0

    def now(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.slept += 1


def test_waits_for_its_store__and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker, tries = MemoryBroker(), iter([StoreUnavailable("away")] * 3)

    async def opened(*_: object, **__: object) -> MemoryBroker:
        for error in tries:
            raise error
        return broker

    monkeypatch.setattr(child, "open_broker", opened)
    config = SimpleNamespace(url="redis://nowhere", broker_options=lambda: None)
    it = SimpleNamespace(_program=SimpleNamespace(config=config), _pace=_Pace(), _meter=None)
    with caplog.at_level(logging.INFO, "windlass.worker"):
        assert asyncio.run(child.Child._open(it)) is broker  # type: ignore[arg-type]
    assert it._pace.slept == 3
    assert [record.message for record in caplog.records] == [
        "the store does not answer (away); trying until it does",
        "the store answers",
    ]

"""Processes of a run that start while a file is being replaced wait with opening it."""

import asyncio
from pathlib import Path

import pytest

from windlass.broker import registry
from windlass.verify.recording import wait_outside


def test_no_store_is_opened_while_the_sign_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_OPENERS", dict(registry._OPENERS))
    store, sign = tmp_path / "windlass.db", tmp_path / "closed"
    wait_outside(sign)

    async def story() -> None:
        sign.touch()
        opening = asyncio.create_task(registry.open_broker(f"sqlite:///{store}"))
        await asyncio.wait({opening}, timeout=0.3)
        assert not opening.done()
        assert not store.exists()
        sign.unlink()
        broker = await opening
        await broker.close()
        assert store.exists()

    asyncio.run(story())

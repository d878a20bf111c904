"""Webhooks that wait for nothing longer than a test likes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass import RetryPolicy, Windlass


@pytest.fixture(params=["memory", "sqlite"])
def app(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Windlass]:
    """An app with webhooks that may be sent to loopback."""
    quick = RetryPolicy(max_attempts=6, base=0.01, cap=0.02)
    monkeypatch.setattr("windlass.worker.delivering.RETRY", quick)
    monkeypatch.setattr("windlass.worker.delivering._rings", {})
    for name in ("SOON", "LATER"):
        monkeypatch.setattr(f"windlass.worker.webhooks.{name}", 0.02)
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'windlass.db'}"
    made = Windlass(url, webhooks=True, webhook_allow=["127.0.0.1"], namespace="hooks")
    yield made
    made.close()

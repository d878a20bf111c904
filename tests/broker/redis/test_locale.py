"""A server whose locale orders strings in another way than bytes: what is next stays the same.

Redis takes the order of Lua's strings from its environment (`LC_ALL`, `LANG`), and most systems set one.
"""

import asyncio
import random
import shutil
import subprocess
from pathlib import Path

import pytest
import redis
from tests.broker.redis.both import Both
from tests.broker.redis.fixtures import new_namespace
from tests.broker.redis.servers import redis_binary, running

from windlass.broker.contract import Options
from windlass.broker.memory import MemoryBroker
from windlass.broker.redis import RedisBroker
from windlass.clock import ManualClock
from windlass.core.settings import QueueSettings


def test_order_is_by_bytes_in_any_locale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("localedef") is None:
        pytest.skip("no localedef: install the package `locales`")
    made = subprocess.run(
        ["localedef", "-i", "en_US", "-f", "UTF-8", str(tmp_path / "en_US.UTF-8")],
        check=False,
        capture_output=True,
        text=True,
    )
    if made.returncode:
        pytest.skip(f"no sources of locales: install the package `locales` ({made.stderr.strip()[:80]})")
    monkeypatch.setenv("LOCPATH", str(tmp_path))
    monkeypatch.setenv("LC_ALL", "en_US.UTF-8")
    with running(redis_binary()) as server:
        with redis.Redis(unix_socket_path=str(server.socket)) as client:
            assert client.eval("return ('a' < 'B') and 1 or 0", 0) == 1, "the locale is not in force"
        asyncio.run(_compare(server.url))


async def _compare(url: str) -> None:
    clock, options = ManualClock(), Options()
    store = await RedisBroker.open(url, clock=clock, options=new_namespace(options))
    both = Both([MemoryBroker(clock=clock, options=options), store], clock, random.Random(7))
    both.lanes = ("", "a", "B", "b\x01", "Z-", "é")
    await both.start(QueueSettings(lane_concurrency=30))
    steps = [both.enqueue, both.work, both.work, both.operate, both.sweep]
    for _ in range(25):
        await both.chance.choice(steps)()
        await both.compare()
    await store.close()

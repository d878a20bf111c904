"""A kill between put and settle leaves an object that nobody needs; the job runs again."""

import asyncio
import subprocess
import sys
from pathlib import Path

from tests.values.killed import app_on

from windlass.pace import MachinePace
from windlass.values.orphans import Rules
from windlass.worker.value_sweeping import ValueSweeping


def test_a_kill_between_put_and_settle_leaves_an_orphan_that_is_swept(
    values_url: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'windlass.db'}"
    app = app_on(url, values_url)
    values = app.values
    assert values is not None

    async def main() -> None:
        job = await app.tasks["make"].aenqueue(100_000)
        worker = [sys.executable, "-m", "tests.values.killed", url, values_url]
        died = await asyncio.to_thread(subprocess.run, worker, timeout=60, check=False)
        assert died.returncode == -9
        prefix = f"r/windlass/{job.id}/"
        (orphan,) = await values.bucket.page(prefix, "", 10)
        async with app.worker():
            assert await job.aresult(30) == "m" * 100_000
        assert len(await values.bucket.page(prefix, "", 10)) == 2
        broker = await app.broker()
        rules = Rules(safe=0, safe_payload=0)
        sweeper = ValueSweeping(broker, values, app.config, MachinePace(), rules=rules)
        while await sweeper.sweep() == 0.0:
            pass
        (left,) = await values.bucket.page(prefix, "", 10)
        assert left.key != orphan.key
        assert await job.aresult(30) == "m" * 100_000
        await app.aclose()

    asyncio.run(main())

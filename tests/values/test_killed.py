"""A kill leaves objects that nobody needs, and nothing else: they are swept, and no job is lost."""

import asyncio
import subprocess
import sys
from pathlib import Path

from tests.values.killed import TAG, app_on

from windlass import Windlass
from windlass.admin.forgetting import Forgetting
from windlass.core.query import JobQuery
from windlass.pace import MachinePace
from windlass.values.orphans import Rules
from windlass.values.values import Values
from windlass.worker.value_sweeping import ValueSweeping


async def killed(url: str, values_url: str, where: str) -> None:
    process = [sys.executable, "-m", "tests.values.killed", url, values_url, where]
    died = await asyncio.to_thread(subprocess.run, process, timeout=60, check=False)
    assert died.returncode == -9


async def swept(app: Windlass, values: Values) -> None:
    """All that no job refers to, however young."""
    rules = Rules(safe=0, safe_payload=0)
    sweeper = ValueSweeping(await app.broker(), values, app.config, MachinePace(), rules=rules)
    while await sweeper.sweep() == 0.0:
        pass


async def held(values: Values) -> list[str]:
    return [each.key for prefix in ("p/", "r/") for each in await values.bucket.page(prefix, "", 100)]


def test_a_kill_between_put_and_settle_leaves_an_orphan_that_is_swept(
    values_url: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'windlass.db'}"
    app = app_on(url, values_url)
    values = app.values
    assert values is not None

    async def main() -> None:
        job = await app.tasks["make"].aenqueue(100_000)
        await killed(url, values_url, "settle")
        prefix = f"r/windlass/{job.id}/"
        (orphan,) = await values.bucket.page(prefix, "", 10)
        async with app.worker():
            assert await job.aresult(30) == "m" * 100_000
        assert len(await values.bucket.page(prefix, "", 10)) == 2
        await swept(app, values)
        (left,) = await values.bucket.page(prefix, "", 10)
        assert left.key != orphan.key
        assert await job.aresult(30) == "m" * 100_000
        await app.aclose()

    asyncio.run(main())


def test_a_kill_between_put_and_enqueue_leaves_an_orphan_that_is_swept(
    values_url: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'windlass.db'}"
    app = app_on(url, values_url)
    values = app.values
    assert values is not None

    async def main() -> None:
        kept = await app.tasks["repeat"].aenqueue("kept " * 20_000)
        await killed(url, values_url, "enqueue")
        assert len(await held(values)) == 2
        (listed,) = (await (await app.broker()).list(JobQuery(), limit=10)).jobs
        assert listed.id == kept.id
        await swept(app, values)
        assert await held(values) == [f"p/windlass/{kept.id}"]
        async with app.worker():
            assert await kept.aresult(30) == "kept " * 40_000
        await app.aclose()

    asyncio.run(main())


def test_a_kill_while_forgetting_leaves_orphans_that_are_swept(values_url: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'windlass.db'}"
    app = app_on(url, values_url)
    values = app.values
    assert values is not None

    async def main() -> None:
        repeat = app.tasks["repeat"]
        async with app.worker():
            hers = await repeat.using(tags=(TAG,)).aenqueue("hers " * 20_000)
            other = await repeat.using(tags=("user:43",)).aenqueue("other " * 20_000)
            await hers.aresult(30)
            await other.aresult(30)
        await killed(url, values_url, "forget")
        assert len(await held(values)) == 4
        broker = await app.broker()
        forgetting = Forgetting(app, broker, TAG)
        async for _ in forgetting.steps():
            pass
        await swept(app, values)
        left = await held(values)
        assert len(left) == 2
        assert all(other.id in key for key in left)
        assert await other.aresult(30) == "other " * 40_000
        await app.aclose()

    asyncio.run(main())

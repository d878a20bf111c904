"""Whatever sweeps a store, a dead letter whose time is over leaves its trace before it goes."""

import asyncio
import io
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.observe.test_archive import dead, lines, until

from windlass import GiveUp, Windlass
from windlass.admin.service import Service
from windlass.core.query import JobQuery
from windlass.worker.intake_command import take_in


def shop(store: Mapping[str, str], path: Path, **settings: Any) -> Windlass:
    app = Windlass(**store, archive=f"file://{path}", dead_retention=0.2, sweep=0.05, **settings)

    @app.task(name="charge")
    def charge(order: int, password: str = "") -> None:
        raise GiveUp(f"order {order}")

    return app


def check_traces(path: Path, ids: list[str]) -> None:
    kept = lines(path)
    assert {line["id"] for line in kept} == set(ids)
    assert {(line["what"], line["reason"]) for line in kept} == {("pruned", "its retention is over")}


async def gone(app: Windlass, ids: list[str]) -> bool:
    return all(job is None or job.pruned for job in await (await app.broker()).get(ids))


@pytest.fixture
def _signals_as_before() -> Iterator[None]:
    """A signal that comes before the loop listens to it ends nothing."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("_signals_as_before")
def test_a_process_for_intakes_archives_what_its_sweeps_find_overdue(
    store: Mapping[str, str], tmp_path: Path
) -> None:
    if store["url"] == "memory://":
        pytest.skip("such a store is in one process, and the command refuses it")
    path = tmp_path / "dead.jsonl"
    app = shop(store, path)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        app.intake(f"kafka://127.0.0.1:{nobody.getsockname()[1]}/orders", task=app.tasks["charge"])

    async def letters() -> list[str]:
        await app.declare(await app.broker())
        ids = await dead(app, 3)
        await app.aclose()
        return ids

    ids = asyncio.run(letters())
    watcher = shop(store, path)

    async def watched() -> None:
        try:
            async with asyncio.timeout(30):
                await until(lambda: gone(watcher, ids))
            await watcher.aclose()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    watching = threading.Thread(target=lambda: asyncio.run(watched()))
    watching.start()
    assert take_in([app], exit_if_store_is_down=False) == 0
    watching.join()
    check_traces(path, ids)


def test_an_import_leaves_overdue_dead_letters_to_their_archive(
    store: Mapping[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "dead.jsonl"
    app, other = shop(store, path), shop({"url": "memory://"}, tmp_path / "other.jsonl")

    async def story() -> None:
        broker = await app.broker()
        await app.declare(broker)
        ids = await dead(app, 2)
        (came,) = await dead(other, 1)
        exporting = Service(other, await other.broker()).exported(JobQuery(), left=lambda _: None)
        file = io.BytesIO(b"".join([msgspec.json.encode(line) + b"\n" async for line in exporting]))

        async def are_overdue() -> bool:
            return set((await broker.sweep(limit=1, keep_dead=True)).overdue) == set(ids)

        async with asyncio.timeout(30):
            await until(are_overdue)
            importing = Service(app, broker)
            assert (await importing.imported(file, dead="keep", told=lambda _: None)).dead == 1
            assert not any([await gone(app, [job]) for job in ids])
            async with app.worker(concurrency=1):
                await until(lambda: gone(app, [*ids, came]))
        await app.aclose()
        await other.aclose()
        check_traces(path, [*ids, came])

    asyncio.run(story())

"""The SQLite file is replaced or overwritten under a worker: it ends, says why, and charges nobody."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from tests.worker.blackbox.bb_app import build
from tests.worker.blackbox.fleet import Fleet, eventually

from windlass.errors import StoreReplaced


def _back_up(path: Path, to: Path) -> None:
    source, target = apsw.Connection(str(path)), apsw.Connection(str(to))
    with target.backup("main", source, "main") as work:
        work.step(-1)
    target.close()
    source.close()


def test_a_worker_ends_loudly_once_and_charges_nobody(fleet: Fleet) -> None:
    worker = fleet.start("processes=2, concurrency=2")
    app, path = fleet.app, fleet.folder / "windlass.db"
    job = app.tasks["gated"].enqueue("gate")
    eventually("it runs", lambda: fleet.ledger.runs, hint=fleet.trouble)
    copy = fleet.folder / "copy.db"
    _back_up(path, copy)
    app.tasks["short"].enqueue(0.0).result(30)
    copy.replace(path)
    began = time.monotonic()
    with pytest.raises(StoreReplaced):
        app.tasks["short"].enqueue(0.0)
    assert worker.process.wait(60) == 1
    assert time.monotonic() - began < 30
    lines = worker.log.read_text().splitlines()
    told = [line for line in lines if "the worker ends" in line]
    assert len(told) == 1, lines
    assert "while this process had it open" in told[0]
    assert str(path) in told[0]
    assert not worker.said("Traceback"), lines
    assert not worker.said("charged"), lines
    assert sum("had it open" in line for line in lines) <= 8, lines

    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    app.close()  # and is opened anew
    assert app.tasks["short"].enqueue(0.0).created
    (fleet.folder / "gate").touch()
    fleet.start("processes=1, concurrency=2")
    fleet.finished()
    detail = fleet.detail(job.id)
    assert (detail.attempt, detail.crashes) == (1, 0)


def _moved(folder: Path) -> None:
    folder.rename(folder.with_name("away"))


def _replaced(folder: Path) -> None:
    _moved(folder)
    folder.mkdir()


def _replaced_by_a_copy(folder: Path) -> None:
    copy = folder.with_name("copy")
    copy.mkdir()
    _back_up(folder / "windlass.db", copy / "windlass.db")
    _moved(folder)
    copy.rename(folder)


def _renamed(folder: Path) -> None:
    (folder / "windlass.db").rename(folder / "other.db")


def _deleted(folder: Path) -> None:
    (folder / "windlass.db").unlink()


@pytest.mark.parametrize("harm", [_moved, _replaced, _replaced_by_a_copy, _renamed, _deleted])
def test_an_idle_worker_ends_without_its_grace(fleet: Fleet, harm: Callable[[Path], None]) -> None:
    folder = fleet.folder / "store"
    folder.mkdir()
    worker = fleet.start(
        "processes=2, concurrency=2", WINDLASS_URL=f"sqlite:///{folder}/windlass.db", WINDLASS_GRACE="10m"
    )
    harm(folder)
    assert worker.process.wait(20) == 1, worker.log.read_text()
    assert worker.said("the worker ends")


def test_a_worker_inside_an_application_ends_with_the_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "windlass.db"
    app = build(f"sqlite:///{path}")

    async def scenario() -> None:
        async with app.worker():
            path.unlink()
            await asyncio.to_thread(
                eventually, "it says so", lambda: "runs no more jobs" in caplog.text, within=30
            )

    with pytest.raises(StoreReplaced, match="was deleted or moved"):
        asyncio.run(scenario())
    app.close()

"""The store does not answer for a while: nothing is lost, nobody is reaped, work goes on when it is back."""

import contextlib
import fcntl
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.worker.blackbox.bb_app import build
from tests.worker.blackbox.checker import Checker
from tests.worker.blackbox.conftest import QUICK
from tests.worker.blackbox.fleet import Fleet, eventually, fleet_in, measured


@contextlib.contextmanager
def _locked(fleet: Fleet) -> Iterator[None]:
    """Nobody else writes."""
    with (fleet.folder / "windlass.db-lock").open("rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [4.5, 25.0])
def test_locked_store(fleet: Fleet, seconds: float) -> None:
    """For longer than the TTL of 3 s; the long one also for longer than anybody waits for the lock."""
    worker = fleet.start("processes=2, concurrency=4")
    app = fleet.app
    jobs = app.enqueue_many(app.tasks[name].call(0.01) for name in ("short", "ashort") for _ in range(300))
    eventually("jobs run", lambda: len(fleet.ledger.runs) > 20, hint=fleet.trouble)
    with _locked(fleet):
        at = len(fleet.ledger.runs)
        time.sleep(seconds)
        during = len(fleet.ledger.runs) - at
    back = time.monotonic()
    eventually("work goes on", lambda: len(fleet.ledger.runs) > at + during, hint=fleet.trouble)
    measured(
        f"consuming again {time.monotonic() - back:.2f} s after {seconds:g} s of silence; {during} ran in it"
    )
    assert time.monotonic() - back < 10
    fleet.finished()
    details = fleet.details([job.id for job in jobs])
    Checker(fleet.ledger, details, calm=True).check()
    assert all(detail.attempt == 1 for detail in details.values())
    assert not worker.said("Traceback"), worker.log.read_text()
    assert worker.stop() == 0


@pytest.mark.slow
def test_stop_while_the_store_is_away(fleet: Fleet) -> None:
    """The worker ends although nobody hears it; its jobs run elsewhere later."""
    worker = fleet.start("processes=1, concurrency=4, grace=500_000")
    app = fleet.app
    jobs = app.enqueue_many(app.tasks["short"].call(0.02) for _ in range(100))
    eventually("jobs run", lambda: len(fleet.ledger.runs) > 20, hint=fleet.trouble)
    with _locked(fleet):
        began = time.monotonic()
        code = worker.stop(within=60)
        measured(f"stopped within {time.monotonic() - began:.1f} s without a store, exit code {code}")
    fleet.start("processes=1, concurrency=4")
    fleet.finished()
    Checker(fleet.ledger, fleet.details([job.id for job in jobs])).check()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that can be filled."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=90m", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def _fill(file: int, seconds: float) -> None:
    """Take every byte, again and again."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            while True:
                os.write(file, bytes(4_096))
        except OSError:
            time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_full_disk(small_disk: Path, tmp_path: Path) -> None:
    """For two TTLs: nothing is lost or charged, and work goes on when there is room again."""
    with fleet_in(small_disk, build, **QUICK) as fleet:
        fleet.ledger_path = tmp_path / "ledger.jsonl"
        worker = fleet.start("processes=2, concurrency=4")
        app = fleet.app
        jobs = app.enqueue_many(
            app.tasks[name].call(0.05) for name in ("short", "ashort") for _ in range(300)
        )
        eventually("jobs run", lambda: len(fleet.ledger.runs) > 20, hint=fleet.trouble)
        filler = os.open(small_disk / "filler", os.O_WRONLY | os.O_CREAT)
        try:
            _fill(filler, 6.0)
        finally:
            os.close(filler)
            (small_disk / "filler").unlink()
        fleet.finished()
        details = fleet.details([job.id for job in jobs])
        Checker(fleet.ledger, details, calm=True).check()
        assert all(detail.attempt == 1 for detail in details.values())
        assert worker.said("the disk is full"), "it was not full for long enough: nothing was tried"
        assert worker.stop() == 0

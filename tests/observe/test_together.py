"""Several processes behind one port show one set of counters, which never goes back."""

import asyncio
from pathlib import Path

import pytest
from tests.observe.test_exposition import read, sample

from windlass.broker.memory import MemoryBroker
from windlass.observe import measures, together
from windlass.observe.exposition import Registry
from windlass.observe.together import Together, folder_from_environment
from windlass.observe.watch import Watch, page

DONE = ("q", "t", "done")
ATTEMPTS = sample("windlass_attempts_total", queue="q", task="t", outcome="done")


def process(folder: Path) -> tuple[Registry, Together]:
    registry = measures.registry()
    return registry, Together(registry, folder)


def test_all_are_shown_by_whoever_is_asked(tmp_path: Path) -> None:
    (one, first), (other, second) = process(tmp_path), process(tmp_path)
    one.count(measures.ATTEMPTS, DONE, 3)
    one.spread(measures.RUN, 0.2, ("q", "t"))
    other.count(measures.ATTEMPTS, DONE, 4)
    first.tell()
    second.tell()
    for shown in (read(first.whole()), read(second.whole())):
        assert shown[ATTEMPTS] == 7
        assert shown[sample("windlass_job_run_seconds_count", queue="q", task="t")] == 1
    assert read(one)[ATTEMPTS] == 3, "what a process has counted is not changed by looking"


def test_what_was_shown_is_shown_by_the_next(tmp_path: Path) -> None:
    """Without a tick in between: asking brings the file up to date."""
    (one, first), (_, second) = process(tmp_path), process(tmp_path)
    for count in range(1, 4):
        one.count(measures.ATTEMPTS, DONE)
        assert read(first.whole())[ATTEMPTS] == count
        assert read(second.whole())[ATTEMPTS] == count


def test_the_counts_of_a_process_that_died_stay(tmp_path: Path) -> None:
    one, first = process(tmp_path)
    one.count(measures.ATTEMPTS, DONE, 5)
    first.tell()
    del one, first
    again, after = process(tmp_path)
    again.count(measures.ATTEMPTS, DONE)
    assert read(after.whole())[ATTEMPTS] == 6


def test_what_the_store_holds_is_not_added_up(tmp_path: Path) -> None:
    (one, first), (other, second) = process(tmp_path), process(tmp_path)
    for registry in (one, other):
        registry.set(measures.UP, 1)
        registry.replace(measures.JOBS, {("q", "t", "ready"): 9})
        registry.raise_to(measures.FINISHED, {("q", "t", "done"): 100})
    first.tell()
    shown = read(second.whole())
    assert shown[sample("windlass_store_up")] == 1
    assert shown[sample("windlass_jobs", queue="q", task="t", state="ready")] == 9
    assert shown[sample("windlass_jobs_finished_total", queue="q", task="t", state="done")] == 100


def test_a_page_shows_them_all(tmp_path: Path) -> None:
    one, other = Watch("windlass", folder=tmp_path), Watch("windlass", folder=tmp_path)

    async def main() -> str:
        one.registry.count(measures.REAPED, (), 2)
        telling = asyncio.create_task(one.keep_telling())
        await asyncio.sleep(0)  # it tells, and waits
        telling.cancel()
        return await page([(other, MemoryBroker())])

    assert 'windlass_sessions_reaped_total{namespace="windlass"} 2' in asyncio.run(main())


def test_the_processes_of_a_server_are_told_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(together.FOLDER_VARIABLE, raising=False)
    assert folder_from_environment() is None
    monkeypatch.setenv(together.FOLDER_VARIABLE, str(tmp_path))
    assert folder_from_environment() == tmp_path

"""`windlass history`: tables and JSON, and what it says when there is none."""

import json
from typing import Any

import pytest
from tests.cli.conftest import shell
from tests.cli.shell import Shell

from windlass.core.outcome import Outcome
from windlass.core.settlement import Settlement
from windlass.observe.history.reader import HistoryReader
from windlass.observe.history.sink import open_sink

__all__ = ["shell"]


def finish(shell: Shell, outcomes: list[Outcome]) -> None:
    """Enqueue, end and copy."""
    for number, outcome in enumerate(outcomes):
        shell.task("add").enqueue(number)
        (lease,) = shell.take()
        ended = Settlement(job=lease.job, fence=lease.fence, outcome=outcome, runtime=250_000)
        shell.run(lambda broker, ended=ended: broker.settle([ended]))

    async def copied(broker: Any) -> None:
        sink = await open_sink("sqlite:///history.db")
        await HistoryReader(broker, sink, "windlass").step()
        await sink.close()

    shell.run(copied)


def test_history_is_told_by_task_and_over_time(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_HISTORY", "sqlite:///history.db")
    finish(shell, [Outcome.DONE, Outcome.DONE, Outcome.DEAD, Outcome.RELEASE])
    answer = shell("history", "tasks:app")
    assert answer.code == 0
    first, _, row, *_ = answer.out.splitlines()
    assert "3 attempts, 33.3% failed" in first
    assert row.split()[:5] == ["add", "3", "1", "33.3%", "1"]
    over_time = shell("history", "tasks:app", "--since", "10m", "--step", "5m").out.splitlines()
    assert len(over_time) in (4, 5)
    assert sum(int(line.split()[2]) for line in over_time[2:]) == 2
    (told,) = [json.loads(line) for line in shell("history", "tasks:app", "--json").out.splitlines()]
    assert told["total"]["given_back"] == 1
    assert [host["host"] for host in told["workers"]] == ["box"]
    assert "no attempt ended" in shell("history", "tasks:app", "--task", "send").err


def test_without_history_it_says_what_to_do(shell: Shell) -> None:
    answer = shell("history", "tasks:app")
    assert answer.code == 1
    assert "set history= or WINDLASS_HISTORY" in answer.err


def test_a_window_without_meaning_is_refused(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_HISTORY", "sqlite:///history.db")
    for wrong in (("--since", "soon"), ("--step", "1s"), ("--since", "1h", "--until", "2h")):
        assert shell("history", "tasks:app", *wrong).code == 2, wrong


def test_a_place_for_history_is_checked_with_the_settings(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_HISTORY", "redis://localhost")
    assert "WINDLASS_HISTORY: history is kept in" in shell("history", "tasks:app").complaint

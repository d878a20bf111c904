"""`windlass history`: tables and JSON, and what it says when there is none."""

import json
import socket
from typing import Any

import pytest
from tests.cli.conftest import shell
from tests.cli.shell import Shell

from windlass.core.outcome import Error, Outcome
from windlass.core.settlement import Settlement
from windlass.core.units import HOUR
from windlass.observe.history.reader import HistoryReader
from windlass.observe.history.sink import open_sink

__all__ = ["shell"]

ERROR = Error(type="ValueError", message="no such thing", fingerprint="f1")


def finish(shell: Shell, outcomes: list[Outcome]) -> None:
    """Enqueue, end and copy."""
    for number, outcome in enumerate(outcomes):
        shell.task("add").enqueue(number)
        (lease,) = shell.take()
        error = ERROR if outcome in (Outcome.DEAD, Outcome.RETRY) else None
        ended = Settlement(
            job=lease.job, fence=lease.fence, outcome=outcome, runtime=250_000, delay=HOUR, error=error
        )
        shell.run(lambda broker, ended=ended: broker.settle([ended]))
    copy(shell)


def copy(shell: Shell) -> None:
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


def test_history_is_told_by_worker_queue_lane_and_error(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_HISTORY", "sqlite:///history.db")
    finish(shell, [Outcome.DONE, Outcome.DEAD, Outcome.RETRY])
    queue = shell("history", "tasks:app", "--by", "queue").out.splitlines()[2].split()
    assert queue[:4] == ["default", "3", "2", "66.7%"]
    (told,) = shell.json("history", "tasks:app", "--by", "worker")
    assert told["by"] == "worker"
    assert {each["host"] for each in told["groups"]} == {"box"}
    assert sum(each["attempts"] for each in told["groups"]) == 3
    table = shell("history", "tasks:app", "--by", "worker").out.splitlines()
    assert table[1].split()[:4] == ["WORKER", "HOST", "SLOTS", "USE"]
    error = shell("history", "tasks:app", "--by", "error").out.splitlines()
    assert error[1].split()[:2] == ["ERROR", "FAILED"]
    assert error[2].split()[:3] == ["ValueError", "2", "1"]
    assert error[2].rstrip().endswith("no such thing")
    lane = shell("history", "tasks:app", "--by", "lane", "--queue", "mail")
    assert "no lane has anything to show" in lane.err


def test_history_tells_of_one_job(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_HISTORY", "sqlite:///history.db")
    job = shell.task("add").using(key="sum-1").enqueue(1).id
    (lease,) = shell.take()
    ended = Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DEAD, error=ERROR)
    shell.run(lambda broker: broker.settle([ended]))
    copy(shell)
    first, _, _, row = shell("history", "tasks:app", "--job", job).out.splitlines()[-4:]
    assert f"by app app on {socket.gethostname()}, unique key sum-1" in first
    assert "box" in row
    assert row.rstrip().endswith("ValueError: no such thing")
    (told,) = shell.json("history", "tasks:app", "--job", job)
    assert told["enqueued"]["key"] == "sum-1"
    assert [each["outcome"] for each in told["attempts"]] == ["dead"]
    unknown = shell("history", "tasks:app", "--job", job[:-1] + ("0" if job[-1] != "0" else "1"))
    assert (unknown.code, "is not known to history" in unknown.err) == (1, True)
    assert shell("history", "tasks:app", "--job", "this").code == 2


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

"""`windlass flows`: seen, shown, cancelled, and replayed where they failed."""

import pytest
from tests.cli.shell import Shell

from windlass import chain, group


def _flow(shell: Shell, name: str = "order-42") -> list[str]:
    add = shell.task("add")
    flow = chain(add.call(1), group(add.call(2), add.call(3))).enqueue(flow=name)
    return [job.id for job in flow.jobs]


def test_flows_are_listed_and_shown(shell: Shell) -> None:
    shell("queues", "tasks:app")
    assert shell("flows", "tasks:app") == (0, "", "no job belongs to a flow\n")
    shell.task("add").enqueue(9)
    jobs = _flow(shell)
    head, row = shell("flows", "tasks:app").out.splitlines()
    assert head.split() == ["FLOW", "STATE", "JOBS", "NEWEST"]
    assert row.startswith("order-42  unfinished  2 blocked, 1 ready")
    shown = shell("flows", "tasks:app", "show", "order-42").out
    assert "state     running\n" in shown
    assert all(job in shown for job in jobs)
    assert shell.json("flows", "tasks:app", "show", "order-42") == [
        {
            "id": "order-42",
            "state": "running",
            "jobs": {"ready": 1, "blocked": 2},
            "total": 3,
            "progress": 0.0,
        }
    ]


def test_a_listing_that_was_cut_says_so(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    _flow(shell)
    assert shell("flows", "tasks:app").err == ""
    monkeypatch.setattr("windlass.admin.flows.LOOKED_AT", 3)
    answer = shell("flows", "tasks:app")
    assert "order-42" in answer.out
    assert answer.err.startswith("windlass: finished flows may be missing")


def test_a_stuck_flow_is_listed_behind_newer_jobs(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.admin.flows.LOOKED_AT", 1_000)
    assert shell("flows", "tasks:app", "list", "--stuck").err.endswith("no flow is stuck\n")
    _flow(shell)
    shell.die()
    add = shell.task("add")
    for _ in range(2):
        shell.app.enqueue_many([add.call(n) for n in range(1_000)])
    for command in (("flows", "tasks:app"), ("flows", "tasks:app", "list", "--stuck")):
        row = shell(*command).out.splitlines()[1]
        assert row.startswith("order-42  stuck  2 blocked, 1 dead")


def test_a_flow_is_cancelled_after_a_question(shell: Shell) -> None:
    _flow(shell)
    assert "cancel flow" in shell("flows", "tasks:app", "cancel", "order-42").complaint
    assert (
        shell("flows", "tasks:app", "cancel", "order-42", "--yes").out
        == 'flow "order-42": 3 jobs cancelled\n'
    )
    (line,) = shell.json("flows", "tasks:app", "show", "order-42")
    assert (line["state"], line["jobs"]) == ("cancelled", {"cancelled": 3})


def test_the_failed_part_is_replayed(shell: Shell) -> None:
    first, *_ = _flow(shell)
    assert shell.die() == [first]
    (line,) = shell.json("flows", "tasks:app", "show", "order-42")
    assert line["state"] == "stuck"
    assert shell("flows", "tasks:app", "replay", "order-42").out == 'flow "order-42": 1 job replayed\n'
    assert shell.take()[0].job == first


def test_an_unknown_flow_is_one_clear_line(shell: Shell) -> None:
    shell("queues", "tasks:app")
    for verb in ("show", "replay", "cancel"):
        assert 'no job of a flow "nope" is kept' in shell("flows", "tasks:app", verb, "nope").complaint

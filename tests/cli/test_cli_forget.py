"""`windlass forget`: counted and asked for before, told and on record afterwards."""

import pytest
from tests.cli.shell import Shell
from tests.cli.test_cli_dead import Typed

from windlass.core.state import State

TAG = "user:42"
NONE = (
    "0 jobs forgotten, 0 of them cancelled first; blanked: 0 rows of the history, 0 entries of the archive\n"
)


def _mine(shell: Shell, **options: object) -> str:
    return shell.task("add").using(tags=(TAG,), **options).enqueue(1).id


def test_it_is_counted_and_done(shell: Shell) -> None:
    first, other = _mine(shell), shell.task("add").enqueue(1)
    later = _mine(shell, delay=60)
    assert shell.json("forget", "tasks:app", "--tag", TAG, "--dry-run") == [
        {"tag": TAG, "jobs": 2, "waiting": 2, "running": 0}
    ]
    assert (
        shell("forget", "tasks:app", "--tag", TAG, "--dry-run").out
        == "2 jobs, 2 of them waiting, 0 running\n"
    )
    assert [shell.app.job(job).state() for job in (first, later)] == [State.READY, State.SCHEDULED]
    (done,) = shell.json("forget", "tasks:app", "--tag", TAG, "--yes", "--reason", "she asked")
    assert done == {
        "tag": TAG,
        "jobs": 2,
        "cancelled": 2,
        "running": 0,
        "needed": 0,
        "history": 0,
        "archive": 0,
    }
    assert shell.json("jobs", "tasks:app")[0]["id"] == other.id
    (act,) = shell.json("dead", "tasks:app", "audit")
    assert (act["what"], act["jobs"], act["wanted"], act["reason"]) == ("forgotten", 2, 2, "she asked")
    assert act["chosen"] == {"tag": TAG, "cancelled": "2"}
    assert shell("forget", "tasks:app", "--tag", TAG, "-y").out == NONE


def test_what_runs_is_left_and_said(shell: Shell) -> None:
    job = _mine(shell)
    shell.take()
    answer = shell("forget", "tasks:app", "--tag", TAG, "--yes")
    assert answer == (
        1,
        NONE,
        "windlass: 1 still running, and asked to stop: run this again when they have ended\n",
    )
    assert shell.app.job(job).state() is State.RUNNING
    (act,) = shell.json("dead", "tasks:app", "audit")
    assert act["chosen"] == {"tag": TAG, "running": "1"}


def test_it_asks_first(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    job = _mine(shell)
    answer = shell("forget", "tasks:app", "--tag", TAG)
    assert (answer.code, "add --yes to confirm" in answer.complaint) == (2, True)
    monkeypatch.setattr("sys.stdin", Typed("n\n"))
    answer = shell("forget", "tasks:app", "--tag", TAG)
    assert (answer.code, answer.out) == (0, "")
    assert answer.err.startswith(
        "forget 1 job with tag user:42 (1 waiting, 0 running), and its history? [y/N]"
    )
    assert shell.app.job(job).state() is State.READY


def test_each_namespace_of_the_app_unless_one_is_named(shell: Shell) -> None:
    shell.write(
        "tasks.py",
        "from windlass import Windlass\n\napp = Windlass()\napp.queue('far', namespace='tenants')\n\n\n"
        "@app.task\ndef add(a: int) -> int: ...\n",
    )
    for _ in range(2):
        _mine(shell)
        _mine(shell, queue="far")
        assert [
            line["jobs"]
            for where in ("tasks:app@tenants", "tasks:app")
            for line in shell.json("forget", where, "--tag", TAG, "--yes")
        ] == [1, 1]
    _mine(shell)
    _mine(shell, queue="far")
    assert [line["jobs"] for line in shell.json("forget", "tasks:app", "--tag", TAG, "--yes")] == [2]


def test_what_is_no_tag_is_refused(shell: Shell) -> None:
    _mine(shell)
    assert shell("forget", "tasks:app", "--tag", "").complaint == "tag must not be empty"
    assert shell("forget", "tasks:app", "--tag", "x", "--reason", "y" * 501).code == 2

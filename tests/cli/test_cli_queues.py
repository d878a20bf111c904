"""`windlass queues`, `lanes`, `workers`, `explain` and `doctor`."""

import pytest
from tests.cli.shell import Shell

from windlass.core.outcome import Cause, CauseKind


def test_queues_show_depth_limits_and_overrides(shell: Shell) -> None:
    shell.task("send").enqueue("a")
    shell("queues", "tasks:app", "set", "mail", "--concurrency", "3", "--rate", "none")
    head, default, mail = shell("queues", "tasks:app").out.splitlines()
    assert head.split()[:8] == ["QUEUE", "READY", "RUNNING", "SCHEDULED", "BLOCKED", "DEAD", "DONE", "OLDEST"]
    assert default.split() == ["default", "0", "0", "0", "0", "0", "0"]
    assert mail.split()[:7] == ["mail", "1", "0", "0", "0", "0", "0"]
    assert mail.endswith("concurrency*=3, rate*=none")
    _, line = shell.json("queues", "tasks:app", "list")
    assert line["declared"] == {"concurrency": 5, "rate": "100/s"}
    assert line["override"] == line["settings"] == {"concurrency": 3, "rate": None}
    assert (line["jobs"]["ready"], line["paused"]) == (1, False)


def test_one_queue_with_both_layers(shell: Shell) -> None:
    assert (
        shell("queues", "tasks:app", "set", "mail", "--retention", "1h").out == 'queue "mail": overridden\n'
    )
    rows = [line.split() for line in shell("queues", "tasks:app", "show", "mail").out.splitlines()]
    assert rows[3:] == [
        ["SETTING", "DECLARED", "OVERRIDE", "IN", "FORCE"],
        ["concurrency", "5", "5"],
        ["rate", "100/s", "100/s"],
        ["retention", "3600.0", "3600.0"],
    ]
    assert shell("queues", "tasks:app", "reset", "mail").out == 'queue "mail": reset\n'
    assert shell("queues", "tasks:app", "reset", "mail").out == 'queue "mail": not overridden\n'
    (line,) = shell.json("queues", "tasks:app", "show", "mail")
    assert line["override"] == {}


def test_pause_and_resume_a_queue(shell: Shell) -> None:
    shell.task("send").enqueue("a")
    assert shell("queues", "tasks:app", "pause", "mail").out == 'queue "mail": paused\n'
    assert not shell.take()
    assert "paused" in shell("queues", "tasks:app").out.splitlines()[2]
    assert shell.json("queues", "tasks:app", "resume", "mail") == [{"queue": "mail", "effect": "resumed"}]
    assert shell.take()


def test_lanes(shell: Shell) -> None:
    for lane in ("acme", "acme", "zeta", ""):
        shell.task("add").using(lane=lane).enqueue(1)
    shell("lanes", "tasks:app", "set", "default", "acme", "--weight", "3", "--concurrency", "2")
    assert shell("lanes", "tasks:app", "pause", "default", "zeta").out == (
        'lane "zeta" of queue "default": paused\n'
    )
    rows = [line.split() for line in shell("lanes", "tasks:app", "default").out.splitlines()]
    assert rows == [
        ["LANE", "READY", "RUNNING", "WEIGHT", "SHARE", "LAG", "CONCURRENCY", "TOKENS", "PARKED"],
        ['""', "1", "0", "1", "25%", "0"],
        ["acme", "2", "0", "3", "75%", "0", "2"],
        ["zeta", "1", "0", "1", "0", "paused"],
    ]
    assert [line["lane"] for line in shell.json("lanes", "tasks:app", "default")] == ["", "acme", "zeta"]
    assert len(shell.json("lanes", "tasks:app", "list", "default", "--limit", "1")) == 1
    assert shell("lanes", "tasks:app", "resume", "default", "zeta").code == 0
    assert shell.json("lanes", "tasks:app", "reset", "default", "acme") == [
        {"queue": "default", "lane": "acme", "effect": "reset"}
    ]
    assert shell("lanes", "tasks:app", "reset", "default", "acme").out.endswith("not overridden\n")
    assert shell("lanes", "tasks:app", "mail") == (0, "", 'queue "mail" has no lane with jobs or settings\n')


def test_workers(shell: Shell) -> None:
    shell("queues", "tasks:app")
    assert shell("workers", "tasks:app") == (0, "", "no workers; start one: windlass worker tasks:app\n")
    shell.task("add").enqueue(1)
    shell.take()
    head, row = shell("workers", "tasks:app", "--alive").out.splitlines()
    assert head.split() == [
        *("SESSION", "HOST", "PID", "STATE", "QUEUES", "SLOTS", "LEASES", "SILENT", "UP", "MEMORY", "CAUSE")
    ]
    assert row.split()[:8] == ["s", "box", "4711", "alive", "default,mail", "16", "1", "0ms"]
    shell.run(lambda broker: broker.end_session("s", Cause(CauseKind.CRASH, "signal 9"), []))
    assert shell("workers", "tasks:app").out.splitlines()[1].endswith("crash signal 9")
    assert shell.json("workers", "tasks:app", "--alive") == []
    (line,) = shell.json("workers", "tasks:app")
    assert (line["state"], line["cause"]) == ("ended", {"kind": "crash", "detail": "signal 9"})


def test_explain_ends_with_the_command_that_helps(shell: Shell) -> None:
    job = shell.task("send").using(lane="a b").enqueue("x")
    out = shell("explain", "tasks:app", job.id).out
    assert out == (
        f'Job {job.id} (task "send", queue "mail", lane "a b") is ready: no live worker serves queue "mail"; '
        "no worker is alive at all.\n"
        'What to do: start a worker for queue "mail".\n'
        "    windlass worker tasks:app --queues mail\n"
    )
    shell("lanes", "tasks:app", "pause", "mail", "a b")
    out = shell("explain", "tasks:app", job.id).out
    assert out.endswith("    windlass lanes tasks:app resume mail 'a b'\n")
    assert shell(*out.splitlines()[-1].split()[1:-2], "a b").code == 0
    shell.die(message="no \x1b[1mgood")
    out = shell("explain", "tasks:app", job.id).out
    assert "Its last error: ValueError: no \\x1b[1mgood\n" in out
    assert out.endswith(f"    windlass dead tasks:app replay {job.id}\n")
    (line,) = shell.json("explain", "tasks:app", job.id)
    assert (line["why"], line["state"]) == ("finished", "dead")


def test_a_doctor_who_finds_nothing_wrong(shell: Shell) -> None:
    answer = shell("doctor", "tasks:app")
    assert (answer.code, answer.err) == (0, "")
    assert "sqlite:///windlass.db" in answer.out
    lines = shell.json("doctor", "tasks:app")
    assert {line["level"] for line in lines} <= {"ok", "note"}
    assert set(lines[0]) == {"check", "level", "text", "fix"}


def test_a_doctor_who_finds_a_problem(shell: Shell) -> None:
    (shell.folder / "windlass.db").write_bytes(b"no database at all, not even close" * 100)
    answer = shell("doctor", "tasks:app")
    assert answer.code == 1
    assert answer.err == "windlass: 1 problem\n"
    assert "is not a SQLite database" in answer.out
    answer = shell("doctor", "tasks:app", "--json")
    assert (answer.code, answer.err) == (1, "")
    assert [line["check"] for line in answer.lines if line["level"] == "problem"] == ["store"]


@pytest.mark.parametrize("verb", ["pause", "resume", "reset"])
def test_a_lane_of_a_queue_that_is_not_declared(shell: Shell, verb: str) -> None:
    shell("queues", "tasks:app")
    answer = shell("lanes", "tasks:app", verb, "nope", "x")
    assert answer.code == 2
    assert answer.complaint == 'queue "nope" is not declared; declared queues: default, mail'

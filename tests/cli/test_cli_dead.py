"""`windlass dead`: what dies is listed, shown, replayed and discarded; counted and asked for before."""

import io
import json
import sys
import threading
from pathlib import Path

import pytest
from tests.cli.shell import Shell

from windlass.core.state import State


class Typed(io.StringIO):
    """A person at a terminal who types this."""

    def isatty(self) -> bool:
        return True


def _dead(shell: Shell, count: int = 1, **error: str) -> list[str]:
    shell.app.enqueue_many(shell.task("add").call(number) for number in range(count))
    return shell.die(count, **error)


def test_list_with_errors(shell: Shell) -> None:
    (job,) = _dead(shell, kind="TimeoutError", message="slow \x1b]0;title\x07\nupstream")
    head, row = shell("dead", "tasks:app").out.splitlines()
    assert head.split() == ["ID", "TASK", "QUEUE", "LANE", "ATTEMPT", "DIED", "REASON", "ERROR"]
    assert row.startswith(job)
    assert row.endswith("gave up  TimeoutError: slow \\x1b]0;title\\x07 upstream")
    (line,) = shell.json("dead", "tasks:app", "list")
    assert (line["id"], line["error"]["type"], line["state"]) == (job, "TimeoutError", "dead")
    assert shell("dead", "tasks:app", "show", job).out.endswith("Traceback:\n  here\n")


def test_every_dead_letter_once_over_many_pages(shell: Shell) -> None:
    ids = _dead(shell, 1_000) + _dead(shell, 60)
    listed = [line["id"] for line in shell.json("dead", "tasks:app")]
    assert len(listed) == 1_060
    assert set(listed) == set(ids)
    assert [line["id"] for line in shell.json("jobs", "tasks:app", "--state", "dead")] == listed


def test_filters(shell: Shell) -> None:
    (slow,) = _dead(shell, kind="TimeoutError")
    shell.task("send").enqueue("a")
    (mail,) = shell.die(message="no such mailbox")

    def ids(*filters: str) -> list[str]:
        return [line["id"] for line in shell.json("dead", "tasks:app", *filters)]

    assert ids("--error", "timeout") == [slow]
    assert ids("--error", "MAILBOX") == ids("--queue", "mail") == ids("--task", "send") == [mail]
    assert ids("--older-than", "1h") == []
    assert ids("--older-than", "0s", "--limit", "1") == [mail]
    assert shell("dead", "tasks:app", "--error", "other") == (0, "", "no dead letters match\n")


def test_replay_by_filter_counts_and_leaves_the_others(shell: Shell) -> None:
    slow = _dead(shell, 3, kind="TimeoutError")
    (other,) = _dead(shell)
    assert shell("dead", "tasks:app", "replay", "--error", "timeout", "--yes") == (0, "3 replayed\n", "")
    assert {shell.app.job(job).state() for job in slow} == {State.READY}
    assert shell.app.job(other).state() is State.DEAD


def test_replay_and_discard_by_ids(shell: Shell) -> None:
    first, second = _dead(shell, 2)
    assert shell("dead", "tasks:app", "replay", first, "-y").out == "1 replayed\n"
    answer = shell("dead", "tasks:app", "discard", second, first, "-y", "--json", "--reason", "old")
    assert answer.code == 1
    assert [(line["job"], line["effect"]) for line in answer.lines] == [
        (second, "applied"),
        (first, "wrong state"),
    ]
    answer = shell("dead", "tasks:app", "discard", first, "--yes", "--reason", "old")
    assert answer == (1, "0 discarded\n", f"windlass: job {first} was not discarded: it is ready\n")


def test_all_and_none(shell: Shell) -> None:
    _dead(shell, 2)
    assert shell("dead", "tasks:app", "discard", "--all", "--yes").out == "2 discarded\n"
    assert shell("dead", "tasks:app", "discard", "--all", "--yes") == (0, "", "no dead letters match\n")


def test_what_is_discarded_by_id_needs_a_reason(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Asked for once, whatever the number; the archive has it with each."""
    archive = tmp_path / "dead.jsonl"
    monkeypatch.setenv("WINDLASS_ARCHIVE", f"file://{archive}")
    first, second, third = _dead(shell, 3)
    complaint = shell("dead", "tasks:app", "discard", first, "-y").complaint
    assert complaint == "say why they are discarded: --reason TEXT; what is left of them is that"
    monkeypatch.setattr(sys, "stdin", Typed("y\nthe order was withdrawn\n"))
    assert shell("dead", "tasks:app", "discard", first, second).out == "2 discarded\n"
    monkeypatch.setattr(sys, "stdin", Typed("y\n\n"))
    answer = shell("dead", "tasks:app", "discard", "--task", "add")
    assert (answer.code, "reason [in bulk: task=add]: " in answer.err) == (0, True)
    kept = [json.loads(line) for line in archive.read_text().splitlines()]
    assert [(line["id"], line["reason"]) for line in kept] == [
        (first, "the order was withdrawn"),
        (second, "the order was withdrawn"),
        (third, "in bulk: task=add"),
    ]
    assert [act["reason"] for act in shell.json("dead", "tasks:app", "audit")] == [
        "in bulk: task=add",
        "the order was withdrawn",
    ]


def test_without_anybody_to_ask_nothing_is_done(shell: Shell) -> None:
    (job,) = _dead(shell)
    answer = shell("dead", "tasks:app", "replay", "--task", "add")
    assert answer.code == 2
    assert answer.complaint == "replay 1 dead letter: there is no terminal to ask on; add --yes to confirm"
    assert shell.app.job(job).state() is State.DEAD


@pytest.mark.parametrize(("typed", "done"), [("y\n", True), ("YES\n", True), ("n\n", False), ("", False)])
def test_a_person_is_asked(shell: Shell, monkeypatch: pytest.MonkeyPatch, typed: str, done: bool) -> None:
    _dead(shell, 2)
    monkeypatch.setattr(sys, "stdin", Typed(typed))
    answer = shell("dead", "tasks:app", "discard", "--all")
    assert answer.code == 0
    assert answer.err.startswith("discard 2 dead letters? [y/N] ")
    assert (answer.out, "nothing was done" in answer.err) == (
        ("2 discarded\n", False) if done else ("", True)
    )


class Answering(Typed):
    """A person who reads the question for long: more jobs die meanwhile."""

    def __init__(self, shell: Shell, **error: str) -> None:
        super().__init__("y\n")
        self._shell, self._error = shell, error

    def readline(self, size: int | None = -1, /) -> str:
        if self.tell():  # the second question
            return super().readline(-1 if size is None else size)
        # The command asks from a running event loop, where blocking calls are not welcome.
        meanwhile = threading.Thread(target=self._shell.die, args=(3,), kwargs=self._error)
        meanwhile.start()
        meanwhile.join()
        return super().readline(-1 if size is None else size)


@pytest.mark.parametrize("size", [10, pytest.param(1_000, marks=pytest.mark.slow)])
def test_what_is_counted_is_discarded_and_no_more(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    for _ in range(10):
        for kind in ("ConnectionError", "KeyError", "ValueError"):
            _dead(shell, size, kind=kind)
    shell.app.enqueue_many(shell.task("add").call(number) for number in range(6))
    monkeypatch.setattr(sys, "stdin", Answering(shell, kind="KeyError"))
    answer = shell("dead", "tasks:app", "discard", "--group", "KeyError")
    assert answer.err.startswith(f"discard {10 * size:,} dead letters? [y/N] ")
    assert answer.out == f"{10 * size:,} discarded\n"
    monkeypatch.setattr(sys, "stdin", Answering(shell, kind="KeyError"))
    answer = shell("dead", "tasks:app", "discard", "--all")
    assert answer.err.startswith(f"discard {20 * size + 3:,} dead letters? [y/N] ")
    assert answer.out == f"{20 * size + 3:,} discarded\n"
    assert shell("dead", "tasks:app", "replay", "--all", "--yes").out == "3 replayed\n"


def test_a_key_that_was_taken_meanwhile(shell: Shell) -> None:
    shell.task("add").using(key="k").enqueue(1)
    (dead,) = shell.die()
    holder = shell.task("add").using(key="k").enqueue(2)
    answer = shell("dead", "tasks:app", "replay", dead, "--yes")
    assert answer.code == 1
    assert answer.err == (
        f"windlass: job {dead} was not replayed: job {holder.id} holds its unique key; "
        "finish or cancel that one first\n"
    )


def test_many_failures_are_counted_and_not_all_named(shell: Shell) -> None:
    jobs = [shell.task("add").enqueue(number).id for number in range(30)]
    answer = shell("dead", "tasks:app", "discard", *jobs, "--yes", "--reason", "old")
    assert answer.code == 1
    assert len(answer.err.splitlines()) == 21
    assert answer.err.endswith("windlass: 10 more were not discarded\n")


# --- groups, rates, changes, the record ---------------------------------------------------------------------


def test_one_bug_is_one_group(shell: Shell) -> None:
    _dead(shell, 3, kind="TimeoutError", message="slow")
    newest = _dead(shell, kind="ValueError")
    first, second = shell.json("dead", "tasks:app", "groups")
    assert (first["count"], first["task"], first["fingerprint"]) == (3, "add", "TimeoutError")
    assert (first["error"], first["first"] <= first["last"]) == ("TimeoutError: slow", True)
    assert [second["newest"]] == newest
    head, *rows = shell("dead", "tasks:app", "groups").out.splitlines()
    assert head.split() == ["COUNT", "TASK", "GROUP", "FIRST", "LAST", "NEWEST", "ERROR"]
    assert len(rows) == 2
    assert shell("dead", "tasks:app", "discard", "--group", "TimeoutError", "-y").out == "3 discarded\n"
    assert [line["count"] for line in shell.json("dead", "tasks:app", "groups")] == [1]


def test_replay_at_a_rate(shell: Shell) -> None:
    _dead(shell, 30)
    assert shell("dead", "tasks:app", "replay", "--all", "-y", "--rate", "1000/s").out == "30 replayed\n"
    assert (
        "rate 'fast' is not understood"
        in shell("dead", "tasks:app", "replay", "--all", "-y", "--rate", "fast").complaint
    )


def test_a_dead_letter_is_changed_and_sent_back(shell: Shell) -> None:
    (job,) = _dead(shell)
    assert shell("dead", "tasks:app", "edit", job, '{"a": 41}', "--replay").out == "1 replayed\n"
    (lease,) = shell.take()
    assert (lease.job, b"41" in lease.payload) == (job, True)


def test_a_change_is_checked_as_a_call_is(shell: Shell) -> None:
    (job,) = _dead(shell)
    assert "name a change" in shell("dead", "tasks:app", "edit", job).complaint
    assert 'argument "a"' in shell("dead", "tasks:app", "edit", job, '{"a": "x"}').complaint
    assert "priority" in shell("dead", "tasks:app", "edit", job, "--priority", "101").complaint
    unknown = "0192e4a0-5b3c-7abc-8def-0123456789ab"
    assert "not known" in shell("dead", "tasks:app", "edit", unknown, "{}").complaint
    assert shell("dead", "tasks:app", "edit", job, "--max-attempts", "9").out == "1 changed\n"
    (line,) = shell.json("dead", "tasks:app", "list")
    assert line["max_attempts"] == 9


def test_what_was_done_is_on_record(shell: Shell) -> None:
    _dead(shell, 2, kind="TimeoutError")
    (job,) = _dead(shell)
    assert shell("dead", "tasks:app", "audit") == (0, "", "the audit log has no such entry\n")
    shell("dead", "tasks:app", "replay", "--error", "timeout", "-y")
    shell("dead", "tasks:app", "discard", job, "-y", "--reason", "the customer has left")
    newest, oldest = shell.json("dead", "tasks:app", "audit")
    assert (oldest["what"], oldest["jobs"], oldest["wanted"]) == ("replayed", 2, 2)
    assert oldest["chosen"] == {"error": "timeout"}
    assert (newest["what"], newest["jobs"], newest["chosen"]) == ("discarded", 1, {"ids": "1"})
    assert "@" in newest["by"]
    assert (oldest["reason"], newest["reason"]) == ("", "the customer has left")
    told = shell("dead", "tasks:app", "audit").out
    assert "error=timeout" in told
    assert "the customer has left" in told
    long = shell("dead", "tasks:app", "discard", "--all", "--reason", "x" * 501)
    assert "--reason has at most 500 characters, not 501" in long.complaint

"""Bad input on the command line: one clear line that names a fix, an exit code, and nothing has changed."""

from typing import Any

import pytest
from tests.cli.shell import Shell

UNKNOWN = "0192e4a0-5b3c-7abc-8def-0123456789ab"
APP = "tasks:app"
CREATE = ("schedules", APP, "create", "new", "add", '{"a": 1}')
EDIT = ("schedules", APP, "edit", "kept")


@pytest.fixture
def shop(shell: Shell) -> Shell:
    """With a ready job, a dead letter, a schedule and a flow."""
    shell.task("add").enqueue(1)
    shell.die()
    shell("schedules", APP, "create", "kept", "add", '{"a": 1}', "--every", "1h")
    shell.task("add").using(flow="order").enqueue(2)
    return shell


def snapshot(shell: Shell) -> list[Any]:
    """All that commands show, but for how long ago things were, and the record."""
    commands = ("jobs", "dead", "schedules", "flows", "queues")
    shown = [line for command in commands for line in shell.json(command, APP)]
    return [{name: value for name, value in line.items() if name != "oldest"} for line in shown]


BAD: list[tuple[tuple[str, ...], str]] = [
    ((*CREATE, "--cron", "0 0 30 2 *"), "never fires: no day has"),
    ((*CREATE, "--cron", "61 * * * *"), "minute cannot be '61'"),
    ((*CREATE, "--cron", "0 3 *"), "has five fields"),
    ((*CREATE, "--cron", "@never"), "is not a cron nickname"),
    ((*CREATE, "--cron", f"{'1,' * 150}1 * * * *"), "at most 256 characters"),
    ((*CREATE, "--cron", "0 3 * * *", "--tz", "Mars/Base"), "'Mars/Base' is not a known time zone"),
    ((*CREATE, "--every", "1h", "--tz", "UTC"), "tz is the zone of a cron rule"),
    ((*CREATE, "--every", "0.5"), "at least 1 second"),
    ((*CREATE, "--every", "often"), "every"),
    ((*CREATE, "--at", "tomorrow"), "tomorrow"),
    (CREATE, "one of cron=, every= and at="),
    (("schedules", APP, "create", "new", "nope", "--every", "1h"), 'there is no task "nope"'),
    (("schedules", APP, "create", "new", "add", '{"b": 1}', "--every", "1h"), "a"),
    (
        ("schedules", APP, "create", "kept", "add", '{"a": 1}', "--every", "1h"),
        'there is a schedule "kept" already',
    ),
    ((*EDIT, "--cron", "0 0 31 2,4,6 *"), "never fires"),
    ((*EDIT, "--cron", "0 3 * * *", "--tz", "Europe/Atlantis"), "not a known time zone"),
    (("schedules", APP, "edit", "nope", "--every", "1h"), "nope"),
    (("schedules", APP, "run", "nope"), "nope"),
    (("schedules", APP, "delete", "nope", "--yes"), "nope"),
    (("schedules", APP, "preview", "nope"), "nope"),
    (("enqueue", APP, "add", '{"a": 1}', "--after", UNKNOWN), "parent"),
    (("enqueue", APP, "add", '{"a": 1}', "--after", "that one"), "is not a UUIDv7"),
    (("enqueue", APP, "add", '{"a": 1}', "--on-failure", "run"), "on_failure needs parents"),
    (("enqueue", APP, "add", '{"a": "one"}'), "a"),
    (("flows", APP, "show", "nope"), 'no job of a flow "nope"'),
    (("flows", APP, "replay", "nope"), 'no job of a flow "nope"'),
    (("flows", APP, "cancel", "nope"), 'no job of a flow "nope"'),
    (("dead", APP, "replay", "that one", "--yes"), "is not a UUIDv7"),
    (("dead", APP, "replay", "--all", "--yes", "--rate", "fast"), "rate"),
    (("dead", APP, "edit", UNKNOWN, '{"a": 2}'), "is not known"),
    (("control", APP, "strike", "add", "--where", "nowhere"), "nowhere"),
    (("control", APP, "strike", "nope", "--where", "a=1"), "nope"),
    (("control", APP, "lift", "nope"), "nope"),
]


@pytest.mark.parametrize(("words", "line"), BAD, ids=[" ".join(words)[:60] for words, _ in BAD])
def test_one_clear_line_and_nothing_changed(shop: Shell, words: tuple[str, ...], line: str) -> None:
    before = snapshot(shop)
    answer = shop(*words)
    assert answer.code in (1, 2)
    assert line in answer.complaint
    assert "Traceback" not in answer.err
    assert snapshot(shop) == before


@pytest.mark.parametrize("verb", ["replay", "discard"])
@pytest.mark.parametrize("state", ["ready", "unknown"])
def test_what_is_not_dead_is_neither_replayed_nor_discarded(shop: Shell, verb: str, state: str) -> None:
    job = UNKNOWN if state == "unknown" else shop.json("jobs", APP, "--state", "ready")[0]["id"]
    before = snapshot(shop)
    reason = ("--reason", "a test") if verb == "discard" else ()
    answer = shop("dead", APP, verb, job, "--yes", *reason)
    assert (answer.code, answer.out) == (1, f"0 {verb}ed\n")
    why = "there is no such job" if state == "unknown" else "it is ready"
    assert answer.err == f"windlass: job {job} was not {verb}ed: {why}\n"
    assert snapshot(shop) == before

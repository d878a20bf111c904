"""`windlass schedules`: seen, previewed, made, changed, paused, run now and deleted."""

from datetime import UTC, datetime

import pytest
from tests.cli.shell import Shell

from windlass.broker.contract import Broker
from windlass.worker.firing import fire_due


@pytest.fixture
def planned(shell: Shell) -> Shell:
    """With a schedule in the code."""
    shell.write(
        "tasks.py",
        (shell.folder / "tasks.py").read_text()
        + '\napp.schedule("nightly", add.call(1), cron="0 3 * * *", tz="Europe/Paris")\n',
    )
    shell("queues", "tasks:app")
    return shell


def _schedules(shell: Shell) -> dict[str, dict[str, object]]:
    return {line["name"]: line for line in shell.json("schedules", "tasks:app")}


def test_a_declared_schedule_is_listed_and_shown(planned: Shell) -> None:
    head, row = planned("schedules", "tasks:app").out.splitlines()
    assert head.split() == ["SCHEDULE", "RULE", "TASK", "NEXT", "FIRED", "FROM"]
    assert row.startswith("nightly   0 3 * * * Europe/Paris  add")
    assert row.endswith("code")
    shown = planned("schedules", "tasks:app", "show", "nightly").out
    assert "in words  At 03:00 every day, Europe/Paris\n" in shown


def test_preview_tells_the_next_times(planned: Shell) -> None:
    ticks = [
        line["tick"] for line in planned.json("schedules", "tasks:app", "preview", "nightly", "--count", "3")
    ]
    times = [datetime.fromisoformat(tick) for tick in ticks]
    assert times == sorted(times)
    assert len(set(times)) == 3
    assert all(time > datetime.now(UTC) for time in times)
    assert {time.minute for time in times} == {0}
    rows = planned("schedules", "tasks:app", "preview", "nightly").out.splitlines()
    assert (rows[0].split(), len(rows)) == (["TICK", "IN"], 11)


def test_an_operator_makes_a_schedule_that_fires(shell: Shell) -> None:
    answer = shell(
        "schedules", "tasks:app", "create", "once", "add", '{"a": 4}',
        "--at", "2020-01-01T00:00Z", "--catch-up", "one", "--lane", "acme",
    )  # fmt: skip
    assert answer.out == 'schedule "once": created; it never fires\n'
    shell("schedules", "tasks:app", "create", "often", "add", '{"a": 4}', "--every", "1s", "--lane", "acme")

    async def fire(broker: object) -> int:
        made = 0
        while not made:
            made = await fire_due(broker, shell.app.new_id)  # pyright: ignore[reportArgumentType]
        return made

    assert shell.run(fire) == 1
    (lease,) = shell.take()
    assert (lease.task, lease.lane) == ("add", "acme")
    (line,) = shell.json("schedules", "tasks:app", "show", "often")
    assert line["fires"][0]["jobs"] == [lease.job]
    assert not line["declared"]
    assert lease.job in shell("schedules", "tasks:app", "show", "often").out


def test_missed_ticks_are_told(shell: Shell) -> None:
    """Nobody starts the first job, so the ticks after it make none."""
    shell("schedules", "tasks:app", "create", "often", "add", '{"a": 4}', "--every", "1s")

    async def fire(broker: Broker) -> None:
        while not (fires := (await broker.schedules()).schedules[0].fires) or fires[-1].missed < 2:
            await fire_due(broker, shell.app.new_id)

    shell.run(fire)
    (line,) = shell.json("schedules", "tasks:app", "show", "often")
    fired, missed = line["fires"]
    assert (len(fired["jobs"]), fired["missed"]) == (1, 0)
    assert (missed["jobs"], missed["missed"]) == ([], 2)
    assert "2 missed" in shell("schedules", "tasks:app").out
    head, row, *_ = shell("schedules", "tasks:app", "show", "often").out.partition("TICK")[2].splitlines()
    assert head.split() == ["FIRED", "MISSED", "JOBS"]
    assert row.split()[-1] == "2"


def test_an_override_wins_until_it_is_reset(planned: Shell) -> None:
    before = _schedules(planned)["nightly"]
    answer = planned("schedules", "tasks:app", "edit", "nightly", "--cron", "30 4 * * *", "--overlap", "skip")
    assert answer.out.startswith('schedule "nightly": changed; next at ')
    changed = _schedules(planned)["nightly"]
    assert (changed["rule"], changed["overlap"], changed["overridden"]) == (
        "30 4 * * * Europe/Paris",
        "skip",
        True,
    )
    planned("schedules", "tasks:app", "edit", "nightly", "--tz", "Asia/Tokyo")
    again = _schedules(planned)["nightly"]
    assert (again["rule"], again["overlap"]) == ("30 4 * * * Asia/Tokyo", "skip")
    assert planned("schedules", "tasks:app", "reset", "nightly").out == 'schedule "nightly": reset\n'
    assert _schedules(planned)["nightly"]["next_at"] == before["next_at"]
    assert planned("schedules", "tasks:app", "reset", "nightly").out == 'schedule "nightly": not overridden\n'


def test_pause_resume_run_and_delete(shell: Shell) -> None:
    shell("schedules", "tasks:app", "create", "daily", "add", '{"a": 1}', "--cron", "@daily")
    assert shell("schedules", "tasks:app", "pause", "daily").out == 'schedule "daily": paused\n'
    assert _schedules(shell)["daily"]["paused"] is True
    assert "paused" in shell("schedules", "tasks:app").out
    assert shell.json("schedules", "tasks:app", "resume", "daily") == [
        {"schedule": "daily", "effect": "resumed"}
    ]
    job = shell("schedules", "tasks:app", "run", "daily").out.strip()
    assert shell.take()[0].job == job
    assert "there is no terminal to ask on" in shell("schedules", "tasks:app", "delete", "daily").complaint
    assert shell("schedules", "tasks:app", "delete", "daily", "--yes").out == 'schedule "daily": deleted\n'
    assert shell("schedules", "tasks:app") == (0, "", "there are no schedules\n")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["show", "nope"], 'there is no schedule "nope"; schedules: none'),
        (["pause", "nope"], 'there is no schedule "nope"'),
        (["delete", "nope", "--yes"], 'there is no schedule "nope"'),
        (["run", "nope"], 'there is no schedule "nope"'),
        (["preview", "nope"], 'there is no schedule "nope"'),
        (["edit", "nope"], "name a change"),
        (["edit", "nope", "--every", "1m"], 'there is no schedule "nope"'),
        (
            ["create", "x", "nothing", "--every", "1m"],
            'there is no task "nothing"; tasks of this app: add, send',
        ),
        (["create", "x", "add"], 'argument "a" is missing'),
        (["create", "x", "add", '{"a": 1}'], "one of cron=, every= and at="),
        (["create", "x", "add", '{"a": 1}', "--cron", "0 0 31 2 *"], "31 2"),
        (["create", "x", "add", '{"a": 1}', "--cron", "0 0 * * *", "--tz", "Mars/Base"], "Mars/Base"),
        (["create", "x", "add", '{"a": 1}', "--at", "tomorrow"], "--at must be a time"),
        (["create", "x", "add", '{"a": 1}', "--at", "2030-01-01"], "zone"),
        (
            ["create", "x", "add", '{"a": 1}', "--every", "1m", "--queue", "nope"],
            'queue "nope" is not declared',
        ),
        (["create", "x y", "add", '{"a": 1}', "--every", "1m"], "schedule"),
    ],
)
def test_what_cannot_be_is_one_clear_line(shell: Shell, words: list[str], complaint: str) -> None:
    shell("queues", "tasks:app")
    answer = shell("schedules", "tasks:app", *words)
    assert answer.code != 0
    assert complaint in answer.complaint
    assert shell("schedules", "tasks:app") == (0, "", "there are no schedules\n")


def test_a_second_schedule_of_a_name_is_refused(planned: Shell) -> None:
    answer = planned("schedules", "tasks:app", "create", "nightly", "add", '{"a": 1}', "--every", "1m")
    assert 'there is a schedule "nightly" already' in answer.complaint
    assert "is declared by no code" not in answer.err

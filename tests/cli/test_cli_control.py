"""`windlass control`: listed, paused and resumed; strikes made, listed and lifted."""

import pytest
from tests.cli.shell import Shell

from windlass.admin.strikes import Strikes
from windlass.broker.contract import Broker
from windlass.core.outcome import Outcome
from windlass.core.settings import Kind
from windlass.core.settlement import HoldKey, Settlement
from windlass.core.state import State


@pytest.fixture
def secretive(shell: Shell) -> Shell:
    """With a task that is told secrets, and one that takes by position only."""
    shell.write(
        "tasks.py",
        (shell.folder / "tasks.py").read_text()
        + """
from typing import Annotated
from windlass import Secret

@app.task
def login(user: str, hidden: Annotated[str, Secret], token: str = "") -> None: ...

@app.task
def first(number: int, /) -> None: ...
""",
    )
    shell("queues", "tasks:app")  # which makes the file, and says so
    return shell


def _hold(shell: Shell, key: str, reason: str) -> str:
    """What a worker does with a job that is struck."""
    (lease,) = shell.take()
    held = Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.HOLD, hold=HoldKey(key, reason))
    shell.run(lambda broker: broker.settle([held]))
    return lease.job


def _state(shell: Shell, job: str) -> State:
    async def state(broker: Broker) -> State:
        (detail,) = await broker.get([job])
        assert detail is not None
        return detail.state

    return shell.run(state)


def test_tasks_are_listed_with_their_jobs(shell: Shell) -> None:
    shell("enqueue", "tasks:app", "add", '{"a": 1}')
    shell("control", "tasks:app", "pause", "send")
    shell("control", "tasks:app", "strike", "send", "--where", "to=ada")
    head, add, send = shell("control", "tasks:app").out.splitlines()
    assert head.split() == [
        *("TASK", "QUEUE", "READY", "RUNNING", "SCHEDULED", "BLOCKED", "DEAD", "DONE", "HELD"),
    ]
    assert add.split()[:3] == ["add", "default", "1"]
    assert send.endswith("paused, 1 strike")
    lines = {line["name"]: line for line in shell.json("control", "tasks:app", "list")}
    assert (lines["send"]["paused"], lines["send"]["strikes"], lines["add"]["paused"]) == (True, 1, False)
    assert lines["add"]["jobs"]["ready"] == 1


def test_pausing_and_resuming(shell: Shell) -> None:
    paused = shell("control", "tasks:app", "pause", "add", "--reason", "a bad release")
    assert paused.out == 'task "add": paused\n'
    assert shell("control", "tasks:app", "pause", "add", "--reason", "a bad release").out == (
        'task "add": paused already\n'
    )
    (strike,) = shell.json("control", "tasks:app", "strikes")
    assert (strike["task"], strike["where"], strike["reason"]) == ("add", {}, "a bad release")
    shell("enqueue", "tasks:app", "add", '{"a": 1}')
    job = _hold(shell, f"strike:{strike['id']}", 'task "add" is paused: a bad release')
    told = shell("explain", "tasks:app", job).out
    assert 'held: task "add" is paused: a bad release' in told
    assert f"windlass control APP lift {strike['id']}" in told
    assert shell("control", "tasks:app", "resume", "add").out == 'task "add": resumed; 1 job can run\n'
    assert _state(shell, job) is State.READY
    assert shell("control", "tasks:app", "resume", "add").out == 'task "add": not paused\n'
    assert "there are no strikes" in shell("control", "tasks:app", "strikes").err


def test_striking_and_lifting(shell: Shell) -> None:
    answer = shell(
        "control", "tasks:app", "strike", "send", "--where", "to=42", "--where", "subject=a=b",
        "--reason", "their mailbox is full",
    )  # fmt: skip
    (strike,) = shell.json("control", "tasks:app", "strikes")
    identity = strike["id"]
    assert answer.out == (f'task "send": struck where to="42", subject="a=b": strike {identity}\n'), (
        "an argument that is text is compared with text"
    )
    assert identity in shell("control", "tasks:app", "strikes").out
    (again,) = shell.json(
        "control", "tasks:app", "strike", "send", "--where", "subject=a=b", "--where", 'to="42"',
        "--reason", "their mailbox is full",
    )  # fmt: skip
    assert (again["strike"], again["effect"]) == (identity, "struck already")
    (lifted,) = shell.json("control", "tasks:app", "lift", identity)
    assert lifted == {"task": "send", "strike": identity, "effect": "lifted", "freed": 0}
    assert shell("control", "tasks:app", "lift", identity).complaint == (
        f'strike "{identity}" is not known; strikes: none'
    )


def test_values_are_json_or_text(shell: Shell) -> None:
    for text, value in (("42", 42), ("true", True), ("null", None), ('"42"', "42"), ("Paris", "Paris")):
        shell("control", "tasks:app", "strike", "add", "--where", f"a={text}")
        (strike,) = shell.json("control", "tasks:app", "strikes")
        assert strike["where"] == {"a": value}
        shell("control", "tasks:app", "lift", strike["id"])


def test_all_of_it_goes_on_record_without_values(shell: Shell) -> None:
    shell("control", "tasks:app", "pause", "add", "--reason", "why")
    shell("control", "tasks:app", "resume", "add")
    shell("control", "tasks:app", "strike", "send", "--where", "to=ada@example.com")
    (strike,) = shell.json("control", "tasks:app", "strikes")
    shell("control", "tasks:app", "lift", strike["id"])
    acts = shell.json("dead", "tasks:app", "audit")
    assert [act["what"] for act in acts] == ["strike lifted", "task struck", "task resumed", "task paused"]
    assert acts[1]["chosen"] == {"task": "send", "strike": strike["id"], "where": "to"}
    assert acts[3]["chosen"]["reason"] == "why"


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        ("pause nobody", 'there is no task "nobody"; tasks of this app: add, first, login, send'),
        ("resume nobody", 'there is no task "nobody"; tasks of this app: add, first, login, send'),
        ("strike add", "choose jobs, such as --where user_id=42; the verb pause holds all jobs of a task"),
        ("strike add --where a", '--where must be argument=value, such as user_id=42, not "a"'),
        ("strike add --where a=1 --where a=2", '--where names "a" twice; one strike matches one value of it'),
        ("strike add --where c=1", '"c": task "add" has no such argument; its arguments are: a, b'),
        (
            "strike first --where number=1",
            '"number": task "first" takes "number" by position only: write 0 for it',
        ),
        ("lift 123", 'strike "123" is not known; strikes: none'),
    ],
)
def test_mistakes_change_nothing(secretive: Shell, typed: str, complaint: str) -> None:
    answer = secretive("control", "tasks:app", *typed.split())
    assert answer.code != 0
    assert answer.complaint == complaint
    assert not secretive.run(lambda broker: broker.documents(Kind.STRIKE))


@pytest.mark.parametrize("place", ["hidden", "token", "user.password"])
def test_a_secret_is_not_matched_by(secretive: Shell, place: str) -> None:
    complaint = secretive("control", "tasks:app", "strike", "login", "--where", f"{place}=hunter22").complaint
    assert "secret" in complaint
    assert "hunter22" not in complaint


def test_no_more_than_a_hundred(shell: Shell) -> None:
    async def strike(broker: Broker) -> None:
        strikes = Strikes(shell.app, broker)
        for number in range(100):
            await strikes.strike("add", {"a": number})

    shell.run(strike)
    complaint = shell("control", "tasks:app", "pause", "add").complaint
    assert complaint == "there are 100 strikes already, which is the most; lift some first"

"""Every command that changes something leaves a record of who did it; what does not has a reason."""

import getpass
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cyclopts import App
from tests.cli.shell import Shell

from windlass.admin.audit import Audit
from windlass.broker.contract import Broker
from windlass.cli.program import build
from windlass.core.take import Source, Take
from windlass.errors import StoreUnavailable

TASKS = """
from windlass import Windlass

app = Windlass()
app.queue("mail")


@app.task(queue="mail")
def send(to: str, subject: str = "hi") -> str:
    return to


app.intake("kafka://localhost:1/orders", task=send, name="orders")
app.relay("amqp://localhost:1/ends", on="dead", name="ends")
app.schedule("hourly", send.call("ops"), every=3600)
"""

READS = "it changes nothing"
PRODUCERS = "what producers enqueue is the jobs themselves, which can be listed"
WORKERS = "what workers do is kept with their jobs, and in the log of events"
APART = "it works on a store of its own, or leaves in yours what it found there"
UNRECORDED = {
    **{(noun, "list"): READS for noun in ("jobs", "dead", "queues", "control", "lanes", "schedules")},
    **{(noun, "list"): READS for noun in ("flows", "webhooks", "intakes", "relays", "keys")},
    **{(noun, "show"): READS for noun in ("dead", "queues", "schedules", "flows", "intakes", "relays")},
    **{(name,): READS for name in ("top", "workers", "history", "explain", "check", "doctor")},
    ("dead", "groups"): READS,
    ("dead", "audit"): READS,
    ("control", "strikes"): READS,
    ("schedules", "preview"): READS,
    ("enqueue",): PRODUCERS,
    ("worker",): WORKERS,
    ("intake",): WORKERS,
    ("dev",): WORKERS,
    ("serve",): "it records what its callers change",
    ("migrate",): "it changes tables, and neither jobs nor settings; the log may be among them",
    ("demo",): APART,
    ("bench",): APART,
    ("verify",): APART,
}


def enqueued(shell: Shell, *options: str) -> str:
    return shell("enqueue", "tasks:app", "send", '{"to": "a@example.com"}', *options).out.strip()


def dead(shell: Shell, *options: str) -> str:
    """A dead letter; nothing else waits by then."""
    enqueued(shell, *options)
    return shell.die()[0]


def taken(shell: Shell) -> None:
    """An offset of the intake `orders`, once."""

    async def take(broker: Broker) -> None:
        await broker.take(Take(source=Source("orders/3", "one"), expect=None, then="1042"))

    shell.run(take)


def exported(shell: Shell) -> str:
    (shell.folder / "jobs.jsonl").write_text("")
    return "jobs.jsonl"


Act = Callable[[Shell], str]
ACTS: dict[tuple[str, ...], tuple[str, Act] | str] = {
    ("jobs", "show"): ("{} --secrets", lambda shell: enqueued(shell, "--delay", "1h")),
    ("jobs", "cancel"): ("{}", lambda shell: enqueued(shell, "--delay", "1h")),
    ("dead", "replay"): ("{} --yes", dead),
    ("dead", "edit"): ('{} {{"to":"b@example.com"}} --replay', dead),
    ("dead", "discard"): ("{} --yes --reason test", dead),
    ("queues", "pause"): "mail",
    ("queues", "resume"): "mail",
    ("queues", "set"): "mail --concurrency 3",
    ("queues", "reset"): "mail",
    ("control", "pause"): "send",
    ("control", "resume"): "send",
    ("control", "strike"): "send --where to=a@example.com",
    ("control", "lift"): ("{}", lambda shell: shell.json("control", "tasks:app", "strikes")[0]["id"]),
    ("lanes", "pause"): "mail acme",
    ("lanes", "resume"): "mail acme",
    ("lanes", "set"): "mail acme --weight 3",
    ("lanes", "reset"): "mail acme",
    ("schedules", "create"): 'nightly send {"to":"ops"} --cron @daily',
    ("schedules", "edit"): "hourly --every 60",
    ("schedules", "reset"): "hourly",
    ("schedules", "pause"): "nightly",
    ("schedules", "resume"): "nightly",
    ("schedules", "run"): "nightly",
    ("schedules", "delete"): "nightly --yes",
    ("flows", "replay"): ("f", lambda shell: dead(shell, "--flow", "f")),
    ("flows", "cancel"): ("f --yes", lambda shell: enqueued(shell, "--flow", "f")),
    ("webhooks", "add"): "crm mail https://example.com/hook",
    ("webhooks", "secret"): "https://example.com/hook",
    ("webhooks", "rotate"): "--yes",
    ("webhooks", "remove"): "crm",
    ("intakes", "pause"): "orders",
    ("intakes", "resume"): "orders",
    ("intakes", "move"): ("orders 3 7 --identity one --yes", lambda shell: taken(shell) or ""),
    ("intakes", "forget"): "orders --yes",
    ("relays", "pause"): "ends",
    ("relays", "resume"): "ends",
    ("keys", "create"): "--scope read --label shop",
    ("keys", "revoke"): ("{}", lambda shell: shell.json("keys", "tasks:app")[0]["id"]),
    ("forget",): "--tag user:42 --yes",
    ("export",): "",
    ("import",): ("{}", exported),
}


def commands(app: App) -> Iterator[tuple[str, ...]]:
    for name, command in app.resolved_commands().items():
        if name.startswith("-"):
            continue
        verbs = [verb for verb in command.resolved_commands() if not verb.startswith("-")]
        yield from ([(name, verb) for verb in verbs] or [(name,)])


def test_every_command_is_recorded_or_says_why_not() -> None:
    assert set(commands(build())) == ACTS.keys() | UNRECORDED.keys()
    assert not ACTS.keys() & UNRECORDED.keys()


@pytest.fixture
def bridged(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("WINDLASS_WEBHOOKS", "true")
    shell.write("tasks.py", TASKS)
    shell("queues", "tasks:app")
    return shell


def test_what_each_changes_is_on_record_with_who_did_it(bridged: Shell) -> None:
    def acts() -> list[dict[str, Any]]:
        return bridged.json("dead", "tasks:app", "audit")

    for command, act in ACTS.items():
        written, before = (act, None) if isinstance(act, str) else (act[0], act[1](bridged))
        tokens = [token.format(before) if before is not None else token for token in written.split()]
        count = len(acts())
        answer = bridged(*command, "tasks:app", *tokens)
        assert answer.code == 0, (command, answer)
        newest = acts()
        assert len(newest) > count, command
        assert newest[0]["by"].startswith(f"{getpass.getuser()}@"), newest[0]
        assert "example.com" not in json.dumps([one["chosen"] for one in newest if "job" in one["chosen"]])


def test_a_command_says_what_its_record_lacks(bridged: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise StoreUnavailable("the store is away")

    monkeypatch.setattr(Audit, "record", fail)
    answer = bridged("queues", "tasks:app", "pause", "mail")
    assert (answer.code, answer.out) == (0, 'queue "mail": paused\n')
    assert answer.err == "windlass: this is missing in the audit log: the store is away\n"

"""`windlass intakes` and `windlass relays`: what is printed, asked, done and put on record."""

import msgspec
import pytest
from tests.cli.shell import Shell

from windlass.broker.contract import Broker
from windlass.core.intake import IntakeStatus, PartitionStatus, runs_intake, status_of
from windlass.core.outcome import Cause, CauseKind
from windlass.core.relay import RelayReading, reading_of
from windlass.core.session import Beat, SessionInfo
from windlass.core.take import Source, Take

BRIDGES = """
from windlass import Windlass

app = Windlass()


@app.task(queue="mail")
def send(to: str) -> None: ...


app.intake("kafka://me:hunter2@localhost:1/orders", task=send, lane="headers.tenant")
app.relay("amqp://me:hunter2@localhost:1/ends", on="dead")
"""


@pytest.fixture
def bridged(shell: Shell) -> Shell:
    shell.write("tasks.py", BRIDGES)
    shell("queues", "tasks:app")  # which makes the file, and says so
    return shell


def run(shell: Shell, *, stopped: bool = False) -> None:
    """As a process that runs both."""

    async def work(broker: Broker) -> None:
        info = SessionInfo(host="box", pid=7, queues=(runs_intake("orders"),))
        await broker.beat([Beat(session="s1", open=info)])
        await broker.take(Take(source=Source("orders/3", "one"), expect=None, then="1042"))
        now = (await broker.schedules(limit=1)).now
        part = PartitionStatus(
            owner="s1", host="box", pid=7, lag=1_234, rate=5.5, taken=42, stopped=stopped, as_of=now,
            error="it was made anew" if stopped else "",
        )  # fmt: skip
        status = IntakeStatus(partitions={"3": part}, warnings=("set three replicas",))
        await broker.override(status_of("orders"), msgspec.json.encode(status), 0)
        reading = RelayReading(cursor="1", holder="w", until=now + 30_000_000, as_of=now, sent=9, gaps=1)
        await broker.override(reading_of("ends"), msgspec.json.encode(reading), 0)

    shell.run(work)


def test_intakes_are_listed_and_shown(bridged: Shell) -> None:
    (row,) = bridged.json("intakes", "tasks:app")
    assert (row["name"], row["state"], row["url"]) == ("orders", "unread", "kafka://localhost:1/orders")
    run(bridged, stopped=True)
    listed = bridged("intakes", "tasks:app")
    assert "hunter2" not in listed.out
    assert listed.out.splitlines()[1].split()[:4] == [
        "orders",
        "stopped",
        "kafka://localhost:1/orders",
        "1,234",
    ]
    shown = bridged("intakes", "tasks:app", "show", "orders")
    assert "stopped: it was made anew" in shown.out
    assert "box pid 7" in shown.out
    assert "lane=headers.tenant" in shown.out
    assert shown.err == "windlass: warning: set three replicas\n"
    gone = bridged("intakes", "tasks:app", "show", "order")
    assert (gone.code, gone.complaint) == (2, 'there is no intake "order"; did you mean "orders"?')


def test_an_intake_is_paused_and_resumed(bridged: Shell) -> None:
    for verb, says in (
        ("pause", "paused"),
        ("pause", "paused already"),
        ("resume", "resumed"),
        ("resume", "not paused"),
    ):
        assert bridged("intakes", "tasks:app", verb, "orders").out == f'intake "orders": {says}\n'
    acts = bridged.json("dead", "tasks:app", "audit")
    assert [act["what"] for act in acts] == ["intake resumed", "intake paused"]


def test_an_offset_is_moved_after_a_question(bridged: Shell) -> None:
    run(bridged)
    words = ("intakes", "tasks:app", "move", "orders", "3", "7", "--identity", "two")
    asked = bridged(*words)
    question = 'move partition 3 of intake "orders" to 7 (its offset is 1042 now)'
    assert asked.code == 2
    assert asked.complaint == f"{question}: there is no terminal to ask on; add --yes to confirm"
    moved = bridged(*words, "--yes", "--expect", "1042")
    assert moved.out == 'intake "orders", partition 3: goes on at 7\n'
    raced = bridged(*words, "--yes", "--expect", "1042")
    assert (raced.code, raced.complaint) == (1, "nothing was done: the offset is 7, not 1042")
    (act,) = bridged.json("dead", "tasks:app", "audit")
    assert act["chosen"] == {"intake": "orders", "partition": "3", "from": "1042", "to": "7"}


def test_an_intake_is_forgotten_once_nobody_runs_it(bridged: Shell) -> None:
    run(bridged)
    refused = bridged("intakes", "tasks:app", "forget", "orders", "--yes")
    assert refused.code == 2
    assert "run by 1 process" in refused.complaint

    async def end(broker: Broker) -> None:
        await broker.end_session("s1", Cause(CauseKind.STOP))

    bridged.run(end)
    assert (
        bridged("intakes", "tasks:app", "forget", "orders", "--yes").out == 'intake "orders" is forgotten\n'
    )
    (row,) = bridged.json("intakes", "tasks:app")
    assert row["partitions"] == []


def test_relays_are_listed_shown_paused_and_resumed(bridged: Shell) -> None:
    run(bridged)
    (row,) = bridged.json("relays", "tasks:app")
    assert (row["name"], row["state"], row["sent"], row["gaps"]) == ("ends", "running", 9, 1)
    shown = bridged("relays", "tasks:app", "show", "ends").out
    assert "amqp://localhost:1/ends" in shown
    assert "hunter2" not in shown
    assert bridged("relays", "tasks:app", "pause", "ends").out == 'relay "ends": paused\n'
    assert bridged("relays", "tasks:app", "resume", "ends").out == 'relay "ends": resumed\n'


def test_an_app_without_bridges_is_told_how_to_declare_one(shell: Shell) -> None:
    shell("queues", "tasks:app")
    assert "app.intake(" in shell("intakes", "tasks:app").err
    assert "app.relay(" in shell("relays", "tasks:app").err


def test_processes_that_run_intakes_are_listed_as_such(bridged: Shell) -> None:
    run(bridged)
    assert "(runs intakes: orders)" in bridged("workers", "tasks:app").out


def test_doctor_says_what_waits_for_an_operator(bridged: Shell) -> None:
    run(bridged, stopped=True)
    doctor = bridged("doctor", "tasks:app")
    assert doctor.code == 1
    assert 'intake "orders", partition 3 has stopped: it was made anew' in doctor.out
    assert "windlass intakes APP move orders 3" in doctor.out
    assert "none is alive" in doctor.out
    assert "hunter2" not in doctor.out

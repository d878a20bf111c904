"""What operators see of intakes and relays, and do to them: on each store, with what workers write there."""

import msgspec
import pytest
from tests.bridges.bench import Bench
from tests.bridges.fake_sources import FakeLogSource, FakeQueueSource, Queue, Topic
from tests.bridges.operating import Scene
from tests.bridges.stores import namespaces, open_broker, redis_server
from tests.worker.virtual import VirtualPace

from windlass.admin.doctor_bridges import examine_bridges
from windlass.admin.findings import Level
from windlass.admin.intakes import Intakes
from windlass.admin.overview import overview
from windlass.admin.scale import scale
from windlass.admin.service import Service
from windlass.bridges.addresses import Address
from windlass.bridges.source import LogSource, QueueSource
from windlass.conformance.harness import Harness
from windlass.core.intake import (
    PartitionStatus,
)
from windlass.core.units import SECOND
from windlass.errors import BridgeUnavailable, InvalidOption
from windlass.observe.measures import registry
from windlass.observe.stock import Stock

__all__ = ["namespaces", "open_broker", "redis_server"]


# --- what is seen -------------------------------------------------------------------------------------------


async def test_an_intake_that_nobody_has_run_is_listed_without_its_password(store: Harness) -> None:
    scene = await Scene(store).prepare()
    (intake,) = await scene.intakes.all()
    assert (intake.name, intake.state, intake.runners) == ("orders", "unread", 0)
    assert intake.url == "kafka://host/orders"
    assert (intake.tasks, intake.queues) == (("ship",), ("mail",))
    assert intake.fields == {"task": "ship", "lane": "headers.tenant"}
    assert b"secret" not in msgspec.json.encode(intake)
    assert (intake.lag, intake.partitions) == (None, ())


async def test_offsets_owners_and_lag_of_each_partition(store: Harness) -> None:
    scene = await Scene(store).prepare()
    await scene.run_by("s1", "orders")
    for partition, then in (("10", "7"), ("1", "3")):
        await scene.take(partition, None, then)
    await scene.tell(
        "set three replicas",
        p1=PartitionStatus(owner="s1", lag=4, taken=3, rate=1.5, place="1/2"),
        p10=PartitionStatus(owner="gone", lag=5, taken=7, dead=2, rate=9.0),
    )
    intake = await scene.intakes.one("orders")
    assert (intake.state, intake.runners, intake.lag, intake.taken, intake.dead) == ("running", 1, 9, 10, 2)
    assert intake.rate == 1.5
    assert intake.warnings == ("set three replicas",)
    first, second = intake.partitions
    assert (first.partition, first.offset, first.identity, first.is_read) == ("1", "3", "topic 1", True)
    assert (second.partition, second.offset, second.is_read, second.rate) == ("10", "7", False, 0.0)
    assert first.moved_at is not None


@pytest.mark.parametrize(
    ("told", "state"),
    [
        (PartitionStatus(owner="s1"), "running"),
        (PartitionStatus(owner="s1", waits_for="10 jobs are ready"), "waiting"),
        (PartitionStatus(owner="s1", error="no answer"), "failing"),
        (PartitionStatus(owner="s1", error="another log", stopped=True), "stopped"),
        (PartitionStatus(owner="old", error="no answer"), "running"),
    ],
)
async def test_the_state_says_what_is_wrong(store: Harness, told: PartitionStatus, state: str) -> None:
    scene = await Scene(store).prepare()
    await scene.run_by("s1", "orders")
    await scene.tell(p0=told)
    assert (await scene.intakes.one("orders")).state == state


async def test_an_intake_is_unread_when_its_processes_are_silent(store: Harness) -> None:
    scene = await Scene(store).prepare()
    await scene.run_by("s1", "orders")
    await scene.tell(p0=PartitionStatus(owner="s1"))
    scene.store.clock.advance(61 * SECOND)
    assert (await scene.intakes.one("orders")).state == "unread"


async def test_readers_of_a_queue_have_no_offset(store: Harness) -> None:
    scene = await Scene(store).prepare()
    await scene.run_by("s1", "orders")
    await scene.tell(s1=PartitionStatus(owner="s1", lag=40), s2=PartitionStatus(owner="s2", lag=41))
    intake = await scene.intakes.one("orders")
    assert intake.lag == 41
    assert [(each.partition, each.offset, each.is_read) for each in intake.partitions] == [
        ("", None, True),
        ("", None, False),
    ]


async def test_a_relay_says_how_far_it_is(store: Harness) -> None:
    scene = await Scene(store).prepare()
    (relay,) = await scene.relays.all()
    assert (relay.state, relay.url, relay.sent, relay.behind) == ("unread", "amqp://host/ends", 0, None)
    await scene.read(sent=12, gaps=1, behind=3 * SECOND, warnings=("not durable",))
    relay = await scene.relays.one("ends")
    assert (relay.state, relay.sent, relay.gaps, relay.behind) == ("running", 12, 1, 3.0)
    assert (relay.is_read, relay.warnings) == (True, ("not durable",))
    await scene.read(error="no answer")
    assert (await scene.relays.one("ends")).state == "failing"
    scene.store.clock.advance(100 * SECOND)
    assert (await scene.relays.one("ends")).state == "unread"


async def test_what_is_not_there_is_said_with_what_is(store: Harness) -> None:
    scene = await Scene(store).prepare()
    with pytest.raises(InvalidOption, match='no intake "order"; did you mean "orders"'):
        await scene.intakes.one("order")
    with pytest.raises(InvalidOption, match='no relay "x"; relays: ends'):
        await scene.relays.pause("x", paused=True)


async def test_processes_that_run_intakes_are_no_workers(store: Harness) -> None:
    scene = await Scene(store).prepare()
    await scene.run_by("s1", "orders")
    service = Service(scene.app, scene.store.broker)
    (shown,) = [each async for each in service.workers.all()]
    assert (shown.intakes, shown.queues, shown.slots) == (("orders",), (), 0)
    glance = await overview(scene.app, scene.store.broker)
    assert (glance.workers.alive, glance.workers.slots) == (0, 0)
    assert any("no worker is alive" in problem.text for problem in glance.problems)
    wanted = await scale(scene.store.broker)
    assert wanted.workers == 0
    text = await _metrics(scene)
    assert "windlass_sessions" not in text


# --- pause --------------------------------------------------------------------------------------------------


async def test_it_is_paused_and_resumed_once(store: Harness) -> None:
    scene = await Scene(store).prepare()
    await scene.run_by("s1", "orders")
    for what in (scene.intakes, scene.relays):
        name = "orders" if isinstance(what, Intakes) else "ends"
        assert [await what.pause(name, paused=True) for _ in range(2)] == [True, False]
        shown = await what.one(name)
        assert (shown.state, shown.paused) == ("paused", True)
        await scene.app.declare(scene.store.broker)  # a worker that starts leaves it paused
        assert (await what.one(name)).paused
        assert [await what.pause(name, paused=False) for _ in range(2)] == [True, False]
        assert not (await what.one(name)).paused


# --- move ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("to", "at"), [("begin", "2"), ("end", "5"), ("3", "3")])
async def test_an_offset_is_moved_where_the_message_broker_says(store: Harness, to: str, at: str) -> None:
    scene = await Scene(store).prepare()
    for number in range(5):
        scene.topic.put({"n": number})
    scene.topic.first["0"] = 2
    await scene.take("0", None, "4")
    moved = await scene.intakes.move("orders", "0", to)
    assert (moved.moved, moved.before, moved.offset) == (True, "4", at)
    assert await scene.offsets() == {"orders/0": ("topic 1", at)}


async def test_a_log_that_was_made_anew_gets_its_own_offset(store: Harness) -> None:
    scene = await Scene(store).prepare()
    await scene.take("0", None, "4")
    scene.topic.make_anew()
    moved = await scene.intakes.move("orders", "0", "begin", expect="4")
    assert (moved.before, moved.offset, moved.identity) == ("4", "0", "topic 2")
    assert await scene.offsets() == {"orders/0": ("topic 2", "0")}


async def test_an_offset_that_has_moved_on_stays(store: Harness) -> None:
    scene = await Scene(store).prepare()
    await scene.take("0", None, "4")
    moved = await scene.intakes.move("orders", "0", "begin", expect="3")
    assert (moved.moved, moved.offset) == (False, "4")
    assert await scene.offsets() == {"orders/0": ("topic 1", "4")}


async def test_a_partition_that_was_never_read_can_be_given_its_place(store: Harness) -> None:
    scene = await Scene(store).prepare()
    scene.topic.put({"n": 1}, "1")
    moved = await scene.intakes.move("orders", "1", "end")
    assert (moved.before, moved.offset) == (None, "1")


async def test_what_says_its_identity_asks_nobody(store: Harness) -> None:
    scene = await Scene(store).prepare()
    await scene.take("0", None, "4")
    scene.topic.away = True
    with pytest.raises(BridgeUnavailable):
        await scene.intakes.move("orders", "0", "2")
    moved = await scene.intakes.move("orders", "0", "2", identity="topic 9")
    assert (moved.offset, moved.identity) == ("2", "topic 9")
    with pytest.raises(InvalidOption, match='no partition "7"; partitions: 0'):
        await scene.intakes.move("orders", "7", "2", identity="topic 9")
    with pytest.raises(InvalidOption, match="leave identity out"):
        await scene.intakes.move("orders", "0", "end", identity="topic 9")


@pytest.mark.parametrize(
    ("partition", "to", "why"),
    [
        ("7", "begin", 'kafka://host/orders has no partition "7"; partitions: 0, 1, 10'),
        ("0", "soon", '"soon" is no offset of this log'),
        ("0", "1", "the log does not have offset 1"),
    ],
)
async def test_a_place_that_is_none_is_refused(store: Harness, partition: str, to: str, why: str) -> None:
    scene = await Scene(store).prepare()
    scene.topic.first["0"] = 2
    with pytest.raises(InvalidOption, match=why):
        await scene.intakes.move("orders", partition, to)
    assert await scene.offsets() == {}


async def test_a_queue_has_nowhere_to_move(store: Harness) -> None:
    scene = await Scene(store).prepare()
    scene.source = FakeQueueSource(Queue(), VirtualPace())
    with pytest.raises(InvalidOption, match="is a queue"):
        await scene.intakes.move("orders", "0", "begin")


# --- forget -------------------------------------------------------------------------------------------------


async def test_what_is_run_is_not_forgotten(store: Harness) -> None:
    scene = await Scene(store).prepare()
    await scene.run_by("s1", "orders")
    with pytest.raises(InvalidOption, match="run by 1 process, and would begin anew"):
        await scene.intakes.forget("orders")


async def test_an_intake_that_is_gone_is_listed_until_it_is_forgotten(store: Harness) -> None:
    scene = await Scene(store).prepare()
    await scene.take("0", None, "4")
    await scene.take("1", None, "4")
    await scene.tell(p0=PartitionStatus(owner="s1"))
    await scene.intakes.pause("orders", paused=True)
    del scene.app.intakes["orders"]
    (gone,) = await scene.intakes.all()
    assert gone.state == "gone"
    with pytest.raises(InvalidOption, match="declared by no code"):
        await scene.intakes.pause("orders", paused=False)
    with pytest.raises(InvalidOption, match="not one of this app"):
        await scene.intakes.move("orders", "0", "begin")
    assert (await scene.intakes.forget("orders")).offsets == 2
    assert await scene.offsets() == {}
    assert await scene.intakes.all() == []


async def test_what_only_another_process_declares_is_not_gone_while_it_runs(store: Harness) -> None:
    scene = await Scene(store).prepare()
    del scene.app.intakes["orders"]  # as that of `windlass intake --celery`
    await scene.run_by("s1", "orders")
    await scene.tell(p0=PartitionStatus(owner="s1"))
    assert (await scene.intakes.one("orders")).state == "running"
    assert await scene.intakes.pause("orders", paused=True)


# --- metrics and doctor -------------------------------------------------------------------------------------


async def test_metrics_of_intakes_and_relays(store: Harness) -> None:
    scene = await Scene(store).prepare()
    await scene.tell(
        p0=PartitionStatus(owner="s1", lag=4, taken=3, dead=1, rate=1.5, stopped=True),
        s2=PartitionStatus(owner="s2", lag=9, taken=2),
    )
    await scene.read(sent=5, gaps=2, refused=1, behind=1_500_000)
    text = await _metrics(scene)
    for line in (
        'windlass_intake_lag{intake="orders",partition="0"} 4',
        'windlass_intake_lag{intake="orders",partition=""} 9',
        'windlass_intake_taken_total{intake="orders",partition="0"} 3',
        'windlass_intake_taken_total{intake="orders",partition="s2"} 2',
        'windlass_intake_dead_total{intake="orders",partition="0"} 1',
        'windlass_intake_rate{intake="orders",partition="0"} 1.5',
        'windlass_intake_stopped{intake="orders",partition="0"} 1',
        'windlass_intake_silent_seconds{intake="orders"} 0',
        'windlass_relay_sent_total{relay="ends"} 5',
        'windlass_relay_gaps_total{relay="ends"} 2',
        'windlass_relay_refused_total{relay="ends"} 1',
        'windlass_relay_behind_seconds{relay="ends"} 1.5',
    ):
        assert line in text.splitlines()


async def _metrics(scene: Scene) -> str:
    shown = registry()
    await Stock(shown).refresh(scene.store.broker)
    return "\n".join(line for measure in shown.measures for line in shown.lines(measure, {}))


async def _found(scene: Scene) -> list[tuple[Level, str]]:
    async def no_sink(_: Address) -> None:
        raise BridgeUnavailable("the exchange does not answer")

    async def opens(_: Address) -> LogSource | QueueSource:
        return scene.source

    findings = examine_bridges(scene.app, scene.store.broker, opens=opens, sinks=no_sink)  # type: ignore[arg-type]
    return [(each.level, each.text) async for each in findings]


async def test_doctor_names_what_is_wrong_with_an_intake(store: Harness) -> None:
    scene = await Scene(store).prepare()
    found = await _found(scene)
    assert (Level.WARNING, 'intake "orders": no process runs it') in found
    assert (Level.WARNING, 'intake "orders": it has one replica: set three') in found
    assert (Level.OK, 'intake "orders": kafka://host/orders answers, 3 partitions') in found
    assert (Level.WARNING, 'relay "ends": no process runs it') in found
    assert (Level.WARNING, 'relay "ends": the exchange does not answer') in found


async def test_doctor_calls_what_waits_for_an_operator_a_problem(store: Harness) -> None:
    scene = await Scene(store).prepare()
    await scene.run_by("s1", "orders")
    await scene.tell(p0=PartitionStatus(owner="s1", error="another log", stopped=True))
    await scene.read(gaps=2)
    found = await _found(scene)
    assert (Level.PROBLEM, 'intake "orders", partition 0 has stopped: another log') in found
    assert (Level.WARNING, 'relay "ends": events were dropped 2 times before it had read them') in found


async def test_doctor_knows_queues_whose_messages_have_no_ids(store: Harness) -> None:
    scene = await Scene(store).prepare()
    queue = FakeQueueSource(Queue(), VirtualPace())
    queue.names_messages = False
    scene.source = queue
    found = await _found(scene)
    assert any(level is Level.WARNING and "have no id" in text for level, text in found)


async def test_doctor_says_what_is_left_of_an_intake_that_is_gone(store: Harness) -> None:
    scene = await Scene(store).prepare()
    await scene.take("0", None, "4")
    del scene.app.intakes["orders"]
    assert (
        Level.NOTE,
        'intake "orders": no code declares it any more, and 1 offset is left',
    ) in await _found(scene)


async def test_the_first_page_tells_of_trouble_with_bridges(store: Harness) -> None:
    scene = await Scene(store).prepare()
    await scene.run_by("s1", "orders")
    await scene.tell(p0=PartitionStatus(owner="s1", error="another log", stopped=True))
    await scene.read(error="no answer", gaps=1)
    problems = (await overview(scene.app, scene.store.broker)).problems
    told = {(each.kind, each.level, each.text) for each in problems if each.kind in ("intake", "relay")}
    assert told == {
        ("intake", "problem", 'intake "orders" has stopped in partition 0: another log'),
        ("relay", "warning", 'relay "ends": no answer'),
        ("relay", "warning", 'relay "ends" has missed events: 1 gap'),
    }


# --- with a process that really runs the intake -------------------------------------------------------------


def test_an_operator_lets_a_stopped_intake_go_on() -> None:
    bench = Bench()
    topic = Topic("0")

    def source() -> FakeLogSource:
        return FakeLogSource(topic, bench.pace)

    async def opens(_: Address) -> FakeLogSource:
        return source()

    async def story() -> None:
        intakes = Intakes(bench.app, bench.model, opens)
        await bench.start(source)
        topic.put({"n": 1})
        await bench.until_taken(1)
        topic.make_anew()
        topic.put({"n": 2})

        async def stopped() -> bool:
            return (await intakes.one("orders")).state == "stopped"

        await bench.until(stopped)
        (partition,) = (await intakes.one("orders")).partitions
        assert partition.stopped
        assert (await intakes.move("orders", "0", "begin")).moved
        await bench.until_taken(1, 2)

        async def runs() -> bool:
            shown = await intakes.one("orders")
            return shown.state == "running" and shown.partitions[0].offset == "1"

        await bench.until(runs)

    bench.play(story)


def test_what_messages_lack_is_told_once_they_have_come() -> None:
    bench = Bench()
    queue = Queue()
    source = FakeQueueSource(queue, bench.pace)

    async def warnings() -> tuple[str, ...]:
        return () if source.names_messages else ("messages have no id",)

    source.warnings = warnings  # type: ignore[method-assign]

    async def story() -> None:
        intakes = Intakes(bench.app, bench.model)
        await bench.start(lambda: source)
        queue.put({"n": 1}, "a")
        await bench.until_taken(1)
        assert (await intakes.one("orders")).warnings == ()
        source.names_messages = False
        queue.put({"n": 2}, None)
        await bench.until_taken(1, 2)

        async def told() -> bool:
            return (await intakes.one("orders")).warnings == ("messages have no id",)

        await bench.until(told)

    bench.play(story)


def test_an_operator_leaves_messages_out_while_it_is_paused() -> None:
    bench = Bench()
    topic = Topic("0")

    def source() -> FakeLogSource:
        return FakeLogSource(topic, bench.pace)

    async def opens(_: Address) -> FakeLogSource:
        return source()

    async def story() -> None:
        intakes = Intakes(bench.app, bench.model, opens)
        await bench.start(source)
        topic.put({"n": 1})
        await bench.until_taken(1)
        await intakes.pause("orders", paused=True)
        await bench.until_told(lambda status: status.partitions["0"].waits_for == "paused")
        for number in (2, 3):
            topic.put({"n": number})
        assert (await intakes.one("orders")).state == "paused"
        moved = await intakes.move("orders", "0", "2", expect="1")
        assert (moved.before, moved.offset) == ("1", "2")
        await intakes.pause("orders", paused=False)
        await bench.until_taken(1, 3)

    bench.play(story)

"""Writes through the service: replay, discard, cancel, pausing, overrides, and enqueueing by name."""

from typing import Any

import pytest
from tests.admin.admin_bench import Bench, gathered

from windlass.admin.dead import Selection
from windlass.admin.queues import Queues
from windlass.admin.service import Service
from windlass.core.lease import Ask
from windlass.core.limits import Rate
from windlass.core.operate import Effect
from windlass.core.outcome import Outcome
from windlass.core.settings import Change, Changed, LaneSettings, QueueSettings
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.units import SECOND
from windlass.errors import InvalidOption, InvalidPayload

UNKNOWN = "0192e4a0-5b3c-7abc-8def-0123456789ab"


def _effects(batches: list[list[Any]]) -> list[Effect]:
    return [operated.effect for batch in batches for operated in batch]


def test_replay_by_ids_judges_each_by_itself_and_names_it_once(bench: Bench) -> None:
    dead, waiting = bench.add.enqueue(1), bench.add.using(delay=60).enqueue(2)
    bench.die()
    ids = [dead.id, waiting.id, UNKNOWN, dead.id]
    batches = bench.service(lambda service: gathered(service.dead.replay(ids)))
    assert _effects(batches) == [Effect.APPLIED, Effect.WRONG_STATE, Effect.NOT_FOUND]
    assert dead.state() is State.READY


def test_one_bad_id_and_nothing_is_done(bench: Bench) -> None:
    dead = bench.add.enqueue(1)
    bench.die()
    with pytest.raises(InvalidOption, match="'x' is not a UUIDv7"):
        bench.service(lambda service: gathered(service.dead.discard([dead.id, "x"], reason="a test")))
    assert dead.state() is State.DEAD


def test_more_ids_than_a_call_takes(bench: Bench) -> None:
    jobs = bench.app.enqueue_many(bench.add.call(number) for number in range(1_500))
    batches = bench.service(lambda service: gathered(service.jobs.cancel([job.id for job in jobs])))
    assert [len(batch) for batch in batches] == [1_000, 500]
    assert set(_effects(batches)) == {Effect.APPLIED}


def test_a_filter_replays_what_had_died_and_no_job_twice(bench: Bench) -> None:
    bench.app.enqueue_many(bench.add.call(number) for number in range(1_200))
    bench.die(1_000)
    bench.die(200)
    selection = Selection(died_before=bench.clock.now())
    bench.clock.advance(SECOND)

    async def replay_while_they_die_again(service: Any) -> int:
        count = 0
        async for batch in service.dead.replay_chosen(selection):
            count += len(batch)
            assert all(operated.effect is Effect.APPLIED for operated in batch)
            await _die_again(bench)
        return count

    assert bench.service(replay_while_they_die_again) == 1_200


async def _die_again(bench: Bench) -> None:
    broker = await bench.app.connection.broker()
    bench._seq += 1
    ask = Ask(session="s", seq=bench._seq, queues=("default",), slots=500, limit=500)
    leases = (await broker.claim(ask)).leases
    assert leases
    await broker.settle(
        [Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DEAD, runtime=1) for lease in leases]
    )


def test_discard_by_filter_leaves_the_others(bench: Bench) -> None:
    job = bench.add.enqueue(1)
    bench.die(kind="KeyError")
    other = bench.add.enqueue(2)
    bench.die(kind="ValueError")
    batches = bench.service(
        lambda service: gathered(service.dead.discard_chosen(Selection(error="keyerror"), reason="a test"))
    )
    assert [operated.job for batch in batches for operated in batch] == [job.id]
    assert other.state() is State.DEAD


def test_pause_and_resume(bench: Bench) -> None:
    bench.send.enqueue("a")
    bench.service(lambda service: service.queues.pause("mail"))
    assert not bench.take(1, "mail")
    bench.service(lambda service: service.queues.resume("mail"))
    assert bench.take(1, "mail")
    for verb in ("pause", "resume"):
        with pytest.raises(InvalidOption, match='"nope" is not declared; declared queues: default, mail'):
            bench.service(lambda service, verb=verb: getattr(service.queues, verb)("nope"))


def test_overrides_add_up_until_they_are_reset(bench: Bench) -> None:
    def settings() -> tuple[Any, Any]:
        queue = bench.service(lambda service: service.queues.one("mail"))
        return queue.override, queue.settings

    bench.service(lambda service: service.queues.override("mail", QueueSettings(concurrency=None)))
    bench.service(
        lambda service: service.queues.override("mail", QueueSettings(lane_rate=Rate(5, 60 * SECOND, 2)))
    )
    override = {"concurrency": None, "lane_rate": "5/m burst 2"}
    assert settings() == (override, {"rate": "100/s", **override})
    assert bench.service(lambda service: service.queues.reset("mail")) is True
    assert settings() == ({}, {"concurrency": 2, "rate": "100/s"})
    assert bench.service(lambda service: service.queues.reset("mail")) is False


def test_a_lane_is_overridden_although_nobody_declared_it(bench: Bench) -> None:
    bench.service(lambda service: service.lanes.override("default", "acme", LaneSettings(weight=7)))
    bench.service(lambda service: service.lanes.override("default", "acme", LaneSettings(concurrency=3)))
    (lane,) = bench.service(lambda service: gathered(service.lanes.all("default")))
    assert (lane.lane, lane.weight, lane.concurrency) == ("acme", 7, 3)
    assert bench.service(lambda service: service.lanes.reset("default", "acme")) is True
    assert bench.service(lambda service: service.lanes.reset("default", "acme")) is False


def test_an_override_that_others_change_at_the_same_time_is_tried_again(bench: Bench) -> None:
    class Racing:
        """A broker whose document changed between read and write, twice."""

        def __init__(self, broker: Any) -> None:
            self._broker = broker
            self.conflicts = 2

        def __getattr__(self, name: str) -> Any:
            return getattr(self._broker, name)

        async def override(self, subject: Any, body: Any, expect: int) -> Changed:
            if self.conflicts:
                self.conflicts -= 1
                return Changed(Change.CONFLICT, expect + 1)
            return await self._broker.override(subject, body, expect)

    async def race(_: Bench, broker: Any) -> None:
        await Queues(Racing(broker)).override("mail", QueueSettings(concurrency=9))  # type: ignore[arg-type]

    bench.run(race)
    assert bench.service(lambda service: service.queues.one("mail")).override == {"concurrency": 9}


def test_the_layout_of_a_queue_in_use_cannot_be_overridden(bench: Bench) -> None:
    bench.add.enqueue(1)
    with pytest.raises(InvalidOption, match="unfinished jobs; drain it first"):
        bench.service(lambda service: service.queues.override("default", QueueSettings(sequence=True)))


def test_enqueue_by_name_checks_task_arguments_and_queue(bench: Bench) -> None:
    def call(task: str, arguments: bytes, **options: Any) -> Any:
        return bench.service(lambda service: service.enqueueing.call(task, arguments, options))  # type: ignore[arg-type]

    job = call("add", b'{"a": 1}', lane="acme", priority=3)
    whole = bench.shown(job.id, payload=True)
    assert (whole.payload["kwargs"], whole.lane, whole.priority) == ({"a": 1}, "acme", 3)
    assert job.created
    with pytest.raises(InvalidOption, match=r'no task "ad"; did you mean "add"\?'):
        call("ad", b"{}")
    with pytest.raises(InvalidOption, match='no task "nope"; tasks of this app: add, send'):
        call("nope", b"{}")
    with pytest.raises(InvalidPayload, match='argument "a": expected int, got str'):
        call("add", b'{"a": "x"}')
    with pytest.raises(InvalidOption, match='queue "nope" is not declared; declared queues: default, mail'):
        call("add", b'{"a": 1}', queue="nope")


def test_a_key_that_is_taken_names_the_job_that_stands_for_the_call(bench: Bench) -> None:
    async def twice(service: Service) -> list[Any]:
        call = service.enqueueing.call
        return [await call("add", b'{"a": 1}', {"key": "k"}) for _ in range(2)]

    first, second = bench.service(twice)
    assert (first.created, second.created) == (True, False)
    assert first.id == second.id

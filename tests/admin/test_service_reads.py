"""Reads through the service: jobs, dead letters, queues, lanes and workers."""

from datetime import UTC, datetime

import pytest
from tests.admin.admin_bench import Bench, gathered

from windlass.admin.dead import DeadLetters, Selection
from windlass.admin.filtering import JobFilter
from windlass.admin.service import Service
from windlass.core.operate import Target
from windlass.core.outcome import Cause, CauseKind, Error, Outcome
from windlass.core.query import JobQuery
from windlass.core.settings import LaneSettings
from windlass.core.settlement import HoldKey
from windlass.core.state import State
from windlass.core.units import HOUR, MINUTE
from windlass.errors import InvalidOption, JobNotFound

UNKNOWN = "0192e4a0-5b3c-7abc-8def-0123456789ab"


def test_a_listing_has_every_job_once_over_many_pages(bench: Bench) -> None:
    jobs = bench.app.enqueue_many(bench.add.call(number) for number in range(2_300))
    listed = bench.service(lambda service: gathered(service.jobs.all(JobFilter())))
    assert [job.id for job in listed] == [job.id for job in reversed(jobs)]


def test_a_listing_shows_times_in_utc_and_no_payload(bench: Bench) -> None:
    bench.add.using(delay=60, lane="acme", tags=["x"]).enqueue(1)
    (job,) = bench.service(lambda service: gathered(service.jobs.all(JobFilter())))
    accepted = datetime.fromtimestamp(bench.clock.now() / 1e6, UTC)
    assert job.accepted_at == accepted
    assert (job.due_at - accepted).total_seconds() == 60
    assert (job.state, job.lane, job.tags, job.finished_at) == ("scheduled", "acme", ("x",), None)
    assert not hasattr(job, "payload")


def test_an_unknown_queue_is_named_with_those_that_are_declared(bench: Bench) -> None:
    with pytest.raises(InvalidOption, match='queue "nope" is not declared; declared queues: default, mail'):
        bench.service(lambda service: gathered(service.jobs.all(JobFilter(query=JobQuery(queue="nope")))))
    with pytest.raises(InvalidOption, match="declared queues: default, mail"):
        bench.service(lambda service: service.dead.count(Selection(queue="nope")))
    with pytest.raises(InvalidOption, match="declared queues: default, mail"):
        bench.service(lambda service: gathered(service.lanes.all("nope")))


def test_payload_and_result_are_shown_only_when_asked_for(bench: Bench) -> None:
    job = bench.add.using(headers={"trace": "t"}).enqueue(1, b=2)
    bench.settle(bench.take(), Outcome.DONE, result=bench.add.signature.encode_result(3))
    plain = bench.shown(job.id)
    assert (plain.payload, plain.result) == (None, None)
    assert plain.payload_bytes > 0
    whole = bench.shown(job.id, payload=True)
    assert whole.payload == {"args": [], "kwargs": {"a": 1, "b": 2}}
    assert whole.result == 3
    assert whole.headers == {"trace": "t"}
    assert [(run.attempt, run.outcome, run.settled) for run in whole.deliveries] == [(1, "done", True)]


def test_a_job_that_is_not_known_and_an_id_that_is_none(bench: Bench) -> None:
    with pytest.raises(JobNotFound, match=UNKNOWN):
        bench.shown(UNKNOWN)
    with pytest.raises(InvalidOption, match="not a UUIDv7"):
        bench.shown("17")


def test_dead_letters_are_chosen_by_task_queue_lane_error_and_age(bench: Bench) -> None:
    old = bench.add.enqueue(1)
    bench.die(kind="TimeoutError", message="Upstream slow")
    bench.clock.advance(HOUR)
    lane = bench.add.using(lane="acme").enqueue(2)
    bench.die()
    mail = bench.send.enqueue("a")
    bench.die(message="timeouts happen")
    bench.add.enqueue(3)  # waits: no dead letter

    def chosen(**how: object) -> set[str]:
        selection = Selection(**how)  # type: ignore[arg-type]
        found = bench.service(lambda service: gathered(service.dead.all(selection)))
        count = bench.service(lambda service: service.dead.count(selection))
        ids = bench.run(lambda _, broker: gathered(DeadLetters(bench.app, broker).ids(selection)))
        assert {job.id for job in found} == {job for batch in ids for job in batch}
        assert count == len(found)
        return {job.id for job in found}

    assert chosen() == {old.id, lane.id, mail.id}
    assert chosen(task="add") == {old.id, lane.id}
    assert chosen(queue="mail") == {mail.id}
    assert chosen(lane="acme") == {lane.id}
    assert chosen(error="TIMEOUT") == {old.id, mail.id}
    assert chosen(error="valueerror") == {lane.id, mail.id}
    assert chosen(died_before=bench.clock.now() - HOUR) == {old.id}
    assert chosen(error="timeout", task="add", died_before=bench.clock.now() - HOUR - MINUTE) == set()


def test_a_dead_letter_is_listed_with_its_error(bench: Bench) -> None:
    bench.add.enqueue(1)
    bench.die(kind="KeyError", message="'x'")
    (job,) = bench.service(lambda service: gathered(service.dead.all(Selection())))
    assert (job.error.type, job.error.message, job.reason) == ("KeyError", "'x'", "gave up")


def test_a_dead_letter_that_was_replayed_while_it_was_read_is_left_out(bench: Bench) -> None:
    jobs = bench.app.enqueue_many(bench.add.call(number) for number in range(50))
    bench.die(50)

    async def replayed_meanwhile(service: Service) -> list[str]:
        found: list[str] = []
        async for job in service.dead.all(Selection()):
            if not found:
                broker = await bench.app.connection.broker()
                await broker.replay([Target(jobs[0].id)])  # on the last batch of the page
            found.append(job.id)
        return found

    found = bench.service(replayed_meanwhile)
    assert sorted(found) == sorted(job.id for job in jobs[1:])


def test_queues_show_depth_age_and_both_layers(bench: Bench) -> None:
    bench.send.enqueue("a")
    bench.clock.advance(5_000_000)
    bench.send.enqueue("b")
    bench.add.using(delay=10).enqueue(1)
    default, mail = bench.service(lambda service: service.queues.all())
    assert (default.name, default.jobs["scheduled"], default.jobs["ready"], default.oldest) == (
        "default",
        1,
        0,
        None,
    )
    assert (mail.name, mail.jobs["ready"], mail.oldest) == ("mail", 2, 5.0)
    assert mail.declared == mail.settings == {"concurrency": 2, "rate": "100/s"}
    assert mail.override == {}
    assert (mail.paused, default.paused) == (False, False)
    bench.service(lambda service: service.queues.pause("mail"))
    assert bench.service(lambda service: service.queues.one("mail")).paused is True


def test_lanes_show_backlog_share_and_why_they_are_parked(bench: Bench) -> None:
    for lane, count in (("a", 3), ("b", 1), ("c", 1)):
        for number in range(count):
            bench.add.using(lane=lane).enqueue(number)
    bench.service(lambda service: service.lanes.override("default", "a", LaneSettings(weight=3)))
    bench.service(lambda service: service.lanes.pause("default", "c"))
    a, b, c = bench.service(lambda service: gathered(service.lanes.all("default")))
    assert [(lane.lane, lane.ready, lane.weight, lane.share) for lane in (a, b, c)] == [
        ("a", 3, 3, 0.75),
        ("b", 1, 1, 0.25),
        ("c", 1, 1, None),
    ]
    assert (c.parked, c.paused) == ("paused", True)
    bench.take(1, "default")
    lag = {
        lane.lane: lane.lag for lane in bench.service(lambda service: gathered(service.lanes.all("default")))
    }
    assert sum(lag.values()) > 0


def test_workers_show_who_is_alive_and_why_others_ended(bench: Bench) -> None:
    bench.open(host="h", pid=7)
    bench.add.enqueue(1)
    bench.take()
    (worker,) = bench.service(lambda service: gathered(service.workers.all()))
    assert (worker.state, worker.host, worker.pid, worker.leases, worker.slots, worker.ttl) == (
        "alive",
        "h",
        7,
        1,
        4,
        30.0,
    )
    bench.run(lambda _, broker: broker.end_session("s", Cause(CauseKind.CRASH, "signal 9"), []))
    (worker,) = bench.service(lambda service: gathered(service.workers.all()))
    assert (worker.state, worker.cause.kind, worker.cause.detail) == ("ended", "crash", "signal 9")


def test_an_error_in_a_run_is_kept_with_it(bench: Bench) -> None:
    job = bench.add.enqueue(1)
    bench.settle(bench.take(), Outcome.RETRY, error=Error(type="E", message="m"), delay=1)
    whole = bench.shown(job.id)
    assert whole.state == State.SCHEDULED
    assert whole.deliveries[0].error.type == "E"
    assert whole.deliveries[0].runtime == 1e-6


def test_a_flow_whose_only_job_is_held_is_stuck_to_its_handle_as_to_operators(bench: Bench) -> None:
    bench.add.using(flow="f").enqueue(1)
    flow = bench.app.flow("f")
    assert flow.state() == "running"
    bench.settle(bench.take(), Outcome.HOLD, hold=HoldKey("task:add", "unknown task"), runtime=None)
    assert flow.state() == bench.service(lambda service: service.flows.one("f")).state == "stuck"
    assert flow.finish(timeout=60).state == "stuck"
    seen = bench.service(lambda service: service.flows.stuck())
    assert [each.id for each in seen.flows] == ["f"]

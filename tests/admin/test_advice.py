"""Why a job waits, in words: every reason, told by a real store, with what to do."""

from typing import Any

import pytest
from tests.admin.admin_bench import Bench

from windlass.admin.advice import Advice, length
from windlass.admin.service import Service
from windlass.core.lease import Ask
from windlass.core.limits import Rate
from windlass.core.outcome import Cause, CauseKind, Error, Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import LaneSettings, QueueSettings
from windlass.core.settlement import HoldKey
from windlass.core.units import DAY, HOUR, MINUTE, SECOND
from windlass.errors import InvalidOption, JobNotFound


def explained(bench: Bench, job: Any) -> Advice:
    async def explain(service: Service) -> Advice:
        return await service.jobs.explain(await service.jobs.one(job.id))

    return bench.service(explain)


def test_no_worker(bench: Bench) -> None:
    job = bench.send.enqueue("a")
    advice = explained(bench, job)
    assert (advice.why, advice.state, advice.task, advice.queue) == ("no_worker", "ready", "send", "mail")
    assert advice.text == 'no live worker serves queue "mail"; no worker is alive at all'
    assert advice.do == 'start a worker for queue "mail"'
    bench.open("default")
    assert explained(bench, job).text == 'no live worker serves queue "mail"; live workers serve: default'


def test_first_and_behind_others(bench: Bench) -> None:
    bench.open()
    first, second, third = (bench.add.enqueue(number) for number in range(3))
    assert explained(bench, first).text == "it is first in its lane: the next free slot takes it"
    assert explained(bench, second).text == "1 job goes first in its lane"
    assert explained(bench, third).text == "2 jobs go first in its lane"
    assert explained(bench, third).ahead == 2


def test_not_due_and_retrying(bench: Bench) -> None:
    job = bench.add.using(delay=90).enqueue(1)
    advice = explained(bench, job)
    assert advice.text == "it is not due yet: it becomes ready in 1 min 30 s"
    assert (advice.next_in, advice.do) == (90.0, "")
    retried = bench.add.enqueue(2)
    bench.settle(bench.take(), Outcome.RETRY, error=Error(type="E", message="m"), delay=2 * SECOND)
    advice = explained(bench, retried)
    assert advice.text == "attempt 1 of 5 failed; the next one is due in 2.0 s"
    assert advice.error == "E: m"


def test_held(bench: Bench) -> None:
    job = bench.add.enqueue(1)
    bench.settle(bench.take(), Outcome.HOLD, hold=HoldKey("task:add", "unknown task"), runtime=None)
    advice = explained(bench, job)
    assert advice.text == "no worker can run it (once so far): unknown task; it is offered again in 1.0 s"
    assert advice.do.startswith('start a worker whose code has the task "add"')


def test_running_names_the_process(bench: Bench) -> None:
    bench.open(host="box", pid=4711)
    job = bench.add.enqueue(1)
    bench.take()
    bench.clock.advance(3 * SECOND)
    advice = explained(bench, job)
    assert advice.text == (
        "it is running, attempt 1 of 5, in process 4711 on box (session s, last heard of 0.0 s ago), "
        "since 3.0 s"
    )
    job.cancel()
    assert explained(bench, job).do.startswith("its worker was asked to stop it; a def task")


def test_finished(bench: Bench) -> None:
    job = bench.add.enqueue(1)
    bench.settle(bench.take(), Outcome.DONE)
    bench.clock.advance(HOUR + 2 * MINUTE)
    assert explained(bench, job).text == "it finished 1 h 2 min ago: done"
    dead = bench.add.enqueue(2)
    bench.die()
    advice = explained(bench, dead)
    assert (advice.text, advice.error) == ("it died 0.0 s ago (gave up)", "ValueError: no good")
    assert "replay it" in advice.do


def test_blocked(bench: Bench) -> None:
    parent = bench.add.enqueue(1)
    child = bench.add.using(after=parent).enqueue(2)
    advice = explained(bench, child)
    assert advice.text == f"it waits for a parent that is not done: {parent.id}"
    bench.die()
    advice = explained(bench, child)
    assert advice.text == "a parent that it waits for is dead"
    assert parent.id in advice.do


def test_many_parents_are_not_all_named(bench: Bench) -> None:
    parents = [bench.add.enqueue(number) for number in range(5)]
    child = bench.add.using(after=parents).enqueue(9)
    text = explained(bench, child).text
    assert text.startswith("it waits for 5 parents that are not done: ")
    assert text.endswith(", …")


def test_follows(bench: Bench) -> None:
    bench.add.using(key="k", mode="replace").enqueue(1)
    bench.take()
    follower = bench.add.using(key="k", mode="replace").enqueue(2)
    assert (
        explained(bench, follower).text
        == 'the job before it under its key "k" is still running; it runs next'
    )


def test_paused(bench: Bench) -> None:
    job = bench.add.using(lane="acme").enqueue(1)
    bench.service(lambda service: service.lanes.pause("default", "acme"))
    assert explained(bench, job).do == 'resume lane "acme" of queue "default"'
    bench.service(lambda service: service.queues.pause("default"))
    assert explained(bench, job).text == 'queue "default" is paused'


@pytest.mark.parametrize(
    ("settings", "lane", "text"),
    [
        (QueueSettings(concurrency=1), None, 'queue "default" is at its concurrency limit'),
        (None, LaneSettings(concurrency=1), 'lane "acme" of queue "default" is at its concurrency limit'),
    ],
)
def test_at_a_limit(bench: Bench, settings: Any, lane: Any, text: str) -> None:
    if settings is not None:
        bench.service(lambda service: service.queues.override("default", settings))
    if lane is not None:
        bench.service(lambda service: service.lanes.override("default", "acme", lane))
    bench.add.using(lane="acme").enqueue(1)
    bench.take()
    advice = explained(bench, bench.add.using(lane="acme").enqueue(2))
    assert advice.text == text
    assert "raise the limit" in advice.do


def test_at_a_rate(bench: Bench) -> None:
    bench.service(lambda service: service.queues.override("default", QueueSettings(rate=Rate(1, MINUTE, 1))))
    bench.add.enqueue(1)
    bench.take()
    advice = explained(bench, bench.add.enqueue(2))
    assert advice.text == 'queue "default" is at its rate limit; the next token comes in 1 min'
    assert advice.next_in == 60.0


def test_a_sequence_names_the_job_in_front(bench: Bench) -> None:
    bench.app.queue("line", sequence=True)
    first = bench.add.using(queue="line", lane="x", delay=60).enqueue(1)
    second = bench.add.using(queue="line", lane="x").enqueue(2)
    assert explained(bench, second).text == f"an earlier job of its lane is not finished: {first.id}"


def test_a_suspect_waits_to_run_alone(bench: Bench) -> None:
    job = bench.add.enqueue(1)
    for number in range(2):
        session = f"crashing{number}"

        async def crash(_: Bench, broker: Any, session: str = session) -> None:
            await broker.beat([Beat(session=session, open=SessionInfo(queues=("default",)))])
            ask = Ask(session=session, seq=1, queues=("default",), slots=1, limit=1)
            fence = (await broker.claim(ask)).leases[0].fence
            await broker.end_session(session, Cause(CauseKind.CRASH, "signal 11"), [(job.id, fence)])

        bench.run(crash)
        bench.clock.advance(MINUTE)
        bench.run(lambda _, broker: broker.sweep(limit=10))
    bench.open()
    advice = explained(bench, job)
    assert advice.why == "suspect"
    assert advice.text.startswith("it was running in 2 crashes")


def test_what_is_not_known(bench: Bench) -> None:
    with pytest.raises(JobNotFound):
        bench.shown("0192e4a0-5b3c-7abc-8def-0123456789ab")
    with pytest.raises(InvalidOption):
        bench.shown("nonsense")


def test_a_length_has_two_units_at_the_most() -> None:
    lengths = [0, SECOND // 2, 59 * SECOND, MINUTE, 61 * SECOND, HOUR + MINUTE + SECOND, 3 * DAY + 5 * HOUR]
    words = ["0.0 s", "0.5 s", "59.0 s", "1 min", "1 min 1 s", "1 h 1 min", "3 d 5 h"]
    assert [length(one) for one in lengths] == words

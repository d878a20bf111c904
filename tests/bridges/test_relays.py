"""Relays: every end is told at least once, in its order, under an id that is the same for every try."""

import logging
from typing import Annotated

import msgspec
import pytest
from tests.bridges.relaying import Bench, Taken
from tests.bridges.stores import namespaces, open_broker, redis_server

from windlass.conformance.harness import Harness
from windlass.core.codec import VERSION, Call, encode
from windlass.core.event import Emit
from windlass.core.operate import Edit, Effect
from windlass.core.secret import MASK, Secret
from windlass.core.signature import Signature
from windlass.core.units import DAY, SECOND
from windlass.errors import BridgeUnavailable
from windlass.worker import relays
from windlass.worker.turn import SOON

__all__ = ["namespaces", "open_broker", "redis_server"]

ARGUMENTS = encode(Call(VERSION, (1,)))
AWAY = BridgeUnavailable("the message broker does not answer")


async def test_every_end_is_told_once_and_in_order_over_many_pages(
    store: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relays, "PAGE", 10)
    monkeypatch.setattr(relays, "DETAILS", 3)
    bench = await Bench(store).prepare()
    jobs = await bench.done(25)
    relay = bench.relay()
    assert [await relay.step() for _ in range(4)] == [0.0, 0.0, SOON, SOON]
    assert bench.taken.jobs == jobs
    assert len(set(bench.taken.ids)) == 25
    more = await bench.done(2)
    await relay.step()
    assert bench.taken.jobs == jobs + more
    assert (await bench.reading()).sent == 27
    assert bench.taken.calls == [10, 10, 5, 2], "what is read in pieces is sent at once"


async def test_a_message_says_what_ended_and_how(store: Harness) -> None:
    bench = await Bench(store).prepare()
    await store.add(
        task="ship",
        lane="acme",
        payload=b'{"v":1,"a":[1],"k":{"to":"x"}}',
        headers={"trace": "x"},
        tags=("t",),
    )
    worker = await store.worker(slots=1)
    lease = await worker.one()
    await store.dead(lease)
    await bench.relay(to="jobs.{queue}.{task}.{lane}.{state}").step()
    (got,) = bench.taken.got
    assert got.id == f"{lease.job}:{lease.fence}:dead"
    assert (got.to, got.key) == ("jobs.q.ship.acme.dead", "acme")
    assert got.headers == {
        "windlass-job": lease.job,
        "windlass-task": "ship",
        "windlass-queue": "q",
        "windlass-state": "dead",
    }
    said = bench.taken.said()
    assert (said["type"], said["namespace"]) == ("job.dead", "ns")
    job = said["job"]
    assert job["error"] == {"type": "GiveUp", "message": "no"}
    assert job["payload"] == {"args": [1], "kwargs": {"to": "x"}}
    assert (job["headers"], job["tags"], job["attempt"]) == ({"trace": "x"}, ["t"], 1)


async def test_only_what_was_asked_for_is_told(store: Harness) -> None:
    bench = await Bench(store).prepare()
    await store.queue("other", emit=Emit.FINAL)
    await bench.done(1)
    await store.cancel(await store.add(queue="other"))
    await store.cancel(await store.add(task="else"))
    wanted = await store.add(task="ship")
    await store.cancel(wanted)
    dead = await bench.dead(task="ship")
    await bench.relay(queues=("q",), tasks=("ship",), on=("cancelled", "dead")).step()
    assert bench.taken.jobs == [wanted, dead]
    assert [each.headers["windlass-state"] for each in bench.taken.got] == ["cancelled", "dead"]


async def test_windlass_does_not_tell_of_its_own_tasks(store: Harness) -> None:
    bench = await Bench(store).prepare()
    await bench.done(1, task="windlass.webhook")
    own = await store.add(task="windlass.webhook")
    await store.cancel(own)
    theirs = await bench.done(1)
    await bench.relay().step()
    assert bench.taken.jobs == theirs


async def test_a_job_that_is_done_has_no_error_of_an_earlier_run(store: Harness) -> None:
    bench = await Bench(store).prepare()
    await store.add(max_attempts=2)
    worker = await store.worker(slots=1)
    await store.retry(await worker.one())
    await store.sweep()
    await store.done(await worker.one())
    await bench.relay().step()
    assert [each.headers["windlass-state"] for each in bench.taken.got] == ["done"]
    assert bench.taken.said()["job"]["error"] is None


async def test_a_dead_letter_that_is_edited_has_not_ended_again(store: Harness) -> None:
    bench = await Bench(store).prepare(emit=Emit.ALL)
    job = await bench.dead()
    (edited,) = await store.broker.edit([Edit(job=job, priority=3)])
    assert edited.effect is Effect.APPLIED
    await bench.relay().step()
    assert bench.taken.jobs == [job]


async def test_a_job_that_is_gone_or_pruned_is_told_without_its_arguments(store: Harness) -> None:
    bench = await Bench(store).prepare()
    await store.queue("q", emit=Emit.FINAL, retention=0)
    (gone,) = await bench.done(1, payload=ARGUMENTS)
    store.advance(DAY)
    await store.sweep()
    assert await store.missing(gone)
    (pruned,) = await bench.done(1, payload=ARGUMENTS)
    await store.sweep()
    assert (await store.get(pruned)).pruned
    await bench.relay().step()
    assert bench.taken.jobs == [gone, pruned]
    for number in (0, 1):
        job = bench.taken.said(number)["job"]
        assert (job["payload"], job["error"], job["headers"]) == (None, None, {})


async def test_what_is_too_large_is_told_without_its_arguments(store: Harness) -> None:
    bench = await Bench(store).prepare()
    bench.taken.largest = 2_000
    for size in (3_000, 3):
        await bench.done(1, payload=encode(Call(VERSION, ("x" * size,))))
    await bench.relay().step()
    payloads = [bench.taken.said(number)["job"]["payload"] for number in (0, 1)]
    assert payloads == [None, {"args": ["xxx"], "kwargs": {}}]


async def test_secrets_are_masked_in_what_is_told(store: Harness) -> None:
    def login(user: str, phrase: Annotated[str, Secret]) -> None: ...

    bench = await Bench(store).prepare()
    bench.signatures["login"] = Signature(login, name="login", max_payload=1_000)
    for task in ("login", "of another program"):
        await bench.done(
            1,
            task=task,
            payload=encode(Call(VERSION, ("ann", "hush-hush"), {"password": "hunter2"})),
            headers={"x-api-key": "k-e-y", "windlass-callback": "https://example.com/hush-hush", "a": "b"},
        )
    await bench.done(1, task="login", payload=encode(Call(VERSION, ("ann", "hush-hush"))))
    await bench.relay().step()
    for number in (0, 1):
        job = bench.taken.said(number)["job"]
        assert job["payload"]["kwargs"] == {"password": MASK}
        assert job["headers"] == {
            "x-api-key": MASK,
            "windlass-callback": "https://example.com/…",
            "a": "b",
        }
    assert bench.taken.said(2)["job"]["payload"]["kwargs"] == {"user": "ann", "phrase": MASK}


async def test_messages_without_arguments_and_arguments_that_are_no_json(store: Harness) -> None:
    bench = await Bench(store).prepare()
    await bench.done(1, payload=b"\xff")
    await bench.relay(payload=False).step()
    assert "payload" not in bench.taken.said()["job"]
    other = Taken()
    await bench.relay(other, name="other").step()
    assert other.said()["job"]["payload"] == {"base64": "/w=="}


async def test_a_later_relay_may_begin_behind_what_has_ended(store: Harness) -> None:
    bench = await Bench(store).prepare()
    await bench.done(2)
    relay = bench.relay(start="last")
    await relay.step()
    assert bench.taken.got == []
    later = await bench.done(1)
    await relay.step()
    assert bench.taken.jobs == later


async def test_a_gap_is_counted_once_and_at_once(store: Harness, caplog: pytest.LogCaptureFixture) -> None:
    """Also while nothing can be published, and though the page is read again and again."""
    capped = await store.fresh(events_kept=3)
    bench = await Bench(capped).prepare()
    relay = bench.relay()
    await bench.done(1)
    await capped.sweep()
    await relay.tried()
    bench.taken.trouble = lambda _: AWAY
    jobs = await bench.done(10)
    await capped.sweep()
    with caplog.at_level(logging.WARNING, "windlass.bridges"):
        for _ in range(3):
            await relay.tried()
    assert (await bench.reading()).gaps == 1
    assert sum("dropped from the log" in record.message for record in caplog.records) == 1
    bench.taken.trouble = lambda _: None
    await relay.tried()
    assert bench.taken.jobs[1:] == jobs[-3:]
    await relay.tried()
    assert (await bench.reading()).gaps == 1
    await bench.done(10)
    await capped.sweep()
    await relay.tried()
    assert (await bench.reading()).gaps == 2


async def test_a_paused_relay_keeps_its_place(store: Harness) -> None:
    bench = await Bench(store).prepare()
    relay = bench.relay()
    await relay.step()
    await bench.pause(paused=True)
    store.advance(2 * SECOND)
    jobs = await bench.done(2)
    assert await relay.step() == relays.LOOK
    assert bench.taken.got == []
    await bench.pause(paused=False)
    store.advance(2 * SECOND)
    await relay.step()
    assert bench.taken.jobs == jobs


async def test_a_document_that_nothing_new_happened_to_is_not_written(store: Harness) -> None:
    """Each write makes all workers read their settings again."""
    bench = await Bench(store).prepare()
    await bench.done(1)
    relay = bench.relay()
    await relay.step()
    before = msgspec.json.encode(await bench.reading())
    for _ in range(10):
        await relay.step()
        store.advance(SECOND)
    assert msgspec.json.encode(await bench.reading()) == before

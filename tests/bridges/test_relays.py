"""Relays: every end is told at least once, in its order, under an id that is the same for every try."""

import asyncio
import logging
from typing import Annotated, Any

import msgspec
import pytest
from tests.bridges.relaying import Around, Bench, Taken
from tests.bridges.stores import namespaces, open_broker, redis_server

from windlass.bridges.message import Outgoing
from windlass.conformance.harness import Harness
from windlass.core.codec import VERSION, Call, encode
from windlass.core.event import Emit
from windlass.core.operate import Edit, Effect
from windlass.core.secret import MASK, Secret
from windlass.core.signature import Signature
from windlass.core.units import DAY, MINUTE, SECOND
from windlass.errors import BridgeRefused, BridgeUnavailable, InvalidOption, StoreUnavailable
from windlass.worker import relays
from windlass.worker.turn import HELD, LATER, SOON

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


# --- trouble of the message broker --------------------------------------------------------------------------


async def test_while_the_message_broker_is_away_nothing_is_lost_and_it_is_said_why(store: Harness) -> None:
    bench = await Bench(store).prepare()
    jobs = await bench.done(3)
    store.advance(7 * SECOND)
    bench.taken.trouble = lambda _: AWAY
    relay = bench.relay()
    pauses = [await relay.tried() for _ in range(12)]
    assert pauses == sorted(pauses)
    assert pauses[0] < 0.1
    assert pauses[-1] <= relays.LONGEST
    shown = await bench.reading()
    assert (shown.error, shown.sent, shown.host != "") == (str(AWAY), 0, True)
    assert shown.behind is not None
    assert shown.behind >= 7 * SECOND
    bench.taken.trouble = lambda _: None
    assert await relay.tried() == SOON
    assert bench.taken.jobs == jobs
    shown = await bench.reading()
    assert (shown.error, shown.sent) == ("", 3)
    assert (await relay.tried(), bench.taken.jobs) == (SOON, jobs)
    await bench.done(1)
    bench.taken.trouble = lambda _: AWAY
    assert await relay.tried() == pauses[0], "the next trouble is another one"


async def test_a_trouble_that_stays_is_written_down_now_and_then(store: Harness) -> None:
    """Each write makes all workers read their settings again."""
    bench = await Bench(store).prepare()
    await bench.done(1)
    bench.taken.trouble = lambda _: AWAY
    relay = bench.relay()
    await relay.tried()
    version = await bench.version()
    for _ in range(5):
        store.advance(SECOND)
        await relay.tried()
    assert await bench.version() == version
    store.advance(int(relays.SHOWN * SECOND) - 5 * SECOND)
    await relay.tried()
    assert await bench.version() == version + 1
    shown = await bench.reading()
    assert shown.behind is not None
    assert shown.behind >= relays.SHOWN * SECOND


async def test_a_message_broker_that_cannot_be_opened_is_tried_again(
    store: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    bench = await Bench(store).prepare()
    jobs = await bench.done(1)
    relay = bench.relay()
    for error in (AWAY, BridgeRefused("wrong password"), InvalidOption("needs a package"), OSError("odd")):
        bench.cannot_open = error
        assert await relay.tried() > 0
        assert str(error) in (await bench.reading()).error
    unforeseen = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert list(map(str, unforeseen)) == ["odd"], "a traceback is for what nobody has foreseen"
    bench.cannot_open = None
    await relay.tried()
    assert bench.taken.jobs == jobs


async def test_what_was_taken_without_an_answer_comes_again_under_the_same_ids(
    store: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await Bench(store).prepare()
    await bench.done(4)
    bench.taken.after = lambda _: AWAY
    relay = bench.relay()
    await relay.tried()
    bench.taken.after = lambda _: None
    await relay.tried()
    assert bench.taken.ids[:4] == bench.taken.ids[4:]
    assert len(bench.taken.ids) == 8
    assert (await bench.reading()).sent == 4


async def test_a_message_that_can_never_be_taken_is_left_out_counted_and_logged(
    store: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    bench = await Bench(store).prepare()
    jobs = await bench.done(5)
    poison = {jobs[1], jobs[3]}

    def refuses(messages: Any) -> Exception | None:
        numbers = [n for n, each in enumerate(messages) if each.headers["windlass-job"] in poison]
        return BridgeRefused("too large", tuple(numbers[:1])) if numbers else None

    bench.taken.trouble = refuses
    with caplog.at_level(logging.WARNING, "windlass.bridges"):
        relay = bench.relay()
        assert await relay.tried() == SOON
    assert bench.taken.jobs == [job for job in jobs if job not in poison]
    shown = await bench.reading()
    assert (shown.sent, shown.refused, shown.refused_job, shown.error) == (3, 2, jobs[3], "")
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    for job in poison:
        assert any(job in line and "too large" in line for line in said)
    poison.update(later := await bench.done(1))
    await relay.tried()
    shown = await bench.reading()
    assert (shown.sent, shown.refused, shown.refused_job) == (3, 3, later[0])


async def test_what_is_refused_is_counted_once_though_the_page_is_sent_again(
    store: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relays, "MOST_BYTES", 1)
    monkeypatch.setattr(relays, "DETAILS", 1)
    bench = await Bench(store).prepare()
    jobs = await bench.done(3)

    def refuses(messages: list[Outgoing]) -> Exception | None:
        (job,) = (each.headers["windlass-job"] for each in messages)
        return BridgeRefused("no", (0,)) if job == jobs[0] else AWAY if job == jobs[2] else None

    bench.taken.trouble = refuses  # pyright: ignore[reportAttributeAccessIssue]
    relay = bench.relay()
    for _ in range(3):
        await relay.tried()
    assert (await bench.reading()).refused == 0
    jobs[2] = ""
    await relay.tried()
    assert ((await bench.reading()).refused, (await bench.reading()).sent) == (1, 2)


@pytest.mark.parametrize("numbers", [(), (7,), (-1,)])
async def test_what_has_to_be_changed_at_the_message_broker_is_waited_for(
    store: Harness, numbers: tuple[int, ...]
) -> None:
    bench = await Bench(store).prepare()
    jobs = await bench.done(2)
    bench.taken.trouble = lambda _: BridgeRefused("there is no exchange", numbers)
    relay = bench.relay()
    for _ in range(3):
        await relay.tried()
    shown = await bench.reading()
    assert (shown.error, shown.refused) == ("there is no exchange", 0)
    bench.taken.trouble = lambda _: None
    await relay.tried()
    assert bench.taken.jobs == jobs


async def test_a_slow_message_broker_is_asked_for_fewer_at_once(
    store: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relays, "ANSWERING", 0.01)
    monkeypatch.setattr(relays, "PAGE", 8)
    bench = await Bench(store).prepare()
    jobs = await bench.done(8)
    bench.taken.hangs = True
    relay = bench.relay()
    for _ in range(4):
        await relay.tried()
    assert bench.taken.calls == [8, 4, 2, 1]
    assert "has not taken" in (await bench.reading()).error
    bench.taken.hangs = False
    monkeypatch.setattr(relays, "ANSWERING", 12.0)
    await relay.tried()
    assert bench.taken.calls[4:] == [1, 2, 4, 1]
    assert bench.taken.jobs == jobs


async def test_who_fails_for_a_minute_lets_another_try(store: Harness) -> None:
    bench = await Bench(store).prepare()
    jobs = await bench.done(1)
    bench.taken.trouble = lambda _: AWAY
    elsewhere = Taken()
    first, second = bench.relay(), bench.relay(elsewhere)
    for _ in range(6):
        await first.tried()
        assert await second.tried() == LATER
        store.advance(10 * SECOND)
    await first.tried()
    await second.tried()
    assert elsewhere.jobs == jobs
    assert (await bench.reading()).error == ""


async def test_what_the_message_broker_warns_of_is_shown(store: Harness) -> None:
    bench = await Bench(store).prepare()
    await store.queue("mute")
    bench.taken.warns = ["one replica"]
    await bench.relay(queues=("q", "mute", "none")).step()
    first, second, third = (await bench.reading()).warnings
    assert first == "one replica"
    assert '"mute" writes no events' in second
    assert third == 'there is no queue "none"'


# --- whose turn it is ---------------------------------------------------------------------------------------


async def test_one_of_many_publishes_and_another_takes_over_when_it_is_gone(store: Harness) -> None:
    bench = await Bench(store).prepare()
    first, second = bench.relay(), bench.relay()
    assert await first.step() == SOON
    jobs = await bench.done(2)
    assert await second.step() == LATER
    assert bench.taken.got == []
    store.advance(HELD + MINUTE)
    assert await second.step() == SOON
    assert bench.taken.jobs == jobs
    assert await first.step() == LATER


async def test_a_worker_that_stops_leaves_its_turn_at_once(store: Harness) -> None:
    bench = await Bench(store).prepare()
    jobs = await bench.done(1)
    bench.taken.hangs = True
    running = asyncio.create_task(bench.relay().run())
    await bench.taken.hung.wait()
    other = Taken()
    second = bench.relay(other)
    assert await second.step() == LATER
    running.cancel()
    await asyncio.wait([running])
    assert bench.taken.closed == 1
    assert await second.step() == SOON
    assert other.jobs == jobs


async def test_who_loses_the_turn_while_publishing_moves_nothing(
    store: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was frozen: another has told of the page, and of more."""
    monkeypatch.setattr(relays, "MOST_BYTES", 1)
    monkeypatch.setattr(relays, "DETAILS", 2)
    bench = await Bench(store).prepare()
    jobs = await bench.done(4)
    bench.taken.hangs = True
    other = Taken()
    frozen, second = bench.relay(), bench.relay(other)
    publishing = asyncio.create_task(frozen.step())
    await bench.taken.hung.wait()
    store.advance(HELD + MINUTE)
    assert await second.step() == SOON
    jobs += await bench.done(1)
    assert await second.step() == SOON
    assert other.jobs == jobs
    kept = await bench.reading()
    bench.taken.goes_on.set()
    assert await publishing == LATER
    assert bench.taken.jobs == jobs[:2], "nothing after the call that was under way"
    assert bench.taken.ids == other.ids[:2]
    after = await bench.reading()
    assert (after.cursor, after.sent) == (kept.cursor, kept.sent)


async def test_who_has_lost_the_turn_when_it_keeps_the_place_stops(store: Harness) -> None:
    bench = await Bench(store).prepare()
    jobs = await bench.done(2)
    bench.taken.hangs = True
    other = Taken()
    frozen, second = bench.relay(), bench.relay(other)
    publishing = asyncio.create_task(frozen.step())
    await bench.taken.hung.wait()
    store.advance(HELD + MINUTE)
    await second.step()
    kept = await bench.reading()
    bench.taken.goes_on.set()
    await publishing
    assert await bench.reading() == kept
    bench.taken.hangs = False
    await bench.done(1)
    assert await frozen.step() == LATER
    assert bench.taken.jobs == jobs


async def test_who_finds_the_turn_free_again_does_not_take_the_place_back(
    store: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another has had the turn meanwhile, has gone on, and has left."""
    monkeypatch.setattr(relays, "MOST_BYTES", 1)
    monkeypatch.setattr(relays, "DETAILS", 2)
    bench = await Bench(store).prepare()
    jobs = await bench.done(4)
    bench.taken.hangs = True
    other = Taken()
    frozen, second = bench.relay(), bench.relay(other)
    publishing = asyncio.create_task(frozen.step())
    await bench.taken.hung.wait()
    store.advance(HELD + MINUTE)
    await second.step()
    store.advance(HELD + MINUTE)
    bench.taken.goes_on.set()
    assert await publishing == LATER
    assert bench.taken.jobs == jobs[:2]
    later = await bench.done(1)
    bench.taken.hangs = False
    await frozen.step()
    assert bench.taken.jobs == jobs[:2] + later


async def test_a_store_that_goes_away_before_the_place_is_kept_is_a_repeat(store: Harness) -> None:
    bench = await Bench(store).prepare()
    await bench.done(3)
    away = False

    async def override(*given: Any) -> Any:
        if bench.taken.got and away:
            raise StoreUnavailable("gone")
        return await store.broker.override(*given)

    away = True
    relay = bench.relay(broker=Around(store.broker, override=override))  # type: ignore[arg-type]
    assert 0 < await relay.tried() < SOON
    away = False
    await relay.tried()
    assert bench.taken.ids[:3] == bench.taken.ids[3:]
    assert (await bench.reading()).sent == 3


async def test_a_place_that_was_kept_without_an_answer_is_no_repeat(store: Harness) -> None:
    bench = await Bench(store).prepare()
    jobs = await bench.done(2)
    lost = 0

    async def override(*given: Any) -> Any:
        nonlocal lost
        changed = await store.broker.override(*given)
        if bench.taken.got and not lost:
            lost += 1
            raise StoreUnavailable("the answer was lost")
        return changed

    relay = bench.relay(broker=Around(store.broker, override=override))  # type: ignore[arg-type]
    for _ in range(3):
        await relay.tried()
    assert lost == 1
    assert bench.taken.jobs == jobs


# --- gaps and pauses ----------------------------------------------------------------------------------------


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

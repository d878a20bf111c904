"""Relays beside a message broker that is away, slow, or refuses: nothing is lost, and it is said why."""

import logging
from typing import Any

import pytest
from tests.bridges.relaying import Bench, Taken
from tests.bridges.stores import namespaces, open_broker, redis_server

from windlass.bridges.message import Outgoing
from windlass.conformance.harness import Harness
from windlass.core.units import SECOND
from windlass.errors import BridgeRefused, BridgeUnavailable, InvalidOption
from windlass.worker import relays
from windlass.worker.turn import LATER, SOON

__all__ = ["namespaces", "open_broker", "redis_server"]

AWAY = BridgeUnavailable("the message broker does not answer")


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

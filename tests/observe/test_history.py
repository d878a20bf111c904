"""History: copied from the event log without loss or doubles, and counted right."""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from windlass import Windlass
from windlass.broker.memory import MemoryBroker
from windlass.conformance.harness import Harness
from windlass.core.event import FROM_START, Emit
from windlass.core.outcome import CauseKind, Outcome
from windlass.core.state import Move
from windlass.core.units import DAY, HOUR, MINUTE, SECOND, Cursor, Micros
from windlass.errors import InvalidOption, StoreUnavailable
from windlass.observe.history import reader as reading
from windlass.observe.history.attempt import GIVEN_BACK, SAMPLE, Attempt, Slots
from windlass.observe.history.place import read_url
from windlass.observe.history.reader import HistoryReader, keep_history
from windlass.observe.history.rollup import Figures
from windlass.observe.history.sink import Sink, Window, open_sink

NOW = 1_750_000_020 * SECOND
ALL = Window(since=0, until=4_000_000_000 * SECOND)


def attempt(number: int, **said: object) -> Attempt:
    fields: dict[str, object] = {
        "job": f"01900000-0000-7000-8000-{number:012x}",
        "fence": number,
        "at": NOW + number,
        "task": "send",
        "queue": "mail",
        "lane": "",
        "outcome": Outcome.DONE,
        "move": Move.DONE,
        "attempt": 1,
        "wait": 10,
        "run": 20,
    }
    return Attempt(**{**fields, **said})  # type: ignore[arg-type]


def with_sink(url: str, story: Callable[[Sink], Awaitable[None]]) -> None:
    async def main() -> None:
        sink = await open_sink(url)
        try:
            await story(sink)
        finally:
            await sink.close()

    asyncio.run(main())


async def write(
    sink: Sink, attempts: Sequence[Attempt], slots: Sequence[Slots] = (), source: str = "s"
) -> None:
    assert await sink.turn(source, "r", 1.0, 2.0) is not None
    await sink.write(source, "r", attempts, slots, Cursor("9"))


# --- sinks --------------------------------------------------------------------------------------------------


def test_what_is_written_twice_is_one(history_url: str) -> None:
    async def story(sink: Sink) -> None:
        both = [attempt(1), attempt(2)]
        slots = [Slots(at=NOW, host="a", processes=1, slots=4, leases=1)]
        await write(sink, both, slots)
        await write(sink, [*both, attempt(3), attempt(1, fence=9)], slots)
        assert (await total(sink)).done == 4
        assert [each.slots for each in await sink.used("s", ALL)] == [4]

    with_sink(history_url, story)


def test_the_turn_is_one_readers_until_it_falls_silent(history_url: str) -> None:
    async def story(sink: Sink) -> None:
        assert await sink.turn("s", "first", 100.0, 115.0) == FROM_START
        await sink.write("s", "first", [], [], Cursor("7"))
        assert await sink.turn("s", "second", 110.0, 125.0) is None
        assert await sink.turn("s", "first", 110.0, 125.0) == "7"
        assert await sink.turn("s", "second", 126.0, 141.0) == "7"
        assert await sink.turn("other", "second", 0.0, 1.0) == FROM_START
        await sink.write("s", "first", [attempt(1)], [], Cursor("3"))
        assert await sink.turn("s", "second", 127.0, 142.0) == "7", "one without the turn moves no place"
        assert (await total(sink)).done == 1

    with_sink(history_url, story)


def test_many_may_open_it_at_once(history_url: str) -> None:
    async def main() -> None:
        sinks = await asyncio.gather(*(open_sink(history_url) for _ in range(4)))
        turns = await asyncio.gather(
            *(sink.turn("s", str(number), 1.0, 9.0) for number, sink in enumerate(sinks))
        )
        assert sum(turn is not None for turn in turns) == 1
        for sink in sinks:
            await sink.close()

    asyncio.run(main())


def nearest_rank(values: Sequence[Micros], percent: int) -> Micros:
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


def check(found: Figures, chosen: Sequence[Attempt]) -> None:
    real = [each for each in chosen if each.outcome not in GIVEN_BACK]
    count = {outcome: sum(each.outcome is outcome for each in chosen) for outcome in Outcome}
    assert (found.done, found.dead, found.cancelled) == (
        count[Outcome.DONE], count[Outcome.DEAD], count[Outcome.CANCELLED],
    )  # fmt: skip
    assert found.failed == count[Outcome.RETRY] + count[Outcome.DEAD]
    assert found.given_back == len(chosen) - len(real)
    assert found.ran == sum(each.run or 0 for each in chosen)
    for spread, values in (
        (found.waits, [each.wait for each in real if each.wait is not None]),
        (found.runs, [each.run for each in real if each.run is not None]),
    ):
        for percent in (50, 95, 99):
            told = spread.at(percent)
            if values:
                assert told == pytest.approx(nearest_rank(values, percent), rel=0.025, abs=1)
            else:
                assert told is None


def test_it_counts_as_one_would_by_hand(history_url: str) -> None:
    draw = random.Random(7)
    attempts = [
        attempt(
            number,
            at=NOW + draw.randrange(600) * SECOND,
            task=draw.choice(["a", "b", "c"]),
            queue=draw.choice(["q", "r"]),
            outcome=draw.choice(list(Outcome)),
            wait=draw.choice([None, 0, draw.randrange(10**7)]),
            run=draw.choice([None, draw.randrange(10**9)]),
        )
        for number in range(500)
    ]

    async def story(sink: Sink) -> None:
        for start in range(0, 500, 90):  # batches overlap, as after a reader's death
            await write(sink, attempts[max(0, start - 20) : start + 90])
        for task in (None, "a"):
            for queue in (None, "r"):
                window = Window(since=NOW + MINUTE, until=NOW + 7 * MINUTE, task=task, queue=queue)
                chosen = [
                    each
                    for each in attempts
                    if window.since <= each.at < window.until
                    and task in (None, each.task)
                    and queue in (None, each.queue)
                ]
                minutes = await sink.minutes("s", window)
                whole = Figures()
                for minute in minutes:
                    whole.merge(minute.figures)
                check(whole, chosen)
                for minute in minutes:
                    same = [
                        each
                        for each in chosen
                        if (each.at // MINUTE * MINUTE, each.task, each.queue)
                        == (minute.at, minute.task, minute.queue)
                    ]
                    assert same
                    check(minute.figures, same)
        assert not await sink.minutes("another", ALL)

    with_sink(history_url, story)


async def total(sink: Sink) -> Figures:
    whole = Figures()
    for minute in await sink.minutes("s", ALL):
        whole.merge(minute.figures)
    return whole


def test_what_is_old_is_dropped(history_url: str) -> None:
    async def story(sink: Sink) -> None:
        slots = [Slots(at=at, host="a", processes=1, slots=1, leases=0) for at in (NOW - DAY, NOW)]
        await write(sink, [attempt(1, at=NOW - DAY), attempt(2, at=NOW)], slots)
        await sink.forget("s", NOW - HOUR)
        assert (await total(sink)).done == 1
        assert [each.samples for each in await sink.used("s", ALL)] == [1]

    with_sink(history_url, story)


def test_a_file_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    async def main(url: str) -> None:
        await (await open_sink(url)).close()

    (tmp_path / "notes.txt").write_text("not a database, and long enough to be looked at" * 100)
    with pytest.raises(InvalidOption, match="not a SQLite file"):
        asyncio.run(main(f"sqlite:///{tmp_path / 'notes.txt'}"))
    with pytest.raises(InvalidOption, match="make its folder"):
        asyncio.run(main(f"sqlite:///{tmp_path / 'nowhere' / 'history.db'}"))


def test_a_stores_own_file_is_not_taken(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'windlass.db'}"
    app = Windlass(url)

    async def main() -> None:
        await app.broker()
        await app.aclose()
        await open_sink(url)

    with pytest.raises(InvalidOption, match="a file of its own"):
        asyncio.run(main())


def test_a_database_that_is_away_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="history database"):
        asyncio.run(open_sink(f"postgresql://nobody:secret@/none?host={tmp_path}"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url", ["redis://localhost", "history.db", "sqlite://history.db", "sqlite://", "sqlite:///h.db?keep=0"]
)
def test_a_place_that_has_no_meaning_is_refused(url: str) -> None:
    with pytest.raises(InvalidOption):
        read_url(url)


def test_a_place_says_for_how_long_it_keeps() -> None:
    assert read_url("sqlite:///h.db").keep == 30 * DAY
    place = read_url("postgresql://u:secret@h/d?keep=90d&sslmode=require")
    assert (place.keep, place.url) == (90 * DAY, "postgresql://u:secret@h/d?sslmode=require")
    assert "secret" not in repr(place)


# --- the reader ---------------------------------------------------------------------------------------------


def on_store(
    url: str,
    story: Callable[[Harness, HistoryReader, Sink], Awaitable[None]],
    *,
    emit: Emit = Emit.FINAL,
    events_kept: int = 100_000,
) -> None:
    async def opened_store(clock: object, options: object) -> MemoryBroker:
        return MemoryBroker(clock=clock, options=options)  # type: ignore[arg-type]

    async def main() -> None:
        store = await (await Harness.open(opened_store)).fresh(events_kept=events_kept)
        await store.queue("q", emit=emit)
        sink = await open_sink(url)
        try:
            await story(store, HistoryReader(store.broker, sink, "s"), sink)
        finally:
            await sink.close()
            await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("emit", [Emit.FINAL, Emit.ALL])
def test_every_attempt_is_copied_once_with_its_times(history_url: str, emit: Emit) -> None:
    async def story(store: Harness, reader: HistoryReader, sink: Sink) -> None:
        worker = await store.worker(slots=4)
        await store.add(task="t", max_attempts=2)
        store.advance(3 * SECOND)
        await store.retry(await worker.one(), runtime=500)
        store.advance(SECOND)
        assert await reader.step() == 1
        await store.done(await worker.one(), runtime=700)
        await store.add(task="t")
        await store.release(await worker.one())
        doomed = await worker.one()
        await worker.end(CauseKind.CRASH, started=[doomed])
        expired = await store.add(task="never", delay=HOUR)
        await store.cancel(expired)
        assert await reader.step() == 3
        assert await reader.step() == 0
        found = await total(sink)
        assert (found.done, found.failed, found.cancelled, found.given_back) == (1, 2, 0, 1)
        assert found.waits.at(99) == pytest.approx(3 * SECOND, rel=0.025)
        assert found.runs.at(99) == pytest.approx(700, rel=0.025)
        assert found.ran == 1_200
        assert {each.task for each in await sink.minutes("s", ALL)} == {"t"}

    on_store(history_url, story, emit=emit)


def test_the_slots_of_the_workers_are_kept(history_url: str) -> None:
    async def story(store: Harness, reader: HistoryReader, sink: Sink) -> None:
        await store.worker(slots=4, host="a")
        await store.worker(slots=4, host="a")
        await store.worker(slots=2, host="b")
        await store.add()
        for _ in range(3):
            await reader.step()
            store.advance(SAMPLE)
        found: dict[str, int] = {}
        for each in await sink.used("s", ALL):
            found[each.host] = found.get(each.host, 0) + each.slots
        assert found == {"a": 24, "b": 6}

    on_store(history_url, story)


def test_long_logs_are_copied_in_batches(history_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BATCH", 3)

    async def story(store: Harness, reader: HistoryReader, sink: Sink) -> None:
        worker = await store.worker()
        for _ in range(10):
            await store.add()
            await store.done(await worker.one())
        assert await reader.step() == 10
        assert (await total(sink)).done == 10

    on_store(history_url, story)


def test_a_reader_that_is_far_behind_asks_for_its_turn_again(
    history_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BATCH", 3)
    monkeypatch.setattr(reading, "BATCHES", 2)

    async def story(store: Harness, reader: HistoryReader, sink: Sink) -> None:
        worker = await store.worker()
        for _ in range(10):
            await store.add()
            await store.done(await worker.one())
        steps = [(await reader.step(), reader.is_behind) for _ in range(3)]
        assert steps == [(6, True), (4, False), (0, False)]
        assert (await total(sink)).done == 10

    on_store(history_url, story)


def test_two_readers_share_the_work(history_url: str) -> None:
    async def story(store: Harness, reader: HistoryReader, sink: Sink) -> None:
        now = [1_000.0]
        first = HistoryReader(store.broker, sink, "s", clock=lambda: now[0])
        second = HistoryReader(store.broker, sink, "s", clock=lambda: now[0])
        worker = await store.worker()
        await store.add()
        await store.done(await worker.one())
        assert await first.step() == 1
        assert await second.step() is None
        now[0] += 60
        await store.add()
        await store.done(await worker.one())
        assert await second.step() == 1
        assert await first.step() is None
        assert (await total(sink)).done == 2

    on_store(history_url, story)


def test_a_gap_is_told(history_url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story(store: Harness, reader: HistoryReader, sink: Sink) -> None:
        worker = await store.worker()
        assert await reader.step() == 0
        for _ in range(5):
            await store.add()
            await store.done(await worker.one())
        await store.sweep()
        assert await reader.step() == 2
        assert (await total(sink)).done == 2

    on_store(history_url, story, events_kept=2)
    assert "history has a gap" in caplog.text


def test_the_log_of_an_emptied_store_is_read_from_its_start(
    history_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(store: Harness, reader: HistoryReader, sink: Sink) -> None:
        worker = await store.worker()
        for _ in range(5):
            await store.add()
            await store.done(await worker.one())
        assert await reader.step() == 5
        other = await store.fresh()
        await other.queue("q", emit=Emit.FINAL)
        late = HistoryReader(other.broker, sink, "s", clock=lambda: 9e9)
        worker = await other.worker()
        for _ in range(2):
            await other.add()
            await other.done(await worker.one())
        assert await late.step() == 2
        assert (await total(sink)).done == 7

    on_store(history_url, story)
    assert "read from its start" in caplog.text


def test_queues_that_history_misses_are_told_once(history_url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story(store: Harness, reader: HistoryReader, sink: Sink) -> None:
        now = [1_000.0]
        reader = HistoryReader(store.broker, sink, "s", clock=lambda: now[0])
        await store.queue("silent")
        await store.queue("meant", emit=Emit.NONE)
        for _ in range(3):
            await reader.step()
            now[0] += 100

    on_store(history_url, story)
    assert caplog.text.count("writes no events") == 1
    assert 'queue "silent"' in caplog.text


def test_what_goes_wrong_with_history_is_told_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "later"
    pauses: list[float] = []

    class Enough(Exception):
        pass

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            folder.mkdir()
        if len(pauses) == 5:
            raise Enough

    async def main() -> None:
        await keep_history(f"sqlite:///{folder / 'history.db'}", MemoryBroker(), "s", sleep=sleep)

    with caplog.at_level("INFO"), pytest.raises(Enough):
        asyncio.run(main())
    assert pauses[:3] == sorted(set(pauses[:3]))
    assert pauses[3:] == [5.0, 5.0]
    assert caplog.text.count("trying until it can") == 1
    assert caplog.text.count("history is kept again") == 1

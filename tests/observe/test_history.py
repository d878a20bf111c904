"""History: copied from the event log without loss or doubles, and counted right."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from windlass import Windlass
from windlass.broker.memory import MemoryBroker
from windlass.conformance.harness import Harness
from windlass.core.enqueuer import Enqueuer, header_of
from windlass.core.event import Emit
from windlass.core.intake import runs_intake
from windlass.core.job import JobDetail
from windlass.core.outcome import CauseKind, Error
from windlass.core.units import DAY, HOUR, SECOND, JobId
from windlass.errors import InvalidOption, StoreUnavailable
from windlass.observe.history import conformance
from windlass.observe.history import reader as reading
from windlass.observe.history.attempt import SAMPLE, Batch
from windlass.observe.history.conformance import OBLIGATIONS
from windlass.observe.history.place import read_url
from windlass.observe.history.reader import HistoryReader, keep_history
from windlass.observe.history.rollup import Figures
from windlass.observe.history.sink import By, Sink, Window, open_sink

ALL = Window(since=0, until=4_000_000_000 * SECOND)


def with_sink(url: str, story: Callable[[Sink], Awaitable[None]]) -> None:
    async def main() -> None:
        sink = await open_sink(url, MemoryBroker())
        try:
            await story(sink)
        finally:
            await sink.close()

    asyncio.run(main())


# --- sinks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("obligation", OBLIGATIONS)
def test_sinks_keep_the_obligations(history_url: str, obligation: str) -> None:
    with_sink(history_url, OBLIGATIONS[obligation])


def test_each_obligation_of_a_sink_has_its_test() -> None:
    named = {
        line.strip().removeprefix("- ").partition(":")[0]
        for member in vars(Sink).values()
        for line in (getattr(member, "__doc__", None) or "").splitlines()
        if line.strip().startswith("- ")
    }
    assert named == set(OBLIGATIONS)


def test_rows_are_blanked_some_at_a_time(history_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.observe.history.sql.BLANKED_AT_ONCE", 3)

    async def story(sink: Sink) -> None:
        said = {"error_type": "E", "error": "no ada", "fingerprint": "f"}
        tags = [("user:42",), ()] * 4
        attempts = [conformance.attempt(n, tags=each, **said) for n, each in enumerate(tags)]
        jobs = [conformance.enqueued(n, tags=each, key="ada") for n, each in enumerate(tags)]
        await conformance.write(sink, Batch(attempts=attempts, enqueued=jobs))
        assert await sink.blank("s", "user:42") == 8
        trails = [await sink.trail("s", each.job) for each in jobs]
        assert [each.attempts[0].error for each in trails] == ["", "no ada"] * 4
        assert [each.enqueued and each.enqueued.key for each in trails] == [None, "ada"] * 4

    with_sink(history_url, story)


def test_many_may_open_it_at_once(history_url: str) -> None:
    async def main() -> None:
        broker = MemoryBroker()
        sinks = await asyncio.gather(*(open_sink(history_url, broker) for _ in range(4)))
        turns = await asyncio.gather(
            *(sink.turn("s", str(number), 1.0, 9.0) for number, sink in enumerate(sinks))
        )
        assert sum(turn is not None for turn in turns) == 1
        for sink in sinks:
            await sink.close()

    asyncio.run(main())


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


async def total(sink: Sink) -> Figures:
    whole = Figures()
    for minute in await sink.minutes("s", ALL):
        whole.merge(minute.figures)
    return whole


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
        sink = await open_sink(url, store.broker)
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


def test_an_attempt_is_kept_with_its_worker_its_error_and_its_tags(history_url: str) -> None:
    async def story(store: Harness, reader: HistoryReader, sink: Sink) -> None:
        worker = await store.worker(slots=4, host="box")
        by = header_of(Enqueuer(app="shop", host="web-1", key="ci (key ab12)"))
        job = await store.add(
            task="t", lane="acme", key="order-1", tags=("a", "b"), headers=by, max_attempts=3
        )
        accepted = (await store.get(job)).accepted_at
        store.advance(3 * SECOND)
        failure = Error(
            type="ValueError", message="postgresql://me:pass@db is away", traceback="…", fingerprint="f"
        )
        await store.retry(await worker.one(), error=failure, runtime=SECOND)
        await reader.step()
        store.advance(SECOND)
        doomed = await worker.one()
        await worker.end(CauseKind.CRASH, started=[doomed])
        last = await store.worker(slots=1, host="late")
        await store.done(await last.one(), runtime=2 * SECOND)
        await reader.step()
        trail = await sink.trail("s", job)
        assert trail.enqueued is not None
        said = trail.enqueued
        assert (said.at, said.key, said.by_key, said.by_app, said.by_host, said.tags) == (
            accepted, "order-1", "ci (key ab12)", "shop", "web-1", ("a", "b"),
        )  # fmt: skip
        first, second, third = trail.attempts
        assert (first.worker_id, first.host, first.lane, first.tags) == (
            worker.id, "box", "acme", ("a", "b"),
        )  # fmt: skip
        assert first.started_at == accepted + 3 * SECOND
        assert (first.error_type, first.error, first.fingerprint) == (
            "ValueError", "postgresql://[secret]@db is away", "f",
        )  # fmt: skip
        assert (second.error_type, second.worker_id) == ("crash", worker.id)
        assert (third.error_type, third.fingerprint, third.host, third.run) == ("", "", "late", 2 * SECOND)
        (failed,) = [each for each in await sink.failed("s", ALL) if each.type == "ValueError"]
        assert "pass" not in failed.message
        assert {each.name for each in await sink.groups("s", ALL, By.ERROR)} == {"f", "crash"}
        assert {each.worker_id for each in await sink.workers("s", ALL)} == {worker.id, last.id}

    on_store(history_url, story)


def test_an_error_that_its_worker_did_not_mask_is_masked(history_url: str) -> None:
    """That worker may be older, or have other settings: the reader masks by its own."""

    async def story(store: Harness, _: HistoryReader, sink: Sink) -> None:
        reader = HistoryReader(store.broker, sink, "s", patterns=["email"])
        worker = await store.worker(slots=1)
        job = await store.add(task="t", max_attempts=1)
        # So long that it is cut in the middle of the second address.
        message = f"no mailbox ada@example.com {'.' * 963} grace@example.com"
        error = Error(type="ValueError", message=message, traceback="", fingerprint="f")
        await store.dead(await worker.one(), error=error)
        await reader.step()
        (attempt,) = (await sink.trail("s", job)).attempts
        assert attempt.error.startswith("no mailbox [email] ..")
        assert "ada" not in attempt.error
        assert "grace" not in attempt.error

    on_store(history_url, story)


def test_jobs_that_wait_are_kept_where_all_events_are(history_url: str) -> None:
    async def story(store: Harness, reader: HistoryReader, sink: Sink) -> None:
        job = await store.add(task="t", key="k")
        await reader.step()
        trail = await sink.trail("s", job)
        assert trail.enqueued is not None
        assert (trail.enqueued.key, trail.enqueued.by_app, list(trail.attempts)) == ("k", "", [])

    on_store(history_url, story, emit=Emit.ALL)


def test_large_records_are_read_a_few_at_a_time(history_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(store: Harness, reader: HistoryReader, sink: Sink) -> None:
        worker = await store.worker(slots=100)
        for _ in range(60):
            job = await store.add(task="t", payload=bytes(1024 * 1024))
            await store.done(await worker.one(), runtime=5)
        read = [0]
        get = store.broker.get

        async def counted(jobs: Sequence[JobId]) -> Sequence[JobDetail | None]:
            read.append(len(jobs))
            return await get(jobs)

        monkeypatch.setattr(store.broker, "get", counted)
        assert await reader.step() == 60
        assert max(read) <= 20
        (known,) = (await sink.trail("s", job)).attempts
        assert known.worker_id == worker.id

    on_store(history_url, story)


def test_an_attempt_whose_record_is_gone_is_kept_without_it(history_url: str) -> None:
    async def story(store: Harness, reader: HistoryReader, sink: Sink) -> None:
        await store.queue("q", emit=Emit.FINAL, retention=0)
        worker = await store.worker()
        job = await store.add(task="t")
        await store.done(await worker.one(), runtime=5)
        assert await reader.step() == 1
        trail = await sink.trail("s", job)
        assert (trail.enqueued, [each.worker_id for each in trail.attempts]) == (None, [""])
        assert (await total(sink)).done == 1

    on_store(history_url, story)


def test_the_slots_of_the_workers_are_kept(history_url: str) -> None:
    async def story(store: Harness, reader: HistoryReader, sink: Sink) -> None:
        await store.worker(slots=4, host="a")
        await store.worker(slots=4, host="a")
        await store.worker(slots=2, host="b")
        await store.worker(queues=(runs_intake("orders"),), host="c")  # no worker: it runs no jobs
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

"""What every sink must do: a test for each obligation of `Sink`, for those who write one of their own.

    @pytest.mark.parametrize("obligation", OBLIGATIONS)
    def test_my_sink(obligation: str) -> None:
        async def main() -> None:
            async with my_empty_sink() as sink:
                await OBLIGATIONS[obligation](sink)

        asyncio.run(main())

Each wants a sink that holds nothing yet of the sources "s" and "other", and that keeps what it is given for
ten days or longer.
"""

import math
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from windlass.core.event import FROM_START
from windlass.core.outcome import Outcome
from windlass.core.state import Move
from windlass.core.units import DAY, HOUR, MINUTE, SECOND, Cursor, Micros
from windlass.observe.history.attempt import (
    GIVEN_BACK,
    SAMPLE,
    Attempt,
    Batch,
    Enqueued,
    Slots,
    Worker,
)
from windlass.observe.history.rollup import Figures, Spread
from windlass.observe.history.sink import By, Sink, Window

NOW: Micros = (int(time.time()) // 60 - 20) * MINUTE
"""Twenty minutes ago: what the attempts of these tests are dated by."""
ALL = Window(since=NOW - 30 * DAY, until=NOW + DAY)
ODD = "it's \"a\"\\ {b}\n%s ?1 $1 ✓ 中文 ''"
"""A text that must come back as it was."""


def attempt(number: int, **said: object) -> Attempt:
    """An attempt that is done, except for what is said."""
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
        "worker_id": "w",
        "host": "box",
        "started_at": NOW + number - 20,
    }
    return Attempt(**{**fields, **said})  # pyright: ignore[reportArgumentType]


def enqueued(number: int, **said: object) -> Enqueued:
    """That the job of `attempt(number)` was accepted."""
    fields: dict[str, object] = {
        "job": f"01900000-0000-7000-8000-{number:012x}",
        "at": NOW + number - 50,
        "task": "send",
        "queue": "mail",
        "lane": "",
        "key": None,
        "by_key": "",
        "by_app": "shop",
        "by_host": "web-1",
    }
    return Enqueued(**{**fields, **said})  # pyright: ignore[reportArgumentType]


def worker(name: str, **said: object) -> Worker:
    """A worker process."""
    fields: dict[str, object] = {
        "worker_id": name,
        "host": "box",
        "pid": 7,
        "app": "shop",
        "slots": 4,
        "opened_at": NOW,
        "seen_at": NOW + MINUTE,
    }
    return Worker(**{**fields, **said})  # pyright: ignore[reportArgumentType]


async def write(sink: Sink, batch: Batch, source: str = "s", cursor: str = "9") -> None:
    """Write a batch, as the reader whose turn it is."""
    assert await sink.turn(source, "r", 1.0, 2.0) is not None
    await sink.write(source, "r", batch, Cursor(cursor))


async def total(sink: Sink, window: Window = ALL, source: str = "s") -> Figures:
    """All attempts of a window, added up."""
    whole = Figures()
    for minute in await sink.minutes(source, window):
        whole.merge(minute.figures)
    return whole


# --- turns --------------------------------------------------------------------------------------------------


async def first_turn_begins_at_the_start(sink: Sink) -> None:
    """See `Sink.turn`."""
    assert await sink.turn("s", "first", 100.0, 115.0) == FROM_START
    assert await sink.turn("other", "second", 100.0, 115.0) == FROM_START


async def turn_is_one_readers(sink: Sink) -> None:
    """See `Sink.turn`."""
    assert await sink.turn("s", "first", 100.0, 115.0) is not None
    assert await sink.turn("s", "second", 110.0, 125.0) is None
    assert await sink.turn("s", "first", 110.0, 125.0) is not None
    assert await sink.turn("s", "second", 126.0, 141.0) is not None
    assert await sink.turn("s", "first", 127.0, 142.0) is None


async def place_moves_by_the_reader_whose_turn_it_is(sink: Sink) -> None:
    """See `Sink.turn`."""
    assert await sink.turn("s", "first", 100.0, 115.0) is not None
    assert await sink.turn("s", "second", 126.0, 141.0) is not None
    await sink.write("s", "second", Batch(), Cursor("7"))
    await sink.write("s", "first", Batch(attempts=[attempt(1)]), Cursor("3"))
    assert await sink.turn("s", "second", 127.0, 142.0) == "7"
    assert (await total(sink)).done == 1


async def place_is_kept_after_the_data(sink: Sink) -> None:
    """See `Sink.write`."""
    for number in range(1, 4):
        assert await sink.turn("s", "first", 100.0, 115.0) == ("start" if number == 1 else str(number - 1))
        await sink.write("s", "first", Batch(attempts=[attempt(number)]), Cursor(str(number)))
    assert await sink.turn("s", "other", 200.0, 215.0) == "3"


# --- writing ------------------------------------------------------------------------------------------------


async def what_is_written_twice_is_one(sink: Sink) -> None:
    """See `Sink.write`."""
    both = [attempt(1), attempt(2)]
    slots = [Slots(at=NOW, host="a", processes=1, slots=4, leases=1)]
    first = Batch(attempts=both, enqueued=[enqueued(1)], slots=slots, workers=[worker("w")])
    await write(sink, first)
    await write(sink, first)
    again = Batch(
        attempts=[*both, attempt(3), attempt(1, fence=9)],
        enqueued=[enqueued(1), enqueued(2)],
        slots=slots,
        workers=[worker("w", seen_at=NOW + 2 * MINUTE), worker("v")],
    )
    await write(sink, again)
    await write(sink, first)
    assert (await total(sink)).done == 4
    assert [each.slots for each in await sink.used("s", ALL)] == [4]
    assert {each.worker_id: each.seen_at for each in await sink.workers("s", ALL)} == {
        "w": NOW + 2 * MINUTE,
        "v": NOW + MINUTE,
    }
    (group,) = await sink.groups("s", ALL, By.WORKER)
    assert (group.name, group.figures.done) == ("w", 4)
    assert [each.fence for each in (await sink.trail("s", attempt(1).job)).attempts] == [1, 9]
    assert not await sink.minutes("other", ALL)


async def text_is_data(sink: Sink) -> None:
    """See `Sink.write`."""
    odd = attempt(1, lane=ODD, error=ODD, error_type="E", fingerprint="f", tags=(ODD, ""))
    said = enqueued(1, lane=ODD, key=ODD, by_key=ODD, tags=(ODD,))
    await write(sink, Batch(attempts=[odd], enqueued=[said]))
    trail = await sink.trail("s", odd.job)
    assert (trail.enqueued, list(trail.attempts)) == (said, [odd])
    assert [each.name for each in await sink.groups("s", ALL, By.LANE)] == [ODD]


async def what_is_old_is_dropped(sink: Sink) -> None:
    """See `Sink.forget`."""
    old = NOW - 3 * DAY
    slots = [Slots(at=at, host="a", processes=1, slots=1, leases=0) for at in (old, NOW)]
    batch = Batch(
        attempts=[attempt(1, at=old), attempt(2)],
        enqueued=[enqueued(1, at=old), enqueued(2)],
        slots=slots,
        workers=[worker("old", opened_at=old, seen_at=old), worker("new")],
    )
    await write(sink, batch)
    await write(sink, batch, source="other")
    await sink.forget("s", NOW - HOUR)
    assert (await total(sink)).done == 1
    assert [each.samples for each in await sink.used("s", ALL)] == [1]
    assert [each.worker_id for each in await sink.workers("s", ALL)] == ["new"]
    gone = await sink.trail("s", attempt(1).job)
    assert (gone.enqueued, list(gone.attempts)) == (None, [])
    assert (await total(sink, source="other")).done == 2


async def blanked_rows_keep_their_figures(sink: Sink) -> None:
    """See `Sink.blank`."""
    said = {"outcome": Outcome.DEAD, "move": Move.DEAD, "error_type": "E", "error": ODD, "fingerprint": "f"}
    near = ('x","user:42', "user:421", ',"user:42"', "[user:42]", "user:42,")
    mine, others = ("a", "user:42"), [*((tag,) for tag in near), ()]
    attempts = [attempt(number, tags=tags, **said) for number, tags in enumerate((mine, *others), 1)]
    jobs = [enqueued(number, key=ODD, tags=tags) for number, tags in enumerate((mine, *others), 1)]
    for source in ("s", "other"):
        await write(sink, Batch(attempts=attempts, enqueued=jobs), source=source)
    before = await total(sink)
    assert [await sink.blank("s", "user:42") for _ in range(2)] == [2, 0]
    check(await total(sink), attempts)
    assert await total(sink) == before
    held = [(await sink.trail("s", each.job), await sink.trail("other", each.job)) for each in attempts]
    for number, (here, there) in enumerate(held):
        blank = {"error": ""} if number == 0 else {}
        (told,) = here.attempts
        assert told == attempt(number + 1, tags=attempts[number].tags, **{**said, **blank})
        assert here.enqueued is not None
        assert here.enqueued.key == (None if number == 0 else ODD)
        assert [each.error for each in there.attempts] == [ODD]
    odd = attempt(100, tags=("it's \\ 中\n",), **said)
    await write(sink, Batch(attempts=[odd]), cursor="10")
    assert await sink.blank("s", "it's \\ 中\n") == 1


# --- reading ------------------------------------------------------------------------------------------------


def nearest_rank(values: Sequence[Micros], percent: int) -> Micros:
    """The value that so many of a hundred do not exceed."""
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


def check(found: Figures, chosen: Sequence[Attempt]) -> None:
    """Figures are what one counts by hand."""
    real = [each for each in chosen if each.outcome not in GIVEN_BACK]
    count = {outcome: sum(each.outcome is outcome for each in chosen) for outcome in Outcome}
    assert (found.done, found.dead, found.cancelled) == (
        count[Outcome.DONE],
        count[Outcome.DEAD],
        count[Outcome.CANCELLED],
    )
    assert found.failed == count[Outcome.RETRY] + count[Outcome.DEAD]
    assert found.given_back == len(chosen) - len(real)
    assert found.ran == sum(each.run or 0 for each in chosen)
    _check_spread(found.waits, [each.wait for each in real if each.wait is not None])
    _check_spread(found.runs, [each.run for each in real if each.run is not None])


def _check_spread(spread: Spread, values: Sequence[Micros]) -> None:
    for percent in (50, 95, 99):
        told = spread.at(percent)
        if not values:
            assert told is None
            continue
        right = nearest_rank(values, percent)
        assert told is not None
        assert abs(told - right) <= max(1, 0.025 * right), f"p{percent} is {told}, not {right}"


def mixed(number_of: int = 500) -> list[Attempt]:
    """Attempts of all kinds, over ten minutes."""
    draw = random.Random(7)  # noqa: S311 - not for secrets
    return [
        attempt(
            number,
            at=NOW + draw.randrange(600) * SECOND,
            task=draw.choice(["a", "b", "c"]),
            queue=draw.choice(["q", "r"]),
            lane=draw.choice(["", "acme", "bolt"]),
            worker_id=draw.choice(["", "w1", "w2"]),
            fingerprint=draw.choice(["", "f1", "f2"]),
            outcome=draw.choice(list(Outcome)),
            wait=draw.choice([None, 0, draw.randrange(10**7)]),
            run=draw.choice([None, draw.randrange(10**9)]),
        )
        for number in range(number_of)
    ]


async def _mixed_in(sink: Sink) -> list[Attempt]:
    attempts = mixed()
    for start in range(0, len(attempts), 90):  # batches overlap, as after a reader's death
        some = attempts[max(0, start - 20) : start + 90]
        await write(sink, Batch(attempts=some), cursor=str(start + 90))
    return attempts


def _windows() -> Iterable[Window]:
    for task in (None, "a"):
        for queue in (None, "r"):
            yield Window(since=NOW + MINUTE, until=NOW + 7 * MINUTE, task=task, queue=queue)


def _chosen(attempts: Iterable[Attempt], window: Window) -> list[Attempt]:
    return [
        each
        for each in attempts
        if window.since <= each.at < window.until
        and window.task in (None, each.task)
        and window.queue in (None, each.queue)
    ]


async def minutes_count_as_one_would_by_hand(sink: Sink) -> None:
    """See `Sink.minutes`."""
    attempts = await _mixed_in(sink)
    for window in _windows():
        chosen = _chosen(attempts, window)
        check(await total(sink, window), chosen)
        for minute in await sink.minutes("s", window):
            same = [
                each
                for each in chosen
                if (each.at // MINUTE * MINUTE, each.task, each.queue)
                == (minute.at, minute.task, minute.queue)
            ]
            assert same
            check(minute.figures, same)
        whole = Figures()
        for each in await sink.minutes("s", window, 5 * MINUTE):
            whole.merge(each.figures)
        check(whole, chosen)
    assert not await sink.minutes("other", ALL)


async def slots_add_up_by_minute(sink: Sink) -> None:
    """See `Sink.used`."""
    slots = [
        Slots(at=NOW + number * SAMPLE, host=host, processes=1, slots=2, leases=number % 2)
        for number in range(24)
        for host in ("a", "b")
    ]
    await write(sink, Batch(slots=slots))
    found = [
        (each.at, each.host, each.samples, each.slots, each.leases) for each in await sink.used("s", ALL)
    ]
    assert found == [(NOW + at, host, 12, 24, 6) for at in (0, MINUTE) for host in ("a", "b")]
    assert not await sink.used("s", Window(since=NOW - HOUR, until=NOW))


async def groups_count_as_one_would_by_hand(sink: Sink) -> None:
    """See `Sink.groups`."""
    attempts = await _mixed_in(sink)
    for window in _windows():
        chosen = _chosen(attempts, window)
        for by, name in ((By.LANE, "lane"), (By.WORKER, "worker_id")):
            found = await sink.groups("s", window, by)
            assert {each.name for each in found} == {getattr(each, name) for each in chosen}
            assert found == sorted(found, key=lambda each: (-each.figures.attempts, each.name))
            for group in found:
                check(group.figures, [each for each in chosen if getattr(each, name) == group.name])


async def errors_are_grouped_by_fingerprint(sink: Sink) -> None:
    """See `Sink.groups`."""
    attempts = await _mixed_in(sink)
    for window in _windows():
        chosen = _chosen(attempts, window)
        found = await sink.groups("s", window, By.ERROR)
        assert {each.name for each in found} == {"f1", "f2"}
        for group in found:
            check(group.figures, [each for each in chosen if each.fingerprint == group.name])


async def last_failure_tells_its_error(sink: Sink) -> None:
    """See `Sink.failed`."""
    failed = [
        attempt(number, outcome=Outcome.RETRY, error_type="E", error=f"no {number}", fingerprint="f")
        for number in range(5)
    ]
    other = attempt(9, task="t", outcome=Outcome.DEAD, error_type="V", error="bad", fingerprint="g")
    await write(sink, Batch(attempts=[*failed, other, attempt(10)]))
    found = {each.fingerprint: each for each in await sink.failed("s", ALL)}
    assert sorted(found) == ["f", "g"]
    last = found["f"]
    assert (last.type, last.message, last.task, last.job, last.fence, last.at) == (
        "E",
        "no 4",
        "send",
        failed[4].job,
        4,
        failed[4].at,
    )
    only = Window(since=ALL.since, until=ALL.until, task="t")
    assert [each.fingerprint for each in await sink.failed("s", only)] == ["g"]


async def workers_of_the_window_are_told(sink: Sink) -> None:
    """See `Sink.workers`."""
    early = worker("early", opened_at=NOW - HOUR, seen_at=NOW - 10 * MINUTE)
    late = worker("late", opened_at=NOW + 10 * MINUTE, seen_at=NOW + HOUR)
    here = worker("here", opened_at=NOW, seen_at=NOW)
    long = worker("long", opened_at=NOW - DAY, seen_at=NOW + DAY)
    await write(sink, Batch(workers=[early, late, here, long]))
    window = Window(since=NOW - MINUTE, until=NOW + MINUTE)
    found = {each.worker_id: each for each in await sink.workers("s", window)}
    assert found == {"here": here, "long": long}


async def trail_tells_each_attempt_and_who_enqueued(sink: Sink) -> None:
    """See `Sink.trail`."""
    first = attempt(
        1, outcome=Outcome.RETRY, move=Move.RETRY, error_type="E", error="no", fingerprint="f", tags=("x",)
    )
    second = attempt(1, fence=5, at=NOW + 70, attempt=2, wait=None, run=None, started_at=None)
    said = enqueued(1, key="order-1", by_key="ci (key ab12)", tags=("x",))
    await write(sink, Batch(attempts=[second, attempt(2)]))
    await write(sink, Batch(attempts=[first], enqueued=[said]))
    found = await sink.trail("s", first.job)
    assert (found.enqueued, list(found.attempts)) == (said, [first, second])
    nobody = await sink.trail("other", first.job)
    assert (nobody.enqueued, list(nobody.attempts)) == (None, [])


OBLIGATIONS: Mapping[str, Callable[[Sink], Awaitable[None]]] = {
    test.__name__: test
    for test in (
        first_turn_begins_at_the_start,
        turn_is_one_readers,
        place_moves_by_the_reader_whose_turn_it_is,
        place_is_kept_after_the_data,
        what_is_written_twice_is_one,
        text_is_data,
        what_is_old_is_dropped,
        blanked_rows_keep_their_figures,
        minutes_count_as_one_would_by_hand,
        slots_add_up_by_minute,
        groups_count_as_one_would_by_hand,
        errors_are_grouped_by_fingerprint,
        last_failure_tells_its_error,
        workers_of_the_window_are_told,
        trail_tells_each_attempt_and_who_enqueued,
    )
}
"""The test of each obligation, by its name."""

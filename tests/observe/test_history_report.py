"""What history answers: windows, steps, rates, and the use of the workers."""

import asyncio

import pytest
from tests.observe.test_history import with_sink

from windlass.core.outcome import Outcome
from windlass.core.units import DAY, HOUR, MINUTE, SECOND
from windlass.errors import InvalidOption, Unsupported
from windlass.observe.history.attempt import SAMPLE, Batch, Slots
from windlass.observe.history.conformance import attempt, write
from windlass.observe.history.report import History, checked, look, opened, window_of
from windlass.observe.history.sink import Sink, Window

NOW = 1_750_000_020 * SECOND


def test_a_report_says_how_it_went(history_url: str) -> None:
    async def story(sink: Sink) -> None:
        attempts = [
            *(attempt(number, at=NOW + number * SECOND, run=SECOND) for number in range(8)),
            attempt(8, at=NOW + 70 * SECOND, outcome=Outcome.RETRY, task="other", run=2 * SECOND),
            attempt(9, at=NOW + 71 * SECOND, outcome=Outcome.DEAD, task="other", run=None),
            attempt(10, at=NOW + 72 * SECOND, outcome=Outcome.SNOOZE, task="other"),
        ]
        slots = [
            Slots(at=NOW + number * SAMPLE, host="a", processes=1, slots=2, leases=1) for number in range(24)
        ]
        await write(sink, Batch(attempts=attempts, slots=slots))
        window = Window(since=NOW, until=NOW + 2 * MINUTE)
        found: History = await look(sink, "s", window, step=MINUTE)
        assert (found.total.attempts, found.total.failed, found.total.dead) == (10, 2, 1)
        assert (found.total.failure_rate, found.total.given_back) == (0.2, 1)
        assert found.total.per_second == round(10 / 120, 3)
        assert (found.total.run.p50, found.total.run.p99) == pytest.approx((1.0, 2.0), rel=0.03)
        assert [(task.task, task.failure_rate) for task in found.tasks] == [("send", 0.0), ("other", 1.0)]
        assert [(each.done, each.failed) for each in found.buckets] == [(8, 0), (0, 2)]
        assert found.buckets[0].use == round(8 / (2 * 60), 4)
        assert found.use == round(10.00002 / (2 * 120), 4)
        assert [(host.host, host.slots, host.use, host.seconds) for host in found.workers] == [
            ("a", 2.0, 0.5, 120.0)
        ]
        one = await look(sink, "s", Window(since=NOW, until=NOW + MINUTE, task="other"), step=MINUTE)
        assert (one.total.attempts, one.total.failure_rate, one.use) == (0, None, None)

    with_sink(history_url, story)


def test_a_window_is_a_time_ago_or_a_time() -> None:
    assert window_of("1h", None, NOW) == Window(since=NOW - HOUR, until=NOW)
    assert window_of("2025-06-15T15:07:00Z", "5m", NOW).since == NOW
    assert window_of("2h", "1h", NOW).until == NOW - HOUR
    for wrong in ("soon", "2025-06-15T15:07:00", "-1h"):
        with pytest.raises(InvalidOption, match="since"):
            window_of(wrong, None, NOW)


def test_a_chart_has_so_many_steps_at_the_most() -> None:
    for length in (MINUTE, HOUR, DAY, 30 * DAY, 365 * DAY):
        window, step = checked(Window(since=NOW - length, until=NOW), None)
        assert 1 <= (window.until - window.since) / step <= 121
        assert window.since % step == 0
    with pytest.raises(InvalidOption, match="more than 1000 buckets"):
        checked(Window(since=NOW - 30 * DAY, until=NOW), MINUTE)
    with pytest.raises(InvalidOption, match="whole minutes"):
        checked(Window(since=NOW - DAY, until=NOW), 90 * SECOND)
    with pytest.raises(InvalidOption, match="since must be before until"):
        checked(Window(since=NOW, until=NOW), None)


def test_an_app_without_history_says_what_to_do() -> None:
    async def main() -> None:
        async with opened(None):
            pass

    with pytest.raises(Unsupported, match="WINDLASS_HISTORY"):
        asyncio.run(main())

"""A trouble that lasts is logged at once, then ever more seldom, with a count; tries are spread by chance."""

import logging

import pytest
from tests.worker.simulated import ManualPace

from windlass.errors import StoreError
from windlass.patience import LONGEST_QUIET, MOST_WORDS, QUIET, Backoff


class _Pace:
    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def jitter(self) -> float:
        return 1.0

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


def _trouble(pace: _Pace, backoff: Backoff, seconds: float, words: str = "away") -> None:
    end = pace.at + seconds
    while pace.at < end:
        backoff.tell("it fails: %s", StoreError(words))
        pace.at += backoff.failed()


def test_the_same_is_said_once__then_after_one_minute__two__four(caplog: pytest.LogCaptureFixture) -> None:
    pace = _Pace()
    backoff = Backoff(pace)  # type: ignore[arg-type]
    _trouble(pace, backoff, 16 * QUIET)
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "it fails: away"
    assert len(said) == 5, said
    assert all("it fails: away (tried " in line for line in said[1:])
    _trouble(pace, backoff, 24 * LONGEST_QUIET)
    assert len(caplog.records) <= 5 + 30, "hourly from then on"


def test_it_begins_anew_after_it_has_worked(caplog: pytest.LogCaptureFixture) -> None:
    pace = _Pace()
    backoff = Backoff(pace)  # type: ignore[arg-type]
    for _ in range(2):
        _trouble(pace, backoff, QUIET / 2)
        backoff.worked()
    assert [record.getMessage() for record in caplog.records] == ["it fails: away"] * 2


def test_another_error_is_said_at_once__but_not_without_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    pace = _Pace()
    backoff = Backoff(pace)  # type: ignore[arg-type]
    for number in range(100):
        backoff.tell("it fails: %s", StoreError(f"error {number}, 100 %"))
        backoff.failed()
    assert len(caplog.records) == MOST_WORDS


def test_a_fleet_does_not_come_back_all_at_once() -> None:
    """Pauses differ by chance, at every try."""
    pauses: list[list[float]] = []
    for draw in (0.0, 0.99):
        pace = ManualPace()
        pace.draw = draw
        backoff = Backoff(pace)
        pauses.append([backoff.failed() for _ in range(8)])
    assert all(later > 1.5 * sooner for sooner, later in zip(*pauses, strict=True))

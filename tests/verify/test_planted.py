"""Every planted bug is caught by the checker within a few seeds, and the same seeds are clean without it."""

import functools

import pytest
from tests.verify.planted import in_queues, in_store, in_workers
from tests.verify.planted.bugs import BUGS

from windlass.verify.checker import Verdict
from windlass.verify.simulator import judge

assert in_queues
assert in_store
assert in_workers

SEEDS = 40
"""Seeds in which a bug must show, from its first one on."""

FIRST = {"number_a_repeated_ask_anew": 135, "start_without_a_heartbeat": 35, "stutter_and_reap_nobody": 148}
"""Where the first seeds have nothing to show: a timetable must bring the right things together."""


@functools.cache
def _clean(seed: int) -> Verdict:
    return judge(seed).verdict


@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_is_caught(name: str) -> None:
    first = FIRST.get(name, 1)
    for seed in range(first, first + SEEDS):
        with BUGS[name].plant():
            found = judge(seed).verdict
        if not found.ok:
            clean = _clean(seed)
            assert clean.ok, f"seed {seed} fails without the bug: {clean.lines()}"
            return
    pytest.fail(f"{BUGS[name].description}: not seen in {SEEDS} seeds from {first} on")


def test_there_are_enough_of_them() -> None:
    assert len(BUGS) >= 25
    assert all(bug.description for bug in BUGS.values())
    assert FIRST.keys() <= BUGS.keys()

"""Every planted bug is caught by the invariant that is there for it; the same seeds are clean without it."""

import functools
from collections.abc import Iterable

import pytest
from tests.verify import careless_producers, faulty_server
from tests.verify.planted import in_queues, in_store, in_workers
from tests.verify.planted.bugs import BUGS

from windlass.verify.checker import INVARIANTS, Verdict
from windlass.verify.simulator import judge

assert in_queues
assert in_store
assert in_workers

NEAR = 40
"""Seeds that are tried when the one in which a bug used to show has become another history."""
FAR = 400
"""Seeds in which every bug shows, the rare ones included."""


@functools.cache
def _clean(seed: int) -> Verdict:
    return judge(seed).verdict


def _caught(name: str, seeds: Iterable[int]) -> None:
    bug = BUGS[name]
    for seed in seeds:
        with bug.plant():
            found = judge(seed).verdict
        if set(bug.by) <= set(found.violated):
            clean = _clean(seed)
            assert clean.ok, f"seed {seed} fails without the bug: {clean.lines()}"
            return
    pytest.fail(f"{bug.description}: not found by {', '.join(bug.by)} in {seeds}")


@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_is_caught(name: str) -> None:
    _caught(name, [BUGS[name].seed, *range(1, NEAR + 1)])


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_is_caught_wherever_the_seeds_begin(name: str) -> None:
    """Not only in the seed that is known for it."""
    _caught(name, range(1_001, 1_001 + FAR))


def test_there_are_enough_of_them() -> None:
    assert len(BUGS) >= 25
    assert all(bug.description and bug.by for bug in BUGS.values())


def test_every_invariant_finds_a_planted_bug() -> None:
    named = {name for bug in BUGS.values() for name in bug.by}
    named |= set(faulty_server.FOUND_BY)  # of those who speak HTTP, in `test_verify_http.py`
    named |= set(careless_producers.FOUND_BY)  # of real processes, in `test_verify_run.py`
    assert named == INVARIANTS.keys(), "an invariant that never found anything may be blind"

"""When outcomes go to the store: by halves of the leases, or all at once where an exchange takes long."""

from pathlib import Path

import pytest
from tests.worker.leases import a_lease

from windlass.broker.contract import Pacing
from windlass.core.outcome import Outcome
from windlass.core.settlement import Settlement
from windlass.pace import MachinePace
from windlass.worker.asking import AskingGroup, Bound
from windlass.worker.conclude import Concluder
from windlass.worker.local_leases import Ended, LocalLeases
from windlass.worker.options import Group
from windlass.worker.sending import LINGER, LULL, SLOW_EXCHANGE, Sending
from windlass.worker.settler import Settler
from windlass.worker.table import Table

HAND = 100
RUN = 0.001
"""Seconds in which half of the leases are run."""


class Scene:
    """The leases of a worker that got them at the time 0, and runs them at an even pace."""

    def __init__(self, path: Path, *, ended: int = 0, serial: bool = False) -> None:
        self.local_leases = LocalLeases(Table.create(path, HAND), [HAND])
        self.settler = Settler(self.local_leases, Concluder(MachinePace()), nudge=lambda: None)
        self.group = AskingGroup(0, Group(slots=16, queues=("q",)), Pacing())
        self.sending = Sending([self.group], self.local_leases, self.settler, serial=serial)
        self.ends(ended)
        self.sending.taken_in(0.0)
        tasks = {a_lease().task: None}
        self.local_leases.take_in([a_lease()] * HAND, tasks, 0, 0.0)  # type: ignore[arg-type]

    def ends(self, count: int) -> None:
        """So many have ended, and as many fewer wait."""
        done = Settlement(job="j", fence=1, outcome=Outcome.DONE)
        for _ in range(count):
            self.local_leases.lines[0].enter()
            self.settler.put(Ended(None, done, None))

    def is_worth_it(self, now: float) -> bool:
        """Whether they go."""
        return self.sending.is_worth_it(now, draining=False)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """As many leases as there is room for."""
    return Scene(tmp_path / "table")


def test_half_of_the_hand_goes_while_the_rest_is_run(scene: Scene) -> None:
    scene.sending.took(RUN)
    scene.ends(HAND // 2 - 1)
    assert not scene.is_worth_it(RUN)
    scene.ends(1)
    assert scene.is_worth_it(RUN)


def test_all_of_it_goes_where_an_exchange_takes_much_longer_than_the_rest(scene: Scene) -> None:
    scene.sending.took(2 * SLOW_EXCHANGE * RUN)
    scene.ends(HAND // 2)
    assert not scene.is_worth_it(RUN)
    assert scene.sending.enough(RUN) == HAND
    scene.ends(HAND // 2)
    assert scene.is_worth_it(2 * RUN)


@pytest.mark.parametrize("serial", [False, True])
def test_a_store_that_others_wait_for_is_told_at_once_what_had_ended_before_the_rest_came(
    tmp_path: Path, serial: bool
) -> None:
    scene = Scene(tmp_path / "table", ended=HAND, serial=serial)
    scene.sending.took(2 * SLOW_EXCHANGE * RUN)
    assert scene.is_worth_it(RUN / 10) is serial


def test_not_of_jobs_under_a_limit(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "table", ended=HAND, serial=True)
    scene.sending.took(2 * SLOW_EXCHANGE * RUN)
    scene.group.bound = Bound.SOON
    assert not scene.is_worth_it(RUN / 10)


def test_no_outcome_waits_longer_than_a_moment_for_the_rest(scene: Scene) -> None:
    scene.sending.took(1_000.0)
    scene.ends(HAND // 2)
    assert not scene.is_worth_it(RUN)
    assert scene.sending.ends(RUN) == RUN + LINGER
    assert scene.is_worth_it(RUN + LINGER)


def test_a_worker_that_drains_sends_what_there_is(scene: Scene) -> None:
    scene.sending.took(1_000.0)
    assert not scene.sending.is_worth_it(RUN, draining=True), "there is nothing yet"
    scene.ends(1)
    assert scene.sending.is_worth_it(RUN, draining=True)


def test_what_has_just_come_is_given_a_moment(scene: Scene) -> None:
    assert scene.sending.ends(LULL / 2) == LULL
    assert scene.sending.ends(LULL) is None

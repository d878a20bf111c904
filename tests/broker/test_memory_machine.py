"""The state machine: it finds nothing in the model, and everything in brokers that break a promise."""

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.broker import saboteurs, saboteurs_of_takes
from tests.broker.saboteurs import Saboteur
from tests.broker.worlds import SMALL_WORLD

from windlass.conformance.machine import machine_for, open_model
from windlass.conformance.machine.universe import Wish
from windlass.conformance.machine.violated import Differs, Violated
from windlass.core.job import OnFailure
from windlass.core.outcome import Outcome
from windlass.core.units import HOUR, SECOND

QUICK = settings(deadline=None, suppress_health_check=list(HealthCheck))
ONE_FAILURE = settings(
    QUICK,
    derandomize=True,
    max_examples=400,
    stateful_step_count=40,
    phases=[Phase.generate],
    report_multiple_bugs=False,
)

ALL = [
    each
    for module in (saboteurs, saboteurs_of_takes)
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, Saboteur) and each.notices and not each.by_hand
]
SEEN_BY_COMPARING = [
    saboteurs.DropsTheFenceCheck,
    saboteurs.HandsOutNewJobs,
    saboteurs.LosesReplies,
    saboteurs.WakesLate,
    saboteurs.Miscounts,
    saboteurs.HidesReasons,
    saboteurs.SpendsAttempts,
    saboteurs.RevivesSessions,
]


def test_the_model_keeps_every_invariant() -> None:
    run_state_machine_as_test(
        machine_for(), settings=settings(QUICK, max_examples=80, stateful_step_count=40)
    )


def test_a_leap_of_the_stores_time_does_not_make_next_in_late() -> None:
    """A child is freed on a clock that was set back; nobody sweeps until the clock is near the mark again."""
    machine: Any = machine_for()()
    parent = Wish(job=1)
    child = Wish(job=2, queue="ordered", after=((1, OnFailure.IGNORE),))
    machine.open(world=SMALL_WORLD, backlog=(parent, child))
    machine.clock.advance(SECOND)
    machine.sweep(1_000)
    machine.run_some(session=1, slots=1, outcomes=[Outcome.DEAD])
    machine.everything_holds()
    machine.step_back(by=HOUR)
    machine.operate_on_all(act="discard")
    machine.everything_holds()
    machine.wait_for_the_next_chance(session=1, queues=("ordered",))
    machine.everything_holds()
    machine.teardown()


def test_two_models_answer_the_same() -> None:
    few = settings(QUICK, max_examples=20, stateful_step_count=40)
    run_state_machine_as_test(machine_for(open_model), settings=few)


def test_waking_early_is_no_difference() -> None:
    few = settings(QUICK, max_examples=20, stateful_step_count=30)
    run_state_machine_as_test(machine_for(saboteurs.WakesEarly.opener()), settings=few)


@pytest.mark.parametrize("saboteur", ALL)
def test_a_broken_promise_is_noticed(saboteur: type[Saboteur]) -> None:
    # Which invariant notices it first depends on the steps that are tried; that none cries wolf, see above.
    with pytest.raises(Violated):
        run_state_machine_as_test(machine_for(model=saboteur.opener()), settings=ONE_FAILURE)


def test_a_tick_beside_a_job_that_waits_is_noticed() -> None:
    saboteur = saboteurs.FiresBesideOneThatWaits
    machine: Any = machine_for(model=saboteur.opener())()
    machine.open(world=SMALL_WORLD, backlog=())
    machine.change_schedule(name="nightly", act="declare", spec=b"x", first_in=0, off=0)
    machine.everything_holds()
    fire = {"name": "nightly", "then_in": SECOND, "off": 0, "missed": 0}
    machine.fire_twice(jobs=(Wish(job=1),), unless_waiting=False, **fire)
    machine.everything_holds()
    machine.clock.advance(SECOND)
    with pytest.raises(Violated, match=saboteur.notices):
        machine.fire_twice(jobs=(Wish(job=2),), unless_waiting=True, **fire)
    with contextlib.suppress(Violated):  # it looks at everything once more
        machine.teardown()


def test_a_prune_of_what_is_needed_is_noticed() -> None:
    saboteur = saboteurs.PrunesWhatIsNeeded
    machine: Any = machine_for(model=saboteur.opener())()
    parent = Wish(job=1)
    child = Wish(job=2, after=((1, OnFailure.IGNORE),))
    machine.open(world=SMALL_WORLD, backlog=(parent, child))
    machine.run_some(session=1, slots=1, outcomes=[Outcome.DONE])
    machine.everything_holds()
    with pytest.raises(Violated, match=saboteur.notices):
        machine.operate(act="prune", jobs=[(1, None)])
    with contextlib.suppress(Violated):  # it looks at everything once more
        machine.teardown()


@pytest.mark.parametrize("saboteur", SEEN_BY_COMPARING)
def test_a_different_answer_is_noticed(saboteur: type[Saboteur]) -> None:
    with pytest.raises(Differs):
        run_state_machine_as_test(machine_for(saboteur.opener()), settings=ONE_FAILURE)


@pytest.mark.slow
def test_the_model_keeps_every_invariant_for_long() -> None:
    run_state_machine_as_test(machine_for(), settings=settings(suppress_health_check=list(HealthCheck)))

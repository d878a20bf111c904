"""Rules for producers and for schedules: what brings jobs into being."""

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import rule

from windlass.conformance.machine import draws
from windlass.conformance.machine.base import Machine
from windlass.conformance.machine.ledger.enqueue import enqueued
from windlass.conformance.machine.ledger.operate import fired
from windlass.conformance.machine.universe import APPS, SCHEDULES, Wish
from windlass.conformance.machine.violated import require
from windlass.core.settings import Change
from windlass.core.timetable import Fire, NewSchedule
from windlass.core.units import HOUR, SECOND, Micros

_names = st.sampled_from(SCHEDULES)
_ticks = st.sampled_from((-SECOND, 0, SECOND, HOUR))


class Produce(Machine):
    """Enqueue, in one group or in several."""

    @rule(wish=draws.of_machine(draws.wishes))
    def enqueue(self, wish: Wish) -> None:
        """Enqueue one job."""
        self._enqueue([[wish]])

    @rule(wish=draws.of_machine(draws.wishes))
    def enqueue_another(self, wish: Wish) -> None:
        """The same: there can be no other steps without jobs."""
        self._enqueue([[wish]])

    @rule(groups=st.lists(draws.of_machine(draws.groups), min_size=1, max_size=2))
    def enqueue_groups(self, groups: list[tuple[Wish, ...]]) -> None:
        """Enqueue groups, each accepted whole or not at all."""
        self._enqueue(groups)

    def _enqueue(self, groups: Sequence[Sequence[Wish]]) -> None:
        jobs = [[self.new_job(wish) for wish in group] for group in groups]
        enqueued(self.ledger, jobs, self.on("enqueue", lambda broker: broker.enqueue(jobs)))


class Plan(Produce):
    """Schedules: declared, overridden, paused, deleted, fired."""

    @rule(name=_names, spec=st.sampled_from((b"x", b"y")), first_in=_ticks, app=st.sampled_from(APPS))
    def declare_schedule(self, name: str, spec: bytes, first_in: Micros, app: str) -> None:
        """Declare a schedule in code."""
        next_at = self.clock.now() + first_in
        schedule = NewSchedule(name=name, spec=spec, next_at=next_at, app=app)
        self.on("declare_schedule", lambda broker: broker.declare_schedule(schedule))

    @rule(name=_names, spec=st.sampled_from((None, b"x", b"z")), first_in=_ticks, off=draws.mostly(0, 1))
    def override_schedule(self, name: str, spec: bytes | None, first_in: Micros, off: int) -> None:
        """Override a schedule, or reset the override; `off` by its version it is refused."""
        standing = self.ledger.last.schedules.get(name)
        expect = (0 if standing is None else standing.version) + off
        next_at = self.clock.now() + first_in
        changed = self.on(
            "override_schedule", lambda broker: broker.override_schedule(name, spec, next_at, expect)
        )
        refused = changed.change is Change.CONFLICT
        require("an override is compare-and-set", refused or not off, name, changed)

    @rule(name=_names, paused=st.booleans())
    def pause_schedule(self, name: str, *, paused: bool) -> None:
        """Pause a schedule, or let it go on."""
        known = self.on("pause_schedule", lambda broker: broker.pause_schedule(name, paused=paused))
        require(
            "a verb says whether there is such a schedule",
            known == (name in self.ledger.last.schedules),
            name,
        )

    @rule(name=_names, sure=draws.mostly(0, 1))
    def delete_schedule(self, name: str, sure: int) -> None:
        """Delete a schedule; seldom, since there are few."""
        if sure:
            known = self.on("delete_schedule", lambda broker: broker.delete_schedule(name))
            there = name in self.ledger.last.schedules
            require("a verb says whether there is such a schedule", known == there, name)
            self.ledger.ticks = {tick for tick in self.ledger.ticks if tick[0] != name}

    @rule(
        name=_names,
        wishes=draws.of_machine(draws.groups),
        then_in=st.sampled_from((None, SECOND, HOUR)),
        off=draws.mostly(0, 1),
        times=draws.mostly(1, 2),
    )
    def fire(self, name: str, wishes: tuple[Wish, ...], then_in: Micros | None, off: int, times: int) -> None:
        """Wish to fire, once or twice for the same tick; `off` by the version or the time it is refused."""
        standing = self.ledger.last.schedules.get(name)
        tick = self.clock.now() if standing is None or standing.next_at is None else standing.next_at
        fire = Fire(
            name=name,
            version=(0 if standing is None else standing.version) + off,
            expect=tick,
            then=None if then_in is None else tick + then_in,
            jobs=tuple(self.new_job(wish) for wish in wishes),
        )
        for again in range(times):
            answer = self.on("fire", lambda broker: broker.fire(fire))
            if again == 0:
                fired(self.ledger, fire, answer)
            else:
                require("one job per (schedule, tick)", answer.status != "fired", fire, answer)

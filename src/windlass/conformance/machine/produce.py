"""Rules for producers and for schedules: what brings jobs into being."""

from itertools import chain, islice

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from windlass.conformance.machine import draws
from windlass.conformance.machine.base import MANY, Machine
from windlass.conformance.machine.ledger.operate import fired
from windlass.conformance.machine.ledger.take import taken
from windlass.conformance.machine.universe import APPS, KEYS, PLACES, QUEUES, SCHEDULES, SOURCES, Wish
from windlass.conformance.machine.violated import require
from windlass.core.job import Mode
from windlass.core.outcome import Error
from windlass.core.settings import Change
from windlass.core.take import Source, Take, TakeStatus
from windlass.core.timetable import Fire, FireStatus, NewSchedule
from windlass.core.units import HOUR, SECOND, Micros

_names = draws.mostly(*SCHEDULES)


class Produce(Machine):
    """Enqueue."""

    @rule(wish=draws.of_machine(draws.wishes))
    def enqueue_one(self, wish: Wish) -> None:
        """Enqueue one job."""
        self.enqueue([[wish]])

    @rule(
        queue=st.sampled_from(QUEUES[:2]),
        calls=st.lists(
            st.tuples(st.sampled_from(Mode), st.sampled_from((0, SECOND, HOUR))), min_size=1, max_size=2
        ),
    )
    def enqueue_under_one_key(self, queue: str, calls: list[tuple[Mode, Micros]]) -> None:
        """Enqueue jobs, all under the same key."""
        new = len(self.numbers) + 1
        wishes = [
            Wish(job=new + nth, queue=queue, key=KEYS[0], mode=mode, window=window)
            for nth, (mode, window) in enumerate(calls)
        ]
        self.enqueue([[wish] for wish in wishes])

    @rule(group=draws.of_machine(draws.groups))
    def enqueue_some(self, group: tuple[Wish, ...]) -> None:
        """Enqueue jobs from blocking code, each in a group of its own."""
        self.enqueue([[wish] for wish in group], blocking=True)

    @rule(group=draws.of_machine(draws.groups), one=draws.of_machine(draws.wishes))
    def enqueue_groups(self, group: tuple[Wish, ...], one: Wish) -> None:
        """Enqueue groups, each accepted whole or not at all."""
        self.enqueue([group, [one]])

    @precondition(lambda self: len(self.numbers) < MANY)
    @rule(wishes=draws.of_machine(draws.alike), apart=st.booleans(), blocking=st.booleans())
    def enqueue_alike(self, wishes: tuple[Wish, ...], *, apart: bool, blocking: bool) -> None:
        """Enqueue jobs that are alike, in one group or each in its own: stores keep such jobs together."""
        self.enqueue([[wish] for wish in wishes] if apart else [wishes], blocking=blocking)


class Intake(Produce):
    """Offsets: moved with jobs, without, back and away."""

    @rule(
        name=st.sampled_from(SOURCES),
        groups=st.lists(draws.of_machine(draws.groups), max_size=2),
        then=st.sampled_from((*PLACES, None)),
        off=draws.mostly("", "identity", "offset"),
        unfit=st.frozensets(st.integers(0, 4), max_size=2),
    )
    def take_twice(
        self, name: str, groups: list[tuple[Wish, ...]], then: str | None, off: str, unfit: frozenset[int]
    ) -> None:
        """Two take the same run of a source; `off` by its identity or by the offset both are refused. The nth
        of its jobs, from 0, are `unfit`.
        """
        stands = self.ledger.offsets.get(name)
        expect = "elsewhere" if off == "offset" else None if stands is None else stands.at
        of_all = self.new_jobs(chain.from_iterable(groups))
        rest = iter(of_all)
        take = Take(
            source=Source(name, "anew" if off == "identity" else "first"),
            expect=expect,
            then=then,
            groups=[list(islice(rest, len(group))) for group in groups],
            dead={job.id: Error(type=f"unfit {nth}") for nth, job in enumerate(of_all) if nth in unfit},
        )
        taken(self.ledger, take, self.on("take", lambda broker: broker.take(take)))
        if then != expect:
            again = self.on("take", lambda broker: broker.take(take))
            require("an offset moves once", again.status is not TakeStatus.TAKEN, take, again)


class Plan(Intake):
    """Schedules: declared, overridden, paused, deleted, fired."""

    @rule(
        name=_names,
        act=st.sampled_from(("declare", "override", "reset", "pause", "resume", "delete")),
        spec=st.sampled_from((b"x", b"y")),
        first_in=st.sampled_from((-SECOND, 0, SECOND, HOUR)),
        off=draws.mostly(0, 1),
    )
    def change_schedule(self, name: str, act: str, spec: bytes, first_in: Micros, off: int) -> None:
        """Change a schedule; `off` by its version an override is refused, `off` by its app a declaration."""
        next_at = self.clock.now() + first_in
        match act:
            case "declare":
                schedule = NewSchedule(name=name, spec=spec, next_at=next_at, app=APPS[off])
                self.on("declare_schedule", lambda broker: broker.declare_schedule(schedule))
            case "override" | "reset":
                self._override(name, spec if act == "override" else None, next_at, off)
            case _:
                self._operate_schedule(name, act)

    def _override(self, name: str, spec: bytes | None, next_at: Micros, off: int) -> None:
        standing = self.ledger.last.schedules.get(name)
        expect = (0 if standing is None else standing.version) + off
        changed = self.on(
            "override_schedule", lambda broker: broker.override_schedule(name, spec, next_at, expect)
        )
        refused = changed.change is Change.CONFLICT
        require("an override is compare-and-set", refused or not off, name, changed)

    def _operate_schedule(self, name: str, act: str) -> None:
        if act == "delete":
            known = self.on("delete_schedule", lambda broker: broker.delete_schedule(name))
            self.ledger.ticks = {tick for tick in self.ledger.ticks if tick[0] != name}
        else:
            paused = act == "pause"
            known = self.on("pause_schedule", lambda broker: broker.pause_schedule(name, paused=paused))
        require(
            "a verb says whether there is such a schedule",
            known == (name in self.ledger.last.schedules),
            name,
        )

    @rule(
        name=_names,
        jobs=draws.of_machine(draws.groups),
        then_in=st.sampled_from((None, SECOND, HOUR)),
        off=draws.mostly(0, 1),
        missed=st.integers(0, 2),
        unless_waiting=st.booleans(),
    )
    def fire_twice(
        self,
        name: str,
        jobs: tuple[Wish, ...],
        then_in: Micros | None,
        off: int,
        missed: int,
        unless_waiting: bool,  # noqa: FBT001 - drawn
    ) -> None:
        """Two wish to fire the same tick; `off` by the version both are refused."""
        standing = self.ledger.last.schedules.get(name)
        tick = self.clock.now() if standing is None or standing.next_at is None else standing.next_at
        fire = Fire(
            name=name,
            version=(0 if standing is None else standing.version) + off,
            expect=tick,
            then=None if then_in is None else tick + then_in,
            jobs=self.new_jobs(jobs),
            missed=missed,
            unless_waiting=unless_waiting,
        )
        fired(self.ledger, fire, self.on("fire", lambda broker: broker.fire(fire)))
        again = self.on("fire", lambda broker: broker.fire(fire))
        taken = again.status in (FireStatus.FIRED, FireStatus.MISSED)
        require("one job per (schedule, tick)", not taken, fire, again)

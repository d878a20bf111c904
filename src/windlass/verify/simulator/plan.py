"""What a seed stands for: the jobs of a run, what operators do, and what goes wrong when.

All of it is drawn before the run begins, so that the timetable does not depend on what happens.
"""

import random
from collections.abc import Callable

import msgspec

from windlass.core.job import Edge, Mode, NewJob
from windlass.core.units import SECOND
from windlass.verify.simulator.program import Act, payload
from windlass.verify.simulator.seeded import job_id

LOAD = 6.0
"""Seconds in which producers call."""
FAULTS = 9.0
"""Seconds in which things go wrong."""
QUEUES = ("plain", "narrow", "fair", "even", "rated", "brief")
CALM_EVERY = 8
"""One seed of so many runs without a fault: nothing may run twice then."""
STORMY_EVERY, STORMY = 16, 13
"""One seed of so many, those with this remainder, has faults that come in the middle of each other."""


class Send(msgspec.Struct):
    """A producer's call."""

    at: float
    producer: int
    jobs: list[NewJob]


class Operation(msgspec.Struct):
    """What an operator does. Jobs are named by their place among those that were sent."""

    at: float
    verb: str
    job: str = ""
    queue: str = ""


class Fault(msgspec.Struct):
    """Something goes wrong, for a while or for good."""

    at: float
    kind: str
    machine: int = 0
    child: int = 0
    seconds: float = 0.0
    much: float = 0.0


class Timetable(msgspec.Struct):
    """A run."""

    seed: int
    sends: list[Send]
    operations: list[Operation]
    faults: list[Fault]
    machines: int
    processes: int
    slots: int
    sweep: float
    schedule: bool


def timetable(seed: int) -> Timetable:
    """Draw a run."""
    chance = random.Random(f"windlass-{seed}")  # noqa: S311 - the point is that it can be drawn again
    calm = seed % CALM_EVERY == 0
    faults = [] if calm else _faults(chance, stormy=seed % STORMY_EVERY == STORMY)
    sends = sorted([*_sends(chance, calm=calm), *_aimed(chance, faults)], key=lambda send: send.at)
    return Timetable(
        seed=seed,
        sends=sends,
        operations=_operations(chance, sends, faults),
        faults=faults,
        machines=chance.choice((1, 2, 2)),
        processes=chance.choice((1, 2)),
        slots=chance.choice((1, 2, 4)),
        sweep=chance.choice((0.25, 0.25, 0.25, 2.5)),
        schedule=chance.random() < 0.4,
    )


# --- jobs ------------------------------------------------------------------------------------------------


def _sends(chance: random.Random, *, calm: bool) -> list[Send]:
    sends: list[Send] = []
    for _ in range(chance.randint(5, 12)):
        at = chance.uniform(0.0, LOAD)
        producer = chance.randrange(2)
        maker = chance.choices(
            (_plain, _group, _flow, _keyed, _narrow, _rated, _delayed), (4, 2, 1, 1, 1, 1, 2)
        )[0]
        sends.append(Send(at, producer, maker(chance, calm=calm)))
    sharing = chance.random()
    if sharing < 0.15:
        sends += _fair(chance)
    elif sharing < 0.3:
        sends += _even(chance)
    if chance.random() < 0.3:
        sends += _brief(chance)
    return sends


def _new(chance: random.Random, act: Act, **more: object) -> NewJob:
    given: dict[str, object] = {"queue": "plain", "max_attempts": chance.choice((1, 2, 3, 5)), **more}
    return NewJob(id=job_id(chance), task="work", payload=payload(act), **given)  # type: ignore[arg-type]


def _act(chance: random.Random, *, calm: bool) -> Act:
    kind = chance.choices(
        ("ok", "fail", "snooze", "poison", "spawn", "give up"), (8, 3, 1, 0 if calm else 1.5, 1.5, 0.5)
    )[0]
    seconds = chance.choice((0.0, 0.01, 0.2, 0.6, 1.5, 2.5))
    times = chance.choice((1, 1, 2, 9)) if kind in ("fail", "poison") else 1
    return Act(kind=kind, seconds=seconds, times=times)


def _plain(chance: random.Random, *, calm: bool) -> list[NewJob]:
    return [_new(chance, _act(chance, calm=calm))]


def _group(chance: random.Random, *, calm: bool) -> list[NewJob]:
    return [_new(chance, _act(chance, calm=calm)) for _ in range(chance.randint(2, 5))]


def _flow(chance: random.Random, *, calm: bool) -> list[NewJob]:
    first, second = _new(chance, _act(chance, calm=calm)), _new(chance, Act())
    last = _new(chance, Act(), after=(Edge(first.id), Edge(second.id)))
    return [first, second, last]


def _keyed(chance: random.Random, *, calm: bool) -> list[NewJob]:
    mode = chance.choice((Mode.IGNORE, Mode.THROTTLE))
    key = chance.choice(("k1", "k2"))
    return [_new(chance, _act(chance, calm=calm), key=key, mode=mode, window=SECOND)]


def _narrow(chance: random.Random, *, calm: bool) -> list[NewJob]:
    """A queue with two slots for the whole fleet, and one for each lane."""
    return [
        _new(chance, _act(chance, calm=calm), queue="narrow", lane=chance.choice(("x", "y", "z")))
        for _ in range(chance.randint(2, 6))
    ]


def _rated(chance: random.Random, *, calm: bool) -> list[NewJob]:  # noqa: ARG001 - all makers are called alike
    return [_new(chance, Act(seconds=0.01), queue="rated") for _ in range(chance.randint(3, 8))]


def _delayed(chance: random.Random, *, calm: bool) -> list[NewJob]:
    delay = round(chance.uniform(0.5, 5.0) * SECOND)
    return [_new(chance, _act(chance, calm=calm), delay=delay)]


def _fair(chance: random.Random) -> list[Send]:
    """A lane with a backlog and a large weight, against one that comes with a job at a time."""
    heavy = [_new(chance, Act(seconds=0.15), queue="fair", lane="heavy", max_attempts=5) for _ in range(16)]
    light = [
        Send(0.3 + 0.25 * n, 1, [_new(chance, Act(seconds=0.15), queue="fair", lane="light", max_attempts=5)])
        for n in range(8)
    ]
    return [Send(0.2, 0, heavy), *light]


def _even(chance: random.Random) -> list[Send]:
    """A lane whose next job comes just after its last was claimed, against one that waits."""
    waiting = [_new(chance, Act(seconds=0.15), queue="even", lane="b", max_attempts=5) for _ in range(8)]
    quick = [
        Send(0.21 + 0.16 * n, 1, [_new(chance, Act(seconds=0.15), queue="even", lane="a", max_attempts=5)])
        for n in range(14)
    ]
    return [Send(0.2, 0, waiting), *quick]


def _brief(chance: random.Random) -> list[Send]:
    """An id that is used again, long after the store has forgotten it."""
    job = _new(chance, Act(seconds=0.01), queue="brief", max_attempts=5)
    return [Send(0.5, 0, [job]), Send(5.5, 0, [job])]


def _aimed(chance: random.Random, faults: list[Fault]) -> list[Send]:
    """Work at hand where a fault would otherwise often find none: zombies that have children and results to
    tell of, something to start for those whose heart has stopped, and jobs to hand out in answers that are
    lost.
    """
    sends: list[Send] = []
    for fault in faults:
        if fault.kind in ("freeze child", "freeze machine"):
            acts = [Act(kind=kind, seconds=1.5) for kind in ("spawn", "ok", "spawn")]
            jobs = [_new(chance, act, max_attempts=3) for act in acts]
            sends.append(Send(max(0.0, fault.at - 0.7), 0, jobs))
        elif fault.kind == "heart cut":
            times = [fault.at + 3.0 + 0.4 * n for n in range(8)]
            sends += [Send(at, 1, [_new(chance, Act(seconds=0.01))]) for at in times]
        elif fault.kind == "messages lost":
            times = [fault.at + fault.seconds * n / 6 for n in range(6)]
            sends += [Send(at, 1, [_new(chance, Act(seconds=0.01))]) for at in times]
    return sends


def _operations(chance: random.Random, sends: list[Send], faults: list[Fault]) -> list[Operation]:
    jobs = [job.id for send in sends for job in send.jobs]
    found: list[Operation] = []
    for _ in range(chance.choice((0, 1, 2, 3))):
        at = chance.uniform(1.0, FAULTS)
        verb = chance.choice(("cancel", "cancel", "replay", "pause"))
        if verb == "pause":
            queue = chance.choice(("plain", "narrow"))
            found += [Operation(at, "pause", queue=queue), Operation(at + 1.5, "resume", queue=queue)]
        else:
            found.append(Operation(at, verb, job=chance.choice(jobs)))
    found.append(Operation(FAULTS + 0.5, "replay", job=chance.choice(jobs)))
    if any(fault.kind == "failover" for fault in faults):
        # A store that has forgotten an operator's word is told again.
        paused = sorted({operation.queue for operation in found if operation.queue})
        found += [Operation(FAULTS + 1.0, "resume", queue=queue) for queue in paused]
    found.sort(key=lambda operation: operation.at)
    return found


# --- faults ----------------------------------------------------------------------------------------------


def _faults(chance: random.Random, *, stormy: bool) -> list[Fault]:
    faults: list[Fault] = []
    for _ in range(chance.randint(5, 10) if stormy else chance.randint(1, 4)):
        kind = chance.choice(tuple(KINDS))
        at = chance.uniform(0.5, FAULTS - 1.0)
        fault = Fault(at, kind, machine=chance.randrange(4), child=chance.randrange(4))
        KINDS[kind](chance, fault)
        faults.append(fault)
    faults.sort(key=lambda fault: fault.at)
    return faults


def _lasting(shortest: float, longest: float, much: tuple[float, float] = (0.0, 0.0)) -> "_Draw":
    def draw(chance: random.Random, fault: Fault) -> None:
        fault.seconds = chance.uniform(shortest, longest)
        fault.much = chance.uniform(*much)

    return draw


_Draw = Callable[[random.Random, Fault], None]
KINDS: dict[str, _Draw] = {
    "kill child": _lasting(0.0, 0.0),
    "kill supervisor": _lasting(0.2, 2.0),
    "lose power": _lasting(0.5, 4.0),
    "stop worker": _lasting(0.5, 3.0),
    "freeze child": _lasting(1.0, 12.0),
    "freeze machine": _lasting(5.0, 9.0),
    "store down": _lasting(0.3, 9.0),
    "store hangs": _lasting(0.5, 4.0),
    "messages lost": _lasting(1.0, 5.0, (0.05, 0.4)),
    "messages doubled": _lasting(1.0, 6.0, (0.2, 0.8)),
    "messages late": _lasting(1.0, 5.0, (0.2, 0.7)),
    "link cut": _lasting(1.0, 8.0),
    "heart cut": _lasting(3.0, 8.0),
    "failover": _lasting(0.0, 0.0, (0.1, 1.0)),
}

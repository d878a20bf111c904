"""What Hypothesis draws: small values, most of them about what is there."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from windlass.broker.contract import Options
from windlass.conformance.machine.universe import (
    HOLD_KEYS,
    KEYS,
    LANES,
    MOMENTS,
    NOWHERE,
    QUEUES,
    STRANGER,
    TASKS,
    End,
    Round,
    Want,
    Wish,
    Word,
)
from windlass.core.event import Emit
from windlass.core.job import Mode, OnFailure
from windlass.core.limits import Rate
from windlass.core.outcome import Outcome
from windlass.core.settings import Retention
from windlass.core.units import DAY, HOUR, MINUTE, SECOND, Micros

if TYPE_CHECKING:
    from windlass.conformance.machine.base import Machine

_T = TypeVar("_T")
Draw = Callable[[SearchStrategy[Any]], Any]
Settings = dict[str, Any]


def of_machine(make: Callable[["Machine"], SearchStrategy[_T]]) -> SearchStrategy[_T]:
    """A draw that looks at the machine: to be about what is there."""
    return st.runner().flatmap(make)


def mostly(common: _T, *rare: _T) -> SearchStrategy[_T]:
    """A value that is rarely something else."""
    return st.sampled_from((common,) * (3 * len(rare)) + rare)


_seldom = st.sampled_from((False, False, False, True))

# the world

moments = st.sampled_from(MOMENTS)
_rates = st.sampled_from((None, None, Rate(1, SECOND), Rate(2, MINUTE, 2), Rate(5, SECOND, 1)))
_limits = st.sampled_from((None, None, 1, 2))
_emits = mostly(Emit.ALL, Emit.FINAL, Emit.NONE)
_NOTHING: Settings = {}
_kept = {
    "retention": st.sampled_from((0, 5 * SECOND, HOUR)),
    "result_ttl": st.sampled_from((0, SECOND, HOUR)),
    "dead_retention": st.sampled_from((0, 5 * SECOND, HOUR)),
    "retention_count": st.sampled_from((None, 1, 3)),
}


def queue_settings(queue: str) -> SearchStrategy[Settings]:
    """What may be said of a queue: each has a character of its own."""
    common = {"concurrency": _limits, "rate": _rates}
    match queue:
        case "plain":
            said = st.fixed_dictionaries({"emit": _emits}, optional={**common, **_kept})
            return st.one_of(st.just(_NOTHING), said)
        case "laned":
            limits = {
                "lane_concurrency": _limits,
                "lane_rate": _rates,
                "order": st.sampled_from(("band", "lane")),
            }
            return st.fixed_dictionaries({"emit": _emits, **limits}, optional={**common, **_kept})
        case _:
            return _ordered_settings(st.fixed_dictionaries({"emit": _emits}, optional=common))


@st.composite
def _ordered_settings(draw: Draw, rest: SearchStrategy[Settings]) -> Settings:
    layouts: tuple[Settings, ...] = (
        {"sequence": True},
        {"age_step": SECOND},
        {"bands": {5: 3, 0: 1}},
        {"bands": {0: 1}, "order": "lane"},
    )
    return {**draw(st.sampled_from(layouts)), **draw(rest)}


lane_settings: SearchStrategy[Settings] = st.fixed_dictionaries(
    {}, optional={"weight": st.sampled_from((1, 2, 5)), "concurrency": _limits, "rate": _rates}
)


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What a run starts with."""

    session_ttl: Micros
    resend_window: Micros
    retention: Micros
    events_kept: int
    max_size: int | None
    plain: Settings
    laned: Settings
    ordered: Settings
    lanes: dict[str, Settings]

    def options(self) -> Options:
        """The options that every broker is opened with: none is left to a store's own defaults."""
        kept = Retention(retention=self.retention, result_ttl=MINUTE, dead_retention=DAY)
        return Options(
            namespace="machine",
            session_ttl=self.session_ttl,
            resend_window=self.resend_window,
            retention=kept,
            events_kept=self.events_kept,
            max_size=self.max_size,
        )


_worlds = st.builds(
    World,
    session_ttl=st.sampled_from((30 * SECOND, 2 * SECOND)),
    resend_window=st.sampled_from((10 * SECOND, SECOND)),
    retention=st.sampled_from((DAY, 0)),
    events_kept=mostly(100_000, 5),
    max_size=mostly(None, 100),
    plain=queue_settings("plain"),
    laned=queue_settings("laned"),
    ordered=queue_settings("ordered"),
    lanes=st.dictionaries(st.sampled_from(LANES[1:]), lane_settings, max_size=2),
)


def _left_alone(world: World) -> World:
    """No settings for the plain queue: there stores take their code paths for many jobs that are alike."""
    return msgspec.structs.replace(world, plain={}, retention=DAY, max_size=None)


worlds = st.one_of(_worlds, _worlds.map(_left_alone))


# jobs


def jobs(machine: "Machine") -> SearchStrategy[int]:
    """The number of a job: most are there, some of them running."""
    running = [word.job for word in machine.live_words()]
    return st.sampled_from((*machine.numbers, *running * 2, STRANGER))


_FLAVOURS: tuple[Settings, ...] = (
    *({},) * 4,
    *({"priority": priority} for priority in (-5, 3, 5, 7)),
    *({"expires": expires} for expires in (MOMENTS[1], 2 * SECOND, HOUR)),
    *({"delay": delay} for delay in (*MOMENTS, HOUR)),
    *({"run_in": run_in} for run_in in (-SECOND, 0, SECOND, HOUR)),
    *({"size": size} for size in (30, 60)),
    *({"max_attempts": attempts} for attempts in (1, 1, 2, 2, 2, 2)),
    *({"flow": flow} for flow in ("f", "g")),
)
"""Options, one at a time: of each job there are two draws, so that most are simple."""
_KEYED: tuple[Settings, ...] = tuple(
    {"key": key, "mode": mode, "window": window}
    for key in (*KEYS[:1] * 3, *KEYS[1:])
    for mode in (Mode.REPLACE, Mode.IGNORE, Mode.REPLACE, Mode.THROTTLE)
    for window in (0, SECOND, HOUR)
)


@st.composite
def _wishes(draw: Draw, known: Sequence[int], *, new: bool, spawned: bool) -> Wish:
    """A job to enqueue, `new` or sent again."""
    number = len(known) + 1 if new or not known else draw(st.sampled_from(known))
    queue: str = draw(st.sampled_from((*QUEUES * 4, NOWHERE)))
    wish: Settings = {"job": number, "queue": queue, "task": draw(st.sampled_from(TASKS))}
    if queue != "plain":
        wish["lane"] = draw(st.sampled_from(LANES))
    for _ in range(2):
        flavour = draw(st.sampled_from(_FLAVOURS))
        if not (flavour.keys() & {"delay", "run_in"} and wish.keys() & {"delay", "run_in"}):
            wish |= flavour
    match draw(st.sampled_from(("", "", "", "key", "key", "after"))):
        case "key":
            # Few lanes and tasks, so that calls under one key meet.
            wish |= {**draw(st.sampled_from(_KEYED)), "task": TASKS[0], "lane": ""}
            if spawned and wish["mode"] is Mode.REPLACE:
                wish["mode"] = Mode.IGNORE
        case "after" if known:
            wish["after"] = draw(_parents(known, number))
        case _:
            pass
    return Wish(**wish)


def _parents(known: Sequence[int], job: int) -> SearchStrategy[tuple[tuple[int, OnFailure], ...]]:
    """Jobs that are there; seldom one that comes later, or never."""
    others = [number for number in known if number != job]
    parents = st.sampled_from((*others * 8, job + 1, STRANGER))
    edges = st.tuples(parents, st.sampled_from(OnFailure))
    return st.lists(edges, min_size=1, max_size=2, unique_by=lambda edge: edge[0]).map(tuple)


@st.composite
def _groups(draw: Draw, known: Sequence[int], least: int, most: int) -> tuple[Wish, ...]:
    known = list(known)
    wished: list[Wish] = []
    for _ in range(draw(st.integers(least, most))):
        wish = draw(_wishes(known, new=not draw(_seldom), spawned=False))
        wished.append(wish)
        known.extend([wish.job] if wish.job not in known else [])
    return tuple(wished)


@st.composite
def _alike(draw: Draw, known: Sequence[int]) -> tuple[Wish, ...]:
    """New jobs that differ in ids and payloads alone; ids come in either order, hardly ever one again."""
    numbers = range(len(known) + 1, len(known) + 1 + draw(st.integers(2, 9)))
    again = [draw(st.sampled_from(known))] if known and draw(st.sampled_from(range(8))) == 7 else []
    wish: Settings = {"queue": draw(mostly(*QUEUES)), "task": draw(st.sampled_from(TASKS))}
    if wish["queue"] != "plain":
        wish["lane"] = draw(st.sampled_from(LANES))
    if draw(_seldom):
        wish |= draw(st.sampled_from(_FLAVOURS))
    ordered = numbers if draw(st.booleans()) else reversed(numbers)
    return tuple(Wish(job=number, **wish) for number in (*ordered, *again))


backlogs = st.one_of(_groups((), 2, 6), _alike(()))
"""Jobs to start with."""


def wishes(machine: "Machine") -> SearchStrategy[Wish]:
    """A job to enqueue: most are new, some are sent again."""
    return _seldom.flatmap(lambda again: _wishes(machine.numbers, new=not again, spawned=False))


def children(machine: "Machine") -> SearchStrategy[Wish]:
    """A job for a settlement to bring along."""
    return _wishes(machine.numbers, new=True, spawned=True)


def groups(machine: "Machine") -> SearchStrategy[tuple[Wish, ...]]:
    """Up to three jobs that are accepted together; they may be each other's parents."""
    return _groups(machine.numbers, 1, 3)


def alike(machine: "Machine") -> SearchStrategy[tuple[Wish, ...]]:
    """Jobs of one call that are alike."""
    return _alike(machine.numbers)


# leases


def sessions(machine: "Machine") -> SearchStrategy[int]:
    """The number of a session: most are alive."""
    alive = [number for number in machine.sessions if machine.alive(number)]
    return st.sampled_from((*alive * 5, *machine.sessions, STRANGER))


def askers(machine: "Machine") -> SearchStrategy[int]:
    """The number of a session to ask again: most still hold what their last ask got them."""
    holding = [number for number in machine.sessions if machine.holds_its_reply(number)]
    return st.sampled_from((*holding * 5, *machine.sessions))


def words(machine: "Machine") -> SearchStrategy[Word]:
    """A delivery: most are live, some are over, some never were."""
    live = machine.live_words()
    past = machine.words()
    never = [Word(number, 0) for number in machine.numbers[:2]]
    return st.sampled_from((*live * 5, *past, *never) or (Word(STRANGER, 0),))


wants = st.builds(
    Want,
    queues=st.one_of(
        st.just(QUEUES),
        st.just(QUEUES[:1]),
        st.lists(st.sampled_from((*QUEUES, NOWHERE)), min_size=1, max_size=3, unique=True).map(tuple),
    ),
    slots=st.sampled_from((2, 1, 3, 0, 5, 8)),
    prefetch=mostly(0, 1, 3, 100),
    soon=mostly(0, 1, 2, 40, 100),
    alone=st.sampled_from((False,) * 7 + (True,)),
    max_bytes=mostly(1_000, 40, 100),
    draw=mostly(0, 2**31, 2**32 - 1),
)


outcomes = st.sampled_from((*Outcome, Outcome.DEAD, Outcome.RETRY, Outcome.RELEASE))

rounds = st.builds(
    Round,
    left=st.frozensets(st.integers(0, 6), max_size=3),
    odd=mostly(None, *Outcome),
    result=st.booleans(),
    want=st.one_of(st.none(), wants),
)


@st.composite
def ends(draw: Draw, machine: "Machine") -> End:
    """A settlement."""
    word: Word = draw(words(machine))
    outcome: Outcome = draw(outcomes)
    more: Settings = {}
    if outcome in (Outcome.RETRY, Outcome.SNOOZE):
        more["delay"] = draw(st.sampled_from((0, *MOMENTS, HOUR)))
    if outcome is Outcome.HOLD:
        more["hold"] = draw(st.sampled_from(HOLD_KEYS))
    more["ran"] = draw(st.booleans())
    if outcome is Outcome.DONE:
        more["result"] = draw(st.booleans())
        if draw(_seldom):
            more["spawn"] = (draw(children(machine)),)
    return End(word=word, outcome=outcome, **more)

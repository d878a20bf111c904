"""The rules, as every language has them: a name, the function of windlass.core, and cases made by Hypothesis.

A store that has the rules in a language of its own answers the same cases (`Speaker`); the test compares.
Values are those that all languages have: numbers, text, booleans, None and lists of them. States, modes and
the like are their texts here; a store puts its codes in their place.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
from hypothesis import strategies as st

from windlass.core import dedup, edge, event, job, lease, limits, order, session, settlement, take
from windlass.core.event import Emit
from windlass.core.job import Mode, NewJob, OnFailure
from windlass.core.outcome import Cause, CauseKind, Outcome
from windlass.core.state import State
from windlass.core.units import DAY, HOUR, SECOND, JobId

Value = Any
Case = Sequence[Value]


class Speaker(Protocol):
    """A language that has the rules."""

    def answer(self, cases: Sequence[tuple[str, Case]]) -> Sequence[Value]:
        """The answers to cases of rules by name, in their order."""
        ...


class Rule(NamedTuple):
    """A rule."""

    function: Callable[..., Value]
    """As windlass.core has it, of plain values."""
    cases: st.SearchStrategy[Case]


NOW = st.integers(1_000_000_000_000_000, 2_000_000_000_000_000)
FENCE = st.integers(0, 2_000_000_000_000_000)
SPAN = st.one_of(st.integers(-SECOND, 10 * SECOND), st.integers(0, 10 * DAY))
COUNT = st.integers(0, 30)
SLOTS = st.integers(0, 500)
FACTS = st.fixed_dictionaries(
    {
        "attempt": st.integers(1, 12),
        "max_attempts": st.integers(1, 12),
        "crashes": COUNT,
        "cancel_requested": st.booleans(),
        "superseded": st.booleans(),
        "holds": COUNT,
        "held_for": st.one_of(st.just(0), st.integers(0, 14 * DAY)),
    }
)
RATE = st.tuples(
    st.integers(1, 1_000_000), st.sampled_from([1_000, SECOND, 60 * SECOND, HOUR]), st.integers(1, 1_000)
)
BUCKET = st.tuples(
    st.integers(0, 1_000).flatmap(
        lambda tokens: st.integers(0, 10**6).map(lambda more: tokens * SECOND + more)
    ),
    NOW,
    st.sampled_from([1_000, SECOND, 60 * SECOND, HOUR]),
)
BANDS = st.one_of(
    st.none(),
    st.dictionaries(st.integers(-5, 9), st.integers(1, 100), min_size=1, max_size=4).map(
        lambda found: [list(pair) for pair in sorted(found.items())]
    ),
)
PRIORITY = st.integers(-9, 9)
DRAW = st.integers(0, 2**32 - 1)
AGE = st.one_of(st.none(), st.integers(SECOND, HOUR))


def _ruling(found: settlement.Ruling) -> Value:
    return [
        found.outcome.value,
        found.move.value,
        found.state.value,
        None if found.reason is None else found.reason.value,
        found.delay,
        found.charged,
        found.keeps_place,
    ]


def _facts(raw: Mapping[str, Any]) -> settlement.JobFacts:
    return settlement.JobFacts(**raw)


def _room_for(
    suspects: bool, slots: int, soon: int, limit: int, last: bool, timed: bool, limited: bool
) -> int:
    ask = lease.Ask(queues=("q",), slots=slots, limit=limit, soon=soon, alone=suspects)
    return lease.room_for(ask, last_attempt=last, timed=timed, limited=limited)


def _state(raw: str | None) -> State | None:
    return None if raw is None else State(raw)


def _due_at(run_at: int | None, delay: int, now: int) -> int:
    return job.due_at(NewJob(JobId(""), "t", run_at=run_at, delay=delay), now)


def _settlement(facts: Mapping[str, Any], outcome: str, delay: int) -> Value:
    said = settlement.Settlement(job="", fence=0, outcome=Outcome(outcome), delay=delay)
    return _ruling(settlement.rule_settlement(_facts(facts), said))


def _session_end(facts: Mapping[str, Any], cause: str, started: bool) -> Value:
    return _ruling(settlement.rule_session_end(_facts(facts), Cause(CauseKind(cause)), started=started))


def _is_crash(cause: str, charged: bool) -> bool:
    ruling = settlement.rule_deadline(settlement.JobFacts(attempt=1, max_attempts=2))
    return settlement.is_crash(Cause(CauseKind(cause)), msgspec.structs.replace(ruling, charged=charged))


def _rate(raw: Sequence[int]) -> limits.Rate:
    count, per, burst = raw
    return limits.Rate(count, per, burst)


def _bucket(found: limits.Bucket) -> Value:
    return [found.level, found.at, found.per]


def _bands(raw: Sequence[Sequence[int]] | None) -> dict[int, int] | None:
    return None if raw is None else {pair[0]: pair[1] for pair in raw}


def _states(*states: State) -> st.SearchStrategy[str]:
    return st.sampled_from([state.value for state in states])


_ANY_STATE = _states(*State)
_MODE = st.sampled_from([mode.value for mode in Mode])

_PLACE = st.sampled_from(["", "1", "2"])

RULES: Mapping[str, Rule] = {
    "new_fence": Rule(lease.new_fence, st.tuples(FENCE, NOW)),
    "is_live": Rule(
        lambda state, held, fence, alive: lease.is_live(State(state), held, fence, session_alive=alive),
        st.tuples(_ANY_STATE, st.integers(1, 3), st.integers(1, 3), st.booleans()),
    ),
    "room_for": Rule(
        _room_for,
        st.tuples(st.booleans(), SLOTS, SLOTS, SLOTS, st.booleans(), st.booleans(), st.booleans()),
    ),
    "ask": Rule(
        lambda alive, seq, answered: lease.rule_ask(alive=alive, seq=seq, answered=answered).value,
        st.tuples(st.booleans(), st.integers(1, 9), st.integers(0, 9)),
    ),
    "settlement": Rule(_settlement, st.tuples(FACTS, st.sampled_from([one.value for one in Outcome]), SPAN)),
    "session_end": Rule(
        _session_end, st.tuples(FACTS, st.sampled_from(["stop", "crash", "lost"]), st.booleans())
    ),
    "deadline": Rule(lambda facts: _ruling(settlement.rule_deadline(_facts(facts))), st.tuples(FACTS)),
    "is_crash": Rule(_is_crash, st.tuples(st.sampled_from([one.value for one in CauseKind]), st.booleans())),
    "key": Rule(
        lambda mode, holder, within: dedup.rule_key(Mode(mode), _state(holder), within_window=within).value,
        st.tuples(_MODE, st.one_of(st.none(), _ANY_STATE), st.booleans()),
    ),
    "held_until": Rule(
        lambda mode, window, accepted, finished: dedup.held_until(Mode(mode), window, accepted, finished),
        st.tuples(_MODE, st.integers(0, DAY), NOW, NOW),
    ),
    "due_at": Rule(_due_at, st.tuples(st.one_of(st.none(), NOW), st.integers(0, DAY), NOW)),
    "edge": Rule(
        lambda on_failure, parent: edge.rule_edge(OnFailure(on_failure), _state(parent)).value,
        st.tuples(st.sampled_from([one.value for one in OnFailure]), st.one_of(st.none(), _ANY_STATE)),
    ),
    "is_logged": Rule(
        lambda emit, before, after: event.is_logged(Emit(emit), _state(before), _state(after)),
        st.tuples(
            st.sampled_from([one.value for one in Emit]),
            st.one_of(st.none(), _ANY_STATE),
            st.one_of(st.none(), _ANY_STATE),
        ),
    ),
    "stride": Rule(order.stride, st.tuples(st.integers(1, order.MAX_WEIGHT))),
    "turn": Rule(order.turn_of, st.tuples(st.integers(0, 300), st.integers(0, 600))),
    "band": Rule(
        lambda priority, due, bands, age: order.band_of(priority, due, _bands(bands), age),
        st.tuples(PRIORITY, NOW, BANDS, AGE),
    ),
    "next_draw": Rule(order.next_draw, st.tuples(DRAW, st.integers(0, 1_000))),
    "choose_band": Rule(
        lambda present, bands, draw: order.choose_band(present, _bands(bands), draw),
        st.tuples(st.lists(PRIORITY, min_size=1, max_size=5, unique=True).map(sorted), BANDS, DRAW),
    ),
    "refilled": Rule(
        lambda bucket, rate, now: _bucket(limits.refilled(limits.Bucket(*bucket), _rate(rate), now)),
        st.tuples(BUCKET, RATE, NOW),
    ),
    "token_in": Rule(
        lambda bucket, rate, now: limits.token_in(limits.Bucket(*bucket), _rate(rate), now),
        st.tuples(BUCKET, RATE, NOW),
    ),
    "taken": Rule(
        lambda bucket, rate, now: _bucket(limits.taken(limits.Bucket(*bucket), _rate(rate), now)),
        st.tuples(BUCKET, RATE, NOW),
    ),
    "returned": Rule(
        lambda bucket, rate, now, claimed: _bucket(
            limits.returned(limits.Bucket(*bucket), _rate(rate), now, claimed)
        ),
        st.tuples(BUCKET, RATE, NOW, NOW),
    ),
    "tokens": Rule(
        lambda bucket, rate, now: limits.tokens(limits.Bucket(*bucket), _rate(rate), now),
        st.tuples(BUCKET, RATE, NOW),
    ),
    "take": Rule(
        lambda identity, at, source, expect: take.rule_take(identity, at, source, expect).value,
        st.one_of(st.none(), st.tuples(_PLACE, _PLACE)).flatmap(
            lambda kept: st.tuples(*map(st.just, kept or (None, None)), _PLACE, st.one_of(st.none(), _PLACE))
        ),
    ),
    "store_time": Rule(session.store_time, st.tuples(NOW, NOW, st.integers(SECOND, 600 * SECOND))),
    "is_early": Rule(
        lambda elapsed, every, left_work: session.is_early(elapsed, every, left_work=left_work),
        st.tuples(st.one_of(st.none(), SPAN), st.integers(0, 2 * SECOND), st.booleans()),
    ),
    "liveness_move": Rule(session.liveness_move, st.tuples(SPAN, st.integers(SECOND, 600 * SECOND))),
}

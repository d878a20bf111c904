"""The rules of the PostgreSQL broker (`sql/01_rules.sql`), on a real server."""

import json
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from tests.broker.rules.cases import Case, Value

from windlass.broker.postgres.records import CODES, EMITS, FAILURES, MODES, STATES
from windlass.core.event import Emit
from windlass.core.job import Mode, OnFailure
from windlass.core.limits import Rate
from windlass.core.state import State

_FACTS: Final = "jsonb_populate_record(NULL::job_facts, a->0)"
_BUCKET: Final = ", ".join(
    (
        *(f"(a->0->>{place})::bigint" for place in range(3)),
        *(f"(a->1->>{place})::bigint" for place in (0, 1, 3)),
        "(a->>2)::bigint",
    )
)
_LEVEL_AT: Final = "greatest((a->>2)::bigint, (a->0->>1)::bigint), (a->1->>1)::bigint"
_BANDS: Final = (
    "(SELECT array_agg((b->>0)::bigint) FROM jsonb_array_elements({list}) b)",
    "(SELECT array_agg((b->>1)::bigint) FROM jsonb_array_elements({list}) b)",
)


def _pairs(place: int) -> tuple[str, str]:
    """The listed priorities and their weights; NULL if there are none."""
    found = f"CASE WHEN jsonb_typeof(a->{place}) = 'array' THEN a->{place} END"
    return _BANDS[0].format(list=found), _BANDS[1].format(list=found)


CALLS: Final = {
    "new_fence": "to_jsonb(_new_fence((a->>0)::bigint, (a->>1)::bigint))",
    "is_live": (
        f"to_jsonb(_is_live((a->>0)::integer = {CODES[State.RUNNING]}, (a->>1)::bigint, (a->>2)::bigint,"
        " (a->>3)::boolean))"
    ),
    "room_for": (
        "to_jsonb(_room_for((a->>0)::boolean, (a->>1)::integer, (a->>2)::integer, (a->>3)::integer,"
        " (a->>4)::boolean, (a->>5)::boolean, (a->>6)::boolean))"
    ),
    "settlement": f"to_jsonb(_rule_settlement({_FACTS}, a->>1, (a->>2)::bigint))",
    "session_end": f"to_jsonb(_rule_session_end({_FACTS}, a->>1, (a->>2)::boolean))",
    "deadline": f"to_jsonb(_rule_deadline({_FACTS}))",
    "is_crash": "to_jsonb(_is_crash(a->>0, (a->>1)::boolean))",
    "ask": "to_jsonb(_rule_ask((a->>0)::boolean, (a->>1)::bigint, (a->>2)::bigint))",
    "due_at": "to_jsonb(_due_at((a->>0)::bigint, (a->>1)::bigint, (a->>2)::bigint))",
    "edge": "to_jsonb(_rule_edge((a->>0)::smallint, (a->>1)::smallint))",
    "is_logged": "to_jsonb(_is_logged((a->>0)::smallint, (a->>1)::smallint, (a->>2)::smallint))",
    "key": "to_jsonb(_rule_key((a->>0)::smallint, (a->>1)::smallint, (a->>2)::boolean))",
    "held_until": (
        "to_jsonb(_held_until((a->>0)::smallint, (a->>1)::bigint, (a->>2)::bigint, (a->>3)::bigint))"
    ),
    "stride": "to_jsonb(_stride((a->>0)::bigint))",
    "turn": "to_jsonb(_turn_of((a->>0)::integer, (a->>1)::integer))",
    "band": f"to_jsonb(_band((a->>0)::bigint, (a->>1)::bigint, {_pairs(2)[0]}, (a->>3)::bigint))",
    "next_draw": "to_jsonb(_next_draw((a->>0)::bigint, (a->>1)::integer))",
    "choose_band": (
        "to_jsonb(_choose_band((SELECT array_agg(p::bigint) FROM jsonb_array_elements_text(a->0) p),"  # noqa: S608 - of our own making
        f" {_pairs(1)[0]}, {_pairs(1)[1]}, (a->>2)::bigint))"
    ),
    "refilled": f"jsonb_build_array(_refilled({_BUCKET}), {_LEVEL_AT})",
    "token_in": f"to_jsonb(_token_in({_BUCKET}))",
    "taken": f"jsonb_build_array(_taken({_BUCKET}), {_LEVEL_AT})",
    "returned": f"jsonb_build_array(_returned({_BUCKET}, (a->>3)::bigint), {_LEVEL_AT})",
    "tokens": f"to_jsonb(_refilled({_BUCKET}) / (a->1->>1)::bigint)",
    "take": "to_jsonb(_rule_take(a->>0, a->>1, a->>2, a->>3))",
    "store_time": "to_jsonb(_store_time((a->>0)::bigint, (a->>1)::bigint, (a->>2)::bigint))",
    "is_early": "to_jsonb(_is_early((a->>0)::bigint, (a->>1)::bigint, (a->>2)::boolean))",
    "liveness_move": "to_jsonb(_liveness_move((a->>0)::bigint, (a->>1)::bigint))",
}
"""The call of each rule, with `a` for its arguments."""


class Sql:
    """A server that knows the rules."""

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        """The namespace is the first of the connection's search path."""
        self._connection = connection

    def answer(self, cases: Sequence[tuple[str, Case]]) -> Sequence[Value]:
        (name,) = {name for name, _ in cases}
        sent = [[_sent(name, at, value) for at, value in enumerate(case)] for _, case in cases]
        each = "jsonb_array_elements(%s::jsonb) WITH ORDINALITY AS u (a, o)"
        query = f"SELECT {CALLS[name]} FROM {each} ORDER BY o"  # noqa: S608 - of our own making
        rows = self._connection.execute(query.encode(), [json.dumps(sent)]).fetchall()
        return [_read(name, value) for (value,) in rows]


def _sent(name: str, at: int, value: Value) -> Value:
    match name, at:
        case ("is_live", 0) | ("key" | "edge", 1) | ("is_logged", 1 | 2) if value is not None:
            return CODES[State(value)]
        case ("edge" | "is_logged", 1):
            return -1  # not placed yet
        case ("edge", 0):
            return FAILURES[OnFailure(value)]
        case ("is_logged", 0):
            return EMITS[Emit(value)]
        case ("key" | "held_until", 0):
            return MODES[Mode(value)]
        case ("refilled" | "token_in" | "taken" | "returned" | "tokens", 1):
            return [*value, Rate(*value).size]
        case _:
            return value


def _read(name: str, value: Value) -> Value:
    if name in ("settlement", "session_end", "deadline"):
        return [
            value["outcome"],
            value["move"],
            STATES[value["state"]].value,
            value["reason"],
            value["delay"],
            value["charged"],
            value["keeps_place"],
        ]
    return value

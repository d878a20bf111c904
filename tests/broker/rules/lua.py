"""The rules of the Redis broker (`lua/parts/rules.lua`), on a real server."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import redis
from tests.broker.rules.cases import Case, Value

from windlass.broker.redis.codes import ASKERS, EMITS, MODES, POLICIES, STATE_CODES, STATES
from windlass.broker.redis.scripts import link_text
from windlass.core.event import Emit
from windlass.core.job import Mode, OnFailure
from windlass.core.limits import Rate
from windlass.core.state import State

LETTERS = {policy: letter for letter, policy in POLICIES.items()}
_ANSWER = """\
-- include: store, clock, rules, rule_take
rules.store_time = store_time
rules.take = rule_take
local out = {}
for i, case in ipairs(cjson.decode(ARGV[1])) do
  for k = 1, case[3] do
    if case[2][k] == cjson.null then case[2][k] = nil end
  end
  out[i] = rules[case[1]](unpack(case[2], 1, case[3]))
  local r = out[i]
  if type(r) == 'table' and r.outcome then
    out[i] = {r.outcome, r.move, r.state, r.reason or cjson.null, r.delay, r.charged, r.keeps_place}
  end
end
return cmsgpack.pack(out)
"""


class Lua:
    """A server that knows the rules."""

    def __init__(self, client: "redis.Redis") -> None:
        self._client = client
        self._text = link_text(_ANSWER)

    def answer(self, cases: Sequence[tuple[str, Case]]) -> Sequence[Value]:
        sent = [
            [name, [_sent(name, at, value) for at, value in enumerate(case)], len(case)]
            for name, case in cases
        ]
        raw: Any = self._client.eval(self._text, 0, json.dumps(sent))
        return [_read(name, one) for (name, _), one in zip(cases, msgspec.msgpack.decode(raw), strict=True)]


def _sent(name: str, at: int, value: Value) -> Value:
    match name, at:
        case ("is_live", 0) | ("key" | "edge", 1) | ("is_logged", 1 | 2) if value is not None:
            return STATE_CODES[State(value)]
        case ("edge" | "is_logged", 1):
            return -1  # not placed yet
        case ("edge", 0):
            return LETTERS[OnFailure(value)].decode()
        case ("is_logged", 0):
            return EMITS.index(Emit(value))
        case ("key" | "held_until", 0):
            return MODES.index(Mode(value))
        case ("refilled" | "token_in" | "taken" | "returned" | "tokens", 1):
            return [*value, Rate(*value).size]
        case _:
            return value


def _read(name: str, value: Value) -> Value:
    if name in ("settlement", "session_end", "deadline"):
        outcome, move, state, reason, *rest = value
        return [outcome, move, STATES[int(state)].value, reason or None, *rest]
    if name == "ask":
        return ASKERS[int(value)].value
    return value

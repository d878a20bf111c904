"""Strikes: jobs of a task that workers are to hold, by what they were called with. Pure.

An operator who strikes a task says which jobs are meant: each condition names a place in the arguments and
the JSON value that must be there. All must hold; without conditions every job of the task is meant, which is
how a task is paused.

    user_id             the argument of this name, or the key of a dict
    address.city        a part of it, by the name of a field or a key
    lines.0.sku         the first of a list
    0                   the first argument that Python takes by position only

Only what the caller gave is there: an argument that was left to its default is not.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from windlass.core.codec import UNREADABLE, encode, open_payload
from windlass.core.names import check_task
from windlass.core.option import shown
from windlass.core.secret import is_secret_name
from windlass.core.units import Micros
from windlass.errors import InvalidOption, UnreadablePayload

MOST_STRIKES = 100
"""In one namespace: a worker looks through those of a task for each of its jobs."""
MOST_CONDITIONS = 20
LONGEST_PATH = 200
LONGEST_VALUE = 1_000
"""Bytes of JSON."""
LONGEST_REASON = 300

_ABSENT = object()


class Strike(msgspec.Struct, frozen=True, kw_only=True):
    """A document of kind `strike`."""

    task: str
    where: Mapping[str, Any] = {}
    """Values by their paths; empty: the task is paused."""
    reason: str = ""
    by: str = ""
    at: Micros = 0

    @property
    def id(self) -> str:
        """The same for the same task and conditions: to strike twice changes nothing."""
        said = [self.task, sorted((path, value) for path, value in self.where.items())]
        return hashlib.blake2b(encode(said), digest_size=5).hexdigest()

    @property
    def pauses(self) -> bool:
        """Whether it is for every job of its task."""
        return not self.where

    def told(self) -> str:
        """Why a job is held, as operators read it."""
        what = f'task "{self.task}" is paused' if self.pauses else f"struck by an operator ({self.id})"
        return f"{what}: {self.reason}" if self.reason else what


def strike_key(strike_id: str) -> str:
    """The key of jobs that are held by a strike."""
    return f"strike:{strike_id}"


def is_strike_key(key: str) -> bool:
    """Whether jobs of this key are held by a strike."""
    return key.startswith("strike:")


def check_strike(strike: Strike) -> Strike:
    """Return a strike, or refuse what no worker could obey, or what would show a secret."""
    check_task(strike.task)
    if len(strike.where) > MOST_CONDITIONS:
        raise InvalidOption(
            f"a strike has at most {MOST_CONDITIONS} conditions, got {len(strike.where):,}; match by fewer, "
            "or pause the task"
        )
    for path, value in strike.where.items():
        _check_condition(path, value)
    if len(strike.reason) > LONGEST_REASON:
        raise InvalidOption(
            f"the reason of a strike has {len(strike.reason):,} characters, the limit is {LONGEST_REASON}"
        )
    return strike


def _check_condition(path: str, value: object) -> None:
    steps = path.split(".")
    if len(path) > LONGEST_PATH or not all(steps) or not path.isprintable():
        raise InvalidOption(
            f"a condition needs the place of an argument of at most {LONGEST_PATH} characters, such as "
            f'"user_id" or "address.city", not {shown(path)}'
        )
    for step in steps:
        if is_secret_name(step):
            raise InvalidOption(
                f'"{path}" is called like a secret, and a strike can be read by every operator; match by '
                "another argument"
            )
    size = len(encode(value))
    if size > LONGEST_VALUE:
        raise InvalidOption(f'the value for "{path}" has {size:,} bytes, the limit is {LONGEST_VALUE:,}')


def matches(strike: Strike, payload: bytes) -> bool:
    """Whether a job of the strike's task is meant, by its payload. One that cannot be read is meant only if
    all are.
    """
    if strike.pauses:
        return True
    try:
        opened = open_payload(payload)
        return all(_holds(opened.a, opened.k, path, value) for path, value in strike.where.items())
    except (UnreadablePayload, *UNREADABLE):
        return False


def first_match(strikes: Sequence[Strike], payload: bytes) -> Strike | None:
    """The first of these strikes that means a job."""
    return next((strike for strike in strikes if matches(strike, payload)), None)


def _holds(args: Sequence[msgspec.Raw], named: Mapping[str, msgspec.Raw], path: str, value: object) -> bool:
    first, *rest = path.split(".")
    raw = named.get(first)
    if raw is None:
        at = _index(first, len(args))
        raw = None if at is None else args[at]
    if raw is None:
        return False
    found: object = msgspec.json.decode(raw)
    for step in rest:
        found = _inside(found, step)
    return same(found, value)


def _inside(value: object, step: str) -> object:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).get(step, _ABSENT)
    if isinstance(value, list):
        listed = cast("list[object]", value)
        at = _index(step, len(listed))
        return _ABSENT if at is None else listed[at]
    return _ABSENT


def _index(step: str, length: int) -> int | None:
    if not (step.isascii() and step.isdecimal() and len(step) <= 9):
        return None
    return at if (at := int(step)) < length else None


def same(one: object, other: object) -> bool:
    """Whether two JSON values are the same: 1 is 1.0, and not true."""
    if isinstance(one, bool) or isinstance(other, bool) or one is None or other is None:
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        left, right = cast("dict[str, object]", one), cast("dict[str, object]", other)
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(one, list) and isinstance(other, list):
        items, others = cast("list[object]", one), cast("list[object]", other)
        return len(items) == len(others) and all(map(same, items, others))
    return bool(one == other)


_decode = msgspec.json.Decoder(Strike).decode


def decode_strike(body: object) -> Strike | None:
    """The strike of a document; None: this code cannot read it."""
    try:
        return _decode(body) if isinstance(body, bytes) else None
    except UNREADABLE:
        return None

"""Two brokers side by side: every answer, and everything that can be read, must be the same.

Left out is what the contract leaves open: cursors, prose for people (`why`, and `detail` of an explanation),
the order in which one step moved several jobs, and how a bounded verb divides its work among calls (each is
called until nothing is left). When to ask again may be told early but never late.
"""

from collections.abc import Iterable, Sequence
from functools import singledispatch
from typing import Any, TypeVar, cast

import msgspec

from windlass.broker.contract import Settled
from windlass.conformance.machine.snapshot import Snapshot
from windlass.conformance.machine.violated import Differs
from windlass.core.event import Event, Events
from windlass.core.job import JobDetail, Receipt
from windlass.core.lease import Claimed
from windlass.core.operate import Purged
from windlass.core.outcome import Answer
from windlass.core.query import Explanation
from windlass.core.session import Ended, Swept
from windlass.core.take import Taken
from windlass.core.timetable import Fired
from windlass.core.units import JobId, Micros

_T = TypeVar("_T")


def answers(verb: str, ours: object, theirs: object) -> None:
    """Compare the answers to one call."""
    for mine, other in _pairs(verb, ours, theirs):
        if isinstance(mine, Claimed) and isinstance(other, Claimed):
            _compare_claims(verb, mine, other)
        elif comparable(mine) != comparable(other):
            raise Differs(f"the answer to {verb}", mine, other)


def snapshots(ours: Snapshot, theirs: Snapshot) -> None:
    """Compare everything that was read."""
    for name in ours.__struct_fields__:
        if name == "cursor":
            continue
        mine, other = getattr(ours, name), getattr(theirs, name)
        if name == "events":
            mine, other = _by_job(mine), _by_job(other)
        if comparable(mine) != comparable(other):
            raise Differs(f"what {name} shows", *_first_difference(comparable(mine), comparable(other)))


def _pairs(verb: str, ours: object, theirs: object) -> Iterable[tuple[object, object]]:
    """An answer in its parts, so that claims are found where they are fused with a settlement."""
    if isinstance(ours, Settled) and isinstance(theirs, Settled):
        yield ours.answers, theirs.answers
        if (ours.claimed is None) != (theirs.claimed is None):
            raise Differs(f"the answer to {verb}", ours, theirs)
        if ours.claimed is not None:
            yield ours.claimed, theirs.claimed
    else:
        yield ours, theirs


def _compare_claims(verb: str, ours: Claimed, theirs: Claimed) -> None:
    blank = {"more": False, "next_in": None}
    if msgspec.structs.replace(ours, **blank) != msgspec.structs.replace(theirs, **blank):
        raise Differs(f"the answer to {verb}", ours, theirs)
    mine, other = _wake(ours), _wake(theirs)
    if mine is not None and (other is None or other > mine):
        raise Differs(f"when to ask again after {verb}: late", ours, theirs)


def _wake(claimed: Claimed) -> Micros | None:
    return 0 if claimed.more else claimed.next_in


def total(passes: Sequence[_T]) -> _T:
    """The answers of a bounded verb that was called until nothing was left, as one."""
    last = passes[-1]
    if isinstance(last, Swept):
        each = [one for one in passes if isinstance(one, Swept)]
        return msgspec.structs.replace(
            last,
            promoted=sum(one.promoted for one in each),
            reaped=tuple(session for one in each for session in one.reaped),
            moved=tuple(moved for one in each for moved in one.moved),
            pruned=sum(one.pruned for one in each),
            stepped_back=sum(one.stepped_back for one in each),
        )
    if isinstance(last, Purged):
        return msgspec.structs.replace(
            last, count=sum(one.count for one in passes if isinstance(one, Purged))
        )
    return last


@singledispatch
def comparable(value: object) -> object:
    """A value without what may differ."""
    return value


@comparable.register(list)
@comparable.register(tuple)
def _(value: Sequence[object]) -> object:
    return [comparable(each) for each in value]


@comparable.register(dict)
def _(value: dict[Any, object]) -> object:
    return {key: comparable(each) for key, each in value.items()}


@comparable.register(Receipt)
@comparable.register(Answer)
def _(value: Receipt | Answer) -> object:
    return msgspec.structs.replace(value, why="")


@comparable.register
def _(value: Fired) -> object:
    return (value.status, comparable(value.receipts))


@comparable.register
def _(value: Taken) -> object:
    return (value.status, value.offset, comparable(value.receipts))


@comparable.register
def _(value: JobDetail) -> object:
    if value.pruned:  # what is remembered of a job that is not kept
        return (value.id, value.state, value.reason, value.fence, value.finished_at)
    return value


@comparable.register
def _(value: Explanation) -> object:
    return msgspec.structs.replace(value, detail="")


@comparable.register
def _(value: Ended) -> object:
    return (value.known, value.more, sorted(map(repr, value.moved)))


@comparable.register
def _(value: Swept) -> object:
    return msgspec.structs.replace(
        value, moved=tuple(sorted(map(repr, value.moved))), reaped=tuple(sorted(value.reaped))
    )


@comparable.register
def _(value: Events) -> object:
    return (_by_job(value.items), value.gap)


def _by_job(events: Sequence[Event]) -> dict[JobId, list[Event]]:
    stories: dict[JobId, list[Event]] = {}
    for event in events:
        stories.setdefault(event.job, []).append(event)
    return stories


def _first_difference(ours: object, theirs: object) -> tuple[object, object]:
    """What differs inside two values, so that a failure can be read."""
    mine, other = _parts(ours), _parts(theirs)
    if mine is None or other is None:
        return ours, theirs
    pairs = ((mine.get(key), other.get(key)) for key in (*mine, *other))
    return next((pair for pair in pairs if pair[0] != pair[1]), (ours, theirs))


def _parts(value: object) -> dict[Any, object] | None:
    if isinstance(value, list):
        return dict(enumerate(cast("list[object]", value)))
    return cast("dict[Any, object]", value) if isinstance(value, dict) else None

"""What keys that are bound to queues or lanes see of things that concern more than one job."""

from windlass.api.access import Caller
from windlass.api.problems import Refusal


def whole_queues(caller: Caller) -> None:
    """Refuse a key that is bound to lanes: what is told of a queue tells of its other lanes."""
    if caller.lanes is not None:
        raise Refusal(403, "forbidden", "this is about whole queues: it needs a key not bound to lanes")


def within_sight(caller: Caller, queue: str | None, lane: str | None) -> None:
    """Refuse a wish for "all" from a key that does not see all: it has to say which of its own it means."""
    if caller.queues is not None and (queue is None or not caller.sees_queue(queue)):
        _refuse("queue", caller.queues)
    if caller.lanes is not None and (lane is None or not caller.sees_lane(lane)):
        _refuse("lane", caller.lanes)


def _refuse(what: str, own: frozenset[str]) -> None:
    names = ", ".join(sorted(own)[:10])
    raise Refusal(403, "forbidden", f"this key is bound: name one of its {what}s ({names})", field=what)

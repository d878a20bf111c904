"""What keys that are bound to queues or lanes see of things that concern more than one job."""

import hashlib
from typing import Any

import msgspec

from windlass import Windlass
from windlass.api.access import Caller
from windlass.api.problems import Refusal, field, not_found
from windlass.client.task import Sender
from windlass.core.names import refuse_reserved


def visible_task(app: Windlass, caller: Caller, name: str) -> Sender[..., Any]:
    """A task that the caller may run: to a key that is bound to queues those that are declared in one of
    them, wherever it wants the job to go; else 404. 422 for a task of Windlass itself.
    """
    with field("task"):
        refuse_reserved(name, "task")
    known = app.tasks.get(name)
    if known is None or not caller.sees_queue(known.options.queue):
        raise not_found(f'there is no task "{name[:100]}"', field="task")
    return known


def stored_name(caller: Caller, name: str) -> str:
    """The name under which the store keeps what a caller calls by a name. To a bound key names are its own:
    it cannot learn from a name that is taken what others have. Keys that see the same share their names.
    """
    return f"{name}{_mark(caller)}"


def shown_name(caller: Caller, kept: str) -> str:
    """The name by which a caller calls what the store keeps under a name."""
    return kept.removesuffix(_mark(caller))


def _mark(caller: Caller) -> str:
    if not caller.is_bound:
        return ""
    seen = [None if names is None else sorted(names) for names in (caller.queues, caller.lanes)]
    return "@" + hashlib.sha256(msgspec.json.encode(seen)).hexdigest()[:_MARK]


_MARK = 10


def require_whole_queues(caller: Caller) -> None:
    """Refuse a key that is bound to lanes: what is told of a queue tells of its other lanes."""
    if caller.lanes is not None:
        raise Refusal(403, "forbidden", "this is about whole queues: it needs a key not bound to lanes")


def require_named_scope(caller: Caller, queue: str | None, lane: str | None) -> None:
    """Refuse a request for everything from a bound key: its caller must name a queue or lane of the key."""
    if caller.queues is not None and (queue is None or not caller.sees_queue(queue)):
        _refuse("queue", caller.queues)
    if caller.lanes is not None and (lane is None or not caller.sees_lane(lane)):
        _refuse("lane", caller.lanes)


def _refuse(what: str, own: frozenset[str]) -> None:
    names = ", ".join(sorted(own)[:10])
    raise Refusal(403, "forbidden", f"this key is bound: name one of its {what}s ({names})", field=what)

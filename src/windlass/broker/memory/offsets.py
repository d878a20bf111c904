"""Offsets of sources, which move together with the jobs that come of them."""

from windlass.broker.memory.enqueue import enqueue_group
from windlass.broker.memory.namespace import Namespace
from windlass.core.job import NewJob
from windlass.core.take import Offset, Take, Taken, TakeStatus, rule_take, taken


def take(ns: Namespace, wish: Take, jobs: list[NewJob]) -> Taken:
    """Move an offset and enqueue the jobs of what lies between, or do nothing."""
    stands = ns.offsets.get(wish.source.name)
    identity, at = (None, None) if stands is None else (stands.source.identity, stands.at)
    status = rule_take(identity, at, wish.source.identity, wish.expect)
    if status is not TakeStatus.TAKEN:
        return Taken(status=status, offset=stands)
    answer = taken(wish, enqueue_group(ns, jobs, dead=wish.dead), ns.now())
    if answer.status is TakeStatus.TAKEN:
        ns.offsets.pop(wish.source.name, None)
        if answer.offset is not None:
            ns.offsets[wish.source.name] = answer.offset
    return answer


def offsets(ns: Namespace, after: str, limit: int) -> tuple[Offset, ...]:
    """Offsets by the names of their sources."""
    names = sorted(name for name in ns.offsets if name > after)
    return tuple(ns.offsets[name] for name in names[:limit])

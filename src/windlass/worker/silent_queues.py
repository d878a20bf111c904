"""Queues that a reader of the event log waits for in vain."""

from collections.abc import Collection

from windlass.broker.management import Configure
from windlass.core.event import Emit
from windlass.core.settings import Document, Kind, QueueSettings, Retention, Subject, overlay, queue_policy

_ROWS = 1_000


async def silent_queues(broker: Configure, wanted: Collection[str]) -> tuple[str, ...]:
    """A sentence for each queue that does not exist, or writes no events."""
    if not wanted:
        return ()
    writes: dict[str, bool] = {}
    after: Subject | None = None
    while True:
        page = await broker.documents(Kind.QUEUE, after, _ROWS)
        writes.update({document.subject.name: _writes(document) for document in page})
        if len(page) < _ROWS:
            break
        after = page[-1].subject
    return tuple(
        f'queue "{name}" writes no events, so nothing is told of its jobs: it is declared with emit="none", '
        "or by a program that has no such relay"
        if name in writes
        else f'there is no queue "{name}"'
        for name in wanted
        if not writes.get(name)
    )


def _writes(document: Document) -> bool:
    layers = (document.declared, document.override)
    declared, override = (each if isinstance(each, QueueSettings) else None for each in layers)
    return queue_policy(overlay(declared, override), Retention()).emit is not Emit.NONE

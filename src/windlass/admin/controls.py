"""Pausing what an app has declared of bridges: an override of the document of an intake or a relay."""

from collections.abc import Collection

import msgspec

from windlass.admin.reading import document_of
from windlass.broker.contract import Broker
from windlass.client.app import Windlass
from windlass.core.bridging import decoded
from windlass.core.intake import Control
from windlass.core.settings import Change, Document, Subject
from windlass.errors import StoreError

_TRIES = 5
"""Attempts at a change that others change at the same time."""


def is_paused(document: Document) -> bool:
    """Whether an operator has paused it."""
    control = decoded(document.override, Control)
    return control is not None and control.paused


def is_gone(document: Document, app: Windlass, declared: Collection[str]) -> bool:
    """Whether this app declared it once, and no longer does."""
    is_ours = document.app == app.name and document.revision <= app.revision
    return is_ours and document.subject.name not in declared


async def pause(broker: Broker, subject: Subject, *, paused: bool) -> bool:
    """Pause it, or let it go on. Returns False if it was so already."""
    for _ in range(_TRIES):
        document = await document_of(broker, subject)
        if document is None or is_paused(document) == paused:
            return False
        body = msgspec.json.encode(Control(paused=True)) if paused else None
        changed = await broker.override(subject, body, document.version)
        if changed.change is not Change.CONFLICT:
            return True
    raise StoreError(f'{subject.kind} "{subject.name}" keeps changing; try again')


async def drop(broker: Broker, subject: Subject) -> None:
    """Remove what was written over a declaration, or beside any: a pause, a status."""
    for _ in range(_TRIES):
        document = await document_of(broker, subject)
        if document is None or document.override is None:
            return
        changed = await broker.override(subject, None, document.version)
        if changed.change is not Change.CONFLICT:
            return
    raise StoreError(f'{subject.kind} "{subject.name}" keeps changing; try again')

"""The secret that webhooks are signed with: made when first needed, kept in the store, replaced at will."""

import os
from collections.abc import Callable

import msgspec

from windlass.broker.management import Configure
from windlass.core.settings import Change, Document, Kind, Subject
from windlass.core.units import DAY, Micros
from windlass.core.webhook import Keyring
from windlass.errors import StoreError

SUBJECT = Subject(Kind.SECRET, "webhooks")
BOTH: Micros = DAY
"""How long messages are signed with the old secret, too, after it was replaced."""
_BYTES = 32
_TRIES = 5
_PAGE = 100


async def keyring(broker: Configure, *, draw: Callable[[int], bytes] = os.urandom) -> Keyring:
    """The secrets of a namespace; made, if there are none."""
    for _ in range(_TRIES):
        document = await _document(broker)
        found = _decoded(document)
        if found is not None:
            return found
        made = Keyring(current=draw(_BYTES))
        if await _kept(broker, document, made):
            return made
    raise StoreError("the secret of webhooks keeps changing; try again")


async def replaced(broker: Configure, now: Micros, *, draw: Callable[[int], bytes] = os.urandom) -> Keyring:
    """Make a new secret. For a day messages are signed with both."""
    for _ in range(_TRIES):
        document = await _document(broker)
        before = _decoded(document)
        previous = None if before is None else before.current
        made = Keyring(current=draw(_BYTES), previous=previous, until=now + BOTH)
        if await _kept(broker, document, made):
            return made
    raise StoreError("the secret of webhooks keeps changing; try again")


async def _kept(broker: Configure, before: Document | None, ring: Keyring) -> bool:
    version = 0 if before is None else before.version
    changed = await broker.override(SUBJECT, msgspec.json.encode(ring), version)
    return changed.change is Change.APPLIED


async def _document(broker: Configure) -> Document | None:
    after: Subject | None = None
    while True:
        page = await broker.documents(Kind.SECRET, after, _PAGE)
        for document in page:
            if document.subject == SUBJECT:
                return document
        if len(page) < _PAGE:
            return None
        after = page[-1].subject


def _decoded(document: Document | None) -> Keyring | None:
    if document is None or not isinstance(document.override, bytes):
        return None
    return msgspec.json.decode(document.override, type=Keyring)

"""Looking at alerts: one worker of the fleet tells once that a threshold is passed, once that it is over."""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from windlass.broker.contract import Produce
from windlass.broker.management import Configure, Plan, Read
from windlass.core.alert import Alert, AlertState, decode_alert, decode_state, judged, looks_at_bridges
from windlass.core.bridging import NOTHING, bridging
from windlass.core.ids import derived_id, namespace_tag
from windlass.core.job import Status
from windlass.core.settings import Change, Document, Kind, Subject
from windlass.core.units import Micros
from windlass.core.webhook import alert_message
from windlass.errors import UnreadablePayload
from windlass.worker.delivering import delivery

_log = logging.getLogger("windlass.worker")

EVERY = 3.0
"""Seconds between two looks of one process. It looks after a sweep, and an idle store is swept once a second:
so an alert is told within five.
"""
SELDOM = 10.0
"""The same at the most, where looking takes long: PostgreSQL counts the jobs of 10,000 lanes in 0.2 s."""
SHARE = 20
"""A look is followed by a wait of so many times what it took, within these two: 5 % of the time. The quicker
one of the last two counts: the first has to prepare its statements.
"""
_PAGE = 1_000


class Watched(Configure, Plan, Produce, Read, Protocol):
    """What alerting needs of a broker."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """An alert after a look."""

    name: str
    alert: Alert
    state: AlertState
    changed: bool
    """Whether this look raised or cleared it: of any number of lookers, one."""


async def look(broker: Watched, *, namespace: str = "") -> list[Seen]:
    """Look at every alert, keep its state, and send what has changed to its webhook. Any number
    of processes may do so at once.
    """
    alerts = list(_read(await _documents(broker, Kind.ALERT)))
    if not alerts:
        return []
    counts = await broker.counts()
    now = (await broker.schedules(limit=1)).now
    bridges = NOTHING
    if any(looks_at_bridges(alert) for _, alert in alerts):
        bridges = bridging(await _documents(broker, Kind.READER))
    found: list[Seen] = []
    for document, alert in alerts:
        before = decode_state(document.override if isinstance(document.override, bytes) else None)
        state = judged(alert, counts, before, now, bridges)
        changed = state.raised != before.raised
        if changed:
            # Before it is kept, and under an id that all lookers have in common: said once, and never not.
            await _announce(broker, document, alert, state, now, namespace)
            changed = await _kept(broker, document, state)
        found.append(Seen(name=document.subject.name, alert=alert, state=state, changed=changed))
    return found


async def look_and_tell(broker: Watched, *, namespace: str = "") -> None:
    """Look, and log what was raised or cleared."""
    for seen in await look(broker, namespace=namespace):
        if not seen.changed:
            continue
        if seen.state.raised:
            _log.warning('alert "%s" is raised: %s', seen.name, seen.state.why)
        else:
            _log.info('alert "%s" is cleared', seen.name)


async def _announce(
    broker: Watched, document: Document, alert: Alert, state: AlertState, now: Micros, namespace: str
) -> None:
    if alert.webhook is None:
        return
    name = document.subject.name
    told = alert_message(
        name,
        raised=state.raised,
        why=state.why,
        queue=alert.queue,
        task=alert.task,
        at=now,
        namespace=namespace,
    )
    # Two lookers may see it at two moments, but of one version of the document: the id is made of that.
    job = derived_id(0, namespace_tag(namespace), "alert", namespace, name, document.version)
    receipt = (await broker.enqueue([[delivery(job, alert.webhook, told)]]))[0][0]
    if receipt.status is Status.REFUSED:
        _log.error('alert "%s": its webhook could not be sent: %s', name, receipt.why or receipt.refusal)


async def _kept(broker: Watched, document: Document, state: AlertState) -> bool:
    changed = await broker.override(document.subject, msgspec.json.encode(state), document.version)
    return changed.change is Change.APPLIED


def _read(documents: Sequence[Document]) -> Iterator[tuple[Document, Alert]]:
    for document in documents:
        if isinstance(document.declared, bytes):
            with contextlib.suppress(UnreadablePayload):  # a newer version's; its workers look at it
                yield document, decode_alert(document.declared)


async def _documents(broker: Watched, kind: Kind) -> Sequence[Document]:
    found: list[Document] = []
    after: Subject | None = None
    while True:
        page = await broker.documents(kind, after, _PAGE)
        found += page
        if len(page) < _PAGE:
            return found
        after = page[-1].subject

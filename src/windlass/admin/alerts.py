"""Alerts for operators: which there are, and how they stand."""

from collections.abc import AsyncIterator
from datetime import datetime

import msgspec

from windlass.admin.insight import Insight
from windlass.admin.views import moment, seconds
from windlass.broker.contract import Broker
from windlass.core.alert import Alert, Standing, decode_alert, decode_standing
from windlass.core.settings import Document, Kind
from windlass.errors import UnreadablePayload


class AlertShown(msgspec.Struct, frozen=True, kw_only=True):
    """An alert, as workers last saw it."""

    name: str
    queue: str | None
    """None: all queues together."""
    depth: int | None
    oldest: float | None
    """Seconds."""
    dead: int | None
    clear: int
    """Percent of a threshold at which it is over."""
    raised: bool
    since: datetime | None
    why: str
    app: str


class Alerts:
    """What can be seen of alerts. It only reads: `windlass check` and workers are those who judge."""

    def __init__(self, broker: Broker) -> None:
        self._insight = Insight(broker)

    async def all(self) -> AsyncIterator[AlertShown]:
        """Every alert, by name."""
        async for document in self._insight.documents(Kind.ALERT):
            if not isinstance(document.declared, bytes):
                continue
            try:
                alert = decode_alert(document.declared)
            except UnreadablePayload:
                continue  # a newer version's
            override = document.override if isinstance(document.override, bytes) else None
            yield _shown(document, alert, decode_standing(override))


def _shown(document: Document, alert: Alert, standing: Standing) -> AlertShown:
    return AlertShown(
        name=document.subject.name,
        queue=alert.queue,
        depth=alert.depth,
        oldest=None if alert.oldest is None else seconds(alert.oldest),
        dead=alert.dead,
        clear=alert.clear,
        raised=standing.raised,
        since=moment(standing.since) if standing.since else None,
        why=standing.why,
        app=document.app,
    )

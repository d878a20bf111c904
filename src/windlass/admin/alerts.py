"""Alerts for operators: which there are, how workers last saw them, and how they stand now."""

from collections.abc import AsyncIterator
from datetime import datetime

import msgspec

from windlass.admin.reading import documents, store_time
from windlass.admin.views import moment, seconds
from windlass.broker.contract import Broker
from windlass.client.app import Windlass
from windlass.core.alert import Alert, AlertState, decode_alert, decode_state, judged
from windlass.core.bridging import bridging
from windlass.core.settings import Document, Kind
from windlass.errors import UnreadablePayload
from windlass.worker.alerting import Seen, look


class AlertShown(msgspec.Struct, frozen=True, kw_only=True):
    """An alert, as workers last saw it."""

    name: str
    queue: str | None
    """None: all queues together, or an intake or a relay."""
    task: str | None
    """None: the jobs of all tasks, or an intake or a relay."""
    intake: str | None
    """None: each intake that there is."""
    relay: str | None
    """None: each relay that there is."""
    depth: int | None
    oldest: float | None
    """Seconds."""
    dead: int | None
    lag: int | None
    behind: float | None
    """Seconds."""
    stopped: bool
    clear: int
    """Percent of a threshold at which it is over."""
    raised: bool
    since: datetime | None
    why: str
    app: str


class Alerts:
    """The alerts of one namespace."""

    def __init__(self, app: Windlass, broker: Broker) -> None:
        self._app = app
        self._broker = broker

    async def all(self) -> AsyncIterator[AlertShown]:
        """Every alert, by name."""
        async for document in documents(self._broker, Kind.ALERT):
            if not isinstance(document.declared, bytes):
                continue
            try:
                alert = decode_alert(document.declared)
            except UnreadablePayload:
                continue  # a newer version's
            override = document.override if isinstance(document.override, bytes) else None
            yield _shown(document, alert, decode_state(override))

    async def look(self) -> list[Seen]:
        """Judge every alert now, as workers do: keep how it stands, and send its webhook if that changed."""
        return await look(self._broker, namespace=self._app.config.namespace)

    async def judge(self, alert: Alert) -> AlertState:
        """How an alert would stand that is not declared; nothing is kept."""
        readers = [document async for document in documents(self._broker, Kind.READER)]
        now = await store_time(self._broker)
        return judged(alert, await self._broker.counts(), AlertState(), now, bridging(readers))


def _shown(document: Document, alert: Alert, state: AlertState) -> AlertShown:
    return AlertShown(
        name=document.subject.name,
        queue=alert.queue,
        task=alert.task,
        intake=alert.intake,
        relay=alert.relay,
        depth=alert.depth,
        oldest=None if alert.oldest is None else seconds(alert.oldest),
        dead=alert.dead,
        lag=alert.lag,
        behind=None if alert.behind is None else seconds(alert.behind),
        stopped=alert.stopped,
        clear=alert.clear,
        raised=state.raised,
        since=moment(state.since) if state.since else None,
        why=state.why,
        app=document.app,
    )

"""Relays for operators: what each tells to which message broker, and how far it is; paused and resumed."""

from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

from windlass.admin.controls import is_gone, is_paused, pause
from windlass.admin.reading import documents, store_time
from windlass.admin.views import moment, seconds
from windlass.broker.contract import Broker
from windlass.client.app import Windlass
from windlass.core.bridging import bridging, decoded, is_unread
from windlass.core.relay import RelayReading, RelaySettings, declared_as
from windlass.core.settings import Document, Kind
from windlass.core.spelling import hint
from windlass.core.units import DAY, Micros
from windlass.errors import InvalidOption

RelayState: TypeAlias = Literal["running", "failing", "unread", "paused", "gone"]


class RelayShown(msgspec.Struct, frozen=True, kw_only=True):
    """A relay: what it tells of, and how it goes."""

    name: str
    state: RelayState
    """`failing`: it cannot publish, and tries again. `unread`: no process runs it. `gone`: no code declares
    it any more.
    """
    url: str
    """Without user, password and options."""
    queues: tuple[str, ...]
    """Empty: all that write to the event log."""
    tasks: tuple[str, ...]
    """Empty: all."""
    on: tuple[str, ...]
    to: str
    payload: bool
    app: str
    paused: bool
    sent: int
    """Messages, ever."""
    refused: int
    """Messages that the message broker would not take for what they are: they were left out."""
    refused_job: str
    """The job that the last of them told of."""
    gaps: int
    """How often events were dropped from the log before they were read: what they told was never sent."""
    behind: float | None
    """Seconds: the age of what it read last, when it read it."""
    host: str
    pid: int
    is_read: bool
    """Whether a process has the turn to read."""
    error: str
    warnings: tuple[str, ...]
    """What its message broker's settings do not promise, and which queues never tell it anything."""
    as_of: datetime | None


class Relays:
    """What can be seen of relays and done to them."""

    def __init__(self, app: Windlass, broker: Broker) -> None:
        self._app = app
        self._broker = broker

    async def all(self) -> list[RelayShown]:
        """Every relay, by name."""
        readings = bridging([each async for each in documents(self._broker, Kind.READER)]).relays
        now = await store_time(self._broker)
        found = [
            self._shown(document, settings, readings.get(document.subject.name), now)
            async for document in documents(self._broker, Kind.RELAY)
            if (settings := decoded(document.declared, RelaySettings)) is not None
        ]
        # A declaration stays where it is for good: one that nobody has run of late is not worth a line.
        since = moment(now - DAY)
        return [each for each in found if each.state != "gone" or (each.as_of or since) > since]

    async def one(self, name: str) -> RelayShown:
        """One relay; `InvalidOption` names those that there are."""
        found = {each.name: each for each in await self.all()}
        if name not in found:
            raise InvalidOption(f'there is no relay "{name}"; {hint(name, sorted(found), "relays")}')
        return found[name]

    async def pause(self, name: str, *, paused: bool) -> bool:
        """Stop reading events, or go on where it stopped. Returns False if it was so already."""
        known = await self.one(name)
        if known.state == "gone":
            raise InvalidOption(f'relay "{name}" is declared by no code any more: there is nothing to pause')
        return await pause(self._broker, declared_as(name), paused=paused)

    def _shown(
        self, document: Document, settings: RelaySettings, reading: RelayReading | None, now: Micros
    ) -> RelayShown:
        told = reading or RelayReading(cursor="")
        is_read = bool(told.holder) and now < told.until
        paused = is_paused(document)
        return RelayShown(
            name=document.subject.name,
            state=self._state(document, told, paused=paused, unread=is_unread(told, now)),
            url=settings.url,
            queues=settings.queues,
            tasks=settings.tasks,
            on=settings.on,
            to=settings.to,
            payload=settings.payload,
            app=document.app,
            paused=paused,
            sent=told.sent,
            refused=told.refused,
            refused_job=told.refused_job,
            gaps=told.gaps,
            behind=None if told.behind is None else seconds(told.behind),
            host=told.host,
            pid=told.pid,
            is_read=is_read,
            error=told.error,
            warnings=told.warnings,
            as_of=moment(told.as_of) if told.as_of else None,
        )

    def _state(self, document: Document, told: RelayReading, *, paused: bool, unread: bool) -> RelayState:
        if is_gone(document, self._app, self._app.relays):
            return "gone"
        if paused:
            return "paused"
        if unread:
            return "unread"
        return "failing" if told.error else "running"

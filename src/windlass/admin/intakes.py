"""Intakes for operators: what each reads and how it goes; paused, resumed, moved and forgotten."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from windlass.admin.controls import drop, is_gone, is_paused, pause
from windlass.admin.places import LogOffset, Opens, place_in
from windlass.admin.reading import documents, sessions, store_time
from windlass.admin.views import moment, seconds
from windlass.bridges.addresses import open_source
from windlass.bridges.fields import is_path
from windlass.broker.contract import Broker
from windlass.client.app import Windlass
from windlass.core.bridging import Bridging, bridging, decoded, is_silent, lag_of
from windlass.core.intake import (
    IDS_KNOWN,
    IntakeSettings,
    IntakeStatus,
    PartitionStatus,
    declared_as,
    intakes_run_by,
    source_name,
    status_of,
)
from windlass.core.session import SessionState
from windlass.core.settings import Document, Kind
from windlass.core.spelling import hint
from windlass.core.take import Offset, Source, Take, TakeStatus
from windlass.core.units import Micros, SessionId
from windlass.errors import InvalidOption, StoreError

IntakeState: TypeAlias = Literal["running", "waiting", "failing", "unread", "stopped", "paused", "gone"]
_TRIES = 20
"""Attempts at moving an offset that an intake moves at the same time."""
_PAGE = 1_000


class PartitionShown(msgspec.Struct, frozen=True, kw_only=True):
    """One log of an intake, or one reader of a queue."""

    partition: str
    """Empty for a reader of a queue, which has no offset."""
    offset: str | None
    """How far it was taken: where its intake goes on. None: nothing was taken of it, or it is a queue."""
    identity: str | None
    """Which log of that name the offset is of."""
    moved_at: datetime | None
    owner: str
    """The session of the process that reads it, or that did last."""
    host: str
    pid: int
    is_read: bool
    """Whether that process is alive."""
    place: str
    """Of the last message that was taken."""
    lag: int | None
    """Messages that wait; None: the message broker cannot say. All readers of a queue see the same queue."""
    taken: int
    """Messages since its owner began."""
    dead: int
    """Those of them that became dead letters."""
    rate: float
    """Messages a second, of late."""
    error: str
    waits_for: str
    """Why nothing is read although nothing is wrong."""
    stopped: bool
    """It waits for an operator, who says where to go on."""
    as_of: datetime | None
    """When its owner last reported."""


class IntakeShown(msgspec.Struct, frozen=True, kw_only=True):
    """An intake: where it reads, what it makes of messages, and how it goes."""

    name: str
    state: IntakeState
    """`waiting`: there are ready jobs enough. `failing`: something goes wrong, and is tried again. `unread`:
    no process runs it. `stopped`: a partition waits for an operator. `gone`: that, and the code does not
    declare it any more.
    """
    url: str
    """Without user, password and options."""
    format: str
    tasks: tuple[str, ...]
    queues: tuple[str, ...] | None
    """Those that it fills; None: messages name them, or this program does not know its tasks."""
    fields: Mapping[str, Any]
    """Where the options of jobs come from: paths into messages, or fixed values."""
    start: str
    window: float
    tombstones: str
    backlog: int
    app: str
    paused: bool
    runners: int
    """Processes alive that run it."""
    lag: int | None
    rate: float
    taken: int
    dead: int
    partitions: tuple[PartitionShown, ...]
    warnings: tuple[str, ...]
    """What its message broker's settings do not promise."""


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """The result of moving an offset."""

    intake: str
    partition: str
    moved: bool
    """False: it is not where the operator saw it, and was left there."""
    before: str | None
    offset: str | None
    identity: str | None


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """What an intake has left behind is gone."""

    intake: str
    offsets: int


class Intakes:
    """What can be seen of intakes and done to them."""

    def __init__(self, app: Windlass, broker: Broker, opens: Opens = open_source) -> None:
        self._app = app
        self._broker = broker
        self._opens = opens

    # --- reads ----------------------------------------------------------------------------------------------

    async def all(self) -> list[IntakeShown]:
        """Every intake, by name: those declared, and those that have left offsets behind."""
        declared = {each.subject.name: each async for each in documents(self._broker, Kind.INTAKE)}
        offsets = await self._offsets()
        look = _Look(
            app=self._app,
            bridging=bridging([each async for each in documents(self._broker, Kind.READER)]),
            runners=await self._runners(),
            now=await store_time(self._broker),
        )
        found = [
            look.shown(name, declared.get(name), offsets.get(name, {}))
            for name in sorted(declared.keys() | offsets.keys())
        ]
        # A declaration stays where it is for good: one that nothing is left of is not worth a line.
        return [each for each in found if each.state != "gone" or each.partitions]

    async def one(self, name: str) -> IntakeShown:
        """One intake; `InvalidOption` names those that there are."""
        found = {each.name: each for each in await self.all()}
        if name not in found:
            raise InvalidOption(f'there is no intake "{name}"; {hint(name, sorted(found), "intakes")}')
        return found[name]

    # --- writes ---------------------------------------------------------------------------------------------

    async def pause(self, name: str, *, paused: bool) -> bool:
        """Stop reading, or go on; what was taken runs. Returns False if it was so already."""
        known = await self.one(name)
        if known.state == "gone":
            raise InvalidOption(f'intake "{name}" is declared by no code any more: there is nothing to pause')
        return await pause(self._broker, declared_as(name), paused=paused)

    async def move(
        self, name: str, partition: str, to: str, *, identity: str | None = None, expect: str | None = None
    ) -> Moved:
        """Let the intake go on at another place of a log: `begin`, `end`, or an offset as the source writes
        it. The message broker is asked where that is and which log is there now, unless `identity` says so.
        With `expect` nothing is done if the offset has moved on from there.
        """
        known = await self.one(name)
        place = await self._place(known, partition, to, identity)
        return await self._set(name, place, expect)

    async def forget(self, name: str) -> Forgotten:
        """Remove the offsets of an intake that no process runs, and what was written of it. If it is run
        again, it begins anew.
        """
        known = await self.one(name)
        if known.runners:
            raise InvalidOption(
                f'intake "{name}" is run by {known.runners} process{"" if known.runners == 1 else "es"}, and '
                "would begin anew: stop them first, or move its offsets"
            )
        offsets = (await self._offsets()).get(name, {})
        for partition in offsets:
            await self._drop_offset(name, partition)
        await drop(self._broker, status_of(name))
        await drop(self._broker, declared_as(name))
        return Forgotten(intake=name, offsets=len(offsets))

    # --- parts ----------------------------------------------------------------------------------------------

    async def _place(self, known: IntakeShown, partition: str, to: str, identity: str | None) -> LogOffset:
        if identity is not None:
            if to in ("begin", "end"):
                raise InvalidOption(
                    f'"{to}" is asked of the message broker, which says which log it is: leave identity out'
                )
            names = [each.partition for each in known.partitions if each.partition]
            if partition not in names:
                those = hint(partition, names, "partitions")
                raise InvalidOption(f'intake "{known.name}" has no partition "{partition}"; {those}')
            return LogOffset(partition, identity, to)
        intake = self._app.intakes.get(known.name)
        if intake is None:
            raise InvalidOption(
                f'intake "{known.name}" is not one of this app, so its message broker cannot be asked: give '
                "an offset, and the identity of its log"
            )
        return await place_in(intake.address, partition, to, opens=self._opens)

    async def _set(self, name: str, place: LogOffset, expect: str | None) -> Moved:
        source = Source(source_name(name, place.partition), place.identity)
        before: str | None = None
        for attempt in range(_TRIES):
            offset = await self._offset(source.name)
            at = None if offset is None else offset.at
            before = before if attempt else at
            if expect is not None and at != expect:
                return _moved(name, place.partition, before, offset, moved=False)
            if offset is not None and offset.source.identity != source.identity:
                # The contract lets nobody move an offset to another log, so it is forgotten first. An intake
                # that begins the new log in between is moved after that.
                gone = await self._broker.take(Take(source=offset.source, expect=at, then=None))
                if gone.status is not TakeStatus.TAKEN:
                    continue
                at, expect = None, None
            taken = await self._broker.take(Take(source=source, expect=at, then=place.at))
            if taken.status is TakeStatus.TAKEN:
                return _moved(name, place.partition, before, taken.offset, moved=True)
        raise StoreError(f'the offset of intake "{name}" keeps moving; pause the intake, and try again')

    async def _drop_offset(self, name: str, partition: str) -> None:
        for _ in range(_TRIES):
            offset = await self._offset(source_name(name, partition))
            if offset is None:
                return
            await self._broker.take(Take(source=offset.source, expect=offset.at, then=None))
        raise StoreError(f'the offset of intake "{name}" keeps moving: somebody runs it')

    async def _offset(self, source: str) -> Offset | None:
        name, _, partition = source.rpartition("/")
        return (await self._offsets()).get(name, {}).get(partition)

    async def _offsets(self) -> dict[str, dict[str, Offset]]:
        """By intake and partition."""
        found: dict[str, dict[str, Offset]] = {}
        after = ""
        while page := await self._broker.offsets(after, _PAGE):
            for offset in page:
                name, _, partition = offset.source.name.rpartition("/")
                found.setdefault(name, {})[partition] = offset
            after = page[-1].source.name
        return found

    async def _runners(self) -> dict[SessionId, tuple[str, ...]]:
        """The intakes that each process alive runs."""
        return {
            session.id: intakes
            async for session in sessions(self._broker)
            if session.state is SessionState.ALIVE and (intakes := intakes_run_by(session.info.queues))
        }


class _Look(msgspec.Struct, frozen=True, kw_only=True):
    """What is the same for all intakes that are shown together."""

    app: Windlass
    bridging: Bridging
    runners: Mapping[SessionId, tuple[str, ...]]
    now: Micros

    def shown(self, name: str, document: Document | None, offsets: Mapping[str, Offset]) -> IntakeShown:
        settings = None if document is None else decoded(document.declared, IntakeSettings)
        status = self.bridging.intakes.get(name)
        runners = sum(name in intakes for intakes in self.runners.values())
        partitions = self._partitions(status, offsets)
        paused = document is not None and is_paused(document)
        said = settings or IntakeSettings(name=name, url="")
        live = [each for each in partitions if each.is_read]
        return IntakeShown(
            name=name,
            state=_state(
                partitions,
                gone=not runners
                and (document is None or settings is None or is_gone(document, self.app, self.app.intakes)),
                paused=paused,
                unread=not runners or status is None or is_silent(status, self.now),
            ),
            url=said.url,
            format=said.format,
            tasks=said.tasks,
            queues=None if settings is None else self._queues(settings),
            fields=msgspec.to_builtins(said.fields),
            start=said.start,
            window=seconds(IDS_KNOWN if said.window is None else said.window),
            tombstones=said.tombstones,
            backlog=said.backlog,
            app="" if document is None else document.app,
            paused=paused,
            runners=runners,
            lag=None if status is None else lag_of(status),
            rate=round(sum(each.rate for each in live), 1),
            taken=sum(each.taken for each in partitions),
            dead=sum(each.dead for each in partitions),
            partitions=partitions,
            warnings=() if status is None else status.warnings,
        )

    def _queues(self, settings: IntakeSettings) -> tuple[str, ...] | None:
        if is_path(settings.fields.queue) or not settings.tasks:
            return None
        if settings.fields.queue:
            return (settings.fields.queue,)
        known = self.app.tasks
        if any(task not in known for task in settings.tasks):
            return None
        return tuple(sorted({known[task].options.queue for task in settings.tasks}))

    def _partitions(
        self, status: IntakeStatus | None, offsets: Mapping[str, Offset]
    ) -> tuple[PartitionShown, ...]:
        told = {} if status is None else dict(status.partitions)
        names = sorted(told.keys() | offsets.keys(), key=_in_order)
        return tuple(self._partition(name, told.get(name), offsets.get(name)) for name in names)

    def _partition(self, key: str, status: PartitionStatus | None, offset: Offset | None) -> PartitionShown:
        told = status or PartitionStatus()
        is_read = told.owner in self.runners
        return PartitionShown(
            partition="" if offset is None and key == told.owner else key,
            offset=None if offset is None else offset.at,
            identity=None if offset is None else offset.source.identity,
            moved_at=None if offset is None else moment(offset.moved_at),
            owner=told.owner,
            host=told.host,
            pid=told.pid,
            is_read=is_read,
            place=told.place,
            lag=told.lag,
            taken=told.taken,
            dead=told.dead,
            rate=told.rate if is_read else 0.0,
            error=told.error,
            waits_for=told.waits_for,
            stopped=told.stopped,
            as_of=moment(told.as_of) if told.as_of else None,
        )


def _state(partitions: Sequence[PartitionShown], *, gone: bool, paused: bool, unread: bool) -> IntakeState:
    if gone:
        return "gone"
    if paused:
        return "paused"
    if any(each.stopped for each in partitions):
        return "stopped"
    if unread:
        return "unread"
    if any(each.error for each in partitions if each.is_read):
        return "failing"
    return "waiting" if any(each.waits_for for each in partitions if each.is_read) else "running"


def _in_order(partition: str) -> tuple[int, str]:
    """Partition 10 comes after 9."""
    return (int(partition), "") if partition.isdecimal() else (-1, partition)


def _moved(name: str, partition: str, before: str | None, offset: Offset | None, *, moved: bool) -> Moved:
    return Moved(
        intake=name,
        partition=partition,
        moved=moved,
        before=before,
        offset=None if offset is None else offset.at,
        identity=None if offset is None else offset.source.identity,
    )

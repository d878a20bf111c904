"""Relays: readers of the event log that publish a message for each end of a job.

One worker of a namespace reads for each relay (`turn.py`). A page is published before the place is moved on,
and every message has an id that follows from its event: who dies in between is repeated by the next, with the
same ids. Nothing overtakes within a page, and nobody publishes when it may be another's turn: a message
broker that is slow is given up before that.

Trouble of the message broker stops a relay until it is over, and the log keeps what it has to tell. A message
that can never be taken is counted, logged and left out, since one of them would stop it for good.
"""

import asyncio
import contextlib
import logging
import os
import platform
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

import msgspec

from windlass.bridges.addresses import Address, open_sink
from windlass.bridges.declared import Relay
from windlass.bridges.message import Outgoing
from windlass.bridges.sink import Sink
from windlass.bridges.telling import is_told, message
from windlass.broker.management import Configure, Plan, Read
from windlass.core.bridging import decoded
from windlass.core.event import FROM_NOW, FROM_START, Event, Events
from windlass.core.intake import Control
from windlass.core.job import JobDetail
from windlass.core.relay import RelayReading, declared_as, reading_of
from windlass.core.showing import Shower
from windlass.core.signature import Signature
from windlass.core.units import SECOND, Cursor, JobId, Micros
from windlass.errors import BridgeError, BridgeRefused, BridgeUnavailable, InvalidOption, StoreError
from windlass.pace import Pace
from windlass.patience import Backoff, cancelled
from windlass.worker.documents import document_of
from windlass.worker.silent_queues import silent_queues
from windlass.worker.turn import LATER, SOON, Turn

_log = logging.getLogger("windlass.bridges")

PAGE = 500
"""Events that are read, and messages that are sent, before the place is kept: so many may come twice."""
DETAILS = 20
"""Jobs that are read whole at once: each may carry a payload and a result of 1 MiB."""
MOST_BYTES = 4 * 2**20
"""Bytes of messages that are gathered before they are sent."""
ANSWERING = 12.0
"""Seconds that a message broker is given for one call: more than adapters wait, whose errors say more, and
less than `turn.SURE`, after which it may be another's turn.
"""
LONGEST = 30.0
"""Seconds between two tries at most."""
GIVES_WAY = 60.0
"""Seconds of failing after which another worker is let try: the trouble may be this machine's."""
SHOWN = 10.0
"""Seconds between two times that a trouble is written down which has not changed."""
LOOK = 1.0
"""Seconds between two looks at what operators have said."""
OLD: Micros = 10 * SECOND
"""A relay that has read all there is, and was further behind than this, says that it has caught up."""
CHECKED = 60.0
"""Seconds between two looks for queues of which nothing is told."""

Opens: TypeAlias = Callable[[Address], Awaitable[Sink]]
SignatureOf: TypeAlias = Callable[[str], Signature | None]
"""By the name of a task: which of its arguments are secret."""


class Source(Configure, Plan, Read, Protocol):
    """What a relay needs of a broker."""

    async def events(self, after: Cursor, limit: int, timeout: float) -> Events: ...


class Relays:
    """The relays of a program, for as long as its worker runs."""

    def __init__(
        self,
        relays: Mapping[str, Relay],
        broker: Source,
        pace: Pace,
        namespace: str,
        *,
        signature_of: SignatureOf,
        patterns: Sequence[str] = (),
        opens: Opens = open_sink,
    ) -> None:
        self._relays = [
            Relaying(
                relay, broker, pace, namespace, signature_of=signature_of, patterns=patterns, opens=opens
            )
            for relay in relays.values()
        ]

    async def run(self) -> None:
        """Run them all, for ever."""
        tasks = [asyncio.create_task(relay.run()) for relay in self._relays]
        try:
            await asyncio.gather(*tasks)
        finally:
            await cancelled(tasks)


class Relaying:
    """One relay of this process."""

    def __init__(
        self,
        relay: Relay,
        broker: Source,
        pace: Pace,
        namespace: str,
        *,
        signature_of: SignatureOf,
        patterns: Sequence[str] = (),
        opens: Opens = open_sink,
    ) -> None:
        self._settings = relay.settings
        self._address = relay.address
        self._broker = broker
        self._pace = pace
        self._namespace = namespace
        self._signature_of = signature_of
        self._patterns = patterns
        self._opens = opens
        self._name = relay.settings.name
        first = FROM_NOW if relay.settings.start == "last" else FROM_START
        self._turn = Turn(broker, pace, reading_of(self._name), RelayReading(cursor=first))
        self._sink: Sink | None = None
        self._sink_warns: tuple[str, ...] = ()
        self._queues_warn: tuple[str, ...] = ()
        self._backoff = Backoff(pace, most=LONGEST)
        self._failing_since: float | None = None
        self._shown_at = float("-inf")
        self._waits_since: Micros | None = None
        """The time of the oldest event that waits for being told."""
        self._at_once = PAGE
        """Messages that are sent in one call: fewer after it has taken too long."""
        self._paused = False
        self._look_at = self._check_at = float("-inf")

    async def run(self) -> None:
        """Read and publish, and try again after every trouble."""
        try:
            while True:
                await self._pace.sleep(await self.tried())
        finally:
            await self._close()  # first: nothing of this process may be on its way when another begins
            await self._turn.leave_at_end()

    async def tried(self) -> float:
        """Take a step, whatever comes of it; how long to wait for the next."""
        try:
            pause = await self.step()
        except StoreError as error:
            self._backoff.tell(f"relay {self._name}: %s; trying until it works", error)
        except (BridgeError, InvalidOption) as error:
            self._backoff.tell(f"relay {self._name}: %s; trying until it works", error)
            await self._fails(str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, the worker and other relays go on
            _log.exception("relay %s has failed; it is tried again", self._name)
            await self._close()
            await self._fails(f"{type(error).__name__}: {error}")
        else:
            if self._backoff.tries:
                _log.info("relay %s: it works again", self._name)
            self._backoff.worked()
            self._failing_since = None
            return pause * (0.75 + self._pace.jitter() / 2)
        return self._backoff.failed()

    async def step(self) -> float:
        """Read a page and publish it, if it is this worker's turn; how long to wait for the next."""
        reading = await self._turn.take()
        if reading is None:
            return LATER
        if await self._is_paused():
            return LOOK
        sink = await self._opened()
        await self._look_at_queues()
        page = await self._broker.events(Cursor(reading.cursor), PAGE, 0.0)
        told = [event for event in page.items if is_told(self._settings, event)]
        self._waits_since = told[0].at if told else None
        if page.gap and reading.gap_at != reading.cursor:
            reading = await self._has_gap(reading)
            if reading is None:
                return LATER
        done = _Done()
        if not await self._publish(sink, told, reading.cursor, done):
            return LATER
        self._waits_since = None
        await self._keep(reading, page, done)
        return 0.0 if len(page.items) == PAGE else SOON

    # --- publishing -----------------------------------------------------------------------------------------

    async def _publish(self, sink: Sink, events: Sequence[Event], cursor: str, done: "_Done") -> bool:
        """Publish messages about events, in their order; False: the turn was lost meanwhile."""
        gathered: list[Outgoing] = []
        for start in range(0, len(events), DETAILS):
            gathered += await self._messages(sink, events[start : start + DETAILS])
            if sum(len(each.body or b"") for each in gathered) >= MOST_BYTES:
                if not await self._send_all(sink, gathered, cursor, done):
                    return False
                gathered.clear()
        return await self._send_all(sink, gathered, cursor, done)

    async def _messages(self, sink: Sink, events: Sequence[Event]) -> list[Outgoing]:
        jobs = await self._jobs([event.job for event in events])
        return [
            message(
                self._settings,
                event,
                jobs.get(event.job),
                namespace=self._namespace,
                shower=Shower(self._signature_of(event.task), self._patterns),
                largest=sink.largest,
            )
            for event in events
        ]

    async def _jobs(self, ids: Sequence[JobId]) -> dict[JobId, JobDetail]:
        wanted = list(dict.fromkeys(ids))
        return {job.id: job for job in await self._broker.get(wanted) if job is not None}

    async def _send_all(self, sink: Sink, messages: Sequence[Outgoing], cursor: str, done: "_Done") -> bool:
        left = list(messages)
        while left:
            piece = left[: self._at_once]
            reading = await self._turn.take()
            if reading is None or reading.cursor != cursor:
                return False
            refused = await self._send(sink, piece)
            # The others of the piece may not have been sent: they go again, and their ids tell repeats.
            again = [each for number, each in enumerate(piece) if number not in refused] if refused else []
            left[: len(piece)] = again
            if refused:
                done.refused += [(piece[number], why) for number, why in refused.items()]
            else:
                done.sent += len(piece)
        return True

    async def _send(self, sink: Sink, messages: Sequence[Outgoing]) -> dict[int, str]:
        """Send messages; those that are refused for what they are, and why."""
        try:
            async with asyncio.timeout(ANSWERING):
                await sink.publish(messages)
        except TimeoutError:
            self._at_once = max(1, self._at_once // 2)
            raise BridgeUnavailable(
                f"{self._address.shown} has not taken {len(messages)} messages within {ANSWERING:g} s"
            ) from None
        except BridgeRefused as error:
            refused = [number for number in error.numbers if 0 <= number < len(messages)]
            if not refused:
                raise
            return dict.fromkeys(refused, str(error))
        self._at_once = min(PAGE, 2 * self._at_once)
        return {}

    async def _opened(self) -> Sink:
        if self._sink is None:
            try:
                async with asyncio.timeout(ANSWERING):
                    self._sink = await self._opens(self._address)
            except TimeoutError:
                raise BridgeUnavailable(
                    f"{self._address.shown} has not answered within {ANSWERING:g} s"
                ) from None
            with contextlib.suppress(BridgeError):  # who may publish may not be allowed to read settings
                self._sink_warns = tuple(await self._sink.warnings())
        return self._sink

    async def _close(self) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            with contextlib.suppress(BridgeError, TimeoutError):
                async with asyncio.timeout(ANSWERING):
                    await sink.close()

    # --- what is kept ---------------------------------------------------------------------------------------

    async def _keep(self, reading: RelayReading, page: Events, done: "_Done") -> None:
        """Keep the place behind a page, and how it went."""
        warnings = self._sink_warns + self._queues_warn
        is_known = page.cursor == reading.cursor and not reading.error and warnings == reading.warnings
        if is_known and (reading.behind or 0) < OLD:
            return
        now = await self._turn.now()
        last = done.refused[-1][0].headers["windlass-job"] if done.refused else reading.refused_job
        kept = await self._turn.keep(
            msgspec.structs.replace(
                self._mine(reading),
                cursor=page.cursor,
                sent=reading.sent + done.sent,
                refused=reading.refused + len(done.refused),
                refused_job=last,
                behind=now - page.items[-1].at if page.items else 0,
                error="",
                warnings=warnings,
                as_of=now,
            )
        )
        if kept is not None:  # otherwise another sends the page again, and says so
            for outgoing, why in done.refused:
                _log.warning(
                    "relay %s: the message about job %s is left out, it was refused: %s",
                    self._name,
                    outgoing.headers["windlass-job"],
                    why,
                )

    async def _has_gap(self, reading: RelayReading) -> RelayReading | None:
        """Count a gap at once: it is a loss, whether or not anything can be published now."""
        _log.warning(
            "relay %s: events were dropped from the log before they were read; some will never be told",
            self._name,
        )
        return await self._turn.keep(
            msgspec.structs.replace(self._mine(reading), gaps=reading.gaps + 1, gap_at=reading.cursor)
        )

    async def _fails(self, error: str) -> None:
        """Write down why it does not publish; after a while let another worker try."""
        now = self._pace.now()
        self._failing_since = since = now if self._failing_since is None else self._failing_since
        try:
            reading = await self._turn.take()
            if reading is None:
                return
            if error != reading.error or now - self._shown_at >= SHOWN:
                at = await self._turn.now()
                behind = None if self._waits_since is None else at - self._waits_since
                shown = msgspec.structs.replace(self._mine(reading), error=error, behind=behind, as_of=at)
                await self._turn.keep(shown)
                self._shown_at = now
            if now - since >= GIVES_WAY:
                self._failing_since = None
                await self._turn.leave()
        except StoreError as trouble:
            self._backoff.tell(f"relay {self._name}: its error cannot be told: %s", trouble)

    def _mine(self, reading: RelayReading) -> RelayReading:
        return msgspec.structs.replace(reading, host=platform.node(), pid=os.getpid())

    # --- what operators say ---------------------------------------------------------------------------------

    async def _is_paused(self) -> bool:
        if self._pace.now() >= self._look_at:
            document = await document_of(self._broker, declared_as(self._name))
            control = None if document is None else decoded(document.override, Control)
            self._paused = control is not None and control.paused
            self._look_at = self._pace.now() + LOOK
        return self._paused

    async def _look_at_queues(self) -> None:
        if self._pace.now() >= self._check_at:
            self._queues_warn = await silent_queues(self._broker, self._settings.queues)
            self._check_at = self._pace.now() + CHECKED


class _Done:
    """What came of a page."""

    def __init__(self) -> None:
        self.sent = 0
        self.refused: list[tuple[Outgoing, str]] = []

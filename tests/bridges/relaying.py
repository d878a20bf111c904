"""A message broker of a test's own, and relays that are stepped by hand."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from windlass.bridges.addresses import address_of
from windlass.bridges.declared import Relay
from windlass.bridges.message import Outgoing
from windlass.broker.contract import Broker
from windlass.clock import ManualClock
from windlass.conformance.harness import Harness
from windlass.core.event import Emit
from windlass.core.intake import Control
from windlass.core.relay import RelayReading, RelaySettings, declared_as, reading_of
from windlass.core.signature import Signature
from windlass.core.units import SECOND
from windlass.worker.documents import document_of
from windlass.worker.relays import Relaying

URL = "kafka://host/ends"


class Taken:
    """A message broker: keeps what it takes, and fails as it is told to."""

    def __init__(self) -> None:
        self.got: list[Outgoing] = []
        self.calls: list[int] = []
        """How many messages each call had."""
        self.trouble: Callable[[Sequence[Outgoing]], Exception | None] = lambda _: None
        """What it raises instead of taking messages."""
        self.after: Callable[[Sequence[Outgoing]], Exception | None] = lambda _: None
        """What it raises although it has taken them."""
        self.hangs = False
        self.hung = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.largest = 1_000_000
        self.warns: list[str] = []
        self.closed = 0

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        self.calls.append(len(messages))
        if self.hangs:
            self.hung.set()
            await self.goes_on.wait()
        if (error := self.trouble(messages)) is not None:
            raise error
        self.got += messages
        if (error := self.after(messages)) is not None:
            raise error

    async def warnings(self) -> Sequence[str]:
        return self.warns

    async def close(self) -> None:
        self.closed += 1

    @property
    def ids(self) -> list[str]:
        return [each.id for each in self.got]

    @property
    def jobs(self) -> list[str]:
        """The jobs it was told of, each as often as it was."""
        return [self.said(number)["job"]["id"] for number in range(len(self.got))]

    def said(self, number: int = -1) -> dict[str, Any]:
        return msgspec.json.decode(self.got[number].body or b"")


class ByHand:
    """The time of a store; nobody waits here."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def now(self) -> float:
        return self._clock.now() / SECOND

    def jitter(self) -> float:
        return 0.5

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nobody waits here, not {seconds} s")


class Bench:
    """A store whose queue `q` writes events, a message broker, and relays of one name."""

    def __init__(self, store: Harness, taken: Taken | None = None) -> None:
        self.store = store
        self.taken = taken or Taken()
        self.opened = 0
        self.cannot_open: Exception | None = None
        self.signatures: dict[str, Signature] = {}

    async def prepare(self, *, emit: Emit = Emit.FINAL) -> "Bench":
        await self.store.queue("q", emit=emit)
        return self

    def relay(self, taken: Taken | None = None, *, broker: Broker | None = None, **said: Any) -> Relaying:
        options: dict[str, Any] = {"name": "ends", "url": URL, "on": ("done", "dead", "cancelled"), **said}

        async def opens(_: object) -> Taken:
            self.opened += 1
            if self.cannot_open is not None:
                raise self.cannot_open
            return taken or self.taken

        return Relaying(
            Relay(RelaySettings(**options), address_of(URL)),
            broker or self.store.broker,
            ByHand(self.store.clock),
            "ns",
            signature_of=self.signatures.get,
            opens=opens,
        )

    async def done(self, count: int, **options: Any) -> list[str]:
        """New jobs that are done, in the order of their ends."""
        return [job for job, _ in await self._run(count, **options)]

    async def dead(self, **options: Any) -> str:
        job = await self.store.add(**options)
        worker = await self.store.worker(slots=1)
        await self.store.dead(await worker.one())
        return job

    async def _run(self, count: int, **options: Any) -> list[tuple[str, int]]:
        await self.store.add_many(count, **options)
        worker = await self.store.worker(slots=count)
        leases = [await worker.one() for _ in range(count)]
        for lease in leases:
            await self.store.done(lease)
        return [(lease.job, lease.fence) for lease in leases]

    async def reading(self) -> RelayReading:
        document = await document_of(self.store.broker, reading_of("ends"))
        assert document is not None
        assert isinstance(document.override, bytes)
        return msgspec.json.decode(document.override, type=RelayReading)

    async def version(self) -> int:
        """Grows with each write of the document."""
        document = await document_of(self.store.broker, reading_of("ends"))
        assert document is not None
        return document.version

    async def pause(self, *, paused: bool) -> None:
        subject = declared_as("ends")
        document = await document_of(self.store.broker, subject)
        body = msgspec.json.encode(Control(paused=True)) if paused else None
        await self.store.broker.override(subject, body, 0 if document is None else document.version)


class Around:
    """A store, of which a test replaces some verbs."""

    def __init__(self, broker: Any, **verbs: Any) -> None:
        self._broker = broker
        self._verbs = verbs

    def __getattr__(self, name: str) -> Any:
        return self._verbs.get(name) or getattr(self._broker, name)

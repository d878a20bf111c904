"""An app with an intake and a relay, and what the workers that run them write into a store."""

from collections.abc import Mapping

import msgspec
from tests.bridges.fake_sources import FakeLogSource, Topic
from tests.worker.virtual import VirtualPace

from windlass import Windlass
from windlass.admin.intakes import Intakes
from windlass.admin.relays import Relays
from windlass.bridges.addresses import Address
from windlass.bridges.source import LogSource, QueueSource
from windlass.conformance.harness import Harness
from windlass.core.intake import (
    IntakeStatus,
    PartitionStatus,
    runs_intake,
    source_name,
    status_of,
)
from windlass.core.relay import RelayReading, reading_of
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Change, Subject
from windlass.core.take import Source, Take, TakeStatus
from windlass.core.units import SECOND
from windlass.worker.documents import document_of


class Scene:
    """An app with the intake `orders` and the relay `ends`, and what their workers write."""

    def __init__(self, store: Harness) -> None:
        self.store = store
        self.topic = Topic("0", "1", "10")
        self.source: LogSource | QueueSource = FakeLogSource(self.topic, VirtualPace())
        self.app = Windlass("memory://", name="shop")

        @self.app.task(queue="mail")
        def ship(n: int) -> int:
            return n

        self.app.intake(
            "kafka://user:secret@host/orders?group=x", task=ship, lane="headers.tenant", name="orders"
        )
        self.app.relay("amqp://user:secret@host/ends", on="dead", queues=["mail"], name="ends")

    @property
    def intakes(self) -> Intakes:
        async def opens(address: Address) -> LogSource | QueueSource:
            assert address.password == "secret"
            return self.source

        return Intakes(self.app, self.store.broker, opens)

    @property
    def relays(self) -> Relays:
        return Relays(self.app, self.store.broker)

    async def prepare(self) -> "Scene":
        await self.app.declare(self.store.broker)
        return self

    async def run_by(self, session: str, *names: str) -> None:
        """Open the session of a process that runs intakes."""
        info = SessionInfo(host="box", pid=7, queues=tuple(map(runs_intake, names)))
        await self.store.broker.beat([Beat(session=session, open=info)])

    async def take(self, partition: str, expect: str | None, then: str, identity: str = "topic 1") -> None:
        source = Source(source_name("orders", partition), identity)
        taken = await self.store.broker.take(Take(source=source, expect=expect, then=then))
        assert taken.status is TakeStatus.TAKEN

    async def tell(self, *warnings: str, **partitions: PartitionStatus) -> None:
        """Report how the intake goes; partitions are named `p0`, readers of a queue by their session."""
        now = self.store.clock.now()
        parts = {
            name.removeprefix("p"): msgspec.structs.replace(each, as_of=now, host="box", pid=7)
            for name, each in partitions.items()
        }
        await self._write(status_of("orders"), IntakeStatus(partitions=parts, warnings=warnings))

    async def read(self, **fields: object) -> None:
        """Report how the relay goes."""
        now = self.store.clock.now()
        reading = RelayReading(cursor="1", holder="w", until=now + 30 * SECOND, as_of=now, host="box", pid=7)
        await self._write(reading_of("ends"), msgspec.structs.replace(reading, **fields))

    async def _write(self, subject: Subject, body: object) -> None:
        before = await document_of(self.store.broker, subject)
        version = 0 if before is None else before.version
        changed = await self.store.broker.override(subject, msgspec.json.encode(body), version)
        assert changed.change in (Change.APPLIED, Change.UNCHANGED)

    async def offsets(self) -> Mapping[str, tuple[str, str]]:
        return {
            each.source.name: (each.source.identity, each.at)
            for each in await self.store.broker.offsets("", 100)
        }

"""A topic with its partitions."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import KafkaException

from windlass.bridges.addresses import Address
from windlass.bridges.kafka.admin import Admin
from windlass.bridges.kafka.advice import of_reading
from windlass.bridges.kafka.failures import as_bridge_error, error_in
from windlass.bridges.kafka.log import KafkaLog
from windlass.bridges.kafka.pump import Pump
from windlass.bridges.kafka.settings import check, client_settings, group_of, topic_of
from windlass.errors import BridgeRefused, SourceReplaced

_DOUBT: Final = 5.0
"""Seconds for which a silent partition is believed to be there."""
_COMMIT: Final = 1.0
"""Seconds between two commits."""


async def opened(address: Address) -> "KafkaSource":
    """`BridgeRefused`: there is no such topic."""
    check(address)
    topic = topic_of(address)
    admin = Admin(address)
    try:
        await admin.topic(topic)
    except BaseException:
        await admin.close()
        raise
    return KafkaSource(address, admin)


class KafkaSource:
    """A topic that is read."""

    def __init__(self, address: Address, admin: Admin) -> None:
        self.shown = address.shown
        self.topic = topic_of(address)
        self.admin = admin
        self._group = group_of(address)
        self._settings: dict[str, Any] = {**client_settings(address), "group.id": self._group}
        self._pump: Pump | None = None
        self._confirmed_at = float("-inf")
        self._uncommitted: dict[int, int] = {}
        self._commit_at = 0.0

    async def partitions(self) -> Sequence[str]:
        """Their numbers."""
        return [str(number) for number in (await self.admin.topic(self.topic)).partitions]

    async def open(self, partition: str) -> KafkaLog:
        """A partition, with the id that its topic has now."""
        found = await self.admin.topic(self.topic)
        if partition not in map(str, found.partitions):
            raise BridgeRefused(f"{self.shown}: there is no partition {partition}")
        return KafkaLog(self, int(partition), found.id)

    async def warnings(self) -> Sequence[str]:
        """What its settings do not promise to an intake."""
        return await of_reading(self.admin, self.shown, self.topic, self._group)

    async def close(self) -> None:
        """Let go of both clients."""
        pump, self._pump = self._pump, None
        if pump is not None:
            if self._uncommitted:
                pump.commit(self._uncommitted)
            pump.stop()
            await asyncio.to_thread(pump.join)
        await self.admin.close()

    # --- for its partitions ---------------------------------------------------------------------------------

    def pump(self) -> Pump:
        """The one that runs: a new one if that of before has failed."""
        if self._pump is None or not self._pump.is_running:
            try:
                self._pump = Pump(self._settings, self.topic)
            except KafkaException as error:
                raise as_bridge_error(error_in(error), self.shown) from None
        return self._pump

    async def confirm(self, identity: str) -> None:
        """The topic is that one, and its brokers answer."""
        asked_at, self._confirmed_at = time.monotonic(), float("-inf")
        if self._pump is not None:
            self._pump.has_complaints = False
        found = await self.admin.topic(self.topic)
        if found.id != identity:
            raise SourceReplaced(
                f"{self.shown} is another topic than the one that was read so far: it was deleted and made "
                "anew; say where to go on: windlass intakes move"
            )
        self._confirmed_at = asked_at

    def is_in_doubt(self) -> bool:
        """Whether the client has complained, or nothing was heard for long."""
        complains = self._pump is not None and self._pump.has_complaints
        return complains or time.monotonic() - self._confirmed_at > _DOUBT

    def commit(self, partition: int, offset: int) -> None:
        """Once a second; what comes in between goes with the next one, or when it is closed."""
        self._uncommitted[partition] = offset
        if time.monotonic() >= self._commit_at:
            self._commit_at = time.monotonic() + _COMMIT
            told, self._uncommitted = self._uncommitted, {}
            self.pump().commit(told)

"""Tells operators how the intakes of a process go, and hears what they say: by documents of the store.

It is written every ten seconds, and at once when a trouble comes or goes. Several processes write parts of
one document, by compare-and-set.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec

from windlass.bridges.backlog import Gate
from windlass.bridges.going import Going
from windlass.broker.management import Configure, Plan, Read
from windlass.core.bridging import decoded
from windlass.core.intake import Control, IntakeStatus, PartitionStatus, declared_as, status_of
from windlass.core.session import SessionState
from windlass.core.settings import Change
from windlass.core.units import SECOND, Micros, SessionId
from windlass.errors import StoreError
from windlass.pace import Pace
from windlass.patience import Backoff
from windlass.worker.bridge_session import BridgeSession
from windlass.worker.documents import document_of

LOOK = 1.0
"""Seconds between two looks at what operators have said, and at the trouble there is."""
EVERY = 10.0
"""Seconds between two reports while nothing special happens: each makes all workers read settings anew."""
PROMPT = 0.5
"""Seconds: an answer that took longer says too little of what time it is."""
TRIES = 5
WHOLE = ""
"""In place of a partition: a queue, or a source that cannot be opened. Operators see it by the session of its
reader, which a process may lose and have anew.
"""
_PAGE = 1_000


class Store(Configure, Plan, Read, Protocol):
    """What is needed of a broker."""


class IntakeReports:
    """The reports of one intake in this process."""

    def __init__(self, broker: Store, pace: Pace, name: str, session: BridgeSession, gate: Gate) -> None:
        self._broker = broker
        self._pace = pace
        self._name = name
        self._session = session
        self._gate = gate
        self._going: dict[str, Going] = {}
        self._next = 0.0
        self._store_is_ahead: Micros | None = None
        self._told: object = None
        self.warnings: tuple[str, ...] = ()

    def going(self, partition: str) -> Going:
        """How the reading of a partition goes, from now on; `WHOLE`: that of a queue."""
        return self._going.setdefault(partition, Going(self._pace))

    def keep(self, partitions: Collection[str]) -> None:
        """Leave all others to those who read them now."""
        for partition in self._going.keys() - set(partitions):
            del self._going[partition]

    def fails(self, error: object) -> None:
        """Note a trouble that is no partition's: the source cannot be opened."""
        for going in self._going.values() or (self.going(WHOLE),):
            going.fails(error)

    async def run(self) -> None:
        """Look and tell, for ever."""
        backoff = Backoff(self._pace, most=EVERY)
        while True:
            try:
                await self._step()
                backoff.worked()
                pause = LOOK
            except StoreError as error:
                backoff.tell(f"intake {self._name}: its status cannot be told: %s", error)
                pause = backoff.failed()
            await self._pace.sleep(pause)

    async def hear(self) -> None:
        """Hear what operators have said."""
        document = await document_of(self._broker, declared_as(self._name))
        control = None if document is None else decoded(document.override, Control)
        self._gate.paused = control is not None and control.paused

    async def _step(self) -> None:
        await self.hear()
        trouble = {partition: going.trouble for partition, going in self._going.items()}
        if trouble != self._told or self._pace.now() >= self._next:
            await self._tell()
            self._told, self._next = trouble, self._pace.now() + EVERY

    def now(self) -> Micros:
        """The time by the store's clock, as it was when it was last asked and has gone on since."""
        return int(self._pace.now() * SECOND) + (self._store_is_ahead or 0)

    async def ask_the_time(self) -> Micros:
        """The store's time; `now` goes by it."""
        asked = self._pace.now()
        now = (await self._broker.schedules(limit=1)).now
        answered = self._pace.now()
        if self._store_is_ahead is None or answered - asked < PROMPT:
            self._store_is_ahead = now - int((asked + answered) / 2 * SECOND)
        return now

    async def _tell(self) -> None:
        now = await self.ask_the_time()
        me, info = self._session.session, self._session.info
        mine = {
            partition or me: going.status(me, info.host, info.pid, now)
            for partition, going in self._going.items()
        }
        subject = status_of(self._name)
        for _ in range(TRIES):
            document = await document_of(self._broker, subject)
            known = None if document is None else decoded(document.override, IntakeStatus)
            others = {} if known is None else await self._of_the_living(known.partitions)
            # What was forgotten is another's to tell: it stays as it is until that one does.
            status = IntakeStatus(partitions={**others, **mine}, warnings=self.warnings)
            version = 0 if document is None else document.version
            changed = await self._broker.override(subject, msgspec.json.encode(status), version)
            if changed.change in (Change.APPLIED, Change.UNCHANGED):
                return

    async def _of_the_living(self, partitions: Mapping[str, PartitionStatus]) -> dict[str, PartitionStatus]:
        """Without the readers of a queue whose sessions have ended: they have no successor of their name."""
        me = self._session.session
        gone = {each.owner for key, each in partitions.items() if key == each.owner} - {me}
        if gone:
            gone -= await self._living()
        return {key: each for key, each in partitions.items() if key not in gone and key != me}

    async def _living(self) -> set[SessionId]:
        found, after = set[SessionId](), ""
        while page := await self._broker.sessions(after, _PAGE):
            found.update(view.id for view in page if view.state is SessionState.ALIVE)
            after = page[-1].id
            if len(page) < _PAGE:
                break
        return found

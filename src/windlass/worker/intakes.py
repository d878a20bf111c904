"""Runs the intakes of a program: opens their sources, shares the partitions out, tries again after trouble.

Every process that runs an intake of a log counts the same sessions and comes to the same share, so nobody has
to write down who owns what. It is a hint: if two read one partition, the store lets one of them take.
"""

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from typing import cast

from windlass.bridges.addresses import Address, open_source
from windlass.bridges.backlog import Gate
from windlass.bridges.declared import Intake
from windlass.bridges.from_log import LogIntake
from windlass.bridges.from_queue import QueueIntake
from windlass.bridges.going import Going
from windlass.bridges.making import NewIds, mapper_of
from windlass.bridges.source import Log, LogSource, QueueSource, is_queue
from windlass.bridges.taking import StoreFull, Taking
from windlass.broker.contract import Broker
from windlass.core.outcome import Cause, CauseKind
from windlass.core.units import SessionId
from windlass.errors import BridgeError, InvalidOption, SourceReplaced, StoreError
from windlass.pace import Pace
from windlass.patience import Backoff, cancelled
from windlass.worker.bridge_session import BridgeSession, who_runs
from windlass.worker.heart import Heart
from windlass.worker.host import Host
from windlass.worker.intake_status import WHOLE, IntakeReports
from windlass.worker.program import Program

_log = logging.getLogger("windlass.bridges")

LOOK = 3.0
"""Seconds between two looks at partitions and at who else reads them."""
SETTINGS = 60.0
"""Seconds between two looks at a message broker's settings."""
SILENT_BEATS = 3
"""Beats after which a session is no longer counted: its process may be gone, and its partitions wait."""
LONGEST = 30.0
"""Seconds between two tries at most."""
ENDING = 2.0
"""Seconds that the store is given to hear of the end of the session."""
HOPELESS = 5.0
"""Seconds between two tries of what an operator has to mend."""


class Intakes:
    """The intakes of a program, for as long as its worker runs."""

    def __init__(
        self,
        program: Program,
        broker: Broker,
        *,
        declare: Callable[[], Awaitable[None]],
        pace: Pace,
        host: Host,
        open_source: Callable[[Address], Awaitable[LogSource | QueueSource]] = open_source,
    ) -> None:
        """`declare` tells the store of the program's queues and tasks once more, if it has lost them."""
        config, intakes = program.config, program.intakes
        self._program = program
        self._intakes = intakes
        self._broker = broker
        self._declare = declare
        self._pace = pace
        self._silent = SILENT_BEATS * config.beat
        self._open_source = open_source
        self._session = BridgeSession(program.name, intakes, host, ttl=config.session_ttl)
        self._heart = Heart(broker, pace, config, lambda: [self._session])

    async def run(self) -> None:
        """Run them all, for ever. A heartbeat comes first: others are to know that this process is here."""
        await self._heart.beat()
        tasks = [
            asyncio.create_task(self._heart.run()),
            *(asyncio.create_task(self._keep(intake)) for intake in self._intakes.values()),
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            await cancelled(tasks)
            await self._end_session()

    async def _end_session(self) -> None:
        """So that others take over at once. If it does not work, they do when it has been silent."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(ENDING):
                await self._broker.end_session(self.session, Cause(CauseKind.STOP, "stopped"))

    @property
    def session(self) -> SessionId:
        """The session of this process."""
        return self._session.session

    async def _keep(self, intake: Intake) -> None:
        """Run one intake, again after every trouble."""
        running = _Running(self._program, intake, self._broker, self._declare, self._pace, self._session)
        reporting = asyncio.create_task(running.reports.run())
        backoff = Backoff(self._pace, most=LONGEST)
        try:
            while True:
                try:
                    await running.reports.ask_the_time()
                    await running.reports.hear()  # before anything is read: it may be paused
                    source = await self._open_source(intake.address)
                    async with _closing(source):
                        with backoff.trying():
                            await running.look_at_settings(source)
                            await self._run(running, source)
                except (BridgeError, InvalidOption, StoreError) as error:
                    # InvalidOption: its URL. Other intakes go on, and a certificate may be there soon.
                    running.reports.fails(error)
                    backoff.tell(f"intake {intake.settings.name}: %s; trying until it works", error)
                except Exception as error:  # noqa: BLE001 - whatever it is, other intakes go on
                    running.reports.fails(f"{type(error).__name__}: {error}")
                    _log.exception("intake %s has failed; it is tried again", intake.settings.name)
                await self._pace.sleep(backoff.failed())
        finally:
            await cancelled([reporting])

    async def _run(self, running: "_Running", source: LogSource | QueueSource) -> None:
        if is_queue(source):
            going = running.going(WHOLE)
            await running.again(going, lambda: running.queue(source, going))
        else:
            await self._share(running, cast("LogSource", source))

    async def _share(self, running: "_Running", source: LogSource) -> None:
        """Read those partitions that are this process's, for as long as they are."""
        reading: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                await running.look_at_settings(source)
                partitions = await source.partitions()
                others = await who_runs(self._broker, running.name, silent=self._silent)
                mine = share_of(self._session.session, others, partitions)
                for partition in reading.keys() - mine:
                    await cancelled([reading.pop(partition)])
                running.reports.keep(mine)
                for partition in mine - reading.keys():
                    reading[partition] = asyncio.create_task(running.keep_partition(source, partition))
                for task in reading.values():
                    if task.done():
                        task.result()
                await self._pace.sleep(LOOK)
        finally:
            await cancelled(reading.values())


class _Running:
    """One intake of this process."""

    def __init__(
        self,
        program: Program,
        intake: Intake,
        broker: Broker,
        declare: Callable[[], Awaitable[None]],
        pace: Pace,
        session: BridgeSession,
    ) -> None:
        self.name = intake.settings.name
        self._intake = intake
        self._broker = broker
        self._pace = pace
        self._program = program
        self._declare = declare
        queues = {task.pattern.queue for name, task in program.tasks.items() if self._is_for(name)}
        self.gate = Gate(broker, pace, queues, intake.settings.backlog)
        self.reports = IntakeReports(broker, pace, self.name, session, self.gate)
        self._look_at = float("-inf")

    def going(self, partition: str) -> Going:
        """How the reading of a partition goes."""
        return self.reports.going(partition)

    async def look_at_settings(self, source: LogSource | QueueSource) -> None:
        """Ask now and then what the message broker's settings do not promise, and what the messages that have
        come lack. Who may read messages may not be allowed to read settings.
        """
        if self._pace.now() >= self._look_at:
            self._look_at = self._pace.now() + SETTINGS
            with contextlib.suppress(BridgeError):
                self.reports.warnings = tuple(await source.warnings())

    async def keep_partition(self, source: LogSource, partition: str) -> None:
        """Read one partition, again after every trouble that is its own."""
        going = self.going(partition)
        await self.again(going, lambda: self._partition(source, partition, going))

    async def again(self, going: Going, work: Callable[[], Awaitable[None]]) -> None:
        """Work; after trouble wait, and work again."""
        backoff = Backoff(self._pace, most=LONGEST)
        while True:
            taken = going.taken
            try:
                with backoff.trying():
                    await work()
            except SourceReplaced as error:
                going.fails(error, stopped=True)
                backoff.tell(f"intake {self.name} has stopped: %s", error)
                await self._pace.sleep(HOPELESS)
                continue
            except StoreFull as error:
                going.waits(error)
                backoff.tell(f"intake {self.name}: %s; trying until there is room", error)
            except (BridgeError, InvalidOption, StoreError) as error:
                going.fails(error)
                backoff.tell(f"intake {self.name}: %s; trying until it works", error)
            except Exception as error:  # noqa: BLE001 - whatever it is, the worker and other intakes go on
                going.fails(f"{type(error).__name__}: {error}")
                _log.exception("intake %s has failed; it is tried again", self.name)
            if going.taken != taken:
                backoff.worked()
            await self._pace.sleep(backoff.failed())

    async def queue(self, source: QueueSource, going: Going) -> None:
        """Read a queue."""
        taking = self._taking(keyed=True)
        intake = QueueIntake(
            self._intake.settings,
            source,
            taking=taking,
            gate=self.gate,
            going=going,
            pace=self._pace,
            look_at_settings=lambda: self.look_at_settings(source),
        )
        await intake.run()

    async def _partition(self, source: LogSource, partition: str, going: Going) -> None:
        log = await source.open(partition)
        async with _closing(log):
            intake = LogIntake(
                self._intake.settings,
                log,
                broker=self._broker,
                taking=self._taking(keyed=False),
                gate=self.gate,
                going=going,
                pace=self._pace,
            )
            await intake.run()

    def _taking(self, *, keyed: bool) -> Taking:
        namespace = self._program.config.namespace
        mapper = mapper_of(
            self._intake,
            self._program.tasks,
            NewIds(namespace, self.name, self._program.new_id),
            namespace=namespace,
            keyed=keyed,
            now=self.reports.now,
        )
        return Taking(self._broker, mapper, self._declare)

    def _is_for(self, task: str) -> bool:
        tasks = self._intake.settings.tasks
        return not tasks or task in tasks


def share_of(me: SessionId, others: Collection[SessionId], partitions: Collection[str]) -> set[str]:
    """The partitions that are one session's: each goes to the session with which its hash is highest, so
    that a session which comes or goes moves few of them.
    """
    sessions = {me, *others}

    def owner(partition: str) -> SessionId:
        return max(sessions, key=lambda session: (_hash(session, partition), session))

    return {partition for partition in partitions if owner(partition) == me}


def _hash(session: SessionId, partition: str) -> bytes:
    return hashlib.blake2b(f"{session}\x00{partition}".encode(), digest_size=8).digest()


@contextlib.asynccontextmanager
async def _closing(it: LogSource | QueueSource | Log) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        with contextlib.suppress(BridgeError):
            await it.close()

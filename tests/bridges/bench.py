"""A store, an app with an intake, and processes that run it, on virtual time."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from tests.worker.virtual import LoopClock, VirtualPace, run

from windlass import Windlass
from windlass.bridges.addresses import Address
from windlass.bridges.source import LogSource, QueueSource
from windlass.broker.contract import Options
from windlass.broker.memory import MemoryBroker
from windlass.core.bridging import decoded
from windlass.core.intake import Control, IntakeStatus, declared_as, status_of
from windlass.core.job import JobDetail
from windlass.core.query import FIRST_PAGE, JobQuery
from windlass.core.state import State
from windlass.core.take import Take, Taken
from windlass.core.units import Cursor
from windlass.errors import StoreUnavailable
from windlass.worker.documents import document_of
from windlass.worker.host import Machine
from windlass.worker.intakes import Intakes
from windlass.worker.janitor import Janitor
from windlass.worker.pruning import Pruning

__all__ = ["Bench", "LosesAnswers", "run"]


class LosesAnswers:
    """A broker whose line breaks now and then while a take is under way: before it is done, or after."""

    def __init__(self, broker: Any, seed: int, share: float = 0.2) -> None:
        self._broker = broker
        self._draw = random.Random(seed)
        self._share = share
        self.lost = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    async def take(self, take: Take) -> Taken:
        when = self._draw.random()
        if when < self._share / 2:
            self.lost += 1
            raise StoreUnavailable("the line broke before")
        taken: Taken = await self._broker.take(take)
        if when < self._share:
            self.lost += 1
            raise StoreUnavailable("the line broke after")
        return taken


class Bench:
    """The intake is called `orders`; its task is `ship`, of the queue `default`."""

    def __init__(self, *, store: Options | None = None, **options: Any) -> None:
        self.app = Windlass("memory://", namespace="bridges")

        @self.app.task
        def ship(n: int) -> int:
            return n

        @self.app.task
        def bill(n: int) -> int:
            return n

        self.app.intake("kafka://localhost/orders", **({"task": ship} | options))
        self.pace = VirtualPace()
        self.model = MemoryBroker(clock=LoopClock(), options=store)
        self.broker: Any = self.model
        self.running: list[asyncio.Task[None]] = []
        self.processes: list[Intakes] = []

    async def start(self, source: Callable[[], LogSource | QueueSource]) -> asyncio.Task[None]:
        """Start a process that runs the intake, and sweeps the store."""
        await self.app.declare(self.model)

        async def open_source(address: Address) -> LogSource | QueueSource:
            assert address.path == ("orders",)
            return source()

        intakes = Intakes(
            self.app,
            self.broker,
            declare=lambda: self.app.declare(self.model),
            pace=self.pace,
            host=Machine(),
            open_source=open_source,
        )
        self.processes.append(intakes)
        janitor = Janitor(
            self.model, self.pace, self.app.config, pruning=Pruning(self.model, self.app, self.pace)
        )

        async def both() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(intakes.run())
                group.create_task(janitor.run())

        self.running.append(asyncio.create_task(both()))
        return self.running[-1]

    async def stop(self, *tasks: asyncio.Task[None]) -> None:
        """End processes as a signal does: their sessions are ended."""
        for task in tasks or self.running:
            task.cancel()
        await asyncio.gather(*(tasks or self.running), return_exceptions=True)

    async def kill(self, number: int) -> None:
        """End a process without a last word: its session is left behind."""
        intakes = self.processes[number]

        async def nothing() -> None: ...

        intakes._end_session = nothing  # type: ignore[method-assign]
        await self.stop(self.running[number])

    async def jobs(self) -> list[JobDetail]:
        """All jobs, in order of their numbers if they have one."""
        found: list[JobDetail] = []
        after: Cursor | None = FIRST_PAGE
        while after is not None:
            page = await self.model.list(JobQuery(), after=after, limit=1_000)
            found.extend(each for each in await self.model.get([job.id for job in page.jobs]) if each)
            after = page.cursor
        return found

    async def numbers(self, state: State = State.READY) -> list[int]:
        """What jobs of a state carry as `n`, sorted."""
        jobs = [job for job in await self.jobs() if job.state is state]
        return sorted(msgspec.json.decode(job.payload)["k"]["n"] for job in jobs)

    async def until(self, holds: Callable[[], Awaitable[bool]], within: float = 3_600) -> None:
        """Wait for it."""
        end = self.pace.now() + within
        while not await holds():
            assert self.pace.now() < end, "it did not come about"
            await asyncio.sleep(0.05)

    async def until_taken(self, *numbers: int) -> None:
        """Wait until there is a job for each number."""

        async def all_there() -> bool:
            rows = (await self.model.counts()).rows
            return sum(row.count for row in rows if row.state is State.READY) >= len(numbers)

        await self.until(all_there)
        assert await self.numbers() == sorted(numbers)

    async def status(self) -> IntakeStatus:
        """What operators see."""
        document = await document_of(self.model, status_of("orders"))
        status = None if document is None else decoded(document.override, IntakeStatus)
        return status or IntakeStatus()

    async def until_told(self, holds: Callable[[IntakeStatus], bool]) -> IntakeStatus:
        """Wait until operators see it."""

        async def told() -> bool:
            with contextlib.suppress(KeyError):  # a partition of which nothing was told yet
                return holds(await self.status())
            return False

        await self.until(told)
        return await self.status()

    async def pause(self, paused: bool) -> None:
        """As an operator does."""
        document = await document_of(self.model, declared_as("orders"))
        assert document is not None
        await self.model.override(
            declared_as("orders"), msgspec.json.encode(Control(paused=paused)), document.version
        )

    def play(self, story: Callable[[], Awaitable[None]]) -> None:
        """Run a story, and end what it has started."""

        async def whole() -> None:
            try:
                await story()
            finally:
                await self.stop()

        run(whole())

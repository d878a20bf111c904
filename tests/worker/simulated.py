"""A machine without processes: time that a test moves, children that do as they are told, and their host."""

import asyncio
import functools
import heapq
import itertools
import logging
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from windlass import Windlass
from windlass.broker.memory import MemoryBroker
from windlass.clock import ManualClock
from windlass.config import Config
from windlass.conformance.harness import new_id
from windlass.core.job import NewJob
from windlass.core.lease import Ask, Lease
from windlass.core.session import SessionView
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.units import SECOND, SessionId
from windlass.worker.messages import Begin, Drain, Ready, ToChild, ToSupervisor
from windlass.worker.options import Group
from windlass.worker.plan import Plan
from windlass.worker.pruning import Pruning
from windlass.worker.supervisor import Supervisor
from windlass.worker.table import Table

TURNS = 60
"""Turns of the loop after which nothing is left to do at this moment."""


class ManualPace:
    """Time stands still until it is moved; the store's clock goes along."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.time = 1_000.0
        self.clock = clock or ManualClock()
        self.draw = 0.5
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.time + seconds, next(self._order), woken))
        await woken

    def jitter(self) -> float:
        return self.draw

    async def rest(self) -> None:
        """Let everybody do what can be done at this moment."""
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        """Let time pass, waking everybody when it is due."""
        end = self.time + seconds
        await self.rest()
        while self._sleepers and self._sleepers[0][0] <= end:
            at, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                self._move(at)
                woken.set_result(None)
                await self.rest()
        self._move(end)

    def _move(self, to: float) -> None:
        self.clock.advance(round((to - self.time) * SECOND))
        self.time = to


class FakeHost:
    """A machine whose processes are those of a `FakeSpawner`."""

    def __init__(self) -> None:
        self.name = "machine"
        self.boot = "boot-1"
        self.pid_namespace = "pid:[1]"
        self.processes: dict[int, int] = {1: 1}
        self.stopped: set[int] = set()
        self.resident: dict[int, int] = {}
        self.ooms = 0

    def process_started(self, pid: int) -> int | None:
        return self.processes.get(pid)

    def is_stopped(self, pid: int) -> bool:
        return pid in self.stopped

    def memory(self, pid: int) -> int:
        return self.resident.get(pid, 0)

    def oom_kills(self) -> int:
        return self.ooms


class FakeChild:
    """A child. By itself it gets ready, and ends cleanly when it is drained."""

    def __init__(self, pid: int, spawner: "FakeSpawner") -> None:
        self.pid = pid
        self.heard: list[ToChild] = []
        self.obedient = spawner.obedient
        self.closed = False
        self._spawner = spawner
        self._saying: asyncio.Queue[ToSupervisor | Exception | None] = asyncio.Queue()
        self._end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._table: Table | None = None

    @property
    def begin(self) -> Begin:
        first = self.heard[0]
        assert isinstance(first, Begin)
        return first

    @property
    def session(self) -> SessionId:
        return self.begin.session

    @property
    def table(self) -> Table:
        if self._table is None:
            self._table = Table.open(Path(self.begin.table))
        return self._table

    @property
    def alive(self) -> bool:
        return not self._end.done()

    def heard_of(self, kind: type[Any]) -> list[Any]:
        return [message for message in self.heard if isinstance(message, kind)]

    # what the supervisor does

    def send(self, message: ToChild) -> None:
        if not self.alive:
            return
        self.heard.append(message)
        if self.obedient and isinstance(message, Begin):
            self.say(Ready())
        if self.obedient and isinstance(message, Drain):
            self.end_cleanly()

    async def receive(self) -> ToSupervisor | None:
        said = await self._saying.get()
        if isinstance(said, Exception):
            raise said
        return said

    async def ended(self) -> int:
        return await asyncio.shield(self._end)

    def kill(self) -> None:
        self.die(-signal.SIGKILL)

    def close(self) -> None:
        self.closed = True

    # what the test does

    def say(self, message: ToSupervisor) -> None:
        self._saying.put_nowait(message)

    def garble(self) -> None:
        """Say what this code does not know."""
        self._saying.put_nowait(msgspec.DecodeError("unknown word"))

    def die(self, code: int) -> None:
        if self.alive:
            self._end.set_result(code)
            self._spawner.host.processes.pop(self.pid, None)
            self._saying.put_nowait(None)
            if self._table is not None:
                self._table.close()
                self._table = None

    def end_cleanly(self) -> None:
        self.table.end_cleanly()
        self.die(0)


class FakeSpawner:
    """Starts fake children."""

    def __init__(self, host: FakeHost) -> None:
        self.host = host
        self.children: list[FakeChild] = []
        self.obedient = True
        self.error: OSError | None = None
        self.on_spawn: Callable[[FakeChild], None] = lambda _: None

    async def spawn(self) -> FakeChild:
        if self.error is not None:
            raise self.error
        child = FakeChild(100 + len(self.children), self)
        self.children.append(child)
        self.host.processes[child.pid] = 7_000 + child.pid
        self.on_spawn(child)
        return child

    @property
    def alive(self) -> list[FakeChild]:
        return [child for child in self.children if child.alive]


class World:
    """A supervisor in a machine of its own, on the reference model."""

    def __init__(self, folder: Path, config: Config | None = None, **plan: Any) -> None:
        self.folder = folder
        self.pace = ManualPace()
        self.config = config or Config()
        self.broker: Any = MemoryBroker(clock=self.pace.clock, options=self.config.broker_options())
        self.host = FakeHost()
        self.spawner = FakeSpawner(self.host)
        given: dict[str, Any] = {
            "app": "tasks:app",
            "name": "app",
            "groups": (Group(slots=4, queues=("q",)),),
            "processes": 2,
            "grace": 30.0,
            "supervisor": "1:1",
            **plan,
        }
        self.plan = Plan(**given)
        self.started = 0
        self.supervisor = self.another()
        self._running: asyncio.Task[int] | None = None

    def another(self) -> Supervisor:
        """A supervisor of this plan."""
        return Supervisor(
            self.plan,
            broker=self.broker,
            spawner=self.spawner,
            pace=self.pace,
            host=self.host,
            config=self.config,
            pruning=Pruning(self.broker, Windlass("memory://"), self.pace),
            place=self.place,
            once_started=self._count,
        )

    async def _count(self) -> None:
        self.started += 1

    def place(self, session: SessionId) -> Path:
        return self.folder / f"windlass-{session}"

    @property
    def tables(self) -> set[SessionId]:
        return {path.name.removeprefix("windlass-") for path in self.folder.iterdir()}

    async def begin(self) -> None:
        """Start it, and let its children get ready."""
        queue = Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(), app="app")
        await self.broker.declare([queue])
        self._running = asyncio.create_task(self.supervisor.run())
        await self.pace.rest()

    async def code(self) -> int:
        """The exit code of a supervisor that has ended."""
        assert self._running is not None
        await self.pace.rest()
        assert self._running.done(), "the supervisor has not ended"
        return self._running.result()

    @property
    def ended(self) -> bool:
        assert self._running is not None
        return self._running.done()

    async def end(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def session(self, session: SessionId) -> SessionView:
        """What the store knows of a session."""
        found = {view.id: view for view in await self.broker.sessions()}
        return found[session]

    async def claim(self, child: FakeChild, count: int, *, seq: int = 1) -> list[Lease]:
        """Claim for a child, and file what it got in its table."""
        ask = Ask(session=child.session, seq=seq, queues=("q",), slots=count, limit=count)
        claimed = await self.broker.claim(ask)
        for slot, lease in enumerate(claimed.leases):
            child.table.file(slot, lease.job, lease.fence)
        return list(claimed.leases)


Scenario = Callable[[World], Coroutine[Any, Any, None]]


def scenario(**options: Any) -> Callable[[Scenario], Callable[[Path], None]]:
    """Run a test in a world of its own."""

    def wrap(test: Scenario) -> Callable[[Path], None]:
        def run(tmp_path: Path) -> None:
            async def main() -> None:
                world = World(tmp_path, **options)
                try:
                    await test(world)
                finally:
                    await world.end()

            asyncio.run(main())

        functools.update_wrapper(run, test, assigned=("__name__", "__doc__", "__module__", "__qualname__"))
        del run.__wrapped__  # pytest would ask for its arguments
        return run

    return wrap


async def add_jobs(broker: Any, count: int = 1, **more: Any) -> list[str]:
    """Enqueue jobs for the default queue."""
    given: dict[str, Any] = {"queue": "default", "payload": b"{}", **more}
    jobs = [NewJob(id=new_id(), **given) for _ in range(count)]
    await broker.enqueue([jobs])
    return [job.id for job in jobs]


async def add(world: World, count: int = 1, **more: Any) -> list[str]:
    jobs = [NewJob(id=new_id(), task="t", queue="q", payload=b"{}", **more) for _ in range(count)]
    await world.broker.enqueue([jobs])
    return [job.id for job in jobs]


async def job(world: World, identity: str) -> Any:
    return (await world.broker.get([identity]))[0]


class capture:  # noqa: N801 - reads as a verb
    """The lines that operators see, while it is open."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._log = logging.getLogger("windlass.worker")

    def __enter__(self) -> list[str]:
        handler = logging.Handler(logging.INFO)
        handler.emit = lambda record: self.lines.append(f"{record.levelname} {record.getMessage()}")
        self._handler = handler
        self._before = self._log.level
        self._log.addHandler(handler)
        self._log.setLevel(logging.INFO)
        return self.lines

    def __exit__(self, *_: object) -> None:
        self._log.removeHandler(self._handler)
        self._log.setLevel(self._before)

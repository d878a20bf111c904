"""A simulated machine: its supervisor and children, real ones in all but their processes.

The supervisor is `windlass.worker.supervisor.Supervisor`, a child runs `windlass.worker.worker.Worker`; what
is simulated is what the operating system does: starting, stopping and killing processes, and the sockets
between them. `SimChild` mirrors `windlass.worker.child`, which cannot run without a process of its own.
"""

import asyncio
import itertools
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from windlass.broker.contract import Broker
from windlass.client.app import Windlass
from windlass.core.outcome import Cause, CauseKind
from windlass.core.units import SECOND
from windlass.errors import StoreError
from windlass.verify import history
from windlass.verify.history import Journal
from windlass.verify.simulator.loop import SimLoop, SimPace, SimProcess, begin
from windlass.verify.simulator.tables import MemoryTable
from windlass.worker.child import LAST_WORDS, ORPHANED
from windlass.worker.firing import Firing
from windlass.worker.messages import (
    Begin,
    Cancel,
    Drain,
    Go,
    Lost,
    Ready,
    Reread,
    Suspects,
    ToChild,
    ToSupervisor,
)
from windlass.worker.options import Group
from windlass.worker.plan import Plan
from windlass.worker.pruning import Pruning
from windlass.worker.supervisor import Supervisor
from windlass.worker.worker import Worker

IMPORT = (0.1, 0.4)
"""Seconds that a child takes to import its program."""


class World(Protocol):
    """What a machine needs of the world around it."""

    loop: SimLoop
    pace: SimPace
    app: Windlass
    folder: Path
    harness: Journal
    processes: list[SimProcess]

    def process(self, name: str, role: history.Role) -> SimProcess: ...
    def connect(self, process: SimProcess) -> Broker: ...
    def draw(self, low: float, high: float) -> float: ...
    def new_id(self) -> str: ...


class SimChild:
    """A child, as its supervisor holds it, and its insides."""

    def __init__(self, world: World, process: SimProcess, machine: "Machine") -> None:
        self.process = process
        self.worker: Worker | None = None
        self._world = world
        self._machine = machine
        self._inbox: asyncio.Queue[ToChild | None] = asyncio.Queue()
        self._said: asyncio.Queue[ToSupervisor | None] = asyncio.Queue()
        self._end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._table: MemoryTable | None = None
        self._suspects_told = 0.0
        self._begin: Begin | None = None
        process.on_death.append(self._died)

    @property
    def pid(self) -> int:
        """Of its process."""
        return self.process.pid

    # --- what the supervisor does ---------------------------------------------------------------------------

    def send(self, message: ToChild) -> None:
        """Say something."""
        self._inbox.put_nowait(message)

    async def receive(self) -> ToSupervisor | None:
        """What it says next."""
        return await self._said.get()

    async def ended(self) -> int:
        """Its exit code."""
        return await asyncio.shield(self._end)

    def kill(self) -> None:
        """Kill it for good."""
        self.process.exit_code = -int(signal.SIGKILL)
        self.process.kill()

    def close(self) -> None:
        """Nothing to let go of."""

    # --- its death ------------------------------------------------------------------------------------------

    def _died(self) -> None:
        """The operating system's part: its table stays as it was, and its parent is told."""
        code = self.process.exit_code
        if self._table is not None:
            self._table.freeze()
        self._machine.pids.pop(self.pid, None)
        self._world.harness.write(
            history.Process(
                name=self.process.name,
                action="ended",
                pid=self.pid,
                code=code,
                session=self.process.session,
            )
        )
        if not self._end.done():
            self._end.set_result(code)
        self._said.put_nowait(None)

    def orphan(self) -> None:
        """Its supervisor is dead: the socket says so."""
        self._inbox.put_nowait(None)

    # --- its life, in its own process -----------------------------------------------------------------------

    async def main(self) -> None:
        """From the start of its process to the end."""
        world = self._world
        await asyncio.sleep(world.draw(*IMPORT))
        first = await self._inbox.get()
        if not isinstance(first, Begin):
            self._exit(ORPHANED)
            return
        self._begin = first
        self.process.session = first.session
        self._table = MemoryTable.open(Path(first.table))
        self.worker = Worker(
            world.app,
            first.session,
            first.groups,
            self._table,
            world.pace,
            open_broker=self._open,
            beside=self._obey,
            at_end=lambda broker: broker.close(),
            alone=first.alone,
            apart=False,
        )
        self.worker.on_lost = lambda: self._said.put_nowait(Lost())
        self.worker.on_suspects = self._suspects
        try:
            await self.worker.run()
        except StoreError:
            if not self.worker.draining:
                self._exit(1)
                return
        self._table.end_cleanly()
        self._exit(0)

    def _exit(self, code: int) -> None:
        self.process.exit_code = code
        self.process.kill()

    async def _open(self) -> Broker:
        return self._world.connect(self.process)

    async def _obey(self, worker: Worker, broker: Broker) -> None:
        self._said.put_nowait(Ready())
        while (message := await self._inbox.get()) is not None:
            match message:
                case Go():
                    worker.go.set()
                case Cancel():
                    for job, fence in message.leases:
                        worker.cancel(job, fence)
                case Drain():
                    worker.go.set()
                    worker.drain(message.grace)
                case Reread():
                    worker.reread()
                case Begin():
                    pass
        await self._orphaned(worker, broker)

    async def _orphaned(self, worker: Worker, broker: Broker) -> None:
        """As `windlass.worker.child` does it."""
        assert self._table is not None
        assert self._begin is not None
        worker.lost()
        await worker.settled(LAST_WORDS / 2)
        started = [(entry.job, entry.fence) for entry in self._table.started()]
        cause = Cause(CauseKind.CRASH, "the supervisor died")
        try:
            async with asyncio.timeout(LAST_WORDS):
                while (await broker.end_session(self._begin.session, cause, started)).more:
                    pass
                self._table.remove()
        except (StoreError, TimeoutError):
            pass
        self._exit(ORPHANED)

    def _suspects(self, waiting: int) -> None:
        now = self._world.pace.now()
        if now - self._suspects_told > 1.0:
            self._suspects_told = now
            self._said.put_nowait(Suspects(waiting))


class Machine:
    """A host, and the supervisor that it keeps."""

    _numbers = itertools.count()

    def __init__(
        self, world: World, name: str, *, processes: int, slots: int, queues: tuple[str, ...]
    ) -> None:
        self.name = name
        self.boot = f"boot-{name}-1"
        self.pid_namespace = "pid:[1]"
        self.pids: dict[int, int] = {}
        self.children: list[SimChild] = []
        self.supervisor: Supervisor | None = None
        self.process: SimProcess | None = None
        self.exited: Callable[[], None] = lambda: None
        self._world = world
        self._boots = 1
        self._next_pid = 100
        self._started = 0
        self._wanted = False
        """Somebody wants it to run again when it has stopped."""
        self._plan = Plan(
            app="simulated:app",
            name="simulated",
            groups=(Group(slots=slots, queues=queues),),
            processes=processes,
            grace=1.0,
        )

    # --- a host for supervisors -----------------------------------------------------------------------------

    def process_started(self, pid: int) -> int | None:
        """When a process was started; None: it is gone."""
        return self.pids.get(pid)

    def is_stopped(self, pid: int) -> bool:
        """Whether a child is frozen."""
        return any(child.process.frozen for child in self.children if child.pid == pid)

    def memory(self, pid: int) -> int:
        """Nobody looks."""
        return pid * 0

    def oom_kills(self) -> int:
        """Nobody runs out of memory."""
        return 0

    # --- processes ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the supervisor."""
        world = self._world
        self._started += 1
        self._wanted = False
        process = world.process(f"{self.name}-supervisor-{self._started}", "supervisor")
        self._register(process)
        process.on_death.append(lambda: self._ended(process))
        self.process = process
        begin(process, lambda: self._supervise(process))

    def _ended(self, process: SimProcess) -> None:
        self.pids.pop(process.pid, None)
        self._world.harness.write(history.Process(name=process.name, action="ended", pid=process.pid))

    async def _supervise(self, process: SimProcess) -> None:
        world, broker = self._world, self._world.connect(process)
        firing = Firing(broker, world.new_id)
        plan = msgspec.structs.replace(self._plan, supervisor=f"{process.pid}:{self.pids[process.pid]}")
        self.supervisor = Supervisor(
            plan,
            broker=broker,
            spawner=self,
            pace=world.pace,
            host=self,
            config=world.app.config,
            pruning=Pruning(broker, world.app, world.pace),
            place=lambda session: world.folder / f"windlass-{session}",
            fire=firing.due,
        )
        await self.supervisor.run()
        process.kill()
        if self._wanted:
            self.start()
        self.exited()

    async def spawn(self) -> SimChild:
        """Start a child, as the supervisor asks for it."""
        world = self._world
        process = world.process(f"{self.name}-worker-{self._started}-{len(self.children) + 1}", "worker")
        self._register(process)
        child = SimChild(world, process, self)
        self.children.append(child)
        begin(process, child.main)
        return child

    def _register(self, process: SimProcess) -> None:
        self._next_pid += 1
        process.pid = self._next_pid
        self.pids[process.pid] = round(self._world.pace.now() * SECOND)

    def start_again(self) -> None:
        """Start the supervisor if it is dead, or as soon as it has stopped."""
        if self.process is None or self.process.dead:
            self.start()
        else:
            self._wanted = True

    # --- what befalls it ------------------------------------------------------------------------------------

    @property
    def alive(self) -> list[SimChild]:
        """Its children that are not dead."""
        return [child for child in self.children if not child.process.dead]

    def kill_supervisor(self) -> None:
        """Its children learn of it by their sockets."""
        if self.process is not None and not self.process.dead:
            self.process.kill()
            for child in self.alive:
                child.orphan()

    def lose_power(self) -> None:
        """Everything dies at once, and comes back under another boot id: nobody saw what had started."""
        if self.process is not None:
            self.process.kill()
        for child in self.alive:
            child.process.kill()
        self._boots += 1
        self.boot = f"boot-{self.name}-{self._boots}"

    def freeze(self) -> list[SimProcess]:
        """Stop the whole tree; returns what stands still."""
        frozen = [child.process for child in self.alive]
        if self.process is not None and not self.process.dead:
            frozen.append(self.process)
        for process in frozen:
            process.frozen = True
        return frozen

    def stop(self) -> None:
        """SIGTERM."""
        self._wanted = False
        if self.supervisor is not None and self.process is not None and self.process.runs:
            supervisor: Any = self.supervisor
            begin(self.process, lambda: _call(supervisor.stop))


async def _call(what: Callable[[], None]) -> None:
    what()

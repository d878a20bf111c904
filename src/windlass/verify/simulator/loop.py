"""One event loop for many simulated processes: virtual time, and processes that can be frozen or killed.

Every callback belongs to the process in whose context it was scheduled. A frozen process keeps its callbacks
until it goes on, as SIGSTOP does; a killed one keeps them for good, so that not even a `finally` of it runs.
Time moves only when there is nothing left to do, to the next timer: a run is a function of its seed.
"""

# A loop's turn is made of the insides of asyncio's.
# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import asyncio
import heapq
import signal
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any, TypeVar, cast

from windlass.core.units import SECOND, Micros
from windlass.verify.history import Journal

T = TypeVar("T")

START = 1_000.0
EPOCH: Micros = 1_800_000_000 * SECOND
"""What the store's clock shows at time 0."""
SLACK = 1e-9
"""A timer fires a little late, as real ones do: `now + (then - now)` may be less than `then`."""
ROUNDS = 200
"""Turns that are given to what ends when a run is over."""


class SimProcess:
    """A simulated process: a name, a history, and the callbacks that it has not got round to."""

    def __init__(self, name: str, pid: int = 0) -> None:
        self.name = name
        self.pid = pid
        self.frozen = False
        self.dead = False
        self.journal: Journal | None = None
        self.session = ""
        self.exit_code = -int(signal.SIGKILL)
        """What its parent is told when it is killed."""
        self.ran: dict[str, int] = {}
        """How often each job has run, in all processes: shared."""
        self.held: deque[asyncio.Handle] = deque()
        self.on_death: list[Callable[[], None]] = []

    @property
    def runs(self) -> bool:
        """Whether its callbacks are called."""
        return not (self.frozen or self.dead)

    def kill(self) -> None:
        """End it between two instructions."""
        if not self.dead:
            self.dead = True
            for told in self.on_death:
                told()


HERE: ContextVar[SimProcess | None] = ContextVar("windlass_simulated_process", default=None)
"""The process whose code runs. None: the network, the store, the harness."""


class SimLoop(asyncio.SelectorEventLoop):
    """A loop whose time is virtual, and which knows processes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.slow_callback_duration = 1e9
        self.outside = Context()
        """The context of code that belongs to no process."""
        self._every_task: list[asyncio.Task[Any]] = []
        self.set_task_factory(self._made)

    def time(self) -> float:
        """Virtual seconds."""
        return self.now

    def _made(self, loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **more)
        self._every_task.append(task)
        if len(self._every_task) > 5_000:
            self._every_task = [each for each in self._every_task if not each.done()]
        return task

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Without the wake of a selector: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def go_on(self, process: SimProcess) -> None:
        """Let a frozen process go on, with everything that came due meanwhile."""
        process.frozen = False
        if not process.dead:
            ready = cast("deque[asyncio.Handle]", self._ready)  # type: ignore[attr-defined]
            ready.extend(process.held)
            process.held.clear()

    def _run_once(self) -> None:
        """One turn. Replaces that of the base class, which asks a selector for what is never there."""
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        if not ready and scheduled:
            self.now = max(self.now, scheduled[0].when() + SLACK)
        while scheduled and scheduled[0].when() <= self.now:
            timer = heapq.heappop(scheduled)
            timer._scheduled = False  # type: ignore[attr-defined]
            if not timer.cancelled():
                ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle.cancelled():
                continue
            process = handle._context.get(HERE)  # type: ignore[attr-defined]
            if process is None or process.runs:
                handle._run()
            else:
                process.held.append(handle)

    def end(self, processes: list[SimProcess]) -> None:
        """Let everything end that is left: mute, since nobody hears it, and cancelled until it obeys."""
        for process in processes:
            process.dead = process.frozen = False
            self.go_on(process)
        for _ in range(ROUNDS):
            left = [task for task in self._every_task if not task.done()]
            if not left:
                break
            for task in left:
                task.cancel()
            self.call_soon(self.stop, context=self.outside)
            self.run_forever()
        for task in self._every_task:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            if task.done() and not task.cancelled():
                task.exception()
        self.close()


def inside(process: SimProcess | None, call: Callable[[], T]) -> T:
    """Call something as a process: what it schedules belongs to that process."""
    context = Context()
    context.run(HERE.set, process)
    return context.run(call)


def begin(process: SimProcess, work: Callable[[], Coroutine[Any, Any, T]]) -> "asyncio.Task[T]":
    """Start a task in a process."""
    return inside(process, lambda: asyncio.ensure_future(work()))


class SimPace:
    """The loop's time for the parts of a worker; chance from the seed."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw

    def now(self) -> float:
        """Virtual seconds."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def jitter(self) -> float:
        """From [0, 1)."""
        return self._draw()


class StoreClock:
    """The store's clock: the loop's time."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def now(self) -> Micros:
        """Microseconds since the epoch."""
        return EPOCH + round(self._loop.now * SECOND)

"""A worker on virtual time: one loop, the model as its store, no threads, no waiting."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from windlass import Call, Windlass
from windlass.broker.contract import Broker
from windlass.broker.memory import MemoryBroker
from windlass.core.job import JobDetail
from windlass.core.session import Beat, SessionInfo
from windlass.worker.options import Group
from windlass.worker.table import Table
from windlass.worker.worker import Worker, rows_for

T = TypeVar("T")
TIMER_SLACK = 1e-9


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time moves only when there is nothing left to do."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0
        self.slow_callback_duration = 1e9

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.now = max(self.now, self._scheduled[0].when() + TIMER_SLACK)  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on virtual time."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


class VirtualPace:
    """The loop's time; chance is always a half."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def jitter(self) -> float:
        return 0.5


class Stalled:
    """Keeps the loop of a worker from hearing other threads, as a task does that blocks it. Loop and fetcher
    share a loop here, so it cannot be blocked in earnest.
    """

    def __init__(self, worker: Worker) -> None:
        self._tasks: Any = worker._parts.dispatcher.loop
        self._real = self._tasks.loop
        self._calls: list[Callable[[], Any]] = []
        self._tasks.loop = self

    def call_soon_threadsafe(self, call: Callable[..., Any], *args: Any, context: Any = None) -> None:
        self._calls.append(lambda: call(*args))

    def go_on(self) -> None:
        """The loop comes to what it was told meanwhile."""
        self._tasks.loop = self._real
        for call in self._calls:
            self._real.call_soon(call)


class LoopClock:
    """The store's clock, moved by the loop."""

    def now(self) -> int:
        return 1_800_000_000_000_000 + round(asyncio.get_running_loop().time() * 1e6)


class Bench:
    """A store, an app, and workers for them."""

    def __init__(self, app: Windlass, folder: Path) -> None:
        self.app = app
        self.broker = MemoryBroker(clock=LoopClock())
        self.pace = VirtualPace()
        self._folder = folder
        self._workers = 0

    async def enqueue(self, *calls: Call[Any]) -> list[str]:
        await self.app.declare(self.broker)
        for call in calls:
            await self.broker.enqueue([[call.job]])
        return [call.job.id for call in calls]

    async def job(self, job_id: str) -> JobDetail:
        detail = (await self.broker.get([job_id]))[0]
        assert detail is not None
        return detail

    async def ended(self, *job_ids: str, within: float = 3_600) -> list[JobDetail]:
        """Wait until all of them are done, dead or cancelled."""
        end = self.pace.now() + within
        for job_id in reversed(job_ids):  # the last to end is probably the last
            while (detail := await self.job(job_id)).state not in ("done", "dead", "cancelled"):
                assert self.pace.now() < end, (detail.task, detail.state)
                await asyncio.sleep(0.1)
        return [await self.job(job_id) for job_id in job_ids]

    async def seen(self, condition: Callable[[], bool], within: float = 3_600) -> None:
        end = self.pace.now() + within
        while not condition():
            assert self.pace.now() < end, "it did not come about"
            await asyncio.sleep(0.001)

    @contextlib.asynccontextmanager
    async def worker(
        self,
        *,
        groups: Sequence[Group] | None = None,
        slots: int = 4,
        broker: Broker | None = None,
        alone: bool = False,
        alive_for: float = 1e9,
        grace: float = 30.0,
        rows: int | None = None,
        on_jobs: Callable[[int], None] | None = None,
    ) -> AsyncIterator[Worker]:
        """`rows`: how many leases it may hold; by default as many as it could ever need."""
        self._workers += 1
        session = f"session-{self._workers}"
        await self.app.declare(self.broker)
        groups = groups or [Group(slots=slots, queues=self.app.queues)]
        table = Table.create(self._folder / f"table-{self._workers}", rows or rows_for(groups))
        await self.broker.beat([Beat(session=session, open=SessionInfo(ttl=10**12))])
        table.heartbeat_answered(self.pace.now(), alive_for)
        store = broker or self.broker

        async def opened() -> Broker:
            return store

        async def beside(worker: Worker, _broker: Broker) -> None:
            worker.go.set()
            await asyncio.Event().wait()

        async def at_end(_broker: Broker) -> None: ...

        worker = Worker(
            self.app,
            session,
            groups,
            table,
            self.pace,
            open_broker=opened,
            beside=beside,
            at_end=at_end,
            alone=alone,
            apart=False,
        )
        if on_jobs is not None:
            worker.on_jobs = on_jobs
        serving = asyncio.create_task(worker.run())
        await self.seen(worker.go.is_set)
        try:
            yield worker
        finally:
            worker.drain(grace)
            await serving
            table.remove()

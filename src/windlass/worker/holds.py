"""Holds: jobs that some worker could not run wait until one that can frees them.

In a rolling deploy old and new workers claim from the same queues. An old one holds what it cannot run, for a
time that doubles with every hold; so a job that is always found by old workers would wait for minutes beside
an idle worker that knows it. So a
worker that knows a task frees its jobs: when its first child begins to claim (no earlier, or the old workers
would find them again), and every few seconds while there are held jobs that this code could run. Jobs that
this code cannot read either are left alone, so that workers do not free and hold them in turns.
"""

import asyncio
import logging
from collections.abc import Sequence

from windlass.broker.contract import Broker
from windlass.core.bounds import CALL_ITEMS
from windlass.core.query import FIRST_PAGE, JobQuery
from windlass.core.state import State
from windlass.core.units import Cursor
from windlass.errors import StoreError
from windlass.pace import Pace
from windlass.worker.program import Program, Registered

_log = logging.getLogger("windlass.worker")

PAUSES = (1.0, 2.0, *(5.0 for _ in range(24)), 10.0, 20.0, 30.0)
"""Seconds between passes: a deploy takes minutes. The last one stays, until something was freed."""
AGAIN = 2
"""Where the pauses begin anew then."""
AT_ONCE = 50
"""Keys that are asked for together: stores that commit in groups pay once."""
ROWS = 100
"""Waiting jobs of a task that one pass looks at; the next goes on behind them."""
SAMPLE = 10
"""Held jobs whose payload is read, to see whether this code can."""


VALUES_KEY = "values"
"""The key of jobs that are held because object storage, where their payloads are, is away."""


def hold_key(task: str) -> str:
    """The key of jobs that are held because a worker does not know their task or cannot read it."""
    return f"task:{task}"


def process_key(task: str) -> str:
    """The key of jobs of `run="process"` that are held because no process begins, as when the lifespan cannot
    be entered. The worker that held them frees them when a process has begun. `Holds` frees them only once,
    when its worker starts: they would be held again at once.
    """
    return f"process:{task}"


class Holds:
    """Frees what is held for the tasks of a program."""

    def __init__(self, broker: Broker, pace: Pace, tasks: Sequence[Registered]) -> None:
        self._broker = broker
        self._pace = pace
        self._tasks = tasks
        self._cursors: dict[str, Cursor] = {}

    async def run(self) -> None:
        """Free all, and from then on what can be run here."""
        passes = 0
        pass_ = self.free_all
        while True:
            try:
                freed = await pass_()
                pass_ = self.free_runnable
                passes = min(passes, AGAIN) if freed else passes
            except StoreError as error:
                _log.debug("held jobs could not be looked at: %s", error)
            await self._pace.sleep(PAUSES[min(passes, len(PAUSES) - 1)] * (0.75 + self._pace.jitter() / 2))
            passes += 1

    async def free_all(self) -> int:
        """Free all jobs that are held for these tasks. Returns how many."""
        return await free(self._broker, self._tasks)

    async def free_runnable(self) -> int:
        """Free the held jobs of each task that this code can run. Returns how many."""
        counts = await self._broker.counts()
        waiting = {row.task for row in counts.rows if row.state is State.SCHEDULED and row.count}
        tasks = [task for task in self._tasks if task.name in waiting]
        runnable = [hold_key(task.name) for task in tasks if await self._could_run_one(task)]
        return await _free_under(self._broker, runnable)

    async def _could_run_one(self, task: Registered) -> bool:
        query = JobQuery(task=task.name, states=frozenset((State.SCHEDULED,)))
        page = await self._broker.list(query, self._cursors.get(task.name, FIRST_PAGE), ROWS)
        self._cursors[task.name] = page.cursor or FIRST_PAGE
        key = hold_key(task.name)
        held = [job.id for job in page.jobs if job.held is not None and job.held.key == key][:SAMPLE]
        details = await self._broker.get(held) if held else ()
        return any(detail is not None and _readable(task, detail.payload) for detail in details)


async def free(broker: Broker, tasks: Sequence[Registered]) -> int:
    """Make the held jobs of these tasks ready, when their worker starts. Returns how many."""
    freed = await _free_under(broker, [hold_key(task.name) for task in tasks])
    return freed + await free_waiting_for_process(broker, tasks)


async def _free_under(broker: Broker, keys: Sequence[str]) -> int:
    """Make the jobs ready that are held under these keys. Returns how many."""
    freed = 0
    for at in range(0, len(keys), AT_ONCE):
        some = keys[at : at + AT_ONCE]
        freed += sum(await asyncio.gather(*(unhold(broker, key) for key in some)))
    return freed


async def free_waiting_for_process(broker: Broker, tasks: Sequence[Registered]) -> int:
    """Make the jobs of these tasks ready that were held because no process began. Returns how many."""
    return await _free_under(
        broker, [process_key(task.name) for task in tasks if task.options.run == "process"]
    )


def own_tasks(program: Program) -> list[Registered]:
    """The tasks that a program can run: not those that live elsewhere."""
    return list(program.runnable.values())


def _readable(task: Registered, payload: bytes) -> bool:
    try:
        task.signature.decode(payload)
    except Exception:  # noqa: BLE001 - types of the app may run code of their own, which may raise anything
        return False
    return True


async def unhold(broker: Broker, key: str) -> int:
    """Make all jobs ready that are held under a key. Returns how many."""
    freed = 0
    while True:
        step = await broker.unhold(key, CALL_ITEMS)
        freed += step.count
        if not step.more:
            break
    if freed:
        _log.info("%d jobs that were held under %s can run now", freed, key)
    return freed

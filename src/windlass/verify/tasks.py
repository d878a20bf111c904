"""The app that runs under test. Each task writes into its process's history when it starts, when it has an
effect and when it ends, and returns its fence, so that a result names the run it is from.
"""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

from windlass import GiveUp, RetryPolicy, Snooze, Windlass, current
from windlass.core.units import SECOND
from windlass.errors import LeaseLost
from windlass.verify import history
from windlass.verify.ground import FOLDER, FOREIGN, HOST, SESSION_TTL, history_folder, sign
from windlass.verify.history import Journal
from windlass.verify.http_part import SERVER
from windlass.verify.recording import record, wait_outside
from windlass.verify.served import Served
from windlass.verify.simulator.recorded import Recorded

LIMITED, RATED, BURST = 12, 50, 5
"""Jobs of the queue `limited` at once; claims a second of the queue `rated`, and at once."""
APART = 2
LANE = 6
"""Jobs of one lane of the queue `lanes` at once."""
LANES = 12
ROWS = 6
LIMITS = (
    history.Limits(queue="limited", concurrency=LIMITED),
    history.Limits(queue="rated", rate=float(RATED), burst=BURST),
    history.Limits(queue="apart", concurrency=APART),
    history.Limits(queue="lanes", lane_concurrency=LANE),
    history.Limits(queue="row", lane_concurrency=1, sequence=True),
)
"""What the checker is told of the queues."""
SCHEDULE, EVERY = "often", 2
"""The schedule of a run, and the seconds between its ticks."""
RULES = (history.Rule(schedule=SCHEDULE, every=EVERY * SECOND, catch_up="all"),)
"""What the checker is told of the schedules."""

app = Windlass(name="verify")
_KEPT = 10_000_000
"""Finished jobs of a queue: all of them are read in the end, on every store."""
app.queue("default", retention_count=_KEPT)
app.queue("lanes", lane_concurrency=LANE, retention_count=_KEPT)
app.queue("limited", concurrency=LIMITED, retention_count=_KEPT)
app.queue("rated", rate=f"{RATED}/s", retention_count=_KEPT)
app.queue("row", sequence=True, retention_count=_KEPT)
# A process per job at once: without a limit thirty interpreters would start together after each kill.
app.queue("apart", concurrency=APART, retention_count=_KEPT)
app.queue(FOREIGN, retention_count=_KEPT)
foreign = app.external(FOREIGN, queue=FOREIGN, max_attempts=50)

# Many attempts: a job whose workers are killed again and again is to be done in the end.
_STEADY = RetryPolicy(max_attempts=50, base=0.05, cap=0.5)
_FEW = RetryPolicy(max_attempts=3, base=0.05, cap=0.2)


@cache
def journal() -> Journal:
    """The history of this process."""
    name = f"worker-{os.environ.get(HOST, 'x')}-{os.getpid()}-{time.monotonic_ns()}"
    return Journal.open(history_folder(), role="worker", name=name)


_opening = threading.Lock()


def _journal() -> Journal:
    with _opening:  # `cache` lets two threads open it at once
        return journal()


if FOLDER in os.environ:
    wait_outside(sign(history_folder().parent))
if HOST in os.environ:  # a worker's process; producers write down their calls themselves
    record(_journal, Served if os.environ[HOST] == SERVER else Recorded)


@contextmanager
def recorded() -> Generator[None]:
    """The run that a task is in."""
    job, fence, to = current.job, current.fence, _journal()
    to.write(
        history.Start(
            job=job.id,
            fence=fence,
            attempt=current.attempt,
            task=job.task,
            queue=job.queue,
            lane=job.lane,
        )
    )
    try:
        yield
        # What a task is for happens at its end, so that a kill falls before it or after it.
        to.write(history.Effect(job=job.id, fence=fence))
    except Snooze:
        to.write(history.End(job=job.id, fence=fence, how="snoozed"))
        raise
    except asyncio.CancelledError:
        to.write(history.End(job=job.id, fence=fence, how="stopped"))
        raise
    except LeaseLost:
        to.write(history.End(job=job.id, fence=fence, how="lease_lost"))
        raise
    except BaseException:
        to.write(history.End(job=job.id, fence=fence, how="error"))
        raise
    to.write(history.End(job=job.id, fence=fence, how="ok"))


@app.task(run="inline", retry=_STEADY)
def plain() -> int:
    """Do next to nothing."""
    with recorded():
        return current.fence


@app.task(retry=_STEADY)
def threaded(seconds: float) -> int:
    """Run in a thread."""
    with recorded():
        time.sleep(seconds)
        return current.fence


@app.task(retry=_STEADY)
async def looped(seconds: float) -> int:
    """Run in the loop."""
    with recorded():
        await asyncio.sleep(seconds)
        return current.fence


@app.task(queue="lanes", retry=_STEADY)
async def laned() -> int:
    """One of a tenant's."""
    with recorded():
        await asyncio.sleep(0.002)
        return current.fence


@app.task(queue="limited", retry=_STEADY)
async def limited() -> int:
    """Few at once."""
    with recorded():
        await asyncio.sleep(0.002)
        return current.fence


@app.task(queue="rated", run="inline", retry=_STEADY)
def rated() -> int:
    """So many a second."""
    with recorded():
        return current.fence


@app.task(queue="row", run="inline", retry=_STEADY)
def in_row() -> int:
    """In the order of enqueue."""
    with recorded():
        return current.fence


@app.task(queue="apart", run="process", retry=_STEADY)
def apart(seconds: float) -> int:
    """Run in a process of its own."""
    with recorded():
        time.sleep(seconds)
        return current.fence


@app.task(retry=RetryPolicy(max_attempts=50, base=0.02, cap=0.2))
def flaky(failures: int) -> int:
    """Fail in the first attempts."""
    with recorded():
        if current.attempt <= failures:
            raise ConnectionError("the other side does not answer")
        return current.fence


@app.task(retry=_FEW)
def broken() -> int:
    """Fail each time: a dead letter."""
    with recorded():
        raise ValueError("this never works")


@app.task(retry=_FEW)
def hopeless() -> int:
    """Say that trying again is no use: a dead letter."""
    with recorded():
        raise GiveUp("no such customer")


@app.task(retry=_STEADY)
def sleepy(seconds: float) -> int:
    """Snooze, once on average."""
    with recorded():
        if current.fence % 2:  # a coin, new with each run: a snooze spends no attempt
            raise Snooze(seconds)
        return current.fence


@app.task(retry=_STEADY)
def parent(children: int) -> int:
    """Make children, which exist exactly if this run counts."""
    with recorded():
        for _ in range(children):
            current.spawn(plain.call())
        return current.fence


@app.task(retry=_STEADY)
def join() -> int:
    """Read what the jobs returned that this one waited for."""
    with recorded():
        job = current.job
        read = tuple((parent.id, parent.result) for parent in current.parents())
        _journal().write(history.Gathered(job=job.id, fence=current.fence, parents=read))
        return current.fence


@app.task(retry=_STEADY)
async def long(seconds: float) -> int:
    """Run for longer than most faults are apart; says how far it is."""
    with recorded():
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            current.progress(max(0.0, min(1.0, 1 - left / seconds)))
            await asyncio.sleep(min(left, 0.5))
        return current.fence


@app.task(retry=_STEADY)
async def rude() -> int:
    """Block the loop for longer than a session may be silent."""
    with recorded():
        time.sleep(SESSION_TTL + 1)  # noqa: ASYNC251 - the point
        return current.fence


@app.task(retry=_FEW)
def poison() -> int:
    """Kill the process each time: a dead letter, with its cause."""
    with recorded():
        os.kill(os.getpid(), signal.SIGKILL)
        return current.fence


# No tick is to be missed, however long the store or all workers are away.
app.schedule(SCHEDULE, plain.call(), every=EVERY, catch_up="all", cap=1_000)

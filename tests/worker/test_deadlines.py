"""One timer for the timeouts of all runs of a loop."""

import asyncio
import contextvars
from typing import Any

from tests.worker.leases import a_lease
from tests.worker.virtual import run as run_virtually

from windlass.worker.deadlines import Deadlines
from windlass.worker.run import Run


def a_run() -> Run:
    nothing: Any = None
    return Run(
        lease=a_lease(),
        started=0.0,
        deadline=None,
        reporter=nothing,
        is_lost=lambda: False,
        program=nothing,
    )


def test_each_run_is_cancelled_at_its_own_deadline_and_one_that_ended_is_not() -> None:
    async def main() -> tuple[dict[str, float], list[bool]]:
        loop = asyncio.get_running_loop()
        start, ended = loop.time(), dict[str, float]()
        deadlines = Deadlines(loop, contextvars.copy_context())

        async def work(name: str) -> None:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                ended[name] = round(loop.time() - start, 3)

        # The second is due before the first, so that the timer is moved; the third is forgotten in between.
        runs, tasks = [a_run() for _ in range(4)], list[asyncio.Task[None]]()
        for name, run, after in zip("abcd", runs, (5.0, 2.0, 3.0, 8.0), strict=True):
            tasks.append(asyncio.create_task(work(name)))
            deadlines.watch(run, start + after, tasks[-1])
        await asyncio.sleep(2.5)
        deadlines.forget(runs[2])
        await asyncio.gather(tasks[0], tasks[1], tasks[3])
        assert not tasks[2].done()
        seen = dict(ended)
        tasks[2].cancel()
        await tasks[2]
        return seen, [run.timed_out for run in runs]

    ended, timed_out = run_virtually(main())
    assert ended == {"a": 5.0, "b": 2.0, "d": 8.0}
    assert timed_out == [True, True, False, True]

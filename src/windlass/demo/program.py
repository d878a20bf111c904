"""The demo from its first line to its exit code."""

import asyncio
import os
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from windlass import Call
from windlass.broker.contract import Broker
from windlass.core.job import JobDetail
from windlass.core.units import JobId
from windlass.demo.account import Account, draw_up
from windlass.demo.fleet import Fleet
from windlass.demo.ledger import FOLDER, read_ledger

LONGEST = 60.0
"""Seconds after which the demo stops waiting, and says what is left."""
EVERY = 0.2
INTERRUPTED = 130


def demonstrate() -> int:
    """Run the demo; 0: the account closes. 1: it does not. 130: interrupted."""
    to = Console(highlight=False, soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="windlass-demo-", ignore_cleanup_errors=True) as name:
        os.environ[FOLDER] = name  # before the app is imported: it reads where its store is
        try:
            return asyncio.run(_demonstrate(Path(name), to))
        except KeyboardInterrupt:
            to.print("\nInterrupted: the workers have ended, and the folder is gone.", markup=False)
            return INTERRUPTED
        finally:
            os.environ.pop(FOLDER, None)


async def _demonstrate(folder: Path, to: Console) -> int:
    from windlass.demo import tasks  # noqa: PLC0415 - see `demonstrate`

    begun = time.monotonic()
    try:
        accepted = await _open(to)
        broker = await tasks.app.connection.broker()
        fleet = Fleet(folder)
        try:
            served = await _follow(broker, fleet, to, begun, accepted)
        finally:
            await asyncio.shield(asyncio.to_thread(fleet.stop))
        if not served:
            to.print("The workers ended before their time. They said:\n" + fleet.everything(), markup=False)
        jobs = await _all(broker, accepted)
    finally:
        await tasks.app.aclose()
    return _conclude(to, folder, accepted, jobs, time.monotonic() - begun)


async def _open(to: Console) -> list[JobId]:
    """Say what this is, and enqueue the many."""
    from windlass.demo import tasks  # noqa: PLC0415
    from windlass.demo.jobs import JOBS, OPENING  # noqa: PLC0415

    to.print(_WELCOME.format(jobs=JOBS, ttl=tasks.SESSION_TTL, blocked=tasks.BLOCKED), markup=False)
    await tasks.app.connection.broker()
    begun = time.monotonic()
    accepted = await _enqueue(OPENING.calls())
    length = 1_000 * (time.monotonic() - begun)
    to.print(
        f"{len(accepted)} jobs accepted in {length:.0f} ms, and on disk. Starting two worker processes.\n",
        markup=False,
    )
    return accepted


async def _enqueue(calls: Iterable[Call[Any]]) -> list[JobId]:
    from windlass.demo import tasks  # noqa: PLC0415

    return [job.id for job in await tasks.app.aenqueue_many(calls)]


async def _follow(broker: Broker, fleet: Fleet, to: Console, begun: float, accepted: list[JobId]) -> bool:
    """Show how things go until every job has finished; False: the workers are gone before that."""
    from windlass.demo.jobs import LATER  # noqa: PLC0415
    from windlass.demo.screen import screen  # noqa: PLC0415
    from windlass.demo.watch import Watch  # noqa: PLC0415

    watch, coming, due_at = Watch(broker, fleet), list(LATER), LONGEST
    with screen(to) as shown:
        while (seconds := time.monotonic() - begun) < LONGEST:
            look, news = await watch.look(seconds)
            if coming and coming[0].is_due(look):
                due_at = min(due_at, seconds + coming[0].pause)
            if coming and due_at <= seconds:
                act, due_at = coming.pop(0), LONGEST
                accepted += await _enqueue(act.calls())
                news.append(act.about)
            shown.show(look, news)
            if not coming and look.finished >= len(accepted):
                return True
            if not fleet.is_running:
                return False
            await asyncio.sleep(EVERY)
    return True


async def _all(broker: Broker, ids: Sequence[JobId]) -> list[JobDetail | None]:
    found: list[JobDetail | None] = []
    for start in range(0, len(ids), 1_000):
        found += await broker.get(ids[start : start + 1_000])
    return found


def _conclude(
    to: Console, folder: Path, accepted: Sequence[JobId], jobs: Sequence[JobDetail | None], seconds: float
) -> int:
    from windlass.demo.findings import findings  # noqa: PLC0415

    ledger = read_ledger(folder)
    account = draw_up(accepted, jobs, ledger)
    to.print("\n" + _account(account), markup=False)
    known = {job.id: job for job in jobs if job is not None}
    for sentence in findings(known, ledger):
        to.print(f"- {sentence}", markup=False)
    to.print(f"\n{_verdict(account)} ({seconds:.0f} s)", markup=False)
    return 0 if account.closes else 1


def _account(account: Account) -> str:
    total = " + ".join(f"{count} {state}" for state, count in account.states.items() if count)
    repeats = sorted(account.repeats.items(), key=lambda item: -item[1])
    lines = [
        "THE ACCOUNT",
        f"  {account.accepted} accepted = {total}",
        *(f"    {count:>3} dead letters of {why}" for why, count in sorted(account.dead.items())),
        f"  {account.runs} runs, {sum(account.repeats.values())} of them repeated later, each for a reason:",
        *(f"    {count:>3} {why}" for why, count in repeats),
        *(f"  NOT IN ORDER: {problem}" for problem in account.problems[:20]),
    ]
    return "\n".join(lines) + "\n"


def _verdict(account: Account) -> str:
    if account.closes:
        return "The account closes: nothing lost, nothing left over, no run without a reason."
    return f"THE ACCOUNT DOES NOT CLOSE: {len(account.problems)} problems, see above."


_WELCOME = """\
WINDLASS  a task queue that can account for every job

{jobs} jobs go into one SQLite file, and two worker processes run them. Some fail, one blocks its event loop,
two kill their worker with SIGKILL. In the end every accepted job must be done, or a dead letter with its
reason, and every repeated run must be explained. The tasks keep a ledger of their own, to check that against.

(To fit into 15 seconds, a worker that gives no sign of life is given up after {ttl} s here, not 30 s. One job
blocks its worker's loop for {blocked} s all the same.)
"""

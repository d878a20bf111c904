"""What the simulated workers run: one task that does as its call says, and writes down that it did."""

import asyncio
import hashlib
import signal
from typing import Any
from uuid import UUID

import msgspec

from windlass import GiveUp, RetryPolicy, Snooze, Windlass, current
from windlass.core.job import NewJob
from windlass.verify import history
from windlass.verify.simulator.loop import HERE
from windlass.worker.run import running

NAME = "simulated"


class Act(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one job does."""

    kind: str = "ok"
    """ok, fail, snooze, poison, spawn, give up"""
    seconds: float = 0.0
    times: int = 0
    """How many of its runs fail, snooze or kill their process; the others end well."""


class Unlucky(Exception):
    """What a job raises that is told to fail."""


def make_app(**settings: Any) -> Windlass:
    """The program. Made anew for each run: planted bugs may live in it."""
    app = Windlass("memory://", name=NAME, **settings)
    retry = RetryPolicy(max_attempts=5, base=0.3, cap=2.0)

    @app.task(name="work", queue="plain", retry=retry)
    async def work(act: Act) -> int:  # pyright: ignore[reportUnusedFunction] - registered by the decorator
        return await perform(act)

    return app


async def perform(act: Act) -> int:
    """One run, with its start and its end in the history of its process."""
    process = HERE.get()
    assert process is not None
    assert process.journal is not None
    run, journal = running.get(), process.journal
    lease = run.lease
    journal.write(
        history.Start(
            job=lease.job,
            fence=lease.fence,
            attempt=lease.attempt,
            session=process.session,
            task=lease.task,
            queue=lease.queue,
            lane=lease.lane,
        )
    )
    process.ran[lease.job] = process.ran.get(lease.job, 0) + 1
    how: Any = "error"
    try:
        await asyncio.sleep(act.seconds)
        if lease.parents:
            read = tuple([(parent.id, parent.result) async for parent in current.aparents()])
            journal.write(history.Gathered(job=lease.job, fence=lease.fence, parents=read))
        if act.seconds > 0.5:
            current.progress(0.5, "half")
        await _act(act, process.ran[lease.job])
        journal.write(history.Effect(job=lease.job, fence=lease.fence))
        how = "ok"
    except Snooze:
        how = "snoozed"
        raise
    except asyncio.CancelledError:
        how = "cancelled" if run.cancelled else "stopped"
        raise
    finally:
        journal.write(history.End(job=lease.job, fence=lease.fence, how=how))
    return current.fence


async def _act(act: Act, ran: int) -> None:
    process = HERE.get()
    assert process is not None
    if act.kind == "spawn":
        child = NewJob(id=_child_id(), task="work", queue="plain", payload=payload(Act()))
        running.get().spawn([child])
    elif ran > act.times:
        return
    elif act.kind == "fail":
        raise Unlucky
    elif act.kind == "snooze":
        raise Snooze(0.7)
    elif act.kind == "give up":
        raise GiveUp("told to")
    elif act.kind == "poison":
        process.exit_code = -signal.SIGSEGV
        process.kill()
        await asyncio.Event().wait()  # its process is dead: nothing of it goes on


def _child_id() -> str:
    """Another for each run: a child that a stale run made is not one that a later run made."""
    lease = running.get().lease
    digest = hashlib.sha256(f"{lease.job}/{lease.fence}".encode()).digest()
    return str(UUID(bytes=digest[:16], version=4))


def payload(act: Act) -> bytes:
    """The arguments of a call, as the client encodes them."""
    return msgspec.json.encode({"v": 1, "k": {"act": act}})

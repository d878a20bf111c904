"""Tasks whose runs hand their jobs to Celery workers: a run publishes a message of Celery's, and ends when
the message broker has taken it. docs/decisions/0031-tasks-of-celery.md.
"""

import asyncio
import contextlib
import contextvars
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from windlass.bridges.addresses import Address, open_sink
from windlass.bridges.celery import CeleryCall, write
from windlass.bridges.sink import Sink
from windlass.core.lease import Lease
from windlass.core.units import Micros
from windlass.errors import BridgeError, BridgeRefused
from windlass.signals import GiveUp, Retry
from windlass.worker.run import Run, running

_Opening: TypeAlias = "asyncio.Task[Sink]"

OURS = "windlass-"
"""Headers of a job that begin so are between the parts of Windlass."""

_open: dict[asyncio.AbstractEventLoop, dict[tuple[object, ...], _Opening]] = {}
"""One sink for each message broker and loop, for all tasks that publish there."""


class CeleryQueue(msgspec.Struct, frozen=True):
    """Where the messages of a task go."""

    address: Address
    task: str
    """Its name at Celery's."""
    to: str
    """The routing key: the name of the queue. Empty: the URL says it."""


def celery_queue(address: Address, task: str) -> CeleryQueue:
    """The queue that a URL names. Celery binds it to an exchange of the same name, with that name as key."""
    said = "key" in address.options or "list" in address.options or not address.path
    return CeleryQueue(address, task, "" if said else address.path[-1])


async def hand_over(queue: CeleryQueue, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Publish the running job as a message of Celery's, with the id of the job."""
    run = running.get()
    lease = run.lease
    call = CeleryCall(
        id=lease.job,
        task=queue.task,
        args=args,
        kwargs=kwargs,
        expires=await _expires(run),
        priority=lease.priority if lease.priority > 0 else None,
        headers={name: value for name, value in lease.headers.items() if not name.startswith(OURS)},
    )
    try:
        sink = await _sink_of(queue.address)
        await sink.publish([write(call, to=queue.to, key=lease.lane)])
    except BridgeError as error:
        if isinstance(error, BridgeRefused) and error.numbers:
            raise GiveUp(str(error)) from None
        # Without a traceback, of which each job that waits would log one. What was refused without numbers
        # is tried again, too: the message broker has to be changed first.
        raise Retry(str(error)) from None


async def close_sinks() -> None:
    """Let go of the message brokers that were opened on this loop: no task runs any more."""
    for opening in _open.pop(asyncio.get_running_loop(), {}).values():
        if not opening.done():
            opening.cancel()
        elif not opening.cancelled() and opening.exception() is None:
            with contextlib.suppress(BridgeError):
                await opening.result().close()


async def _sink_of(address: Address) -> Sink:
    loop = asyncio.get_running_loop()
    for other in [each for each in _open if each.is_closed()]:
        del _open[other]
    opened = _open.setdefault(loop, {})
    place = (*msgspec.structs.astuple(address)[:-1], *sorted(address.options.items()))
    opening = opened.get(place)
    if opening is None or (opening.done() and (opening.cancelled() or opening.exception() is not None)):
        # Not in the context of the job that happens to be the first.
        opening = opened[place] = loop.create_task(open_sink(address), context=contextvars.Context())
    # A job that is cancelled must not take the opening away from those who wait for it, too.
    return await asyncio.shield(opening)


async def _expires(run: Run) -> Micros | None:
    """When the job expires. The store says it with a first run; a later one may come after an outage of the
    message broker, and Celery is not to run it either.
    """
    lease: Lease = run.lease
    if lease.attempt > 1:
        (job,) = await (await run.program.broker()).get([lease.job])
        return None if job is None else job.expires_at
    return None if lease.expires_in is None else time.time_ns() // 1_000 + lease.expires_in

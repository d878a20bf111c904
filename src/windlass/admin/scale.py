"""How many workers are wanted, for autoscalers."""

from collections.abc import Collection

import msgspec

from windlass.admin.queues import Queues
from windlass.admin.reading import sessions
from windlass.admin.views import QueueShown
from windlass.broker.contract import Broker
from windlass.core.option import whole
from windlass.core.session import SessionState
from windlass.core.spelling import hint
from windlass.errors import InvalidOption

USUAL_SLOTS = 16
"""Of a worker process, where none is alive to ask: the default of `windlass worker`."""
MOST_WORKERS = 100_000


class QueueScale(msgspec.Struct, frozen=True, kw_only=True):
    """The load of one queue."""

    queue: str
    queued: int
    """Ready jobs."""
    running: int
    oldest: float
    """Seconds that its longest-waiting ready job has been due; 0 without one."""
    usable: int
    """Slots that it could fill now: what runs and what is ready, within its concurrency limit; a paused one
    only what runs.
    """
    paused: bool


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """The load of some queues, and the worker processes that it could keep busy."""

    queued: int
    running: int
    oldest: float
    workers: int
    """Worker processes alive that serve one of the queues."""
    slots: int
    """Of all of them."""
    wanted: int
    """Worker processes that would run all at once what can run now, within `least` and `most`."""
    queues: tuple[QueueScale, ...]


async def scale(
    broker: Broker,
    *,
    queues: Collection[str] = (),
    slots: int | None = None,
    least: int = 0,
    most: int = MOST_WORKERS,
) -> Scale:
    """The load of the named queues, or of all. `slots`: of one worker process; by default what those that are
    alive have on average.
    """
    whole(least, name="least", least=0, most=MOST_WORKERS)
    whole(most, name="most", least=least, most=MOST_WORKERS)
    if slots is not None:
        whole(slots, name="slots", least=1, most=MOST_WORKERS)
    shown = await Queues(broker).all()
    if unknown := sorted(set(queues) - {queue.name for queue in shown}):
        those = hint(unknown[0], [queue.name for queue in shown], "declared queues")
        raise InvalidOption(f'queue "{unknown[0]}" is not declared; {those}')
    chosen = [_scale(queue) for queue in shown if not queues or queue.name in queues]
    names = {queue.queue for queue in chosen}
    alive = [
        session.info
        async for session in sessions(broker)
        if session.state is SessionState.ALIVE and names.intersection(session.info.queues)
    ]
    offered = sum(info.slots for info in alive)
    each = slots or max(1, round(offered / len(alive)) if alive else USUAL_SLOTS)
    usable = sum(queue.usable for queue in chosen)
    return Scale(
        queued=sum(queue.queued for queue in chosen),
        running=sum(queue.running for queue in chosen),
        oldest=max((queue.oldest for queue in chosen), default=0.0),
        workers=len(alive),
        slots=offered,
        wanted=min(most, max(least, -(-usable // each))),
        queues=tuple(chosen),
    )


def _scale(queue: QueueShown) -> QueueScale:
    ready, running = queue.jobs["ready"], queue.jobs["running"]
    limit = queue.settings.get("concurrency")
    usable = running if queue.paused else running + ready
    return QueueScale(
        queue=queue.name,
        queued=ready,
        running=running,
        oldest=queue.oldest or 0.0,
        usable=usable if limit is None else min(usable, max(limit, running)),
        paused=queue.paused,
    )

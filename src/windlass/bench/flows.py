"""What an edge of a flow and a fire of a schedule cost a store: asked by one caller, without workers."""

import time
import uuid
from collections.abc import Sequence

from windlass.bench.tasks import NAMESPACE, app, noop
from windlass.broker.contract import Broker
from windlass.core.job import GROUP_JOBS, Edge, NewJob
from windlass.core.lease import Ask
from windlass.core.outcome import Outcome
from windlass.core.schedule import Every
from windlass.core.session import Beat, SessionInfo
from windlass.core.settlement import Settlement
from windlass.core.specification import Specification, encode_specification, template_of
from windlass.core.timetable import Fire, FireStatus, NewSchedule
from windlass.core.units import SECOND, JobId
from windlass.errors import WindlassError

QUEUE = "default"
SCHEDULE = "bench"
WIDTHS = (100, 10_000)
"""Children of one parent."""
JOIN = 1_000
"""Parents of one child."""
FIRES = 500


async def fan_out(children: int) -> float:
    """Edges a second, from the end of a parent until its last child is ready."""
    broker = await app.broker()
    parent = _job()
    await _enqueue(broker, [parent])
    await _enqueue(broker, [_job(parent.id) for _ in range(children)])
    (lease,) = await _Worker(broker).claimed(1)
    began = time.perf_counter()
    await broker.settle([lease])
    while (await broker.sweep(limit=1_000)).more:  # a settlement resolves a hundred, sweeps the rest
        pass
    return children / (time.perf_counter() - began)


async def fan_in(parents: int) -> float:
    """Edges a second, while the parents of one child end, a hundred at a time."""
    broker = await app.broker()
    before = [_job() for _ in range(parents)]
    await _enqueue(broker, before)
    await _enqueue(broker, [_job(*(parent.id for parent in before))])
    worker, spent, ended = _Worker(broker), 0.0, 0
    while ended < parents:
        leases = await worker.claimed(min(100, parents - ended))
        began = time.perf_counter()
        await broker.settle(leases)
        spent += time.perf_counter() - began
        ended += len(leases)
    return parents / spent


async def fires(count: int) -> list[float]:
    """Seconds that each fire of a schedule took, one job each."""
    broker = await app.broker()
    now = (await broker.schedules(limit=1)).now
    tick = now - now % SECOND - (count + 1) * SECOND
    rule = Every(SECOND)
    spec = Specification(rule=rule, call=template_of(_job()))
    await broker.declare_schedule(
        NewSchedule(name=SCHEDULE, spec=encode_specification(spec), next_at=tick, app=NAMESPACE)
    )
    version = next(each.version for each in (await broker.schedules()).schedules if each.name == SCHEDULE)
    times: list[float] = []
    for _ in range(count):
        fire = Fire(name=SCHEDULE, version=version, expect=tick, then=tick + SECOND, jobs=(_job(),))
        began = time.perf_counter()
        fired = await broker.fire(fire)
        times.append(time.perf_counter() - began)
        if fired.status is not FireStatus.FIRED:
            raise WindlassError(f"a schedule could not be fired: {fired.status}")
        tick += SECOND
    await broker.delete_schedule(SCHEDULE)
    return times


def _job(*parents: JobId) -> NewJob:
    call = noop.call("x")
    return NewJob(
        id=app.new_id(),
        task=call.job.task,
        queue=QUEUE,
        payload=call.job.payload,
        after=tuple(Edge(parent) for parent in parents),
    )


async def _enqueue(broker: Broker, jobs: Sequence[NewJob]) -> None:
    for start in range(0, len(jobs), GROUP_JOBS):
        await broker.enqueue([jobs[start : start + GROUP_JOBS]])


class _Worker:
    """A session of a measure's own: one that fell silent between two of them would be reaped."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._session = uuid.uuid4().hex
        self._asked = 0

    async def claimed(self, count: int) -> list[Settlement]:
        """So many jobs, as they are settled."""
        if not self._asked:
            info = SessionInfo(app=NAMESPACE, queues=(QUEUE,), slots=1_000)
            await self._broker.beat([Beat(session=self._session, open=info)])
        found: list[Settlement] = []
        while len(found) < count:
            self._asked += 1
            wanted = count - len(found)
            ask = Ask(session=self._session, seq=self._asked, queues=(QUEUE,), slots=wanted, limit=wanted)
            claimed = await self._broker.claim(ask)
            if not claimed.leases and not claimed.more:  # more: it has passed over what was purged
                raise WindlassError("the store handed nothing out; is it in use by others?")
            found += [
                Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE, runtime=1)
                for lease in claimed.leases
            ]
        return found

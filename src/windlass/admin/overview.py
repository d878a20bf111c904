"""The first page: everything at a glance, and what is wrong, in words."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from windlass.admin.advice import length
from windlass.admin.alerts import Alerts, AlertShown
from windlass.admin.flows import Flows
from windlass.admin.intakes import Intakes, IntakeShown
from windlass.admin.queues import Queues
from windlass.admin.reading import store_time, workers
from windlass.admin.relays import Relays, RelayShown
from windlass.admin.schedules import Schedules, ScheduleShown
from windlass.admin.strikes import Strikes, StrikeShown
from windlass.admin.views import QueueShown, moment
from windlass.broker.contract import Broker
from windlass.client.app import Windlass
from windlass.core.outcome import CauseKind
from windlass.core.query import LaneView, Parked
from windlass.core.session import SessionState, SessionView
from windlass.core.state import State
from windlass.core.units import MINUTE, SECOND
from windlass.version import __version__

OLD = float(MINUTE // SECOND)
"""Seconds that a ready job may wait before it is a problem."""
LATE = timedelta(minutes=1)
"""What a schedule may be late."""
LANES_READ = 200
"""Lanes of a queue in trouble that are looked at."""
LANES_NAMED = 3
FLOWS_NAMED = 3
QUEUES_EXAMINED = 20
"""Queues in trouble whose lanes are looked at: a glance has a price."""


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Something that an operator may want to look at."""

    kind: str
    """For programs: "old", "unserved", "paused", "dead", "limit", "flow", "strike", "worker", "schedule",
    "alert", "intake", "relay", "store".
    """
    level: Literal["problem", "warning", "note"]
    queue: str | None
    """Which it is about; None: not about one."""
    text: str
    do: str = ""
    """What to do about it; empty where the text says all."""


class WorkersGlance(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet."""

    alive: int
    slots: int
    busy: int
    """Leases that they hold."""
    crashed: int
    """Sessions that ended by a crash or were lost within the last hour."""


class SchedulesGlance(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules."""

    total: int
    paused: int
    next_at: datetime | None
    next_name: str | None


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """What a first page shows."""

    now: datetime
    """By the store's clock."""
    app: str
    namespace: str
    store: str
    durability: str
    version: str
    jobs: Mapping[str, int]
    """By state, in all queues; for done and cancelled how many ever got there."""
    queues: tuple[QueueShown, ...]
    workers: WorkersGlance
    schedules: SchedulesGlance
    alerts: tuple[AlertShown, ...]
    problems: tuple[Trouble, ...]
    """The worst first; empty: all is well."""


async def overview(app: Windlass, broker: Broker, sees: Callable[[str], bool] = lambda _: True) -> Overview:
    """Everything that concerns the queues that the reader sees. A reader who does not see all queues is told
    nothing of workers' troubles, of strikes and of the store.
    """
    every = await Queues(broker).all()
    queues = [queue for queue in every if sees(queue.name)]
    whole = len(queues) == len(every)
    fleet = [session async for session in workers(broker)]
    alive = [session for session in fleet if session.state is SessionState.ALIVE]
    serving = [session for session in alive if any(sees(queue) for queue in session.info.queues)]
    schedules = [each async for each in Schedules(app, broker).all() if sees(each.queue)]
    alerts = [
        alert
        async for alert in Alerts(app, broker).all()
        if (whole if alert.queue is None else sees(alert.queue))
    ]
    now = moment(await store_time(broker))
    problems = [problem async for problem in _of_queues(broker, queues, alive)]
    if not serving and not any(problem.kind == "unserved" for problem in problems):
        problems.append(_NO_WORKER)
    problems += _of_alerts(alerts)
    problems += _of_schedules(schedules, now)
    if whole:
        problems += _of_sessions(fleet)
        strikes = [strike async for strike in Strikes(app, broker).all()]
        problems += _of_strikes(strikes)
        problems += _of_intakes(await Intakes(app, broker).all())
        problems += _of_relays(await Relays(app, broker).all())
        problems += _of_flows(await Flows(app, broker).stuck_names())
        problems += [
            Trouble(kind="store", level="warning", queue=None, text=text) for text in await broker.warnings()
        ]
    capabilities = broker.capabilities
    return Overview(
        now=now,
        app=app.name,
        namespace=app.config.namespace,
        store=capabilities.store,
        durability=capabilities.durability,
        version=__version__,
        jobs=_total(queues),
        queues=tuple(queues),
        workers=WorkersGlance(
            alive=len(serving),
            slots=sum(session.info.slots for session in serving),
            busy=sum(session.leases for session in serving),
            crashed=sum(_has_failed(session) for session in fleet) if whole else 0,
        ),
        schedules=_schedules(schedules),
        alerts=tuple(alerts),
        problems=tuple(sorted(problems, key=lambda problem: _WORST.index(problem.level))),
    )


async def _of_queues(
    broker: Broker, queues: Sequence[QueueShown], alive: Sequence[SessionView]
) -> AsyncIterator[Trouble]:
    served = {queue for session in alive for queue in session.info.queues}
    examined = 0
    for queue in queues:
        if queue.jobs["dead"]:
            count = queue.jobs["dead"]
            letters = "dead letter" if count == 1 else "dead letters"
            yield Trouble(
                kind="dead",
                level="warning",
                queue=queue.name,
                text=f"{queue.name}: {count:,} {letters}",
                do="see their groups, then replay or discard them",
            )
        if not queue.jobs["ready"]:
            continue
        if queue.paused:
            text = f"{queue.name}: paused, {_jobs(queue.jobs['ready'])} ready"
            yield Trouble(kind="paused", level="note", queue=queue.name, text=text, do="resume it")
        elif queue.name not in served:
            yield Trouble(
                kind="unserved",
                level="problem",
                queue=queue.name,
                text=f"{queue.name}: {_jobs(queue.jobs['ready'])} ready, and no live worker serves it",
                do=f'start a worker for queue "{queue.name}"',
            )
        elif (queue.oldest or 0) >= OLD:
            examined += 1
            lanes = await _parked(broker, queue.name) if examined <= QUEUES_EXAMINED else []
            yield _old(queue, lanes)
        elif _is_full(queue):
            text = f"{queue.name}: at its limit of {queue.settings['concurrency']:,} running"
            yield Trouble(kind="limit", level="note", queue=queue.name, text=text)


async def _parked(broker: Broker, queue: str) -> list[LaneView]:
    """The lanes that wait although workers have room, those with most jobs first."""
    lanes = (await broker.lanes(queue, limit=LANES_READ)).lanes
    parked = [lane for lane in lanes if lane.parked is not None and lane.ready]
    return sorted(parked, key=lambda lane: (-lane.ready, lane.lane))[:LANES_NAMED]


_WORST = ("problem", "warning", "note")
_NO_WORKER = Trouble(
    kind="worker",
    level="note",
    queue=None,
    text="no worker is alive: what is enqueued waits",
    do="start one: windlass worker module:app",
)


def _old(queue: QueueShown, lanes: Sequence[LaneView]) -> Trouble:
    age = length(int((queue.oldest or 0) * SECOND))
    reasons = [_why_parked(lane) for lane in lanes]
    if _is_full(queue):
        reasons.insert(0, f"at its limit of {queue.settings['concurrency']:,} running")
    return Trouble(
        kind="old",
        level="warning",
        queue=queue.name,
        text=", ".join([f"{queue.name}: oldest job {age}", *reasons]),
        do="raise the limit, or wait" if reasons else "add workers or slots",
    )


def _why_parked(lane: LaneView) -> str:
    name = f"lane {lane.lane or '(none)'}"
    match lane.parked:
        case Parked.CONCURRENCY:
            return f"{name} at its limit" + ("" if lane.concurrency is None else f" of {lane.concurrency:,}")
        case Parked.RATE:
            return f"{name} at its rate"
        case _:
            return f"{name} paused"


def _is_full(queue: QueueShown) -> bool:
    limit = queue.settings.get("concurrency")
    return limit is not None and queue.jobs["running"] >= limit


def _of_alerts(alerts: Iterable[AlertShown]) -> list[Trouble]:
    return [
        Trouble(kind="alert", level="problem", queue=alert.queue, text=f'alert "{alert.name}": {alert.why}')
        for alert in alerts
        if alert.raised
    ]


def _of_schedules(schedules: Iterable[ScheduleShown], now: datetime) -> list[Trouble]:
    found: list[Trouble] = []
    for each in schedules:
        name = f'schedule "{each.name}"'
        if each.problem:
            found.append(_schedule(each, f"{name} cannot fire: {each.problem}"))
        elif not each.paused and each.next_at is not None and now - each.next_at > LATE:
            late = length((now - each.next_at) // timedelta(microseconds=1))
            found.append(_schedule(each, f"{name} is late by {late}", "is a worker alive? see its log"))
    return found


def _schedule(each: ScheduleShown, text: str, do: str = "") -> Trouble:
    return Trouble(kind="schedule", level="warning", queue=each.queue or None, text=text, do=do)


def _of_strikes(strikes: Iterable[StrikeShown]) -> list[Trouble]:
    found: list[Trouble] = []
    for strike in strikes:
        what = f"task {strike.task} is struck in part" if strike.where else f"task {strike.task} is paused"
        text = f"{what} by {strike.by}" + (f": {strike.reason}" if strike.reason else "")
        found.append(Trouble(kind="strike", level="note", queue=None, text=text, do=f"lift {strike.id}"))
    return found


def _of_intakes(intakes: Iterable[IntakeShown]) -> Iterator[Trouble]:
    for each in intakes:
        name = f'intake "{each.name}"'
        match each.state:
            case "stopped":
                first = next(partition for partition in each.partitions if partition.stopped)
                text = f"{name} has stopped in partition {first.partition}: {first.error}"
                do = f"say where to go on: windlass intakes APP move {each.name}"
                yield Trouble(kind="intake", level="problem", queue=None, text=text, do=do)
            case "failing":
                error = next(partition.error for partition in each.partitions if partition.error)
                yield Trouble(kind="intake", level="warning", queue=None, text=f"{name}: {error}")
            case _:
                yield from _at_rest("intake", name, each.state)


def _of_relays(relays: Iterable[RelayShown]) -> Iterator[Trouble]:
    for each in relays:
        name = f'relay "{each.name}"'
        if each.state == "failing":
            yield Trouble(kind="relay", level="warning", queue=None, text=f"{name}: {each.error}")
        yield from _at_rest("relay", name, each.state)
        if each.gaps and each.state != "gone":
            many = "1 gap" if each.gaps == 1 else f"{each.gaps:,} gaps"
            text = f"{name} has missed events: {many}"
            do = "keep more events: events_kept"
            yield Trouble(kind="relay", level="warning", queue=None, text=text, do=do)


def _at_rest(kind: str, name: str, state: str) -> Iterator[Trouble]:
    if state == "unread":
        text = f"{name}: no process runs it"
        yield Trouble(kind=kind, level="warning", queue=None, text=text, do="start a worker of its app")
    elif state == "paused":
        yield Trouble(kind=kind, level="note", queue=None, text=f"{name} is paused", do="resume it")


def _of_flows(found: tuple[Sequence[str], bool]) -> list[Trouble]:
    stuck, more = found
    if not stuck:
        return []
    named = ", ".join(stuck[:FLOWS_NAMED]) + (", …" if len(stuck) > FLOWS_NAMED else "")
    many = f"{len(stuck):,}{' or more' if more else ''} flows are" if more or len(stuck) > 1 else "a flow is"
    return [
        Trouble(
            kind="flow",
            level="problem",
            queue=None,
            text=f"{many} stuck: {named}",
            do="replay or discard the dead letters, or start a worker that knows the tasks of held jobs",
        )
    ]


def _of_sessions(sessions: Iterable[SessionView]) -> list[Trouble]:
    found: list[Trouble] = []
    failed = [session for session in sessions if _has_failed(session)]
    if failed:
        last = max(failed, key=lambda session: session.opened_at)
        cause = "" if last.cause is None else f"; the last: {last.cause.detail or last.cause.kind}"
        many = "a worker process" if len(failed) == 1 else f"{len(failed):,} worker processes"
        text = f"{many} crashed or fell silent within the last hour{cause}"
        found.append(Trouble(kind="worker", level="warning", queue=None, text=text, do="see the workers"))
    for session in sessions:
        if session.state is SessionState.ALIVE and session.silent_for * 2 > session.info.ttl:
            text = (
                f"worker {session.info.pid} on {session.info.host or 'an unnamed host'} has been silent for "
                f"{length(session.silent_for)} of {length(session.info.ttl)}"
            )
            found.append(Trouble(kind="worker", level="warning", queue=None, text=text))
    return found


def _has_failed(session: SessionView) -> bool:
    ended = session.state is SessionState.ENDED and session.cause is not None
    return ended and session.cause is not None and session.cause.kind in (CauseKind.CRASH, CauseKind.LOST)


def _schedules(schedules: Sequence[ScheduleShown]) -> SchedulesGlance:
    coming = [(each.next_at, each.name) for each in schedules if each.next_at is not None and not each.paused]
    first = min(coming, default=None)
    return SchedulesGlance(
        total=len(schedules),
        paused=sum(each.paused for each in schedules),
        next_at=None if first is None else first[0],
        next_name=None if first is None else first[1],
    )


def _total(queues: Iterable[QueueShown]) -> dict[str, int]:
    total: Counter[str] = Counter({state.value: 0 for state in State})
    for queue in queues:
        total.update(queue.jobs)
    return dict(total)


def _jobs(count: int) -> str:
    return f"{count:,} job{'' if count == 1 else 's'}"

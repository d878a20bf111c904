"""The answers of history: what the command line prints and the API returns."""

from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from windlass.core.duration import when
from windlass.core.names import check_queue, check_task
from windlass.core.units import DAY, HOUR, MINUTE, SECOND, Micros
from windlass.errors import InvalidOption, Unsupported
from windlass.observe.history.attempt import SAMPLE, Worker
from windlass.observe.history.rollup import Figures, Spread
from windlass.observe.history.sink import By, Failed, Group, Minute, Sink, Used, Window, open_sink

TASKS = 500
"""Tasks that are told apart."""
BUCKETS = 1_000
_STEPS: tuple[Micros, ...] = (
    MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR, 6 * HOUR, DAY, 7 * DAY,
)  # fmt: skip
_WANTED = 120
"""Buckets of a chart whose step nobody said, at the most."""


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, right to 2.5 %; null where nothing was measured."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """How attempts went."""

    attempts: int
    """done, failed and cancelled."""
    done: int
    failed: int
    """Those that raised, timed out, crashed or lost their worker; each attempt of a job counts."""
    dead: int
    """Of the failed ones, those after which the job was a dead letter."""
    cancelled: int
    given_back: int
    """Leases that ended as snooze, release or hold, besides the attempts."""
    failure_rate: float | None
    """failed / attempts."""
    per_second: float
    """Attempts in a second."""
    busy_seconds: float
    """How long tasks ran, all together."""
    wait: Percentiles
    """From due to handed out."""
    run: Percentiles


class TaskHistory(Summary, frozen=True, kw_only=True):
    """How the attempts of a task went."""

    task: str


class GroupHistory(Summary, frozen=True, kw_only=True):
    """How the attempts of a queue, a lane or a worker went, or those that failed in one way."""

    name: str
    """Of a queue, a lane, a worker's session; or the fingerprint of an error."""
    host: str | None = None
    """Of a worker."""
    pid: int | None = None
    """Of a worker."""
    slots: int | None = None
    """Of a worker."""
    use: float | None = None
    """Of a worker: the part of its slots' time, while it was alive in the window, that tasks ran in; null for
    one task or queue.
    """
    error: str | None = None
    """Of an error: its type."""
    message: str | None = None
    """Of an error: what the last of them said, without secrets."""
    last_task: str | None = None
    """Of an error: the task of the last of them."""
    last_job: str | None = None
    """Of an error: the job of the last of them."""
    last_at: datetime | None = None
    """Of an error: when the last of them was."""


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of time, for charts."""

    at: datetime
    """Where it begins."""
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    per_second: float = 0.0
    wait: Percentiles = Percentiles()
    run: Percentiles = Percentiles()
    slots: float | None = None
    """Of all workers, on average over the bucket; null when nobody looked."""
    use: float | None = None
    """The part of the slots' time that tasks ran in."""


class HostHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The workers of a host."""

    host: str
    seconds: float
    """For how long there were any, as far as somebody looked."""
    slots: float
    """On average, while there were any."""
    busy: float
    """Of those, held by jobs."""
    use: float | None
    """busy / slots."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """How it went in a window of time."""

    since: datetime
    until: datetime
    step: float
    """Seconds of a bucket."""
    task: str | None
    queue: str | None
    total: Summary
    use: float | None
    """The part of all slots' time that tasks ran in; null when nobody looked, or for one task or queue."""
    tasks: list[TaskHistory]
    """Those with the most attempts first; 500 at the most."""
    buckets: list[Bucket]
    """Every one of the window, also those in which nothing ended."""
    workers: list[HostHistory]
    by: str | None = None
    """What the groups are: queue, lane, worker or error; null: there are none."""
    groups: list[GroupHistory] = []
    """Those with the most attempts first; 500 at the most."""


def window_of(
    since: str, until: str | None, now: Micros, *, task: str | None = None, queue: str | None = None
) -> Window:
    """The window that is meant by a duration ("1h": the last hour) or a time ("2026-07-01T12:00:00Z")."""
    return Window(
        since=when(since, now, name="since"),
        until=now if until is None else when(until, now, name="until"),
        task=None if task is None else check_task(task),
        queue=None if queue is None else check_queue(queue),
    )


@asynccontextmanager
async def opened(url: str | None) -> AsyncGenerator[Sink]:
    """The sink that an app keeps its history in; `Unsupported` if it keeps none."""
    if url is None:
        raise Unsupported(
            "this app keeps no history; set history= or WINDLASS_HISTORY, for example to sqlite:///history.db"
        )
    sink = await open_sink(url)
    try:
        yield sink
    finally:
        await sink.close()


async def look(
    sink: Sink, source: str, window: Window, *, step: Micros | None = None, by: By | None = None
) -> History:
    """How it went; `InvalidOption` for a window or a step that has no meaning."""
    window, step = checked(window, step)
    minutes, used = await sink.minutes(source, window, step), await sink.used(source, window)
    length = (window.until - window.since) / SECOND
    total = Figures()
    tasks: defaultdict[str, Figures] = defaultdict(Figures)
    buckets: defaultdict[Micros, Figures] = defaultdict(Figures)
    for minute in minutes:
        total.merge(minute.figures)
        tasks[minute.task].merge(minute.figures)
        buckets[minute.at // step * step].merge(minute.figures)
    whole = window.task is None and window.queue is None
    slot_time = sum(each.slots for each in used) * SAMPLE
    most = sorted(tasks.items(), key=lambda each: (-each[1].attempts, each[0]))
    return History(
        since=moment(window.since),
        until=moment(window.until),
        step=step / SECOND,
        task=window.task,
        queue=window.queue,
        total=Summary(**_summed(total, length)),
        use=_ratio(total.ran, slot_time) if whole else None,
        tasks=[TaskHistory(task=task, **_summed(figures, length)) for task, figures in most[:TASKS]],
        buckets=_buckets(window, step, buckets, used, whole=whole),
        workers=_hosts(used),
        by=None if by in (None, By.TASK) else str(by),
        groups=[] if by is None else await _groups(sink, source, window, by, minutes),
    )


async def _groups(
    sink: Sink, source: str, window: Window, by: By, minutes: Sequence[Minute]
) -> list[GroupHistory]:
    length = (window.until - window.since) / SECOND
    match by:
        case By.TASK:
            return []  # every report has them
        case By.QUEUE:
            queues: defaultdict[str, Figures] = defaultdict(Figures)
            for minute in minutes:
                queues[minute.queue].merge(minute.figures)
            most = sorted(queues.items(), key=lambda each: (-each[1].attempts, each[0]))
            return [GroupHistory(name=name, **_summed(figures, length)) for name, figures in most]
        case By.LANE:
            found = await sink.groups(source, window, by)
            return [GroupHistory(name=each.name, **_summed(each.figures, length)) for each in found]
        case By.WORKER:
            known = {worker.worker_id: worker for worker in await sink.workers(source, window)}
            found = await sink.groups(source, window, by)
            return [_worker(each, known.pop(each.name, None), window) for each in found] + [
                _worker(Group(worker.worker_id, Figures()), worker, window) for worker in known.values()
            ]
        case By.ERROR:
            last = {failed.fingerprint: failed for failed in await sink.failed(source, window)}
            found = await sink.groups(source, window, by)
            return [_error(each, last.get(each.name), length) for each in found]


def _worker(group: Group, worker: Worker | None, window: Window) -> GroupHistory:
    """A worker that ended nothing in the window is told, too: it was not used."""
    summed = _summed(group.figures, (window.until - window.since) / SECOND)
    if worker is None:
        return GroupHistory(name=group.name, **summed)
    alive = min(worker.seen_at, window.until) - max(worker.opened_at, window.since)
    whole = window.task is None and window.queue is None
    return GroupHistory(
        name=group.name,
        host=worker.host,
        pid=worker.pid,
        slots=worker.slots,
        use=_ratio(group.figures.ran, worker.slots * alive) if whole and alive > 0 else None,
        **summed,
    )


def _error(group: Group, last: Failed | None, length: float) -> GroupHistory:
    summed = _summed(group.figures, length)
    if last is None:
        return GroupHistory(name=group.name, **summed)
    return GroupHistory(
        name=group.name,
        error=last.type,
        message=last.message,
        last_task=last.task,
        last_job=last.job,
        last_at=moment(last.at),
        **summed,
    )


def checked(window: Window, step: Micros | None) -> tuple[Window, Micros]:
    """The window, in whole steps."""
    if window.until <= window.since:
        raise InvalidOption("since must be before until")
    length = window.until - window.since
    if step is None:
        step = next((each for each in _STEPS if length <= each * _WANTED), _STEPS[-1])
    if step < MINUTE or step % MINUTE:
        raise InvalidOption(f"step must be whole minutes, not {step / SECOND:g} s")
    if length > step * BUCKETS:
        least = -(-length // BUCKETS) / SECOND
        raise InvalidOption(
            f"a step of {step / SECOND:g} s makes more than {BUCKETS} buckets; {least:g} s is enough"
        )
    return msgspec.structs.replace(window, since=window.since // step * step), step


def _summed(figures: Figures, length: float) -> dict[str, Any]:
    attempts = figures.attempts
    return {
        "attempts": attempts,
        "done": figures.done,
        "failed": figures.failed,
        "dead": figures.dead,
        "cancelled": figures.cancelled,
        "given_back": figures.given_back,
        "failure_rate": _ratio(figures.failed, attempts),
        "per_second": round(attempts / length, 3),
        "busy_seconds": figures.ran / SECOND,
        "wait": _percentiles(figures.waits),
        "run": _percentiles(figures.runs),
    }


def _buckets(
    window: Window, step: Micros, ended: Mapping[Micros, Figures], used: Sequence[Used], *, whole: bool
) -> list[Bucket]:
    slots: defaultdict[Micros, list[Used]] = defaultdict(list)
    for each in used:
        slots[each.at // step * step].append(each)
    return [
        _bucket(at, min(step, window.until - at), ended.get(at, Figures()), slots.get(at, []), whole=whole)
        for at in range(window.since, window.until, step)
    ]


def _bucket(at: Micros, length: Micros, figures: Figures, used: Sequence[Used], *, whole: bool) -> Bucket:
    slot_time = sum(each.slots for each in used) * SAMPLE
    return Bucket(
        at=moment(at),
        done=figures.done,
        failed=figures.failed,
        cancelled=figures.cancelled,
        per_second=round(figures.attempts / (length / SECOND), 3),
        wait=_percentiles(figures.waits),
        run=_percentiles(figures.runs),
        slots=round(slot_time / length, 3) if used else None,
        use=_ratio(figures.ran, slot_time) if whole else None,
    )


def _hosts(used: Sequence[Used]) -> list[HostHistory]:
    found: dict[str, tuple[int, int, int]] = {}
    for each in used:
        samples, slots, leases = found.get(each.host, (0, 0, 0))
        found[each.host] = (samples + each.samples, slots + each.slots, leases + each.leases)
    return [
        HostHistory(
            host=host,
            seconds=samples * SAMPLE / SECOND,
            slots=round(slots / samples, 3),
            busy=round(leases / samples, 3),
            use=_ratio(leases, slots),
        )
        for host, (samples, slots, leases) in sorted(found.items())
    ]


def _percentiles(spread: Spread) -> Percentiles:
    p50, p95, p99 = (
        None if value is None else float(f"{value / SECOND:.3g}")
        for value in (spread.at(50), spread.at(95), spread.at(99))
    )
    return Percentiles(p50=p50, p95=p95, p99=p99)


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 4) if whole else None


def moment(at: Micros) -> datetime:
    """A time of the store."""
    return datetime.fromtimestamp(at // SECOND, UTC).replace(microsecond=at % SECOND)

"""Moving jobs: waiting jobs and dead letters as lines of JSON, for a backup, or to another store.

A line holds all that a producer once said of a job. Ids stay, so importing a file twice, or after half of it
went through, makes no second job. What a store alone knows stays behind: fences, attempts, runs, results.

No verb makes a dead letter but the end of a job, and `take` for what came from a source; and nobody can write
another's runs.
So a dead letter that is to stay one is enqueued as a job whose time to start is over, which the next sweep
finds: nobody ever runs it, and replaying it works as with any other. Its reason is then "expired"; what it
died of is kept in a header.
"""

import base64
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeAlias

import msgspec

from windlass.admin.listing import DETAILS, pages
from windlass.broker.contract import Broker
from windlass.client.app import Windlass
from windlass.client.callbacks import check_callback
from windlass.config import Config
from windlass.core.foreign import check_foreign
from windlass.core.job import (
    GROUP_BYTES,
    GROUP_EDGES,
    GROUP_JOBS,
    Edge,
    JobDetail,
    NewJob,
    OnFailure,
    Status,
)
from windlass.core.names import check_headers, is_reserved
from windlass.core.query import JobQuery
from windlass.core.state import UNFINISHED, WAITING, State
from windlass.core.units import JobId, Micros
from windlass.core.webhook import CALLBACK
from windlass.errors import EnqueueRefused, InvalidOption

if TYPE_CHECKING:
    from windlass.values.values import Values

FORMAT = 1
EXPORTED = WAITING | {State.DEAD}
Dead: TypeAlias = Literal["keep", "skip", "replay"]
"""What is to become of dead letters."""
DIED_OF = "windlass-died-of"
"""The header that says what a dead letter died of in the store that it comes from."""
_LONGEST_ERROR = 1_000
_UNTIL_SWEPT: Micros = 3_600_000_000
"""How long a dead letter that is being imported cannot start: longer than a sweep takes to find it."""


class JobLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A job as a file holds it. Times are microseconds since the epoch."""

    windlass: int
    """The format."""
    id: str
    task: str
    state: str
    accepted: Micros = 0
    queue: str
    lane: str = ""
    priority: int = 0
    key: str | None = None
    run_at: Micros | None = None
    expires: Micros | None = None
    """What was left of it when it was exported."""
    payload: str
    """Base64: a payload is bytes, whatever they are."""
    headers: dict[str, str] = {}
    tags: tuple[str, ...] = ()
    after: tuple[tuple[str, str], ...] = ()
    """Parents that were not done, each with the policy of its edge."""
    max_attempts: int = 5
    revision: int = 0
    flow: str = ""
    error: str = ""
    """Of a dead letter, for people who read the file."""


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the lines of a file."""

    created: int = 0
    known: int = 0
    """Already in the store."""
    dead: int = 0
    """Of those that were created: dead letters that are dead here, too."""
    left: int = 0
    """Dead letters that were left out."""


async def exported(
    broker: Broker,
    query: JobQuery,
    now: Micros,
    *,
    values: "Values | None" = None,
    left: Callable[[JobId], object] = lambda _: None,
) -> AsyncIterator[JobLine]:
    """Every waiting job and dead letter that matches. What runs is not touched, and not exported; nor are the
    jobs of Windlass itself, which no store would take from a file: `left` is told of each.
    """
    states = query.states & EXPORTED
    async for page in pages(broker, msgspec.structs.replace(query, states=states)):
        for start in range(0, len(page), DETAILS):
            found = await broker.get([job.id for job in page[start : start + DETAILS]])
            jobs: list[JobDetail] = []
            for job in found:
                if job is not None and job.state in states:
                    own = is_reserved(job.task) or is_reserved(job.queue)
                    left(job.id) if own else jobs.append(job)
            unfinished = await _unfinished(broker, jobs)
            for job in jobs:
                whole = job if values is None else await _with_payload(values, job)
                yield _line(whole, unfinished, now)


async def _with_payload(values: "Values", job: JobDetail) -> JobDetail:
    """A job with its payload, if that is in object storage: a file holds all that is needed."""
    return msgspec.structs.replace(job, payload=await values.payload(job.id, job.payload))


async def _unfinished(broker: Broker, jobs: Iterable[JobDetail]) -> set[JobId]:
    """Which of their parents a job still has to wait for."""
    parents = list({edge.parent for job in jobs for edge in job.after})
    waited: set[JobId] = set()
    for start in range(0, len(parents), DETAILS):
        for parent in await broker.get(parents[start : start + DETAILS]):
            if parent is not None and (parent.state in UNFINISHED or parent.state is State.DEAD):
                waited.add(parent.id)
    return waited


def _line(job: JobDetail, unfinished: set[JobId], now: Micros) -> JobLine:
    error = job.error
    return JobLine(
        windlass=FORMAT,
        id=job.id,
        task=job.task,
        state=job.state,
        accepted=job.accepted_at,
        queue=job.queue,
        lane=job.lane,
        priority=job.priority,
        key=job.key,
        run_at=job.due_at if job.state is State.SCHEDULED else None,
        expires=None if job.expires_at is None else max(_OVER + 1, job.expires_at - now),
        payload=base64.b64encode(job.payload).decode(),
        headers=dict(job.headers),
        tags=job.tags,
        after=tuple((edge.parent, edge.on_failure.value) for edge in job.after if edge.parent in unfinished),
        max_attempts=job.max_attempts,
        revision=job.revision,
        flow=job.flow,
        error="" if error is None else f"{error.type}: {error.message}",
    )


async def imported(
    app: Windlass,
    broker: Broker,
    file: BinaryIO,
    *,
    dead: Dead = "keep",
    told: Callable[[int], object] = lambda _: None,
) -> Imported:
    """Enqueue the jobs of a file: parents before their dependents, and otherwise as they were accepted. Dead
    letters are dead here, too, or left out, or enqueued to be run again.

    A line that makes no sense stops it before anything was done. `EnqueueRefused`: the store refused a group;
    what was sent before stays, and the file can be imported again.
    """

    async def is_known(job: JobId) -> bool:
        return (await broker.get([job]))[0] is not None

    places, left = _looked_through(file, app.config, skip_dead=dead == "skip")
    created = known = kept = 0
    for group in _groups(_read(file, place, keep_dead=dead == "keep") for place in places):
        values = app.values
        receipts = (
            await broker.enqueue([group] if values is None else await values.sent([group], is_known))
        )[0]
        refused = next((receipt for receipt in receipts if receipt.status is Status.REFUSED), None)
        if refused is not None:
            raise EnqueueRefused(refused.why or f"job {refused.job} was refused: {refused.refusal}")
        fresh = sum(receipt.status is Status.CREATED for receipt in receipts)
        created, known = created + fresh, known + len(receipts) - fresh
        kept += sum(
            receipt.status is Status.CREATED and job.expires == _OVER
            for job, receipt in zip(group, receipts, strict=True)
        )
        told(len(receipts))
    while kept and (await broker.sweep(limit=GROUP_JOBS, keep_dead=True)).more:
        pass
    return Imported(created=created, known=known, dead=kept, left=left)


_OVER: Micros = 1
"""How long a dead letter that stays one may wait for its start; what is left of another's expiry is more."""


class _Position(msgspec.Struct, frozen=True, order=True):
    """Where in a file a job is, in the order in which jobs are imported."""

    depth: int
    accepted: Micros
    offset: int
    number: int


def _looked_through(file: BinaryIO, config: Config, *, skip_dead: bool) -> tuple[list[_Position], int]:
    """The places of the jobs that are to be imported, in their order; how many are left out. Of each job only
    its id, its parents and its place are kept in memory.
    """
    parents: dict[JobId, tuple[JobId, ...]] = {}
    found: dict[JobId, tuple[Micros, int, int]] = {}
    left = offset = 0
    for number, text in enumerate(file, 1):
        if text.strip():
            line = _decoded(text, number)
            if line.state == State.DEAD and skip_dead:
                left += 1
            else:
                parents[line.id] = tuple(parent for parent, _ in line.after)
                found[line.id] = (line.accepted, offset, number)
                _check_callback(line, number, config)
        offset += len(text)
    depths: dict[JobId, int] = {}
    for job in parents:
        _sound(job, parents, depths)
    return sorted(_Position(depths[job], *place) for job, place in found.items()), left


def _check_callback(line: JobLine, number: int, config: Config) -> None:
    url = line.headers.get(CALLBACK)
    if url is not None:
        try:
            check_callback(config, url)
        except InvalidOption as error:
            raise InvalidOption(f'line {number}: header "{CALLBACK}": {error}') from None


def _read(file: BinaryIO, place: _Position, *, keep_dead: bool) -> NewJob:
    file.seek(place.offset)
    line = _decoded(file.readline(), place.number)
    job = _job(line, place.number)
    return _dead(job, line.error) if keep_dead and line.state == State.DEAD else job


def _dead(job: NewJob, error: str) -> NewJob:
    """A job that is never started, and a dead letter at the next sweep."""
    printable = "".join(sign if sign.isprintable() else " " for sign in error)[:_LONGEST_ERROR]
    try:
        headers = check_headers({**job.headers, DIED_OF: printable})
    except InvalidOption:  # it has as many as there can be
        headers = job.headers
    return msgspec.structs.replace(job, headers=headers, delay=_UNTIL_SWEPT, run_at=None, expires=_OVER)


def _sound(job: JobId, parents: dict[JobId, tuple[JobId, ...]], depths: dict[JobId, int]) -> None:
    """Without recursion: a chain may be as long as the file."""
    open_: list[JobId] = [job]
    entered: set[JobId] = set()
    while open_:
        current = open_[-1]
        missing = [each for each in parents[current] if each in parents and each not in depths]
        if current in depths or not missing:
            open_.pop()
            within = [depths[each] for each in parents[current] if each in depths]
            depths.setdefault(current, max(within, default=-1) + 1)
            continue
        if current in entered:
            raise InvalidOption(f"job {current} waits for itself through its parents")
        entered.add(current)
        open_ += missing


def _groups(jobs: Iterable[NewJob]) -> Iterator[list[NewJob]]:
    group: list[NewJob] = []
    size = edges = 0
    for job in jobs:
        size, edges = size + len(job.payload), edges + len(job.after)
        if group and (len(group) == GROUP_JOBS or size > GROUP_BYTES or edges > GROUP_EDGES):
            yield group
            group, size, edges = [], len(job.payload), len(job.after)
        group.append(job)
    if group:
        yield group


_decode = msgspec.json.Decoder(JobLine).decode


def _decoded(text: bytes, number: int) -> JobLine:
    try:
        line = _decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidOption(f"line {number} is no exported job: {error}") from None
    if line.windlass != FORMAT:
        raise InvalidOption(f"line {number} has format {line.windlass}; this version reads {FORMAT}")
    _job(line, number)
    return line


def _job(line: JobLine, number: int) -> NewJob:
    """The job of a line, checked as every producer's is: a file may come from anywhere."""
    try:
        return check_foreign(
            NewJob(
                id=line.id,
                task=line.task,
                queue=line.queue,
                lane=line.lane,
                priority=line.priority,
                key=line.key,
                run_at=line.run_at,
                expires=line.expires,
                payload=base64.b64decode(line.payload, validate=True),
                headers=line.headers,
                tags=line.tags,
                after=tuple(Edge(parent, OnFailure(policy)) for parent, policy in line.after),
                max_attempts=line.max_attempts,
                revision=line.revision,
                flow=line.flow,
            )
        )
    except (InvalidOption, ValueError) as error:
        raise InvalidOption(f"line {number}: {error}") from None

"""The protocol of a sink, which keeps history; and which one a URL names."""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from windlass.broker.management import Configure
from windlass.core.units import MINUTE, Cursor, Fence, JobId, Micros
from windlass.errors import InvalidOption
from windlass.extras import needed
from windlass.observe.history.attempt import Attempt, Batch, Enqueued, Worker
from windlass.observe.history.place import CLICKHOUSE, GROUP, POSTGRES, HistoryUrl, read_url
from windlass.observe.history.places import Places, StorePlaces
from windlass.observe.history.rollup import Figures
from windlass.plugins import load

GROUPS = 500
"""Lanes, workers or kinds of errors that are told apart: those with the most attempts."""


class By(StrEnum):
    """What attempts are told apart by."""

    TASK = "task"
    QUEUE = "queue"
    LANE = "lane"
    WORKER = "worker"
    ERROR = "error"
    """By the fingerprint of what went wrong; those that did not fail are left out."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Which attempts are asked for: those that ended in [since, until), by whole minutes."""

    since: Micros
    until: Micros
    task: str | None = None
    queue: str | None = None


class Minute(msgspec.Struct, frozen=True):
    """The attempts of a task in a minute, or in a longer step."""

    at: Micros
    task: str
    queue: str
    figures: Figures


class Used(msgspec.Struct, frozen=True):
    """What there was to run in, on a host in a minute: sums over samples, each of which stands for
    `SAMPLE`.
    """

    at: Micros
    host: str
    samples: int
    slots: int
    leases: int


class Group(msgspec.Struct, frozen=True):
    """The attempts of a lane or a worker, or those that failed in one way."""

    name: str
    figures: Figures


class Failed(msgspec.Struct, frozen=True):
    """The last of the attempts that failed in one way."""

    fingerprint: str
    type: str
    message: str
    task: str
    job: JobId
    fence: Fence
    at: Micros


class Trail(msgspec.Struct, frozen=True):
    """What is known of one job."""

    enqueued: Enqueued | None
    attempts: Sequence[Attempt]
    """In the order of their fences."""


class Sink(Protocol):
    """Keeps history. `source` tells the namespaces apart that share one.

    Each method lists its obligations; `windlass.observe.history.conformance` has a test for each.
    """

    async def turn(self, source: str, reader: str, now: float, until: float) -> Cursor | None:
        """Whether it is this reader's turn, until a time (seconds since the epoch): the place in the event
        log where to go on. None: another reader has the turn.

        It saves work and is no lock: two readers that both believe in theirs write the same.

        - first_turn_begins_at_the_start: of the log, for each source.
        - turn_is_one_readers: the others are told None, until its time is over.
        - place_moves_by_the_reader_whose_turn_it_is: a write of another keeps its data, and moves no place.
        """
        ...

    async def write(self, source: str, reader: str, batch: Batch, cursor: Cursor) -> None:
        """Keep a batch, then the place after it. Either both in one transaction, or the data first: who dies
        in between is repeated by the next.

        - what_is_written_twice_is_one: an attempt by job and fence, a job by its id, slots by time and host,
          a worker by its id (the newest word on it stands); in whichever batches they come.
        - place_is_kept_after_the_data: a turn after the write goes on behind it.
        - text_is_data: quotes, line ends and foreign scripts come back as they were.
        """
        ...

    async def forget(self, source: str, before: Micros) -> None:
        """Drop what is older.

        - what_is_old_is_dropped: of this source alone, everything that ended before.
        """
        ...

    async def blank(self, source: str, tag: str) -> int:
        """Blank what the rows with a tag hold of a person: the errors of attempts, the unique keys of jobs.
        How many rows held something.

        - blanked_rows_keep_their_figures: reports and trails tell all but these two; of this tag and source
          alone, however many rows there are.
        """
        ...

    async def minutes(self, source: str, window: Window, step: Micros = MINUTE) -> Sequence[Minute]:
        """Every minute of every task in which something ended. A sink that adds up as it reads may answer by
        steps, which are whole minutes.

        - minutes_count_as_one_would_by_hand: of the window, the task and the queue alone; percentiles are
          right to 2.5 %.
        """
        ...

    async def used(self, source: str, window: Window) -> Sequence[Used]:
        """The slots that there were, by minute and host.

        - slots_add_up_by_minute: over the samples of each host.
        """
        ...

    async def groups(self, source: str, window: Window, by: By) -> Sequence[Group]:
        """Attempts by lane, worker or error: the 500 with the most, these first.

        - groups_count_as_one_would_by_hand: as minutes do.
        - errors_are_grouped_by_fingerprint: attempts without an error are in none.
        """
        ...

    async def failed(self, source: str, window: Window) -> Sequence[Failed]:
        """The last failure of each fingerprint.

        - last_failure_tells_its_error: type, message and job.
        """
        ...

    async def workers(self, source: str, window: Window) -> Sequence[Worker]:
        """The worker processes that were alive in a window.

        - workers_of_the_window_are_told: those seen in it, for however short a time.
        """
        ...

    async def trail(self, source: str, job: JobId) -> Trail:
        """What is known of a job.

        - trail_tells_each_attempt_and_who_enqueued: in the order of fences, whole.
        """
        ...

    async def close(self) -> None:
        """Let go of it."""
        ...


Opener = Callable[[str, Micros, Places | None], Awaitable[Sink]]
"""What an entry point of the group `windlass.history` is: it opens the sink that a URL names, which keeps for
so long. A sink that writes to a place without transactions keeps its turns in the places; without them it is
only asked.
"""


async def open_sink(url: str, broker: Configure | None = None) -> Sink:
    """Open what a URL names, and make its tables. `broker`: the store that its events come from; without one
    it may be that it only answers.
    """
    place = read_url(url)
    places = None if broker is None else StorePlaces(broker, _mark(place.url))
    return await _opener(place.scheme)(place, places)


def _mark(url: str) -> str:
    """The same for URLs of one place, with any user and password."""
    parts = urlsplit(url)
    there = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return hashlib.sha256(there.encode()).hexdigest()[:16]


def _opener(scheme: str) -> Callable[[HistoryUrl, Places | None], Awaitable[Sink]]:
    if scheme == "sqlite":
        return _sqlite
    if scheme in POSTGRES:
        return _postgres
    return _clickhouse if scheme in CLICKHOUSE else _brought


async def _sqlite(place: HistoryUrl, _places: Places | None) -> Sink:
    from windlass.observe.history.sqlite import SqliteSink  # noqa: PLC0415 - only who uses it needs it

    return await SqliteSink.open(place.path)


async def _postgres(place: HistoryUrl, _places: Places | None) -> Sink:
    try:
        from windlass.observe.history.postgres import PostgresSink  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as missing:
        raise InvalidOption(needed("this history", missing, "windlass-queue[postgres]")) from missing
    return await PostgresSink.open(place.url)


async def _clickhouse(place: HistoryUrl, places: Places | None) -> Sink:
    try:
        from windlass.observe.history.clickhouse import ClickHouseSink  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as missing:
        raise InvalidOption(needed("this history", missing, "windlass-queue[clickhouse]")) from missing
    return await ClickHouseSink.open(place.url, places=places, keep=place.keep)


async def _brought(place: HistoryUrl, places: Places | None) -> Sink:
    opener: Opener = load(GROUP, place.scheme)
    return await opener(place.url, place.keep, places)

"""What the processes of a verified run write down of themselves, and how it is read back.

A history is a folder. Every process has a file of its own in it: a header line that says who it is, then one
JSON line per event. Lines are appended in a single `O_APPEND` write, so a process that is killed leaves at
most one torn last line, which the reader passes over. Times are whole microseconds of the machine's monotonic
clock: all processes of a machine share it (`boot` in the header tells machines and boots apart), and no store
and no wall clock is believed. Where an event carries a time of the *store's* clock, its text says so.

The pattern is that of a call: a caller writes an *invoke* before it acts, then an *ok* (the answer), a *fail*
(it certainly did not happen) or an *info* (nobody knows). `call` ties them together, unique in its file.
A call without any of the three is one whose process died: nobody knows, either.

    producer    enqueue → enqueued
    worker      claim → claimed, settle → settled, annotate → annotated
    supervisor  beat → beaten, end_session → session_ended
    task        start, effect, end    written by the task's own code, flushed before its next line
    operator    operate → operated
    sweeper     sweep → swept, and fired (answers only)
    harness     limits, phase, nemesis, process, counts, then final (one per job) and finished

Who writes little may leave out the calls of workers and supervisors: the checker then has less to check, and
its counts say so. This module knows nothing of brokers: states, outcomes, verdicts, causes are plain words.
"""

import heapq
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

FORMAT = 1
SUFFIX = ".jsonl"
BATCH = 256
"""Lines that a writer may hold back before it writes them by itself."""

Micros: TypeAlias = int
Role: TypeAlias = Literal["producer", "worker", "supervisor", "operator", "sweeper", "harness", "store"]


class _Event(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="event", gc=False):
    """What every line has: the time and the place in its file. `Journal.write` fills both in."""

    at: Micros = 0
    seq: int = 0


class Header(_Event, tag="header"):
    """The first line of a file: who wrote it."""

    role: Role
    name: str
    """Readable and unique in the folder: "worker-3", "producer-1"."""
    pid: int = 0
    boot: str = ""
    format: int = FORMAT


# --- producers --------------------------------------------------------------------------------------------


class Asked(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A job as its producer asked for it: what the checker needs, never the payload."""

    job: str
    task: str = ""
    queue: str = "default"
    lane: str = ""
    key: str | None = None
    mode: str = "ignore"
    delay: Micros = 0
    """The earliest start, counted from the invoke. A `run_at` is turned into this by the producer, rounded
    down by what it knows of the store's clock."""
    expires: Micros | None = None
    max_attempts: int = 5
    after: tuple[str, ...] = ()
    """Its parents."""
    group: int = 0
    """Jobs of one call with the same number come into being together or not at all."""


class Enqueue(_Event, tag="enqueue"):
    """Invoke: a producer is about to hand jobs in. A resend of the same ids is another call."""

    call: int
    jobs: tuple[Asked, ...]


class Receipt(msgspec.Struct, omit_defaults=True, gc=False):
    """The answer to one job: created, duplicate, replaced, refused."""

    job: str
    status: str
    of: str | None = None


class Enqueued(_Event, tag="enqueued"):
    """Ok: the store's receipts, in the order of the jobs."""

    call: int
    receipts: tuple[Receipt, ...]


class Fail(_Event, tag="fail"):
    """A call that certainly did nothing."""

    call: int
    why: str = ""


class Info(_Event, tag="info"):
    """A call whose result nobody knows: its reply was lost, or it was given up."""

    call: int
    why: str = ""


# --- runs, as tasks see them --------------------------------------------------------------------------------


class Start(_Event, tag="start"):
    """The first line of a task's code. Flush it before anything else happens."""

    job: str
    fence: int
    attempt: int
    session: str = ""
    task: str = ""
    queue: str = "default"
    lane: str = ""
    schedule: str | None = None
    tick: Micros | None = None
    """Of a job that a schedule enqueued: the tick, on the store's clock."""


class Effect(_Event, tag="effect"):
    """A side effect of a run, done at this moment."""

    job: str
    fence: int
    what: str = ""


class End(_Event, tag="end"):
    """The last line of a task's code. A killed run has none."""

    job: str
    fence: int
    how: Literal["ok", "error", "cancelled", "lease_lost", "snoozed", "stopped"]


# --- a worker's calls, as its process sees them answered ---------------------------------------------------


class Claim(_Event, tag="claim"):
    """Invoke: an ask. The same (session, number) again is the repetition of a lost reply."""

    call: int
    session: str
    number: int
    limit: int = 0


class Leased(msgspec.Struct, omit_defaults=True, gc=False):
    """A job that was handed out."""

    job: str
    fence: int
    attempt: int = 0
    queue: str = "default"
    lane: str = ""


class Claimed(_Event, tag="claimed"):
    """Ok: what was handed out, also by the ask that came with a settle. `asker`: alive, lost, outdated."""

    call: int
    session: str
    asker: str = "alive"
    leases: tuple[Leased, ...] = ()
    number: int = 0


class Word(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A holder's word on one lease."""

    job: str
    fence: int
    outcome: str
    delay: Micros = 0
    """For retry and snooze: not before so long after the invoke."""
    ran: bool = True
    """Whether its code had started."""
    spawn: tuple[str, ...] = ()
    """Ids of the children that travel with it."""


class Settle(_Event, tag="settle"):
    """Invoke: the ends of leases, in the eyes of their holder, be it a zombie."""

    call: int
    words: tuple[Word, ...]
    session: str = ""


class Judged(msgspec.Struct, omit_defaults=True, gc=False):
    """The answer to one word: verdict, the outcome that stands, the state the job is in."""

    job: str
    fence: int
    verdict: str
    outcome: str | None = None
    state: str | None = None


class Settled(_Event, tag="settled"):
    """Ok: the store's verdicts, in the order of the words."""

    call: int
    answers: tuple[Judged, ...]


class Annotate(_Event, tag="annotate"):
    """Invoke: notes (progress, log lines, memos, more time) on leases: (job, fence) each."""

    call: int
    notes: tuple[tuple[str, int], ...]


class Annotated(_Event, tag="annotated"):
    """Ok: a verdict per note."""

    call: int
    answers: tuple[Judged, ...]


class Beat(_Event, tag="beat"):
    """Invoke: signs of life of these sessions; `opens` are those that it creates."""

    call: int
    sessions: tuple[str, ...]
    opens: tuple[str, ...] = ()
    ttl: Micros = 0
    """How long the opened sessions may be silent."""


class Beaten(_Event, tag="beaten"):
    """Ok: which of them the store does not know, or knows as ended."""

    call: int
    lost: tuple[str, ...] = ()


class EndSession(_Event, tag="end_session"):
    """Invoke: a session is over, for a cause (stop, crash, lost), with what had started in it."""

    call: int
    session: str
    cause: str
    started: tuple[tuple[str, int], ...] = ()


class SessionEnded(_Event, tag="session_ended"):
    """Ok: it was known, or not."""

    call: int
    session: str
    known: bool = True


class Sweep(_Event, tag="sweep"):
    """Invoke: a pass. Silence is measured in passes, so the checker wants to know of all."""

    call: int


class Swept(_Event, tag="swept"):
    """Ok: the sessions that the pass gave up."""

    call: int = 0
    reaped: tuple[str, ...] = ()


class Fired(_Event, tag="fired"):
    """A tick of a schedule (store's clock) for which the store answered that it fired: the jobs it made."""

    schedule: str
    tick: Micros
    jobs: tuple[str, ...] = ()


# --- operators ---------------------------------------------------------------------------------------------


class Operate(_Event, tag="operate"):
    """Invoke: cancel, replay, discard, edit, purge on jobs; pause, resume on a queue or lane."""

    call: int
    verb: str
    jobs: tuple[str, ...] = ()
    queue: str = ""
    lane: str | None = None


class Operated(_Event, tag="operated"):
    """Ok: the store's word per job, or one for a queue."""

    call: int
    answers: tuple[str, ...] = ()


# --- the harness -------------------------------------------------------------------------------------------


class Limits(_Event, tag="limits"):
    """What a queue (or with `lane` one of its lanes) was declared with."""

    queue: str
    lane: str | None = None
    concurrency: int | None = None
    lane_concurrency: int | None = None
    """For every lane of the queue without a limit of its own."""
    rate: float | None = None
    """Claims a second."""
    burst: int = 1
    weight: int = 1
    sequence: bool = False


class Phase(_Event, tag="phase"):
    """The run has come to a part: "load", "faults", "healed" (nothing is injected any more), "drained"."""

    name: str


class Nemesis(_Event, tag="nemesis"):
    """A fault begins or ends. One that lasts no time (a kill) only begins. `number` ties the two together."""

    number: int
    kind: str
    action: Literal["begin", "end"] = "begin"
    target: str = ""
    """The name of a process or session, or "store"."""
    details: dict[str, str] = {}
    """For people, but for two: `lost_seconds` says that the store lost the writes of the last so many seconds
    (a failover, an older copy), `outage` that calls could not be answered while it lasted. Faults whose kind
    speaks of store, messages, freeze or cut are outages by themselves."""


class Process(_Event, tag="process"):
    """The harness started a process, or saw it end. `session`, if it knows it: then its runs have ended."""

    name: str
    action: Literal["started", "ended"]
    pid: int = 0
    code: int | None = None
    session: str = ""


class Counts(_Event, tag="counts"):
    """A look at the store: jobs by state, over all queues of the run."""

    states: dict[str, int]


class Delivery(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One lease of a job in its final history. Times are the store's."""

    fence: int
    attempt: int
    outcome: str
    settled: bool = True
    """Its holder said so. False: the store ended it."""
    session: str | None = None
    cause: str | None = None
    """stop, crash, lost, deadline."""
    ran: bool = True
    """It has a runtime."""
    claimed_at: Micros = 0
    ended_at: Micros = 0


class Final(_Event, tag="final"):
    """One job as it was read at the end, when everything had come to rest."""

    job: str
    state: str
    """`absent`: asked for by its id, and the store does not know it."""
    reason: str | None = None
    task: str = ""
    queue: str = "default"
    lane: str = ""
    attempt: int = 0
    max_attempts: int = 5
    fence: int = 0
    crashes: int = 0
    replays: int = 0
    session: str | None = None
    """Who holds it, if it runs."""
    parent: str | None = None
    result: int | None = None
    """Tasks of a verified run return their fence: this is the one that the kept result names."""
    deliveries: tuple[Delivery, ...] = ()
    """Oldest first. A store keeps the last ten."""
    pruned: bool = False
    """Only the memory of how it ended is left."""


class Finished(_Event, tag="finished"):
    """The final reads are complete."""

    jobs: int
    sessions: tuple[str, ...] = ()
    """Those that the store holds to be alive."""
    idle: bool = True
    """All workers were stopped before the reads, so that nobody can hold a lease."""


Event: TypeAlias = (
    Header
    | Enqueue
    | Enqueued
    | Fail
    | Info
    | Start
    | Effect
    | End
    | Claim
    | Claimed
    | Settle
    | Settled
    | Annotate
    | Annotated
    | Beat
    | Beaten
    | EndSession
    | SessionEnded
    | Sweep
    | Swept
    | Fired
    | Operate
    | Operated
    | Limits
    | Phase
    | Nemesis
    | Process
    | Counts
    | Final
    | Finished
)


# --- writing -----------------------------------------------------------------------------------------------


def monotonic() -> Micros:
    """The clock of histories on a real machine."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000


def boot_id() -> str:
    """The boot of this machine; empty where it cannot be told."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class Journal:
    """The history file of one process, safe for its threads. A forked child opens a journal of its own.

    Events that must be on the disk's side before something happens (a task's start, an invoke of which the
    answer matters) are written with `write`; those that may wait, with `note`. `write` also takes along what
    waits, so the order of a file is the order of its events.
    """

    def __init__(
        self,
        append: Callable[[bytes], None],
        *,
        role: Role,
        name: str,
        clock: Callable[[], Micros] = monotonic,
        pid: int = 0,
        boot: str = "",
    ) -> None:
        self.name = name
        self._append = append
        self._clock = clock
        self._lock = threading.Lock()
        self._encode = msgspec.json.Encoder().encode
        self._waiting: list[bytes] = []
        self._seq = 0
        self._calls = 0
        self.write(Header(role=role, name=name, pid=pid, boot=boot))

    @classmethod
    def open(cls, folder: Path, *, role: Role, name: str) -> "Journal":
        """Begin a file in a folder. `name` is unique in it; a process started anew takes a new one."""
        folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        file = os.open(folder / f"{name}{SUFFIX}", flags, 0o600)

        def append(lines: bytes) -> None:
            done = os.write(file, lines)
            while done < len(lines):  # a signal or a full disk cut it short
                done += os.write(file, lines[done:])

        return cls(append, role=role, name=name, pid=os.getpid(), boot=boot_id())

    def call(self) -> int:
        """A new number for an invoke and its answer."""
        with self._lock:
            self._calls += 1
            return self._calls

    def write(self, event: Event) -> None:
        """Append an event now, behind all that waits."""
        with self._lock:
            self._stamp(event)
            self._flush()

    def note(self, event: Event) -> None:
        """Append an event soon: with the next `write`, when there are many, or at `flush`."""
        with self._lock:
            self._stamp(event)
            if len(self._waiting) >= BATCH:
                self._flush()

    def flush(self) -> None:
        """Append what waits."""
        with self._lock:
            self._flush()

    def _stamp(self, event: Event) -> None:
        self._seq += 1
        event.at, event.seq = self._clock(), self._seq
        self._waiting.append(self._encode(event))

    def _flush(self) -> None:
        if self._waiting:
            lines = b"\n".join(self._waiting) + b"\n"
            self._waiting.clear()
            self._append(lines)


# --- reading -----------------------------------------------------------------------------------------------


class HistoryError(ValueError):
    """A history that cannot be read: not a torn end, but something else."""


class Line(msgspec.Struct, frozen=True, gc=False):
    """An event and the header of the file it is from."""

    source: Header
    event: Event


_decode = msgspec.json.Decoder(Event).decode


def read_file(lines: Iterable[bytes], name: str) -> Iterator[Line]:
    """The events of one file, in its order. A torn last line is passed over."""
    source: Header | None = None
    torn: tuple[int, Exception] | None = None
    for number, text in enumerate(lines, 1):
        if torn is not None:
            raise HistoryError(f"{name}, line {torn[0]}: not an event ({torn[1]}); is it a history file?")
        if not text.endswith(b"\n"):
            return
        try:
            event = _decode(text)
        except msgspec.DecodeError as error:
            torn = (number, error)
            continue
        if isinstance(event, Header):
            if event.format != FORMAT:
                raise HistoryError(f"{name}: format {event.format}, this program reads {FORMAT}")
            source = event
        elif source is None:
            raise HistoryError(f"{name}: no header line; was the file cut at its beginning?")
        else:
            yield Line(source, event)


def read(folder: Path) -> Iterator[Line]:
    """All events of a history, merged by time; those of one file stay in their order.

    Streams: a file is read line by line, so a history of a million events needs the memory of its checker
    only.
    """
    files = sorted(folder.glob(f"*{SUFFIX}"))
    if not files:
        raise HistoryError(f"{folder}: no history files (*{SUFFIX})")
    return merge([_read_path(path) for path in files])


def _read_path(path: Path) -> Iterator[Line]:
    with path.open("rb") as lines:
        yield from read_file(lines, path.name)


def merge(files: Iterable[Iterator[Line]]) -> Iterator[Line]:
    """Merge files by time."""
    # Equal times go by the order of the files, so that the same files always give the same sequence.
    return heapq.merge(*files, key=lambda line: line.event.at)

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
    task        start, gathered, effect, end    written by the task's own code, flushed before its next line
    operator    operate → operated
    sweeper     sweep → swept, fire → fired
    harness     limits, rule, phase, nemesis, process, counts, then final (one per job) and finished

Who writes little may leave out the calls of workers and supervisors: the checker then has less to check, and
its counts say so. This module knows nothing of brokers: states, outcomes, verdicts, causes are plain words.
"""

import heapq
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from windlass.verify.events import (
    FORMAT,
    Annotate,
    Annotated,
    Asked,
    Beat,
    Beaten,
    Claim,
    Claimed,
    Counts,
    Delivery,
    Effect,
    End,
    EndSession,
    Enqueue,
    Enqueued,
    Event,
    Fail,
    Final,
    Finished,
    Fire,
    Fired,
    Gathered,
    Header,
    Info,
    Judged,
    Leased,
    Limits,
    Micros,
    Nemesis,
    Operate,
    Operated,
    Phase,
    Process,
    Receipt,
    Role,
    Rule,
    SessionEnded,
    Settle,
    Settled,
    Start,
    Sweep,
    Swept,
    Word,
)

__all__ = [
    "BATCH",
    "FORMAT",
    "SUFFIX",
    "Annotate",
    "Annotated",
    "Asked",
    "Beat",
    "Beaten",
    "Claim",
    "Claimed",
    "Counts",
    "Delivery",
    "Effect",
    "End",
    "EndSession",
    "Enqueue",
    "Enqueued",
    "Event",
    "Fail",
    "Final",
    "Finished",
    "Fire",
    "Fired",
    "Gathered",
    "Header",
    "HistoryError",
    "Info",
    "Journal",
    "Judged",
    "Leased",
    "Limits",
    "Line",
    "Micros",
    "Nemesis",
    "Operate",
    "Operated",
    "Phase",
    "Process",
    "Receipt",
    "Role",
    "Rule",
    "SessionEnded",
    "Settle",
    "Settled",
    "Start",
    "Sweep",
    "Swept",
    "Word",
    "boot_id",
    "merge",
    "monotonic",
    "read",
    "read_file",
]

SUFFIX = ".jsonl"
BATCH = 256
"""Lines that a writer may hold back before it writes them by itself."""


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

    def now(self) -> Micros:
        """The time that a line would bear."""
        return self._clock()

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

"""The events of a history: one class for each kind of line. What they mean together is told in `history`."""

from typing import Literal, TypeAlias

import msgspec

FORMAT = 1

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
    visibility: Micros = 0
    """For deadline leases: how long they stand."""


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
    more: bool = False
    """The asker's room was the bound, not the work: there was more to hand out."""


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
    extend: Micros = 0
    """Deadline leases stand for so long from now."""


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


class Fire(_Event, tag="fire"):
    """Invoke: a schedule's tick (store's clock) is to become jobs, and `then` its next one; 0: none."""

    call: int
    schedule: str
    tick: Micros
    then: Micros = 0
    jobs: tuple[str, ...] = ()


class Fired(_Event, tag="fired"):
    """Ok: the tick was taken, and these are the jobs it made: none, if it was missed. Without an invoke: what
    the store keeps of it.
    """

    schedule: str
    tick: Micros
    jobs: tuple[str, ...] = ()
    asked: Micros = 0
    """When the store was asked to; 0: this is what it keeps of it."""
    call: int = 0


class Gathered(_Event, tag="gathered"):
    """What a run read of the jobs that it had waited for: ids and results, in the order of its edges."""

    job: str
    fence: int
    parents: tuple[tuple[str, int | None], ...]


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


class Rule(_Event, tag="rule"):
    """What a schedule was declared with."""

    schedule: str
    every: Micros
    catch_up: Literal["one", "all"] = "one"


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
    """For people, except two: `lost_seconds` says that the store lost the writes of the last so many seconds
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
    | Fire
    | Fired
    | Gathered
    | Operate
    | Operated
    | Limits
    | Rule
    | Phase
    | Nemesis
    | Process
    | Counts
    | Final
    | Finished
)

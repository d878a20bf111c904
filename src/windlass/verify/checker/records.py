"""Records of single jobs and sessions, as a history is sorted into them."""

from collections.abc import Callable

import msgspec

from windlass.verify import history as h

FAR = 1 << 62
"""A time that never comes."""


class Run(msgspec.Struct, gc=False):
    """One run of a job, as its task wrote it."""

    fence: int
    attempt: int
    session: str
    start: int
    source: str
    end: int = FAR
    how: str = ""


class Sending(msgspec.Struct, gc=False):
    """One enqueue of a producer."""

    producer: str
    began: int
    ended: int = FAR
    answered: bool = False
    """By the store, with a yes or a no."""


class Word(msgspec.Struct, gc=False):
    """A holder's word on a lease, and the store's."""

    job: str
    fence: int
    outcome: str
    delay: int
    ran: bool
    said: int
    answered: int = FAR
    verdict: str = ""
    stands: str = ""
    state: str = ""
    failed: bool = False

    @property
    def applied(self) -> bool:
        """Whether the store took it, by this answer or an earlier one."""
        return self.verdict in ("applied", "already")


class Lease(msgspec.Struct, gc=False):
    """A job handed out, as its asker heard it."""

    fence: int
    session: str
    number: int
    asked: int
    heard: int
    attempt: int
    visibility: int = 0
    """Of a deadline lease: how long it stands from its claim on."""


class Operation(msgspec.Struct, gc=False):
    """What an operator did to a job."""

    verb: str
    said: int
    answer: str = ""
    answered: int = FAR

    @property
    def may_have_happened(self) -> bool:
        """Unless the store said otherwise."""
        return self.answer in ("", "applied", "flagged")


class JobBook:
    """Everything about one job."""

    __slots__ = (
        "absorbed",
        "accepted",
        "asked",
        "asked_at",
        "calls",
        "created",
        "due",
        "final",
        "fired",
        "leases",
        "notes",
        "operations",
        "refused",
        "runs",
        "spawned_by",
        "words",
    )

    def __init__(self) -> None:
        self.asked: h.Asked | None = None
        self.asked_at = FAR
        self.due = FAR
        """The earliest start that any of its calls allows."""
        self.calls = 0
        """How often its id was handed in; a client's own resends are one call."""
        self.created = 0
        self.accepted = FAR
        self.absorbed = False
        self.refused = 0
        """Calls that certainly did nothing."""
        self.fired = False
        self.spawned_by: list[Word] = []
        self.runs: list[Run] = []
        self.words: list[Word] = []
        self.notes: list[Word] = []
        self.leases: list[Lease] = []
        self.operations: list[Operation] = []
        self.final: h.Final | None = None

    def holder_of(self, fence: int) -> str:
        """The session that was handed this lease, if that was heard."""
        return next((lease.session for lease in self.leases if lease.fence == fence), "")

    def life_of(self, fence: int) -> tuple[int, int]:
        """From when to when a lease can have lived: from its ask to the answer that ended it, or else to the
        first word of a newer one.
        """
        asked = [lease.asked for lease in self.leases if lease.fence == fence]
        started = [run.start for run in self.runs if run.fence == fence]
        ends = [word.answered for word in self.words if word.fence == fence and word.applied]
        if not ends:
            ends = [lease.asked for lease in self.leases if lease.fence > fence]
            ends += [run.start for run in self.runs if run.fence > fence]
        return min(asked + started, default=0), min(ends, default=FAR)

    def did(self, *verbs: str) -> bool:
        """Whether an operator may have done this to it."""
        return any(each.verb in verbs and each.may_have_happened for each in self.operations)


class SessionBook:
    """Everything about one session."""

    __slots__ = (
        "answers",
        "beats",
        "crashed",
        "died",
        "ended",
        "heart",
        "kept",
        "opened",
        "reaped",
        "reapings",
        "started",
        "ttl",
    )

    def __init__(self) -> None:
        self.opened = FAR
        self.ttl = 0
        self.heart = ""
        """The process that beats for it."""
        self.beats: list[int] = []
        """When the beats were sent that were answered."""
        self.answers: list[int] = []
        """When they were answered."""
        self.crashed = False
        """Its process died of itself: neither as told, nor by SIGKILL, which its supervisor may have sent."""
        self.died = FAR
        """When its process was seen to end."""
        self.ended: list[tuple[str, int, int]] = []
        """Words that it is over: cause, when said, when answered."""
        self.started: set[tuple[str, int]] = set()
        self.reapings: list[tuple[int, int]] = []
        """Passes that gave it up: when asked for, when answered."""
        self.reaped = FAR
        self.kept: list[tuple[str, int, int]] = []
        """Of the words that it is over, those that the store cannot have forgotten."""

    def conclude(self, lost: Callable[[int, int], bool]) -> None:
        """The history is complete: what the store has not forgotten counts."""
        self.kept = [each for each in self.ended if not lost(each[1], each[2] if each[2] < FAR else each[1])]
        self.reaped = min((end for begin, end in self.reapings if not lost(begin, end)), default=FAR)

    @property
    def over(self) -> int:
        """When it was certainly over for the store."""
        return min([self.reaped, *(answered for _, _, answered in self.kept)])

    @property
    def gone(self) -> int:
        """When somebody could know that it was over."""
        return min([self.died, self.reaped, *(said for _, said, _ in self.kept)])

"""A connection, with what may be kept in memory between steps because a number in the file says when it is
stale.
"""

from typing import Any, TypeAlias

from windlass.core.settings import LanePolicy, QueuePolicy
from windlass.core.units import Fence, JobId, Micros

Row: TypeAlias = tuple[Any, ...]
Connection: TypeAlias = Any
"""An `apsw.Connection`: its stubs use names that type checkers of Python 3.11 do not know."""


MOST_LEASES = 20_000


Handed: TypeAlias = tuple[Fence, int, int, int, int, Micros, int | None, str, Micros, int]
"""What does not change about a lease for as long as its fence is the job's: fence, n, q, t, attempt,
claimed_at, session, lane, how long it waited, the first lease number of its claim. A bare tuple: a named one
takes three times as long to make.
"""

Stretch: TypeAlias = tuple[Fence, list[int]]
"""The jobs of a claim that are all that this lease number was ever given to: their fence, their numbers in
order.
"""
MOST_STRETCHES = 64

Stood: TypeAlias = tuple[str, int, QueuePolicy, Micros, int, int, Micros]
"""How things stand for one more plain job of a queue: its name, number and policy; of the namespace the mark
and the last number that is counted; the last number given, and when.
"""


class Handle:
    """One connection and its memory. Used by one thread at a time."""

    __slots__ = (
        "__weakref__",
        "connection",
        "cursor",
        "epoch",
        "generation",
        "lane_policies",
        "leases",
        "policies",
        "stood",
        "stood_at",
        "stretches",
        "task_names",
        "tasks",
        "timed",
    )

    def __init__(self, connection: Connection, generation: int) -> None:
        self.connection = connection
        self.generation = generation
        """That of the library: it is closed once that has another."""
        self.cursor: Any = connection.cursor()
        self.epoch = -1
        self.policies: dict[int, QueuePolicy] = {}
        self.lane_policies: dict[tuple[int, str], LanePolicy] = {}
        self.tasks: dict[str, int] = {}
        self.task_names: dict[int, str] = {}
        self.timed: set[int] = set()
        self.leases: dict[JobId, Handed] = {}
        """Plain leases that this connection has handed out, as far as it remembers: so that their end needs
        no look at the file but the one that judges it. A job that is not here is ended the long way.
        """
        self.stood: Stood | None = None
        self.stood_at = -1
        """The version of the file that `stood` holds for: it changes with every commit, whoever's."""
        self.stretches: dict[int, Stretch] = {}
        """Of the last claims, by their lease numbers: a part of one without a gap ends as it began, between
        two numbers.
        """

    def at(self, epoch: int) -> None:
        """Forget policies that were read in another epoch of the file."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.policies.clear()
            self.lane_policies.clear()

    def forget(self) -> None:
        """Forget everything: what was read or written may have been rolled back."""
        self.epoch = -1
        self.policies.clear()
        self.lane_policies.clear()
        self.tasks.clear()
        self.task_names.clear()
        self.timed.clear()
        self.leases.clear()
        self.stretches.clear()
        self.stood_at = -1

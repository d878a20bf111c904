"""A connection, with what may be kept in memory between steps because a number in the file says when it is
stale.
"""

from typing import Any, TypeAlias

from windlass.core.settings import LanePolicy, QueuePolicy

Row: TypeAlias = tuple[Any, ...]
Connection: TypeAlias = Any
"""An `apsw.Connection`: its stubs use names that type checkers of Python 3.11 do not know."""


class Handle:
    """One connection and its memory. Used by one thread at a time."""

    __slots__ = (
        "__weakref__",
        "connection",
        "cursor",
        "epoch",
        "generation",
        "lane_policies",
        "policies",
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

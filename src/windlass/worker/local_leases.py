"""The leases that a worker holds: they wait for a slot, run, or have ended and are not settled yet.

Only the fetcher's thread takes leases in and lets go of them. Any thread may start one or give it back: the
first thread that takes it out of `unstarted` decides. That is one step of a dictionary, which no two threads
can do at once.
"""

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from windlass.core.lease import Lease
from windlass.core.settlement import Settlement
from windlass.worker.program import Registered
from windlass.worker.run import Run
from windlass.worker.table import Table


class Ticket(msgspec.Struct, eq=False, gc=False):
    """A lease that this worker holds."""

    lease: Lease
    task: Registered
    group: int
    slot: int
    """Its row in the table."""
    received: float

    def __repr__(self) -> str:
        """Without its arguments."""
        return f"<ticket of {self.lease.task} {self.lease.job}>"


class Ended(msgspec.Struct, eq=False, gc=False):
    """A ticket with its settlement, on the way to the store."""

    ticket: Ticket | None
    """None: the lease was settled before it was filed in the table."""
    settlement: Settlement
    run: Run | None
    """None: it never started."""

    def __repr__(self) -> str:
        """Without arguments or result."""
        return f"<end of {self.settlement.job}: {self.settlement.outcome}>"


class Line:
    """The tickets of one group that wait for one of its slots."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._waiting: deque[Ticket] = deque()
        self._busy = 0
        self._lock = threading.Lock()

    def add(self, tickets: Sequence[Ticket]) -> None:
        """Add tickets at the end. Those with a higher priority than the first that waits come before it."""
        waiting = self._waiting
        with self._lock:
            urgent = 0
            if waiting:
                usual = waiting[0].lease.priority
                while urgent < len(tickets) and tickets[urgent].lease.priority > usual:
                    urgent += 1
            waiting.extend(tickets[urgent:] if urgent else tickets)
            waiting.extendleft(reversed(tickets[:urgent]))

    def enter(self) -> Ticket | None:
        """The next ticket and a slot for it; None if there is no free slot, or no ticket waits."""
        with self._lock:
            if self._busy >= self.slots or not self._waiting:
                return None
            self._busy += 1
            return self._waiting.popleft()

    def leave(self) -> Ticket | None:
        """Free a slot; the next ticket takes it."""
        with self._lock:
            if self._waiting and self._busy <= self.slots:
                return self._waiting.popleft()
            self._busy -= 1
            return None

    def __len__(self) -> int:
        return len(self._waiting)


class LocalLeases:
    """All leases of a worker."""

    def __init__(self, table: Table, slots: Iterable[int]) -> None:
        self.table = table
        self.lines = [Line(count) for count in slots]
        self.unstarted: dict[Ticket, None] = {}
        self.unfinished = [0 for _ in self.lines]
        """By group: those that have no outcome yet."""
        self._coming = [0 for _ in self.lines]
        self._rows = list(range(table.capacity - 1, -1, -1))

    @property
    def room(self) -> int:
        """How many more leases it can hold."""
        return len(self._rows) - sum(self._coming)

    @property
    def waiting(self) -> int:
        """How many leases wait for a slot."""
        return sum(map(self.waiting_in, range(len(self.lines))))

    def waiting_in(self, group: int) -> int:
        """How many of a group's leases wait for a slot."""
        return len(self.lines[group]) + self._coming[group]

    def announce(self, group: int, count: int) -> None:
        """Count leases that have arrived, and will be taken in."""
        self._coming[group] += count
        self.unfinished[group] += count

    def arrived(self, group: int) -> None:
        """What was announced has arrived: count it no longer."""
        self.unfinished[group] -= self._coming[group]
        self._coming[group] = 0

    def take_in(
        self, leases: Iterable[Lease], tasks: Mapping[str, Registered], group: int, now: float
    ) -> None:
        """File leases that have arrived, all of tasks that this program has, and put them in line."""
        taken: list[Ticket] = []
        file, rows, unstarted = self.table.file, self._rows, self.unstarted
        for lease in leases:
            slot = rows.pop()
            ticket = Ticket(lease, tasks[lease.task], group, slot, now)
            file(slot, lease.job, lease.fence)
            unstarted[ticket] = None
            taken.append(ticket)
        self.unfinished[group] += len(taken)
        self.lines[group].add(taken)

    def oldest(self) -> Ticket | None:
        """The one that has waited longest for its start."""
        try:
            return next(iter(self.unstarted), None)
        except RuntimeError:  # another thread has started one at this moment: look again
            return self.oldest()

    def claim_start(self, ticket: Ticket) -> bool:
        """Claim the right to start a lease. False: it was given back."""
        return self.unstarted.pop(ticket, _MISSING) is None

    def finished(self, ticket: Ticket) -> None:
        """Note that a lease has an outcome."""
        self.unfinished[ticket.group] -= 1

    def let_go(self, ticket: Ticket) -> None:
        """Forget a lease: the store has answered its settlement."""
        self.table.clear(ticket.slot)
        self._rows.append(ticket.slot)

    def let_go_of(self, slots: Sequence[int]) -> None:
        """Forget the leases in these rows: the store has answered their settlements."""
        self.table.clear_all(slots)
        self._rows += slots


_MISSING = object()

"""One group of a worker at the fetcher: its queues, and what is known of its jobs."""

from enum import Enum

from windlass.broker.contract import Pacing
from windlass.core.lease import Ask, Claimed
from windlass.worker.options import Group
from windlass.worker.prefetch import MOST, SOON, Prefetch
from windlass.worker.shares import Shares


class Bound(Enum):
    """Of the three numbers of an ask, the one that stopped the last claim."""

    LIMIT = "limit"
    SOON = "soon"
    """The next job is under a limit."""
    SLOTS = "slots"
    """The next job is on its last attempt, or of a task that was never timed."""


class Desk:
    """One group: its queues, and what is known of its jobs."""

    def __init__(self, number: int, group: Group, pacing: Pacing) -> None:
        self.number = number
        self.slots = group.slots
        self.queues = group.queues
        self.shares = Shares(group)
        self.prefetch = Prefetch(group.slots, most=min(MOST, pacing.ahead))
        self.soon = Prefetch(group.slots, wait=SOON, most=pacing.soon)
        """The same for jobs under a limit, while there are more of them than are handed out."""
        self.ask_at = 0.0
        """When it is worth asking although nothing has been heard."""
        self.bound = Bound.LIMIT
        """What the next job in its queues may be handed out against."""

    def told(self, ask: Ask, claimed: Claimed) -> None:
        """What kept the next job in order back, if there was room for others. Where nothing did, what is
        left is at its limit, and what is held here of it is kept from a worker that could start it.
        """
        count = len(claimed.leases)
        if not claimed.more and ask.soon > ask.slots:
            self.soon.scarce()
        if not claimed.more or count < ask.slots or count >= ask.limit:
            self.bound = Bound.LIMIT
        else:
            self.bound = Bound.SLOTS if count < ask.soon else Bound.SOON

    @property
    def extra(self) -> int:
        """How many jobs like the next one to hold beyond the slots."""
        if self.bound is Bound.SLOTS:
            return 0
        return (self.prefetch if self.bound is Bound.LIMIT else self.soon).size

    def measured(self, runtime: float, waited: float) -> None:
        """Jobs ended: how long they ran on average, and how long one of them had waited here at the most."""
        self.prefetch.measured(runtime, waited)
        self.soon.measured(runtime, waited)

    def gave_back(self) -> None:
        """Jobs waited so long that they were given back."""
        self.prefetch.gave_back()
        self.soon.gave_back()

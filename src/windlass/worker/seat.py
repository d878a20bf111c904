"""A seat: one of the places for children. When a child ends, the next takes its seat, maybe after a pause."""

from windlass.worker.ward import Ward

QUICK = 5.0
"""Seconds: a child that ends sooner, with no job charged, may be one that can never work."""
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
HOPELESS_AFTER = 4
"""Children that end in a row, before one works, until the supervisor gives up."""


class Seat:
    """One place for a child, and how its children have ended so far.

    A crash that is charged to a job cannot go on for ever, since that job ends as a dead letter: the next
    child is started at once. What can go on for ever is a child that ends before any job starts.
    """

    def __init__(self) -> None:
        self.ward: Ward | None = None
        self.hopeless: str | None = None
        """Why no child can work here, as far as is known."""
        self.fails_for_now = False
        """Its last child could not work, for a reason that may pass: the next ones try, ever more seldom."""
        self._streak = 0

    @property
    def at_work(self) -> bool:
        """Whether there is a child, and it claims."""
        return self.ward is not None and self.ward.going

    def take(self, ward: Ward) -> None:
        """Note that a child has started."""
        self.ward = ward

    def leave(self, ward: Ward, detail: str) -> None:
        """Note that a child has ended."""
        if self.ward is ward:
            self.ward = None
        if ward.draining or ward.died is None:
            return
        self.fails_for_now = ward.fails_for_now
        if ward.fails_for_now:
            self._streak, self.hopeless = max(1, self._streak) + 1, None  # it is not tried again at once
        elif ward.charged or ward.died - ward.born >= QUICK:
            self._streak, self.hopeless = 0, None
        elif not (ward.begin.alone and ward.table.clean):
            self.missed(detail, said=ward.failed)

    def missed(self, detail: str, *, said: str | None = None) -> None:
        """Note that a child could not work, or not even start."""
        self._streak += 1
        if said is not None:
            self.hopeless = said
        elif self._streak >= HOPELESS_AFTER:
            self.hopeless = f"children end before they can work: {detail}"

    def pause(self) -> float:
        """Seconds to wait before the next."""
        if self._streak <= 1:
            return 0.0
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self._streak - 2))

"""One of the places for worker processes. When a child ends, the next takes it, maybe after a pause."""

from windlass.worker.supervised_child import SupervisedChild

QUICK = 5.0
"""Seconds: a child that ends sooner, with no job charged, may be one that can never work."""
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
HOPELESS_AFTER = 4
"""Children that end in a row, before one works, until the supervisor gives up."""


class ProcessPlace:
    """One place for a child, and how its children have ended so far.

    A crash that is charged to a job cannot go on for ever, since that job ends as a dead letter: the next
    child is started at once. What can go on for ever is a child that ends before any job starts.
    """

    def __init__(self) -> None:
        self.supervised: SupervisedChild | None = None
        self.hopeless: str | None = None
        """Why no child can work here, as far as is known."""
        self.fails_for_now = False
        """Its last child could not work, for a reason that may pass: the next ones try, ever more seldom."""
        self._streak = 0

    @property
    def at_work(self) -> bool:
        """Whether there is a child, and it claims."""
        return self.supervised is not None and self.supervised.going

    def take(self, supervised: SupervisedChild) -> None:
        """Note that a child has started."""
        self.supervised = supervised

    def leave(self, supervised: SupervisedChild, detail: str) -> None:
        """Note that a child has ended."""
        if self.supervised is supervised:
            self.supervised = None
        if supervised.draining or supervised.died is None:
            return
        self.fails_for_now = supervised.fails_for_now
        if supervised.fails_for_now and supervised.going and supervised.died - supervised.born >= QUICK:
            self._streak, self.hopeless = 2, None  # it has worked: this is the first failure of a new row
        elif supervised.fails_for_now:
            self._streak, self.hopeless = max(1, self._streak) + 1, None  # it is not tried again at once
        elif supervised.charged or supervised.died - supervised.born >= QUICK:
            self._streak, self.hopeless = 0, None
        elif not (supervised.begin.alone and supervised.table.clean):
            self.missed(detail, said=supervised.failed)

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

"""How the reading of one log, or of one queue, goes: counted while it goes on, and told to operators."""

from windlass.core.intake import PartitionStatus
from windlass.core.units import Micros, SessionId
from windlass.pace import Pace


class Going:
    """Counts, and the trouble there is."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._since, self._taken_then = pace.now(), 0
        self.at = ""
        self.place = ""
        self.lag: int | None = None
        self.taken = 0
        self.dead = 0
        self.error = ""
        self.stopped = False
        self.waits_for = ""
        """What it waits for although nothing is wrong with it: it is paused, or there is no room for jobs."""

    def took(self, messages: int, dead: int, *, place: str, at: str = "") -> None:
        """Note that messages were taken."""
        self.taken += messages
        self.dead += dead
        self.place = place or self.place
        if self.lag is not None:
            self.lag = max(0, self.lag - messages)  # until it is looked at again
        self.at = at
        self.works()

    def works(self) -> None:
        """Note that there is no trouble."""
        self.error, self.stopped = "", False

    def waits(self, why: object) -> None:
        """Note that it waits although nothing is wrong with it."""
        self.works()
        self.waits_for = str(why)

    def fails(self, error: object, *, stopped: bool = False) -> None:
        """Note a trouble; `stopped`: it does not go on by itself."""
        self.error, self.stopped = str(error), stopped
        if stopped:
            self.lag = None  # of another log than the one that is there now

    @property
    def trouble(self) -> tuple[str, bool]:
        """What operators are told of at once when it changes."""
        return (self.error, self.stopped)

    def status(self, owner: SessionId, host: str, pid: int, now: Micros) -> PartitionStatus:
        """How it goes, for operators; the rate is that since this was last asked."""
        at = self._pace.now()
        rate = (self.taken - self._taken_then) / max(at - self._since, 0.001)
        self._since, self._taken_then = at, self.taken
        return PartitionStatus(
            owner=owner,
            host=host,
            pid=pid,
            at=self.at,
            place=self.place,
            lag=self.lag,
            taken=self.taken,
            dead=self.dead,
            rate=round(rate, 1),
            error=self.error,
            waits_for=self.waits_for,
            stopped=self.stopped,
            as_of=now,
        )

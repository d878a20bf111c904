"""The two clocks of a store, as the contract describes them."""

from windlass.clock import Clock
from windlass.core.session import liveness_move
from windlass.core.units import Micros


class Timekeeper:
    """The store's time (`max(clock, mark)`) and the liveness clock, which only sweeps move."""

    def __init__(self, clock: Clock, session_ttl: Micros) -> None:
        self._clock = clock
        self._ttl = session_ttl
        self._mark = clock.now()
        self._last_pass: Micros | None = None
        self._left_work = False
        self.liveness: Micros = 0
        self._latest = self._mark
        self.went_back = False
        """Whether the time that verbs see has ever gone back."""

    @property
    def now(self) -> Micros:
        """What every verb sees. A clock more than a TTL behind the mark is followed."""
        clock = self._clock.now()
        now = clock if self._mark - clock > self._ttl else max(clock, self._mark)
        self.went_back = self.went_back or now < self._latest
        self._latest = now
        return now

    @property
    def behind(self) -> Micros:
        """How far the clock is behind the mark, if so far that it is followed."""
        gap = self._mark - self._clock.now()
        return gap if gap > self._ttl else 0

    @property
    def liveness_now(self) -> Micros:
        """The liveness clock as of now: where a pass would move it."""
        if self._last_pass is None:
            return self.liveness
        return self.liveness + liveness_move(self.now - self._last_pass, self._ttl)

    def paced(self, every: Micros) -> bool:
        """Whether a pass now does nothing, since the last one was less than `every` ago and left no work."""
        if self._last_pass is None or self._left_work:
            return False
        return 0 <= self.now - self._last_pass < every

    def swept(self, *, more: bool) -> None:
        """A pass was made."""
        now = self.now
        if self._last_pass is not None:
            self.liveness = self.liveness_now
        self._mark = self._last_pass = now
        self._left_work = more

"""How many jobs a group may hold beyond its slots: so many that none waits longer than about 50 ms, and those
under a limit about 10 ms, since they keep others from starting.
"""

WAIT = 0.05
"""Seconds that an unstarted job may wait in a worker."""
MOST = 2_000
"""Jobs that are held in any case at the most; each store has its own bound (`Pacing.ahead`)."""
SOON = 0.01
"""The same for a job under a limit; at the most so many as the store says (`Pacing.soon`)."""


class Prefetch:
    """Two bounds, the lower counts: the measured run time of the jobs, and how long they really waited.

    Run time alone is wrong where jobs keep the loop to themselves: sixteen slots are then one. Waiting alone
    would give each of sixteen slow jobs a successor to try with.
    """

    def __init__(self, slots: int, *, wait: float = WAIT, most: int = MOST) -> None:
        self._slots = slots
        self._wait = wait
        self._most = most
        self._runtime: float | None = None
        self._allowed = float(slots)

    def measured(self, runtime: float, waited: float) -> None:
        """Jobs ended: how long they ran on average, and how long one of them had waited here at the most."""
        mean = self._runtime
        self._runtime = runtime if mean is None else mean + (runtime - mean) * _WEIGHT
        if waited > self._wait:
            self._allowed = self.size * self._wait / waited
        elif waited < self._wait / 2:
            self._allowed = min(float(self._most), self._allowed * 2 + 1)

    def gave_back(self) -> None:
        """Jobs waited so long that they were given back."""
        self._allowed = 0.0

    def scarce(self) -> None:
        """All there was has been handed out: what waits here, others could have started."""
        self._allowed = 0.0

    def shorter_than(self, seconds: float) -> bool:
        """Whether jobs take less than that, as far as is known."""
        return self._runtime is not None and self._runtime < seconds

    @property
    def size(self) -> int:
        """How many jobs to hold beyond the slots."""
        if self._runtime is None:
            return 0
        worth = self._most if self._runtime <= 0 else self._wait * self._slots / self._runtime
        return int(min(self._allowed, worth, self._most))


_WEIGHT = 0.2

"""For how long, and how patiently, an enqueue is sent again when the store does not answer.

A store remembers an id for the resend window after its job finished, and a job can be done as soon as it was
sent. So the window counts from the first try, for all tries of a job together: half of it to begin a try, the
rest for that try to arrive.
"""

import random
import time

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0


class Resend:
    """The tries of some jobs, from the first on."""

    __slots__ = ("_pause", "_start", "_window")

    def __init__(self, window: float, start: float | None = None) -> None:
        """`start` is when the first try began, by the monotonic clock; None: now."""
        self._start = time.monotonic() if start is None else start
        self._window = window
        self._pause = _FIRST_PAUSE

    @property
    def is_over(self) -> bool:
        """Whether nothing may be sent again any more."""
        return self.left <= self._window / 2

    @property
    def left(self) -> float:
        """Seconds for a try to arrive in."""
        return self._start + self._window - time.monotonic()

    def pause(self) -> float | None:
        """Seconds to wait before the next try; None: there is none."""
        pause = self._pause * random.uniform(0.5, 1)  # noqa: S311 - jitter, not a secret
        self._pause = min(_LONGEST_PAUSE, self._pause * 2)
        return None if self.left - pause <= self._window / 2 else pause

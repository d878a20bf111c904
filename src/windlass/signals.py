"""What a task raises to say how its run ends, other than done or failed."""

from windlass.core.duration import Duration, micros
from windlass.core.units import Micros


class Signal(Exception):
    """Base of the four: not an error, a word to the worker."""


class Retry(Signal):
    """Run this job again: `raise Retry(after=30)`. This spends an attempt. Without `after` the retry policy
    of the task sets the delay. After the last attempt the job is a dead letter.
    """

    def __init__(self, why: str = "", *, after: Duration | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.after: Micros | None = None if after is None else micros(after, name="after")


class Snooze(Signal):
    """Run this job later and count no attempt: `raise Snooze(60)`."""

    def __init__(self, delay: Duration, why: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.delay: Micros = micros(delay, name="delay")


class GiveUp(Signal):
    """Never run this job again: `raise GiveUp("no such customer")`. It becomes a dead letter at once,
    even if it has attempts left.
    """

    def __init__(self, why: str = "") -> None:
        super().__init__(why)
        self.why = why


class Cancelled(Signal):
    """End this job as cancelled: `raise Cancelled("the order was withdrawn")`. It is not tried again.
    `current.check_cancelled()` raises it when somebody else has asked to cancel the job.
    """

    def __init__(self, why: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.lease_lost = False
        """The run stops because its worker may have lost the job: it goes back, and is not cancelled."""

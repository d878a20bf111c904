"""What befalls runs of a test: a worker that dies, a wish to cancel."""

from typing import Literal

import msgspec

from windlass.core.lease import Lease
from windlass.core.option import whole


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """What befalls a run."""

    what: Literal["crash", "lost", "cancel"]
    """Its worker dies and its supervisor sees it; nobody sees it, and its session falls silent; or somebody
    asks for the job to be cancelled.
    """
    after_run: bool = False
    """Whether the code is run first."""


class Fates:
    """Fates of coming runs, by job id and by task."""

    def __init__(self) -> None:
        self._coming: dict[str, list[Fate]] = {}

    def add(self, name: str, fate: Fate, times: int) -> None:
        """Decide on the next runs of a job or a task."""
        self._coming.setdefault(name, []).extend([fate] * whole(times, name="times", least=1, most=1_000))

    def of(self, lease: Lease) -> Fate | None:
        """The fate of a run that starts; it is used up."""
        for name in (lease.job, f"task:{lease.task}"):
            if waiting := self._coming.get(name):
                return waiting.pop(0)
        return None

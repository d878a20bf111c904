"""What a user asks of a run."""

from pathlib import Path

import msgspec

from windlass.core.option import shown
from windlass.errors import InvalidOption
from windlass.verify.brokers.fronts import FRONTS

RATE = 150.0
"""Jobs a second, where nobody says how many."""
LEAST = 0.1
"""Minutes."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `windlass verify`, read."""

    url: str | None = None
    own: str | None = None
    front: str | None = None
    """The message broker that the run starts as the front door of its producers; None: there is none."""
    minutes: float = 2.0
    seed: int = 1
    jobs: int | None = None
    report: Path | None = None
    faults: tuple[str, ...] = ()
    """The kinds of faults to inject; empty: all that are usual and possible."""

    @property
    def seconds(self) -> float:
        """How long jobs are produced."""
        return self.minutes * 60

    @property
    def rate(self) -> float:
        """Jobs a second, of all producers together."""
        return RATE if self.jobs is None else self.jobs / self.seconds


def check(wanted: Wanted) -> Wanted:
    """Refuse what has no meaning, with a way out."""
    if (wanted.url is None) == (wanted.own is None):
        raise InvalidOption(
            "say which store: --url URL for one of yours (workers and network are hurt, the store is not), "
            "or --own sqlite, redis, postgres or cluster for one that the run starts and hurts as well"
        )
    if wanted.front is not None and wanted.front not in FRONTS:
        raise InvalidOption(f"--front is {' or '.join(FRONTS)}, not {shown(wanted.front)}")
    if not LEAST <= wanted.minutes <= 24 * 60:
        raise InvalidOption(f"--minutes must be from {LEAST:g} to 1,440, not {wanted.minutes:g}")
    if wanted.jobs is not None and not 1 <= wanted.jobs <= 10_000_000:
        raise InvalidOption(f"--jobs must be from 1 to 10,000,000, not {wanted.jobs}")
    return wanted

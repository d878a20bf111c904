"""Edges: what the state of a parent does to a job that waits for it."""

from enum import StrEnum

from windlass.core.job import OnFailure
from windlass.core.state import State


class EdgeRuling(StrEnum):
    """What becomes of the job at the end of an edge."""

    WAIT = "wait"
    FREE = "free"
    """It does not wait for this parent, or no longer."""
    CANCEL = "cancel"
    """It is cancelled."""


def rule_edge(on_failure: OnFailure, parent: State | None) -> EdgeRuling:
    """Decide by the state of the parent; None: it is not placed yet.

    A parent that was discarded, purged or pruned without being done counts as cancelled. A dead parent may
    still be replayed, so only `run` acts on it.
    """
    if parent is State.DONE:
        return EdgeRuling.FREE
    if parent is State.CANCELLED:
        return EdgeRuling.CANCEL if on_failure is OnFailure.CANCEL else EdgeRuling.FREE
    if parent is State.DEAD and on_failure is OnFailure.RUN:
        return EdgeRuling.FREE
    return EdgeRuling.WAIT

"""Which arrows of the transition table each verb may take."""

from collections.abc import Collection, Mapping
from functools import cache

from windlass.core.state import TRANSITIONS, Move, State

_FATE = {Move.UNBLOCK, Move.PARENT_FAILED, Move.PRUNE}
"""What the end of a job brings about: for its dependents, and for itself where nothing is kept."""
_ENQUEUE = {Move.ENQUEUE, Move.REPLACE, *_FATE}
_CLAIM = {Move.DUE, Move.CLAIM, Move.EXPIRE, *_FATE}
_TAKEN_AWAY = {Move.RELEASE, Move.CRASH, Move.LOST, Move.CANCEL, Move.SUPERSEDE, *_FATE}
_SETTLE = {
    *(Move.DONE, Move.RETRY, Move.SNOOZE, Move.HOLD, Move.RELEASE, Move.DEAD, Move.CANCEL, Move.SUPERSEDE),
    *_ENQUEUE,
}

MOVES: Mapping[str, Collection[Move]] = {
    "enqueue": _ENQUEUE,
    "take": _ENQUEUE,
    "claim": _CLAIM,
    "settle": _SETTLE,
    "settle and claim": _SETTLE | _CLAIM,
    "end_session": _TAKEN_AWAY,
    "sweep": _TAKEN_AWAY | {Move.DUE, Move.DEADLINE, Move.EXPIRE},
    "cancel": {Move.CANCEL, *_FATE},
    "replay": {Move.REPLAY},
    "discard": {Move.DISCARD, *_FATE},
    "prune": _FATE,
    "edit": {Move.EDIT},
    "purge": {Move.PURGE, *_FATE},
    "unhold": {Move.UNHOLD},
    "fire": _ENQUEUE,
}
"""Every other verb changes no job's state."""


def moves(verbs: Collection[str]) -> frozenset[Move]:
    """The moves that these verbs may make."""
    return frozenset(move for verb in verbs for move in MOVES.get(verb, ()))


@cache
def reachable(allowed: frozenset[Move]) -> frozenset[tuple[State | None, State | None]]:
    """From which state to which a job may come by any number of these moves."""
    reached = {(arrow.before, arrow.after) for arrow in TRANSITIONS if arrow.move in allowed}
    while True:
        longer = {(first, last) for first, middle in reached for again, last in reached if middle == again}
        if longer <= reached:
            return frozenset(reached)
        reached |= longer

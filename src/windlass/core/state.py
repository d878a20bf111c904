"""The seven states of a job and the one table of transitions between them.

Everything that concerns transitions is made from `TRANSITIONS`: the model refuses a move that is not in
it, the state machine checks that no store makes one, and the diagram in the docs is drawn from it.
"""

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """Where a job is in its life. Retrying is `scheduled` with attempt > 0; held, with a hold."""

    BLOCKED = "blocked"
    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


WAITING = frozenset({State.BLOCKED, State.SCHEDULED, State.READY})
UNFINISHED = WAITING | {State.RUNNING}
TERMINAL = frozenset({State.DONE, State.DEAD, State.CANCELLED})

PLAIN_NAMES = {
    State.BLOCKED: "PENDING",
    State.SCHEDULED: "PENDING",
    State.READY: "PENDING",
    State.RUNNING: "RUNNING",
    State.DONE: "DONE",
    State.DEAD: "FAILED",
    State.CANCELLED: "CANCELLED",
}
"""The names that users of `POST /enqueue` know; answers about a job carry both."""


class Move(StrEnum):
    """Why a job changes its state: the label on an arrow of the diagram."""

    ENQUEUE = "enqueue"
    UNBLOCK = "unblock"
    PARENT_FAILED = "parent failed"
    DUE = "due"
    UNHOLD = "unhold"
    CLAIM = "claim"
    DONE = "done"
    RETRY = "retry"
    SNOOZE = "snooze"
    HOLD = "hold"
    RELEASE = "release"
    DEAD = "dead"
    CANCEL = "cancel"
    SUPERSEDE = "supersede"
    CRASH = "crash"
    LOST = "lost"
    DEADLINE = "deadline"
    EXPIRE = "expire"
    REPLACE = "replace"
    EDIT = "edit"
    REPLAY = "replay"
    DISCARD = "discard"
    PURGE = "purge"
    PRUNE = "prune"


class Reason(StrEnum):
    """Why a job is in the state it is in, where the state alone does not say."""

    GAVE_UP = "gave up"
    EXHAUSTED = "attempts exhausted"
    CRASHED = "crashed its worker"
    LOST = "worker lost"
    DEADLINE = "lease ran out"
    EXPIRED = "expired before its first start"
    HELD_TOO_LONG = "held too long"
    UNFIT = "arrived unfit to run"
    CANCELLED = "cancelled on request"
    SUPERSEDED = "superseded"
    PARENT_FAILED = "parent failed"
    PURGED = "purged"
    PARENT_DEAD = "parent dead"


class Arrow(NamedTuple):
    """One permitted transition. `None` stands for "no record": before enqueue, and after removal."""

    before: State | None
    move: Move
    after: State | None


def _arrows(before: State | None, move: Move, *after: State | None) -> tuple[Arrow, ...]:
    return tuple(Arrow(before, move, state) for state in after)


_S = State
TRANSITIONS: frozenset[Arrow] = frozenset(
    (
        # Born dead: what an intake took from a source and nobody can run.
        *_arrows(None, Move.ENQUEUE, _S.READY, _S.SCHEDULED, _S.BLOCKED, _S.DEAD),
        # Born cancelled: its parent has already failed and the edge says `cancel`.
        *_arrows(None, Move.PARENT_FAILED, _S.CANCELLED),
        *_arrows(_S.BLOCKED, Move.UNBLOCK, _S.READY, _S.SCHEDULED),
        *_arrows(_S.BLOCKED, Move.PARENT_FAILED, _S.CANCELLED),
        *_arrows(_S.BLOCKED, Move.REPLACE, _S.BLOCKED),
        *_arrows(_S.SCHEDULED, Move.DUE, _S.READY),
        *_arrows(_S.SCHEDULED, Move.UNHOLD, _S.READY),
        *_arrows(_S.SCHEDULED, Move.REPLACE, _S.SCHEDULED, _S.READY),
        *_arrows(_S.READY, Move.REPLACE, _S.SCHEDULED, _S.READY),
        *_arrows(_S.READY, Move.CLAIM, _S.RUNNING),
        *_arrows(_S.RUNNING, Move.DONE, _S.DONE),
        *_arrows(_S.RUNNING, Move.RETRY, _S.SCHEDULED, _S.READY, _S.DEAD),
        *_arrows(_S.RUNNING, Move.SNOOZE, _S.SCHEDULED, _S.READY),
        *_arrows(_S.RUNNING, Move.HOLD, _S.SCHEDULED, _S.DEAD),
        *_arrows(_S.RUNNING, Move.RELEASE, _S.READY),
        *_arrows(_S.RUNNING, Move.DEAD, _S.DEAD),
        *_arrows(_S.RUNNING, Move.CANCEL, _S.CANCELLED),
        *_arrows(_S.RUNNING, Move.SUPERSEDE, _S.CANCELLED),
        *_arrows(_S.RUNNING, Move.CRASH, _S.READY, _S.SCHEDULED, _S.DEAD),
        *_arrows(_S.RUNNING, Move.LOST, _S.READY, _S.SCHEDULED, _S.DEAD),
        *_arrows(_S.RUNNING, Move.DEADLINE, _S.READY, _S.DEAD),
        *_arrows(_S.DEAD, Move.REPLAY, _S.READY),
        *_arrows(_S.DEAD, Move.DISCARD, None),
        *(Arrow(state, Move.CANCEL, _S.CANCELLED) for state in WAITING),
        *(Arrow(state, Move.PURGE, _S.CANCELLED) for state in WAITING),
        *(Arrow(state, Move.EXPIRE, _S.DEAD) for state in WAITING),
        *(Arrow(state, Move.EDIT, state) for state in WAITING | {_S.DEAD}),
        *(Arrow(state, Move.PURGE, None) for state in TERMINAL),
        *(Arrow(state, Move.PRUNE, None) for state in TERMINAL),
    )
)


def permitted(before: State | None, move: Move, after: State | None) -> bool:
    """Whether the table permits this transition."""
    return Arrow(before, move, after) in TRANSITIONS


def diagram() -> str:
    """The table as a Mermaid state diagram, for the docs."""
    lines = ["stateDiagram-v2"]
    edges: dict[tuple[str, str], list[str]] = {}
    for before, move, after in TRANSITIONS:
        ends = (before or "[*]", after or "[*]")
        edges.setdefault(ends, []).append(move)
    for (before, after), moves in sorted(edges.items()):
        lines.append(f"    {before} --> {after}: {', '.join(sorted(moves))}")
    return "\n".join(lines) + "\n"

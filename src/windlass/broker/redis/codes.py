"""Codes and constants that scripts share with windlass.core. The linker puts them into Lua as literals.

A word `$State.READY` in a script stands for the code of that state, `$Move.CLAIM` for that text, `$STRIDE`
for that number. States, modes, statuses and emits are kept as numbers, everything else as the text of its
enum.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from windlass.core import order, retry, session, settlement, timetable, units
from windlass.core.dedup import KeyRuling
from windlass.core.edge import EdgeRuling
from windlass.core.event import Emit
from windlass.core.job import Mode, OnFailure, Refusal, Status
from windlass.core.lease import Asker
from windlass.core.operate import Effect
from windlass.core.outcome import CauseKind, Outcome, Verdict
from windlass.core.query import Parked, Why
from windlass.core.settings import Change
from windlass.core.state import Move, Reason, State
from windlass.core.take import TakeStatus
from windlass.core.timetable import FireStatus

FORMAT: Final = 4
"""Of all records: raised whenever one of them changes."""
STATES: Final = (
    State.BLOCKED,
    State.SCHEDULED,
    State.READY,
    State.RUNNING,
    State.DONE,
    State.DEAD,
    State.CANCELLED,
)
STATE_CODES: Final = {state: code for code, state in enumerate(STATES)}
MODES: Final = (Mode.IGNORE, Mode.REPLACE, Mode.THROTTLE)
STATUSES: Final = (Status.CREATED, Status.DUPLICATE, Status.REPLACED)
EMITS: Final = (Emit.NONE, Emit.FINAL, Emit.ALL)
ASKERS: Final = (Asker.ALIVE, Asker.LOST, Asker.OUTDATED)
POLICIES: Final = {b"c": OnFailure.CANCEL, b"i": OnFailure.IGNORE, b"r": OnFailure.RUN}
DELIVERIES: Final = 10
"""Deliveries of a job that are kept."""

_NUMBERED: Final[Mapping[str, tuple[StrEnum, ...]]] = {
    "State": STATES,
    "Mode": MODES,
    "Status": STATUSES,
    "Emit": EMITS,
    "Asker": ASKERS,
}
_TEXTS: Final[Mapping[str, type[StrEnum]]] = {
    "Move": Move,
    "Reason": Reason,
    "Outcome": Outcome,
    "Cause": CauseKind,
    "Verdict": Verdict,
    "Key": KeyRuling,
    "Edge": EdgeRuling,
    "Refusal": Refusal,
    "Effect": Effect,
    "Change": Change,
    "Fire": FireStatus,
    "Take": TakeStatus,
    "Why": Why,
    "Parked": Parked,
}
_HEAD: Final = ">BBBBI4I8I8I8I8I4I8I8I8I8I8I2c0I2c0"
_FORMS: Final[Mapping[str, str]] = {
    "HEAD_READ": _HEAD,
    "HEAD_AGAIN": f"{_HEAD}c0",  # a head that was read, with its end as it was
    "HEAD_FORM": f"{_HEAD}c0BI6B",
    "NUMBERS_FORM": ">i8i8i8i8i8i8i8i8i8i8i8B",
    "FIFO_FORM": ">I6I6BI6BI6",
}
"""Of records that more than one part writes."""
_CONSTANTS: Final[Mapping[str, int]] = {
    "FORMAT": FORMAT,
    "FIFO_CHUNK": 64,
    "FIFO_ENTRY": 23,
    "KEPT": ord("k"),
    "CLASS_DONE": ord("n"),
    "IN_FIFO": 1,
    "IN_ORDER": 2,
    "SUSPECT": 3,
    "DELIVERIES": DELIVERIES,
    "FAN_OUT": 100,
    "STRIDE": order.STRIDE,
    "REBASE_AT": order.REBASE_AT,
    "MAX_TURN": order.MAX_TURN,
    "TURN_STEP": order.TURN_STEP,
    "WEYL": order.WEYL,
    "SECOND": units.SECOND,
    "CRASH_CAP": retry.CRASH_CAP,
    "HOLD_FIRST": settlement.HOLD_FIRST,
    "HOLD_CAP": settlement.HOLD_CAP,
    "HOLD_LIMIT": settlement.HOLD_LIMIT,
    "SUSPECT_AFTER": settlement.SUSPECT_AFTER,
    "OUTAGE_STEP": session.OUTAGE_STEP,
    "OUTAGE_SHARE": session.OUTAGE_SHARE,
    "ENDED_KEPT": session.ENDED_KEPT,
    "END_LEASES": session.END_LEASES,
    "OVERDUE": session.OVERDUE,
    "LOG_LINES": session.LOG_LINES,
    "MEMOS": session.MEMOS,
    "MEMO_BYTES": session.MEMO_BYTES,
    "FIRES_KEPT": timetable.FIRES_KEPT,
}


def literals() -> dict[str, str]:
    """What the linker puts in the place of each word, without its dollar."""
    words = {name: str(value) for name, value in _CONSTANTS.items()}
    words |= {name: f"'{form}'" for name, form in _FORMS.items()}
    for kind, members in _NUMBERED.items():
        words |= {f"{kind}.{member.name}": str(code) for code, member in enumerate(members)}
    for kind, enum in _TEXTS.items():
        words |= {f"{kind}.{member.name}": f"'{member.value}'" for member in enum}
    words |= {f"OnFailure.{policy.name}": f"'{letter.decode()}'" for letter, policy in POLICIES.items()}
    return words

"""Codes and constants of the core, as the functions of the store are given them when they are installed.

A word in capitals in `sql/` and `migrations/` stands for one of these, so that no number is written twice.
"""

import re
from typing import Final

from windlass.broker.postgres.records import CODES, EMITS, FAILURES, MODES
from windlass.core.bounds import FAN_OUT
from windlass.core.order import MAX_TURN, STRIDE, TURN_STEP, WEYL
from windlass.core.retry import CRASH_CAP
from windlass.core.session import OUTAGE_STEP, OVERDUE
from windlass.core.settlement import HOLD_CAP, HOLD_FIRST, HOLD_LIMIT, SUSPECT_AFTER
from windlass.core.units import SECOND

_VALUES: Final[dict[str, int]] = {
    **{f"STATE_{state.name}": code for state, code in CODES.items()},
    "STATE_UNPLACED": -1,
    **{f"MODE_{mode.name}": code for mode, code in MODES.items()},
    **{f"ON_FAILURE_{failure.name}": code for failure, code in FAILURES.items()},
    **{f"EMIT_{emit.name}": code for emit, code in EMITS.items()},
    "KEPT_PLAIN": 0,
    "KEPT_WITH_RESULT": 1,
    "KEPT_DEAD": 2,
    # Kinds of horizons: as `kept`, the results themselves, and from here on, by `kept`, what is gone.
    "HORIZON_OF_RESULTS": 2,
    "HORIZON_OF_GONE": 3,
    "FAN_OUT": FAN_OUT,
    "STRIDE": STRIDE,
    "MAX_TURN": MAX_TURN,
    "TURN_STEP": TURN_STEP,
    "WEYL": WEYL,
    "SUSPECT_AFTER": SUSPECT_AFTER,
    "HOLD_FIRST": HOLD_FIRST,
    "HOLD_CAP": HOLD_CAP,
    "HOLD_LIMIT": HOLD_LIMIT,
    "CRASH_FIRST": SECOND,
    "CRASH_CAP": CRASH_CAP,
    "LIVENESS_STEP": OUTAGE_STEP,
    "LAST_BAND": 2**63 - 1,
    "DRAW": 1_024,
    "RUN_WIDTH": 100,
    "OVERDUE": OVERDUE,
}
_WORDS: Final = re.compile(r"\b(" + "|".join(sorted(_VALUES, key=len, reverse=True)) + r")\b")
_BIGINT: Final = 2**31


def _text(name: str) -> str:
    value = _VALUES[name]
    return f"{value}::bigint" if value >= _BIGINT or name.startswith(("HOLD", "CRASH")) else str(value)


def with_constants(script: str) -> str:
    """A script with values in the place of their names."""
    return _WORDS.sub(lambda found: _text(found.group()), script)

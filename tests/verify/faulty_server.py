"""The app of a run, served with planted bugs: leases run out ten times as fast as was asked for, and some
settlements are called applied without a word to the store.
"""

import os
from collections.abc import Sequence

import msgspec

from windlass.admin.leasing import Ending, Leasing, Work
from windlass.broker.contract import Broker
from windlass.core.lease import Ask
from windlass.core.outcome import Answer, Outcome, Verdict
from windlass.core.state import State
from windlass.verify.ground import HOST
from windlass.verify.tasks import app

__all__ = ["FOUND_BY", "app"]

FOUND_BY = ("deadlines_are_kept", "stale_fences_change_nothing")
HASTE = 10

_claim, _settle = Leasing.claim, Leasing.settle


async def claim(self: Leasing, broker: Broker, ask: Ask) -> Work:
    assert ask.visibility is not None
    return await _claim(self, broker, msgspec.structs.replace(ask, visibility=ask.visibility // HASTE))


async def settle(self: Leasing, broker: Broker, endings: Sequence[Ending]) -> list[Answer]:
    if endings[0].fence % 2 and all(ending.outcome is Outcome.DONE for ending in endings):
        return [Answer(Verdict.APPLIED, outcome=Outcome.DONE, state=State.DONE) for _ in endings]
    return await _settle(self, broker, endings)


if HOST in os.environ:  # in a process of the run; whoever else imports this wants the names alone
    Leasing.claim, Leasing.settle = claim, settle

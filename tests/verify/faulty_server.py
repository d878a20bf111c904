"""The app of a run, served with planted bugs: leases run out ten times as fast as was asked for, and some
settlements are called applied without a word to the store.
"""

import os
from collections.abc import Mapping, Sequence

import msgspec

from windlass.admin.leases import Ending, Leases, Work
from windlass.core.job import JobDetail
from windlass.core.lease import Ask
from windlass.core.outcome import Answer, Outcome, Verdict
from windlass.core.state import State
from windlass.core.units import JobId
from windlass.verify.ground import HOST
from windlass.verify.tasks import app

__all__ = ["FOUND_BY", "app"]

FOUND_BY = ("deadlines_are_kept", "stale_fences_change_nothing")
HASTE = 10

_claim, _settle = Leases.claim, Leases.settle


async def claim(self: Leases, ask: Ask) -> Work:
    assert ask.visibility is not None
    return await _claim(self, msgspec.structs.replace(ask, visibility=ask.visibility // HASTE))


async def settle(
    self: Leases, endings: Sequence[Ending], known: Mapping[JobId, JobDetail] | None = None
) -> list[Answer]:
    if endings[0].fence % 2 and all(ending.outcome is Outcome.DONE for ending in endings):
        return [Answer(Verdict.APPLIED, outcome=Outcome.DONE, state=State.DONE) for _ in endings]
    return await _settle(self, endings, known)


if HOST in os.environ:  # in a process of the run; whoever else imports this wants the names alone
    Leases.claim, Leases.settle = claim, settle

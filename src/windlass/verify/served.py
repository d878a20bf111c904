"""What a server of a run writes down: its own doings, not those of its callers.

Who speaks HTTP writes down what it asked and what it was told: that is what has to hold, whatever happened
between the two. Of the leases the server itself gives back those whose caller has left, and holds what nobody
could run.
"""

from collections.abc import Sequence

from windlass.broker.contract import Settled
from windlass.core.lease import Ask, Claimed
from windlass.core.outcome import Outcome, Verdict
from windlass.core.session import Note
from windlass.core.settlement import Settlement
from windlass.verify import history
from windlass.verify.simulator.recorded import Recorded, judged

_OWN = (Outcome.RELEASE, Outcome.HOLD)
"""A caller may say so as well; said by both, it is still one word."""


class Served(Recorded):
    """Records sweeps, fires and give-backs alone."""

    async def claim(self, ask: Ask) -> Claimed:
        """Pass by."""
        return await self._broker.claim(ask)

    async def annotate(self, notes: Sequence[Note]) -> Sequence[Verdict]:
        """Pass by."""
        return await self._broker.annotate(notes)

    async def settle(self, items: Sequence[Settlement], ask: Ask | None = None) -> Settled:
        """Write down what may be the server's own word."""
        places = [place for place, item in enumerate(items) if item.outcome in _OWN]
        if not places:
            return await self._broker.settle(items, ask)
        journal = self._journal
        call = journal.call()
        words = tuple(
            history.Word(job=each.job, fence=each.fence, outcome=each.outcome.value, ran=False)
            for each in (items[place] for place in places)
        )
        journal.write(history.Settle(call=call, words=words))
        settled = await self._answer(call, self._broker.settle(items, ask))
        answers = tuple(judged(items[place], settled.answers[place]) for place in places)
        journal.write(history.Settled(call=call, answers=answers))
        return settled

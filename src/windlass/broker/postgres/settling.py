"""Settlements on their way: what is plainly done goes the short way, also where others beside it cannot."""

from collections.abc import Sequence
from typing import Final

from windlass.broker.contract import Settled
from windlass.broker.postgres import answers
from windlass.broker.postgres.arrays import ask_of, done_of, is_plainly_done, no_ask_of, settlements_of
from windlass.broker.postgres.ways import Ways
from windlass.core.lease import Ask
from windlass.core.outcome import Answer
from windlass.core.settlement import Settlement

_SETTLED: Final = ("\0settled",)
"""Stands for the queues of jobs that are settled without asking for others; no queue has such a name."""
_APART: Final = 8
"""Jobs that are worth a call of their own."""


async def settle(ways: Ways, items: Sequence[Settlement], ask: Ask | None) -> Settled:
    """Settle a batch, and answer the ask that comes with it."""
    queues = _SETTLED if ask is None else ask.queues
    done = [item for item in items if is_plainly_done(item)]
    applied = False
    if ask is None or not ask.alone:
        if len(done) == len(items):
            rows = await ways.short("settle_done", queues, *done_of(items), *ask_of(ask))
            if rows is not None:
                return answers.settled(rows, len(items), asked=ask is not None)
        elif len(done) >= _APART:
            # In a step of their own, before the others: one failure would make each job of the batch several
            # times as dear. Only beside others: where jobs free slots, one can tell in which order they did.
            # If this ends between the two steps, the batch is repeated, as after any whose answer was lost.
            columns = (*done_of(done), *no_ask_of(ask))
            applied = _are_different(items) and await ways.plain("settle_done", queues, *columns)
    left = [item for item in items if not is_plainly_done(item)] if applied else items
    rows = await ways.beside("settle", queues, *settlements_of(left), *ask_of(ask))
    settled = answers.settled(rows, len(left), asked=ask is not None)
    return _in_order(items, settled) if applied else settled


def _are_different(items: Sequence[Settlement]) -> bool:
    return len({item.job for item in items}) == len(items)


def _in_order(items: Sequence[Settlement], settled: Settled) -> Settled:
    others = iter(settled.answers)
    ruled: list[Answer] = [answers.DONE if is_plainly_done(item) else next(others) for item in items]
    return Settled(answers=tuple(ruled), claimed=settled.claimed)

"""Exchanging: one call settles what has ended and asks for more.

A call is repeated word for word until the store answers, so a lost reply costs a round trip and nothing else:
the store knows settlements by their fences, and an ask by its number.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from windlass.broker.contract import Broker
from windlass.core.lease import Ask, Claimed
from windlass.errors import ContractError, StoreError
from windlass.pace import Pace
from windlass.patience import insist
from windlass.worker.local_leases import Ended
from windlass.worker.settler import Settler

_log = logging.getLogger("windlass.worker")
_T = TypeVar("_T")


class Exchange:
    """Calls the store for the fetcher, one call after the other."""

    def __init__(
        self,
        broker: Broker,
        pace: Pace,
        settler: Settler,
        *,
        gives_up: Callable[[StoreError], bool],
        meanwhile: Callable[[], Callable[[], None] | None],
    ) -> None:
        """`gives_up` says whether an error ends the worker. `meanwhile` gives what to do while a call is on
        its way to the store, if there is something to do.
        """
        self._broker = broker
        self._pace = pace
        self._settler = settler
        self._gives_up = gives_up
        self._meanwhile = meanwhile

    async def settle_and_ask(self, batch: Sequence[Ended], ask: Ask | None) -> Claimed | None:
        """Settle a batch, which may be empty, and ask; None: the store has answered no ask."""
        if not batch:
            return None if ask is None else await self.until_answered(lambda: self._broker.claim(ask))
        items = [ended.settlement for ended in batch]
        try:
            settled = await self.until_answered(lambda: self._broker.settle(items, ask))
        except ContractError as error:
            _log.error("the store refuses a batch of outcomes (%s); they are sent one by one", error)
            await self._one_by_one(batch)
            return None
        self._settler.answered(settled.answers)
        return settled.claimed

    async def until_answered(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Call until the store answers."""
        return await insist(
            self._pace, "asking the store for jobs", lambda: self._once(call), gives_up=self._gives_up
        )

    def _once(self, call: Callable[[], Awaitable[_T]]) -> Awaitable[_T]:
        do = self._meanwhile()
        return call() if do is None else _beside(call(), do)

    async def _one_by_one(self, batch: Sequence[Ended]) -> None:
        """Find the outcome that the store refuses; the others are settled."""
        for ended in list(batch):
            settle = partial(self._broker.settle, [ended.settlement])
            try:
                settled = await self.until_answered(settle)
            except ContractError as error:
                self._settler.dropped(ended, str(error))
            else:
                self._settler.answered_one(ended, settled.answers[0])


async def _beside(call: Awaitable[_T], do: Callable[[], None]) -> _T:
    """Do something while a call is on its way."""
    asked = asyncio.ensure_future(call)
    try:
        await asyncio.sleep(0)
        do()
    except BaseException:
        asked.cancel()
        raise
    return await asked

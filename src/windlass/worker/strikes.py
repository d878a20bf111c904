"""The strikes that a worker obeys: read before its first claim, and again when the settings have changed.

Matched after claim, by the worker, since no store looks into a payload. A job that is struck goes back as it
came: held under the key of the strike, no attempt spent, nothing of it started.
"""

import logging
from collections.abc import Sequence

from windlass.broker.contract import Broker
from windlass.core.bounds import CALL_ITEMS
from windlass.core.lease import Lease
from windlass.core.outcome import Outcome
from windlass.core.settings import Document, Kind, Subject
from windlass.core.settlement import HoldKey, Settlement
from windlass.core.strike import Strike, decode_strike, first_match, strike_key
from windlass.errors import StoreError
from windlass.pace import Pace
from windlass.worker.failure import clipped

_log = logging.getLogger("windlass.worker")

PAGE = 1_000
STRAGGLERS = 2.0
"""Seconds after which what a lifted strike has held is freed once more: an outcome may have been on its way,
and other workers may hear of the lifting later.
"""


class Strikes:
    """The strikes in force, by task. Mostly there are none: one look at an empty dictionary."""

    def __init__(self) -> None:
        self.by_task: dict[str, tuple[Strike, ...]] = {}

    def hold(self, lease: Lease) -> Settlement | None:
        """The settlement of a lease that is struck."""
        strikes = self.by_task.get(lease.task)
        found = None if strikes is None else first_match(strikes, lease.payload)
        if found is None:
            return None
        hold = HoldKey(strike_key(found.id), clipped(found.told(), 500))
        return Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.HOLD, hold=hold)

    async def read(self, broker: Broker) -> list[str]:
        """Read the strikes. Returns the ids of those that are gone."""
        documents = await _documents(broker)
        before = self._ids()
        by_task: dict[str, list[Strike]] = {}
        for document in documents:
            strike = decode_strike(document.override)
            if strike is None:
                name = document.subject.name
                _log.warning("strike %s cannot be read by this version; it is not obeyed", name)
                continue
            by_task.setdefault(strike.task, []).append(strike)
        self.by_task = {task: tuple(strikes) for task, strikes in by_task.items()}
        after = self._ids()
        for strike_id in sorted(after - before):
            _log.info("strike %s is obeyed from here on", strike_id)
        return sorted(before - after)

    async def free(self, broker: Broker, pace: Pace, lifted: Sequence[str]) -> None:
        """Free jobs that lifted strikes have held, as the operator's client has done once."""
        for pause in (0.0, STRAGGLERS):
            await pace.sleep(pause)
            for strike_id in lifted:
                if strike_id not in self._ids():
                    await _unhold(broker, strike_id)

    def _ids(self) -> set[str]:
        return {strike.id for strikes in self.by_task.values() for strike in strikes}


async def _documents(broker: Broker) -> list[Document]:
    found: list[Document] = []
    after: Subject | None = None
    while page := await broker.documents(Kind.STRIKE, after, PAGE):
        found += page
        if len(page) < PAGE:
            break
        after = page[-1].subject
    return found


async def _unhold(broker: Broker, strike_id: str) -> None:
    try:
        while (await broker.unhold(strike_key(strike_id), CALL_ITEMS)).more:
            pass
    except StoreError as error:  # they come back by themselves, within five minutes
        _log.debug("jobs of strike %s were not freed: %s", strike_id, error)

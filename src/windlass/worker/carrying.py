"""Large values of a run: its payload is read before it starts, and its result is put before it is settled.

Object storage that is away costs no attempt. A job whose payload cannot be read is held with the reason, and
comes again. A result that cannot be put waits, as every outcome waits for a store that is away: until it is
put, the worker's grace is over, or the lease is lost. Where another result lies under the same fence, of a
store before it was restored from a backup, the job goes back uncharged.
"""

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec

from windlass.core.codec import is_reference
from windlass.core.lease import Lease
from windlass.core.settlement import Settlement
from windlass.errors import UnreadablePayload, ValueConflict, ValueMissing, ValuesUnavailable, WindlassError
from windlass.pace import Pace
from windlass.patience import Backoff
from windlass.values.values import Values
from windlass.worker.conclude import Concluder, given_back, held, kept_away
from windlass.worker.failure import said
from windlass.worker.local_leases import Ticket
from windlass.worker.run import Run
from windlass.worker.table import Table

_log = logging.getLogger("windlass.worker")

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds between two tries to put a result."""


class Carrier:
    """Reads and puts for the runs of a worker; on a thread or on its loop, where the run is."""

    def __init__(
        self,
        values: Values,
        table: Table,
        conclude: Concluder,
        pace: Pace,
        *,
        struck: Callable[[Lease], Settlement | None],
    ) -> None:
        """`struck` says whether an operator holds a job for its arguments, which are not known before."""
        self._struck = struck
        self._values = values
        self._table = table
        self._conclude = conclude
        self._pace = pace

    async def bring(self, ticket: Ticket, *, blocking: bool) -> Settlement | None:
        """Read the payload of a job that is about to start. A settlement: it cannot be had."""
        lease = ticket.lease
        if not is_reference(lease.payload):
            return None
        if not self._table.prepare(ticket.slot):
            return given_back(lease)  # the supervisor has taken it back
        try:
            payload = await self._values.payload(lease.job, lease.payload, blocking=blocking)
        except ValuesUnavailable as error:
            return kept_away(lease, error)
        except (ValueMissing, UnreadablePayload) as error:
            return held(lease, said(type(error).__name__, str(error)), raised=error)
        ticket.lease = msgspec.structs.replace(lease, payload=payload)
        return self._struck(ticket.lease)

    async def carry(self, ticket: Ticket, run: Run, settlement: Settlement, *, blocking: bool) -> Settlement:
        """Put what is large in a settlement; the settlement with references instead."""
        if not self._values.is_large(settlement):
            return settlement
        run.stop = None  # its code has ended: nothing of it can be stopped any more
        if ticket.task.options.hard_timeout is not None:
            self._table.set_deadline(ticket.slot, 0.0)  # nor is its process killed while this waits
        backoff = Backoff(self._pace, first=FIRST_PAUSE, most=LONGEST_PAUSE)
        while not (run.released or run.is_lost()):
            try:
                return await self._values.settled(settlement, blocking=blocking)
            except ValuesUnavailable as error:
                backoff.tell("results cannot be put: %s; trying until they can", error)
                await self._pause(backoff.failed(), blocking=blocking)
            except asyncio.CancelledError:
                if not (run.cancelled or run.released):
                    raise  # not meant for this run: its loop ends
            except WindlassError as error:
                if isinstance(error, ValueConflict) and error.job == run.lease.job:
                    _log.warning("job %s runs again, under another fence: %s", error.job, error)
                    return given_back(run.lease)
                return self._conclude.raised(run, ticket.task, error)
        return given_back(run.lease)

    async def _pause(self, seconds: float, *, blocking: bool) -> None:
        if blocking:
            time.sleep(seconds)  # noqa: ASYNC251 - in a thread of its own
        else:
            await self._pace.sleep(seconds)

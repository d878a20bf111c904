"""The run's own look at the store: counts while it runs, and every job in the end."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import Any

from windlass.broker.contract import Broker, Options
from windlass.broker.registry import open_broker
from windlass.core.job import Delivery, JobDetail
from windlass.core.query import FIRST_PAGE, JobQuery
from windlass.core.session import SessionState
from windlass.core.state import TERMINAL, State
from windlass.errors import StoreError, WindlassError
from windlass.verify import history
from windlass.verify.tasks import plain

PAGE = 1_000
TRIES = 10
"""How often a store that was just healed is asked."""


class Reader:
    """Reads directly, not through the proxy. Opens when it is asked, and can let go of a file."""

    def __init__(self, url: str, options: Options) -> None:
        self._url = url
        self._options = options
        self._broker: Broker | None = None
        self._lock = asyncio.Lock()
        self._away = False

    async def broker(self) -> Broker:
        """The store, opened."""
        if self._broker is None:
            self._broker = await open_broker(self._url, options=self._options)
        return self._broker

    async def counts(self) -> dict[str, int] | None:
        """Jobs by state; None: the store cannot say just now."""
        if self._away:
            return None
        async with self._lock:
            try:
                async with asyncio.timeout(10):
                    rows = (await (await self.broker()).counts()).rows
            except (StoreError, TimeoutError, OSError):
                await self._close()
                return None
        states = {str(state): 0 for state in State}
        for row in rows:
            states[str(row.state)] += row.count
        return states

    async def pause(self, schedule: str) -> None:
        """Let a schedule fire no more, so that the run comes to an end."""
        for left in reversed(range(TRIES)):
            try:
                async with self._lock, asyncio.timeout(10):
                    await (await self.broker()).pause_schedule(schedule, paused=True)
                    return
            except (StoreError, TimeoutError, OSError):
                await self.close()
                if not left:
                    raise
                await asyncio.sleep(1)

    async def leave(self) -> None:
        """Let go of the store until `come_back`."""
        self._away = True
        async with self._lock:
            await self._close()

    def come_back(self) -> None:
        """Read again."""
        self._away = False

    async def close(self) -> None:
        """Let go of it."""
        async with self._lock:
            await self._close()

    async def _close(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            try:
                async with asyncio.timeout(5):
                    await broker.close()
            except (StoreError, TimeoutError, OSError):
                pass  # it is gone anyway

    # --- final reads ----------------------------------------------------------------------------------------

    async def listed(self) -> list[str]:
        """The ids of all jobs of the namespace."""
        found: list[str] = []
        broker, cursor = await self.broker(), FIRST_PAGE
        while cursor is not None:
            page = await broker.list(JobQuery(), cursor, PAGE)
            found += [job.id for job in page.jobs]
            cursor = page.cursor
        return found

    async def finals(self, ids: Iterable[str]) -> AsyncIterator[history.Final]:
        """Each job as it is now."""
        broker, left = await self.broker(), iter(ids)
        while some := list(islice(left, PAGE)):
            for job, detail in zip(some, await broker.get(some), strict=True):
                yield _final(job, detail)

    async def sessions(self, *, alive: bool) -> list[str]:
        """The sessions that the store holds to be alive, or all that it remembers."""
        broker, found, after = await self.broker(), list[str](), ""
        while page := await broker.sessions(after, PAGE):
            found += [each.id for each in page if not alive or each.state is SessionState.ALIVE]
            after = page[-1].id
        return found


def unfinished(states: dict[str, int]) -> int:
    """How many have not ended."""
    return sum(count for state, count in states.items() if State(state) not in TERMINAL)


def _final(job: str, detail: JobDetail | None) -> history.Final:
    if detail is None:
        return history.Final(job=job, state="absent")
    return history.Final(
        job=job,
        state=str(detail.state),
        reason=None if detail.reason is None else str(detail.reason),
        task=detail.task,
        queue=detail.queue,
        lane=detail.lane,
        attempt=detail.attempt,
        max_attempts=detail.max_attempts,
        fence=detail.fence,
        crashes=detail.crashes,
        replays=detail.replays,
        session=detail.session,
        parent=detail.parent,
        result=_result(detail.result),
        deliveries=tuple(_delivery(each) for each in detail.deliveries),
        pruned=detail.pruned,
    )


def _delivery(each: Delivery) -> history.Delivery:
    return history.Delivery(
        fence=each.fence,
        attempt=each.attempt,
        outcome=str(each.outcome),
        settled=each.settled,
        session=each.session,
        cause=None if each.cause is None else str(each.cause.kind),
        ran=each.runtime is not None,
        claimed_at=each.claimed_at,
        ended_at=each.ended_at,
    )


def _result(result: bytes | None) -> int | None:
    """Tasks of a run return their fence."""
    if result is None:
        return None
    try:
        found: Any = plain.signature.decode_result(result)
    except WindlassError:
        return -1
    return found if isinstance(found, int) else -1

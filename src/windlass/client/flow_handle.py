"""A handle on a flow: the jobs that share its name, seen and steered together."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from windlass.client.handle import Job
from windlass.core.bounds import CALL_ITEMS
from windlass.core.duration import Duration, micros
from windlass.core.job import JobView
from windlass.core.operate import Effect, Operated, Target
from windlass.core.query import FIRST_PAGE, NO_RECORD, JobQuery
from windlass.core.state import TERMINAL, UNFINISHED, State
from windlass.core.units import SECOND, Cursor, JobId
from windlass.errors import JobNotFound, ResultTimeout

if TYPE_CHECKING:
    from windlass.client.app import Windlass

_Verb: TypeAlias = Callable[[Sequence[Target]], Awaitable[Sequence[Operated]]]


class FlowState(StrEnum):
    """How a flow is doing."""

    RUNNING = "running"
    """Something of it is unfinished and can go on."""
    STUCK = "stuck"
    """Nothing of it goes on by itself: it needs somebody who replays or discards a dead letter, or a worker
    that can run what is held.
    """
    DONE = "done"
    FAILED = "failed"
    """Finished, with a dead letter."""
    CANCELLED = "cancelled"
    """Finished, and some of it was cancelled."""


class FlowView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a flow and its numbers of jobs. Finished jobs that the store no longer keeps do not
    count.
    """

    id: str
    state: FlowState
    counts: Mapping[State, int]

    @property
    def total(self) -> int:
        """How many jobs it has."""
        return sum(self.counts.values())

    @property
    def finished(self) -> int:
        """How many of its jobs have finished; dead letters count."""
        return sum(count for state, count in self.counts.items() if state in TERMINAL)

    @property
    def progress(self) -> float:
        """The part that has finished, from 0 to 1."""
        return self.finished / self.total if self.total else 1.0


class Flow:
    """One flow, by its name. Each method asks the store: a round trip for each thousand jobs. Nothing is
    cached.
    """

    __slots__ = ("_app", "_ends", "id", "jobs")

    def __init__(
        self, app: "Windlass", flow: str, jobs: Sequence[Job[Any]] = (), ends: Sequence[JobId] = ()
    ) -> None:
        self._app = app
        self._ends = tuple(ends)
        self.id = flow
        self.jobs: tuple[Job[Any], ...] = tuple(jobs)
        """The jobs that were sent, parents first; none for a handle that was made from a name."""

    def __repr__(self) -> str:
        return f"<Flow {self.id}>"

    # --- blocking -------------------------------------------------------------------------------------------

    def view(self) -> FlowView:
        """Its state and how many of its jobs have ended. Raises `JobNotFound` if it has no job."""
        return self._app.connection.run(self.aview())

    def state(self) -> FlowState:
        """Its state, in one word."""
        return self.view().state

    def progress(self) -> float:
        """The part that has finished, from 0 to 1."""
        return self.view().progress

    def finish(self, timeout: Duration | None = None) -> FlowView:
        """Wait until it has finished, or is stuck; see `afinish`."""
        return self._app.connection.run(self.afinish(timeout))

    def results(self, timeout: Duration | None = None) -> list[Any]:
        """Wait for the last jobs of the flow and return their results; see `aresults`."""
        return self._app.connection.run(self.aresults(timeout))

    def cancel(self) -> int:
        """Cancel its unfinished jobs. Return how many were cancelled or asked to stop."""
        return self._app.connection.run(self.acancel())

    def replay(self) -> int:
        """Replay its dead letters, and the jobs that wait for them. Return how many."""
        return self._app.connection.run(self.areplay())

    # --- async ----------------------------------------------------------------------------------------------

    async def aview(self) -> FlowView:
        """Async twin of `view`."""
        tally = FlowTally()
        async for job in self._all(frozenset(State)):
            tally.add(job)
        if tally.is_empty and any(job.accepted for job in self.jobs):
            return FlowView(id=self.id, state=FlowState.RUNNING, counts={})  # still at the front door
        return tally.view(self.id)

    async def astate(self) -> FlowState:
        """Async twin of `state`."""
        return (await self.aview()).state

    async def aprogress(self) -> float:
        """Async twin of `progress`."""
        return (await self.aview()).progress

    async def afinish(self, timeout: Duration | None = None) -> FlowView:
        """Wait until the flow has finished or is stuck. Raises `ResultTimeout` if that takes too long."""
        length = None if timeout is None else micros(timeout, name="timeout") / SECOND
        end = None if length is None else time.monotonic() + length
        pause = _FIRST_LOOK
        while (view := await self.aview()).state is FlowState.RUNNING:
            if end is not None and time.monotonic() >= end:
                raise ResultTimeout(f'flow "{self.id}" has not finished within {length:g} s')
            await asyncio.sleep(pause if end is None else min(pause, max(0.0, end - time.monotonic())))
            pause = min(2 * pause, _LAST_LOOK)
        return view

    async def aresults(self, timeout: Duration | None = None) -> list[Any]:
        """Wait for the last jobs of the flow (no other job of the flow waits for them). Return their results,
        in the order in which the calls were written. Raises the same errors as `Job.aresult`.
        """
        length = None if timeout is None else micros(timeout, name="timeout") / SECOND
        end = None if length is None else time.monotonic() + length
        found: list[Any] = []
        for job in self._ends or await self._last():
            handle = next((each for each in self.jobs if each.id == job), None) or self._app.job(job)
            left = None if end is None else max(0.0, end - time.monotonic())
            try:
                found.append(await handle.aresult(left))
            except ResultTimeout:
                raise ResultTimeout(
                    f'job {job} of flow "{self.id}" has not finished within {length:g} s'
                ) from None
        return found

    async def acancel(self) -> int:
        """Async twin of `cancel`."""
        broker = await self._app.connection.broker()
        # One that its parent's end took along, in the same call, is cancelled as well.
        return await self._each(broker.cancel, UNFINISHED, also=State.CANCELLED)

    async def areplay(self) -> int:
        """Async twin of `replay`."""
        broker = await self._app.connection.broker()
        return await self._each(broker.replay, frozenset({State.DEAD}), expect=State.DEAD)

    # --- the jobs of it -------------------------------------------------------------------------------------

    async def _all(self, states: frozenset[State]) -> AsyncIterator[JobView]:
        """Every job of it once: a job that moves while pages are read may be listed twice."""
        broker = await self._app.connection.broker()
        cursor: Cursor | None = FIRST_PAGE
        seen: set[JobId] = set()
        while cursor is not None:
            page = await broker.list(JobQuery(flow=self.id, states=states), cursor, CALL_ITEMS)
            for job in page.jobs:
                if job.id not in seen:
                    seen.add(job.id)
                    yield job
            cursor = page.cursor

    async def _each(
        self,
        verb: _Verb,
        states: frozenset[State],
        *,
        expect: State | None = None,
        also: State | None = None,
    ) -> int:
        """How many jobs a verb had an effect on, or are in that other state now."""
        # Children first, as far as ids tell: what goes with its parent may be dropped before its own turn.
        ids = sorted([job.id async for job in self._all(states)], reverse=True)
        done = 0
        for start in range(0, len(ids), CALL_ITEMS):
            answers = await verb([Target(job, expect) for job in ids[start : start + CALL_ITEMS]])
            done += sum(
                answer.effect in (Effect.APPLIED, Effect.FLAGGED)
                or (also is not None and answer.state is also)
                for answer in answers
            )
        return done

    async def _last(self) -> list[JobId]:
        """The jobs that no other job of it names as a parent."""
        broker = await self._app.connection.broker()
        ids = [job.id async for job in self._all(frozenset(State))]
        parents: set[JobId] = set()
        for start in range(0, len(ids), _DETAILS):
            for detail in await broker.get(ids[start : start + _DETAILS]):
                if detail is not None:
                    parents.update(edge.parent for edge in detail.after)
        if not ids:
            raise JobNotFound(f'no job of a flow "{self.id}" is kept: {NO_RECORD}')
        return [job for job in ids if job not in parents]


class FlowTally:
    """Counts the jobs of a flow, and says how it is doing."""

    def __init__(self) -> None:
        self._counts: Counter[State] = Counter()
        self._moving = self._held = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing was counted."""
        return not self._counts

    def add(self, job: JobView) -> None:
        """Count a job."""
        is_held = job.state is State.SCHEDULED and job.held is not None
        self._counts[job.state] += 1
        self._held += is_held
        self._moving += job.state in UNFINISHED and job.state is not State.BLOCKED and not is_held

    def view(self, flow: str) -> FlowView:
        """What was counted; `JobNotFound` if that is nothing."""
        if not self._counts:
            raise JobNotFound(f'no job of a flow "{flow}" is kept: {NO_RECORD}')
        return FlowView(id=flow, state=self._state(), counts=dict(self._counts))

    def _state(self) -> FlowState:
        counts = self._counts
        if self._moving:
            return FlowState.RUNNING
        if self._held:
            return FlowState.STUCK
        if counts[State.BLOCKED]:
            # With nothing that moves and nothing dead, the next sweep moves what is blocked.
            return FlowState.STUCK if counts[State.DEAD] else FlowState.RUNNING
        if counts[State.DEAD]:
            return FlowState.FAILED
        return FlowState.CANCELLED if counts[State.CANCELLED] else FlowState.DONE


_FIRST_LOOK, _LAST_LOOK = 0.02, 1.0
"""Seconds between two looks at a flow that is waited for; they grow from the first to the last."""
_DETAILS = 100
"""Jobs read whole in one call: each may carry a payload and a result of a megabyte."""

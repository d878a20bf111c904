"""The face of the Redis broker: the contract's verbs, each one script in one round trip."""

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from typing import Final

from windlass.broker.contract import BlockingProduce, Capabilities, Options, Settled, Transact
from windlass.broker.redis import offset_verbs, verbs
from windlass.broker.redis.durability import Durability
from windlass.broker.redis.listener import Listener, Waiter
from windlass.broker.redis.namespaces import enlist
from windlass.broker.redis.records import pack_id
from windlass.broker.redis.store import Store
from windlass.broker.redis.url import read_url
from windlass.clock import Clock
from windlass.core.event import Events
from windlass.core.job import Finished, JobDetail, NewJob, Receipt
from windlass.core.lease import Ask, Claimed
from windlass.core.operate import Edit, Operated, Purged, Target
from windlass.core.outcome import Cause, Verdict
from windlass.core.query import FIRST_PAGE, Counts, Explanation, JobQuery, Lanes, Page, UnfinishedFlows
from windlass.core.session import Beat, Ended, Note, Pulse, SessionView, Swept
from windlass.core.settings import Body, Changed, Declaration, Document, Kind, Subject
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.take import Offset, Take, Taken
from windlass.core.timetable import Fire, Fired, NewSchedule, Schedules
from windlass.core.units import Cursor, Fence, JobId, Micros, SessionId

_LOOK: Final = 2.0
"""Seconds after which a waiter for an end on a cluster reads the jobs itself."""


class RedisBroker:
    """A broker whose store is a Redis or Valkey server. Any loop, any thread and any child of a fork may use
    it: each has connections of its own.
    """

    def __init__(self, store: Store, durability: Durability) -> None:
        self._store = store
        self.durability = durability
        """What the server promises, with warnings for operators."""
        self.capabilities: Capabilities = durability.capabilities()
        self.blocking: BlockingProduce = _Blocking(store)

    @classmethod
    async def open(
        cls, url: str, *, clock: Clock | None = None, options: Options | None = None
    ) -> "RedisBroker":
        """Open a namespace. A clock is for tests: by default the server's counts."""
        store = Store(read_url(url), options or Options(), clock)
        try:
            broker = cls(store, await store.durability())
            await enlist(store)
        except BaseException:
            await store.close()
            raise
        return broker

    @property
    def transact(self) -> Transact | None:
        """Refuse: this store cannot take part in transactions of its callers."""
        return None

    async def warnings(self) -> Sequence[str]:
        """What an operator should know of this store."""
        return self.durability.warnings()

    async def close(self) -> None:
        """Wake all waiters on this loop, and close its connections."""
        await self._store.close()

    # produce

    async def enqueue(self, groups: Sequence[Sequence[NewJob]]) -> Sequence[Sequence[Receipt]]:
        answers, calls = verbs.enqueue(groups)
        return verbs.merge(answers, [await self._store.run(call) for call in calls])

    # consume

    async def claim(self, ask: Ask) -> Claimed:
        return await self._store.run(verbs.claim(ask))

    async def settle(self, items: Sequence[Settlement], ask: Ask | None = None) -> Settled:
        return await self._store.run(verbs.settle(items, ask))

    async def beat(self, beats: Sequence[Beat]) -> Sequence[Pulse]:
        return await self._store.run(verbs.beat(beats))

    async def end_session(
        self, session: SessionId, cause: Cause, started: Collection[tuple[JobId, Fence]] = ()
    ) -> Ended:
        return await self._store.run(verbs.end_session(session, cause, started))

    async def annotate(self, notes: Sequence[Note]) -> Sequence[Verdict]:
        return await self._store.run(verbs.annotate(notes))

    async def sweep(self, *, limit: int, every: Micros = 0, keep_dead: bool = False) -> Swept:
        return await self._store.run(verbs.sweep(limit, every, keep_dead=keep_dead))

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        if self._store.closed:
            return
        listener = self._store.on_this_loop().listener
        number, waiter = await listener.wait_here()
        try:
            armed, since = await self._store.run(verbs.wait(queues, listener.channel, number))
            if armed or self._store.closed:
                return
            await self._woken(listener, number, waiter, queues, since, timeout)
        finally:
            listener.waits_no_longer(number)

    async def _woken(
        self,
        listener: Listener,
        number: str,
        waiter: Waiter,
        queues: Sequence[str],
        since: int,
        timeout: float,
    ) -> None:
        """Wait to be told, then leave the lists of the other queues. If cancelled, pass the wake on."""
        pass_on = True
        try:
            await waiter.wait(timeout)
            pass_on = False
        finally:
            told = waiter.told
            if not self._store.closed and (not told or pass_on or len(queues) > 1):
                leave = verbs.leave(queues, listener.channel, number, since, pass_on=pass_on and told)
                await asyncio.shield(self._store.run(leave))

    async def watch(self, jobs: Sequence[JobId], timeout: float) -> Sequence[Finished]:
        call = verbs.finished(jobs)
        if timeout <= 0 or self._store.closed:
            return await self._store.run(call)
        listener = self._store.on_this_loop().listener
        heard = await listener.listen(frozenset(map(pack_id, jobs)))
        try:
            async with asyncio.timeout(timeout):
                while not (found := await self._store.run(call)) and not self._store.closed:
                    await self._hear(heard)
                    if self._store.closed:
                        break
                    await listener.stay()
                return found
        except TimeoutError:
            return ()
        finally:
            listener.listens_no_longer(heard)

    async def events(self, after: Cursor, limit: int, timeout: float) -> Events:
        page = await self._store.run(verbs.events(after, limit))
        if page.items or page.gap or timeout <= 0 or self._store.closed:
            return page
        listener = self._store.on_this_loop().listener
        heard = await listener.listen(None)
        try:
            async with asyncio.timeout(timeout):
                while not (page.items or page.gap or self._store.closed):
                    page = await self._store.run(verbs.events(page.cursor, limit))
                    if not (page.items or page.gap):
                        await self._hear(heard)
                        await listener.stay()
        except TimeoutError:
            pass
        finally:
            listener.listens_no_longer(heard)
        return page

    async def _hear(self, heard: asyncio.Event) -> None:
        """Wait for an event. On a cluster not for long: only a call finds out where a slot has moved to."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK if self._store.location.kind == "cluster" else None):
                await heard.wait()
        heard.clear()

    # intakes

    async def take(self, take: Take) -> Taken:
        return await self._store.run(offset_verbs.take(take))

    async def offsets(self, after: str = "", limit: int = 100) -> Sequence[Offset]:
        return await self._store.run(offset_verbs.offsets(after, limit))

    # schedules

    async def declare_schedule(self, schedule: NewSchedule) -> Changed:
        return await self._store.run(verbs.declare_schedule(schedule))

    async def override_schedule(
        self, name: str, spec: bytes | None, next_at: Micros | None, expect: int
    ) -> Changed:
        return await self._store.run(verbs.override_schedule(name, spec, next_at, expect))

    async def delete_schedule(self, name: str) -> bool:
        return await self._store.run(verbs.delete_schedule(name))

    async def pause_schedule(self, name: str, *, paused: bool) -> bool:
        return await self._store.run(verbs.pause_schedule(name, paused=paused))

    async def fire(self, fire: Fire) -> Fired:
        return await self._store.run(verbs.fire(fire))

    async def schedules(self, after: Cursor = FIRST_PAGE, limit: int = 100) -> Schedules:
        return await self._store.run(verbs.schedules(after, limit))

    # operate

    async def cancel(self, targets: Sequence[Target]) -> Sequence[Operated]:
        return await self._store.run(verbs.operate("cancel", targets))

    async def replay(self, targets: Sequence[Target]) -> Sequence[Operated]:
        return await self._store.run(verbs.operate("replay", targets))

    async def discard(self, targets: Sequence[Target]) -> Sequence[Operated]:
        return await self._store.run(verbs.operate("discard", targets))

    async def prune(self, targets: Sequence[Target]) -> Sequence[Operated]:
        return await self._store.run(verbs.operate("prune", targets))

    async def edit(self, edits: Sequence[Edit]) -> Sequence[Operated]:
        return await self._store.run(verbs.edit(edits))

    async def purge(self, queue: str, state: State, limit: int) -> Purged:
        return await self._store.run(verbs.purge(queue, state, limit))

    async def unhold(self, key: str, limit: int) -> Purged:
        return await self._store.run(verbs.unhold(key, limit))

    async def pause(self, queue: str, lane: str | None = None) -> bool:
        return await self._store.run(verbs.pause(queue, lane, paused=True))

    async def resume(self, queue: str, lane: str | None = None) -> bool:
        return await self._store.run(verbs.pause(queue, lane, paused=False))

    # settings

    async def declare(self, declarations: Sequence[Declaration]) -> Sequence[Changed]:
        return await self._store.run(verbs.declare(declarations, self._store.options))

    async def override(self, subject: Subject, body: Body | None, expect: int) -> Changed:
        return await self._store.run(verbs.override(subject, body, expect, self._store.options))

    async def documents(
        self, kind: Kind, after: Subject | None = None, limit: int = 100
    ) -> Sequence[Document]:
        return await self._store.run(verbs.documents(kind, after, limit))

    # read

    async def get(self, jobs: Sequence[JobId]) -> Sequence[JobDetail | None]:
        return await self._store.run(verbs.get(jobs))

    async def list(self, query: JobQuery, after: Cursor = FIRST_PAGE, limit: int = 100) -> Page:
        return await self._store.run(verbs.list_jobs(query, after, limit))

    async def flows(self, after: Cursor = FIRST_PAGE, limit: int = 100) -> UnfinishedFlows:
        return await self._store.run(verbs.flows(after, limit))

    async def counts(self) -> Counts:
        return await self._store.run(verbs.counts())

    async def lanes(self, queue: str, after: Cursor = FIRST_PAGE, limit: int = 100) -> Lanes:
        return await self._store.run(verbs.lanes(queue, after, limit))

    async def sessions(self, after: SessionId = "", limit: int = 1_000) -> Sequence[SessionView]:
        return await self._store.run(verbs.sessions(after, limit))

    async def explain(self, job: JobId) -> Explanation:
        return await self._store.run(verbs.explain(job))


class _Blocking:
    """The part for blocking code: in the caller's own thread, on a connection that threads share."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def enqueue(self, groups: Sequence[Sequence[NewJob]]) -> Sequence[Sequence[Receipt]]:
        answers, calls = verbs.enqueue(groups)
        return verbs.merge(answers, [self._store.run_blocking(call) for call in calls])

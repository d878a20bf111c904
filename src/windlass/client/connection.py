"""The store as one application sees it: opened when first needed, and again in a child after a fork."""

import asyncio
import contextlib
import contextvars
import inspect
import threading
import time
from collections.abc import Awaitable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from windlass.bridges.addresses import address_of, load_adapter, open_sink
from windlass.broker.contract import BlockingProduce, Broker, Transact
from windlass.broker.observed import Observer, observe
from windlass.broker.registry import load, open_broker, serves_any_loop
from windlass.client.blocking import warn_on_a_loop
from windlass.client.coalescer import Coalescer
from windlass.client.declared import Declared
from windlass.client.elsewhere import not_known, why_untaken
from windlass.client.front import FrontDoor
from windlass.client.portal import Portal, PortalClosed
from windlass.client.resend import Resend
from windlass.client.uninterrupted import Uninterrupted
from windlass.clock import Clock
from windlass.completed import complete
from windlass.config import Config
from windlass.core.job import NewJob, Receipt, Refusal
from windlass.core.units import SECOND, JobId
from windlass.errors import JobNotFound, StoreUnavailable, Unsupported
from windlass.forks import leave_to_parent, renew_after_fork
from windlass.values.configured import values_of

_T = TypeVar("_T")
_C = TypeVar("_C", bound="Connection")
Groups = Sequence[Sequence[NewJob]]
Receipts = Sequence[Sequence[Receipt]]


class _Store:
    """A broker that is open, or will be; and how much of what the application declares it was told."""

    def __init__(self) -> None:
        self._bare: Broker | None = None
        self._broker: Broker | None = None
        self.blocking: BlockingProduce | None = None
        self.told = -1

    @property
    def broker(self) -> Broker:
        """The broker; only to be asked for when it was told something."""
        assert self._broker is not None
        return self._broker

    @property
    def is_open(self) -> bool:
        return self._bare is not None

    def hold(self, bare: Broker, observers: Sequence[Observer]) -> None:
        self._bare = bare
        self.observe(observers)

    def observe(self, observers: Sequence[Observer]) -> None:
        if self._bare is not None:
            self._broker = observe(self._bare, observers)
            self.blocking = self._broker.blocking

    async def close(self) -> None:
        bare, self._bare, self.told = self._bare, None, -1
        if bare is not None:
            await bare.close()


class _Loop:
    """What belongs to one event loop."""

    def __init__(self, coalescer: Coalescer) -> None:
        self.coalescer = coalescer
        self.store = _Store()
        self.preparing: asyncio.Task[None] | None = None


class _Process:
    """What belongs to one process, until the app is closed: nothing of it may be touched by a child."""

    def __init__(self, front: FrontDoor | None) -> None:
        self.front = front
        """Used on the portal's loop alone."""
        self.lock = threading.Lock()
        self.calls = Uninterrupted()
        self.portal = Portal(self.calls)
        self.shared = _Store()
        self.preparing: Future[None] | None = None
        self.loops: dict[asyncio.AbstractEventLoop, _Loop] = {}


class Connection:
    """Opens brokers, declares what the application declares before it is used, and sends jobs."""

    def __init__(
        self, config: Config, declared: Declared, clock: Clock | None, *, broker: Broker | None = None
    ) -> None:
        self._config = config
        self._declared = declared
        self._clock = clock
        self._given = broker
        self._window = config.resend_window / SECOND
        self._any_loop = broker is not None or serves_any_loop(config.url)
        if broker is None:
            load(config.url)
            if config.front is not None:
                load_adapter(address_of(config.front))
        self.values = None if broker is not None else values_of(config.value_settings)
        """Where large payloads and results are kept. A test's block keeps them in its store."""
        self._observers: list[Observer] = []
        self._process = self._new_process()
        self._left: set[_Process] = set()
        """What is no longer used, and not closed yet."""
        self.closings = 0
        """How often it was closed. A caller that waits compares it."""
        renew_after_fork(self)

    def _new_process(self) -> _Process:
        front = self._config.front
        if front is None or self._given is not None:
            return _Process(None)
        return _Process(FrontDoor(address_of(front), self._config.namespace, self._window, open_sink))

    def configure(self, config: Config) -> None:
        """Open brokers with other settings from now on."""
        self._config = config

    @property
    def is_of_a_test(self) -> bool:
        """Whether it leads to the store of a test's block, see `to`."""
        return self._given is not None

    def to(self, broker: Broker, kind: "type[_C]") -> "_C":
        """The same application on a broker that is open already, and serves any thread and loop.

        For tests: while `app.connection` is set to it, the app's own store is left alone.
        """
        other = kind(self._config, self._declared, self._clock, broker=broker)
        for observer in self._observers:
            other.observe(observer)
        return other

    # --- sending --------------------------------------------------------------------------------------------

    def enqueue(self, groups: Groups) -> Receipts:
        """Send from blocking code: by the store's blocking client where it has one, else through the portal.
        A signal handler that raises meanwhile ends the waiting, not the sending.
        """
        warn_on_a_loop()
        if self.values is not None:
            groups = complete(self.values.sent(groups, self._known_blocking, blocking=True))
        while True:
            process = self._process
            # The caller itself asks anew. A call that goes on after its caller was interrupted would open
            # the app again, and nobody would close it.
            with contextlib.suppress(PortalClosed):
                return process.calls.call(self._enqueue, process, groups)

    def _enqueue(self, process: _Process, groups: Groups) -> Receipts:
        if (front := process.front) is not None:
            return process.portal.run(lambda: front.send(groups))
        blocking = self._ready(process).blocking
        if blocking is not None:
            receipts = self._persist(process, blocking, groups)
            if not self._was_forgotten(groups, receipts):
                return receipts
            blocking = self._ready(process).blocking
            if blocking is not None:
                return self._persist(process, blocking, groups)
        return process.portal.run(lambda: self.send(groups))

    def enqueue_on(self, connection: object, groups: Groups) -> Receipts:
        """Send from blocking code, in the transaction of a connection that blocks."""
        transact = _transact(self.run(self.broker()))
        if self.values is not None:
            groups = complete(self.values.sent(groups, self._known_blocking, blocking=True))
        return transact.enqueue_on_blocking(connection, groups)

    async def aenqueue_on(self, connection: object, groups: Groups) -> Receipts:
        """Async twin of `enqueue_on`."""
        transact = _transact(await self.broker())
        if self.values is not None:
            groups = await self.values.sent(groups, self._known)
        return await transact.enqueue_on(connection, groups)

    def aenqueue(self, jobs: Sequence[NewJob]) -> Awaitable[Sequence[Receipt]]:
        """Send one group from async code, together with those of other callers."""
        return self._loop().coalescer.enqueue(jobs) if self.values is None else self._put_first(jobs)

    async def _put_first(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]:
        """Alone: no other caller waits until a large payload is put."""
        assert self.values is not None
        (group,) = await self.values.sent([jobs], self._known)
        return await self._loop().coalescer.enqueue(group)

    async def _known(self, job: JobId) -> bool:
        """With a front door nothing is known: its producers may reach no store."""
        if self._process.front is not None:
            return False
        return (await (await self.broker()).get([job]))[0] is not None

    async def _known_blocking(self, job: JobId) -> bool:
        """For blocking code, whose coroutines never suspend."""
        return self.run(self._known(job))

    async def send(self, groups: Groups, resend: Resend | None = None) -> Receipts:
        """Send groups from async code, again while the resend window allows it: an id that is sent again
        makes no second job. With a front door they go to that, and not to the store.
        """
        if self.values is not None:
            groups = await self.values.sent(groups, self._known)
        if self._process.front is not None:
            return await self._send_through_front(groups)
        receipts = await self._sent(groups, resend or Resend(self._window))
        if not self._was_forgotten(groups, receipts):
            return receipts
        return await self._sent(groups, Resend(self._window))

    async def _send_through_front(self, groups: Groups) -> Receipts:
        while True:
            process = self._process
            front = process.front
            assert front is not None
            with contextlib.suppress(PortalClosed):  # closed in this moment: there is a new one
                return await asyncio.wrap_future(
                    process.portal.submit(lambda front=front: front.send(groups))
                )

    def _was_forgotten(self, groups: Groups, receipts: Receipts) -> bool:
        """Whether the store has lost what was declared (a server without a file, restarted): tell it anew."""
        for answers in receipts:
            if answers and answers[0].refusal is not None:
                break
        else:
            return False
        refused = {
            job.queue
            for group, answers in zip(groups, receipts, strict=True)
            if answers and answers[0].refusal is not None  # a group is refused whole
            for job, receipt in zip(group, answers, strict=True)
            if receipt.refusal is Refusal.UNKNOWN_QUEUE
        }
        forgotten = any(self._declared.has_queue(queue) for queue in refused)
        if forgotten:
            for store in (self._process.shared, *(loop.store for loop in list(self._process.loops.values()))):
                store.told = -1
        return forgotten

    async def _sent(self, groups: Groups, resend: Resend) -> Receipts:
        broker = await self.broker()
        try:
            return await broker.enqueue(groups)
        except StoreUnavailable as error:
            away = error
        while (pause := resend.pause()) is not None:
            await asyncio.sleep(pause)
            try:
                async with asyncio.timeout(resend.left):  # a try that arrives too late makes a second job
                    return await broker.enqueue(groups)
            except StoreUnavailable as error:
                away = error
            except TimeoutError:
                break
        raise away

    def _persist(self, process: _Process, blocking: BlockingProduce, groups: Groups) -> Receipts:
        start, resend = time.monotonic(), None
        while True:
            try:
                return blocking.enqueue(groups)
            except StoreUnavailable:
                resend = resend or Resend(self._window, start)
                if self._process is not process or (pause := resend.pause()) is None:
                    raise
                time.sleep(pause)

    # --- opening --------------------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run async code for a blocking caller."""
        try:
            warn_on_a_loop()
            while True:
                with contextlib.suppress(PortalClosed):  # closed in this moment: there is a new one
                    return self._process.portal.run(lambda: work)
        finally:
            if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()  # it was never begun

    async def broker(self) -> Broker:
        """The store for the running loop, with all queues, tasks and schedules declared."""
        if not self._any_loop and not self._process.portal.is_running_here():
            return await self._broker_of_this_loop()
        while (store := self._process.shared).told != self._declared.version:
            with contextlib.suppress(PortalClosed):
                # A caller that leaves must not take the opening away from those who wait for it, too.
                await asyncio.shield(asyncio.wrap_future(self._preparing(self._process)))
        return store.broker

    async def not_known(self, job: JobId) -> JobNotFound:
        """The error for a job that the broker has no record of; it names the namespace that has."""
        if self._process.front is not None:
            return JobNotFound(await why_untaken(await self.broker(), job))
        return await not_known(None if self._given is not None else self._config, job)

    def observe(self, observer: Observer) -> None:
        """Tell an observer of every verb from now on."""
        self._observers.append(observer)
        for store in (self._process.shared, *(loop.store for loop in list(self._process.loops.values()))):
            store.observe(self._observers)

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Who is told of every verb."""
        return tuple(self._observers)

    def _ready(self, process: _Process) -> _Store:
        while process.shared.told != self._declared.version:
            process.portal.wait(self._preparing(process))
        return process.shared

    def _preparing(self, process: _Process) -> Future[None]:
        """The one preparation under way: all who ask at the same time wait for the same."""

        def prepare() -> Future[None]:
            with process.lock:
                if process.preparing is None or process.preparing.done():
                    process.preparing = process.portal.submit(lambda: self._prepare(process.shared))
                return process.preparing

        return process.calls.call(prepare)

    async def _broker_of_this_loop(self) -> Broker:
        loop = self._loop()
        while loop.store.told != self._declared.version:
            if loop.preparing is None or loop.preparing.done():
                loop.preparing = asyncio.create_task(self._prepare(loop.store), context=contextvars.Context())
            await asyncio.shield(loop.preparing)
        return loop.store.broker

    async def _prepare(self, store: _Store) -> None:
        """Open the broker and declare what it has not been told; what fails is tried anew by the next
        call.
        """
        if not store.is_open:
            opened = self._given or await open_broker(
                self._config.url, options=self._config.broker_options(), clock=self._clock
            )
            store.hold(opened, self._observers)
        version = self._declared.version
        await self._declared.tell(store.broker, since=max(0, store.told))
        store.told = version

    def _loop(self) -> _Loop:
        loops, running = self._process.loops, asyncio.get_running_loop()
        found = loops.get(running)
        if found is None:
            for other in [loop for loop in list(loops) if loop.is_closed()]:
                loops.pop(other, None)  # not a weak dictionary: a broker refers to its loop
            found = loops[running] = _Loop(Coalescer(self.send, self._window))
        return found

    # --- closing --------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close what this process has opened on this loop, and what it shares."""
        process = self._leave()
        await _close_loop(process)
        await asyncio.to_thread(self._close_what_was_left)

    async def leave(self) -> None:
        """Close what belongs to the running loop alone: another thread's loop that ends before the app."""
        await _close_loop(self._process)

    def shut(self) -> None:
        """Close, from blocking code, what this process shares; brokers of other loops are theirs to close."""
        self._leave().calls.call(self._close_what_was_left)

    def renew(self) -> None:
        """Start anew in the child of a fork. What the parent opened is kept and not touched: to close it, or
        to drop it, would reach into the parent's connections and its loop.
        """
        leave_to_parent((self._process, self._left))
        self._process, self._left = self._new_process(), set()

    def _leave(self) -> _Process:
        """Begin anew, in the caller's thread. If a signal handler raises while the caller closes, its next
        calls open anew, however late the helper thread closes what was left. If the handler raises in here,
        the next close makes up for it.
        """
        process = self._process
        self._left.add(process)
        self._process = self._new_process()
        self.closings += 1
        return process

    def _close_what_was_left(self) -> None:
        for process in self._left - {self._process}:
            process.portal.close(lambda process=process: _close_shared(process))
            self._left.discard(process)


def _transact(broker: Broker) -> Transact:
    if broker.transact is None:
        raise Unsupported(
            f"a {broker.capabilities.store} store cannot enqueue on a connection of yours; PostgreSQL can"
        )
    return broker.transact


async def _close_shared(process: _Process) -> None:
    """On the portal's loop, which is where what is shared was opened."""
    if process.front is not None:
        await process.front.close()
    await process.shared.close()
    await _close_loop(process)


async def _close_loop(process: _Process) -> None:
    loop = process.loops.pop(asyncio.get_running_loop(), None)
    if loop is not None:
        await loop.store.close()

"""The store as one application sees it: opened when first needed, and again in a child after a fork."""

import asyncio
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from windlass.broker.contract import Broker
from windlass.broker.registry import open_broker, serves_any_loop
from windlass.client.coalescer import Coalescer
from windlass.client.portal import Portal
from windlass.clock import Clock
from windlass.config import Config
from windlass.core.job import NewJob, Receipt
from windlass.core.settings import Change, Changed, Declaration
from windlass.core.units import SECOND
from windlass.errors import InvalidOption, StoreUnavailable

_T = TypeVar("_T")
Groups = Sequence[Sequence[NewJob]]
Receipts = Sequence[Sequence[Receipt]]


class _Process:
    """What belongs to one process: nothing of it may be touched by a child."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.portal = Portal()
        self.lock = threading.Lock()
        self.shared: Broker | None = None
        self.by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Broker]] = (
            weakref.WeakKeyDictionary()
        )
        self.coalescers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Coalescer] = (
            weakref.WeakKeyDictionary()
        )
        self.declared: weakref.WeakKeyDictionary[Broker, int] = weakref.WeakKeyDictionary()


class Connection:
    """Opens brokers, declares what the application declares before it is used, and sends jobs."""

    def __init__(self, config: Config, declarations: Sequence[Declaration], clock: Clock | None) -> None:
        self._config = config
        self._declarations = declarations
        """Grows while the application is being imported."""
        self._clock = clock
        self._process = _Process()

    # --- sending --------------------------------------------------------------------------------------------

    def enqueue(self, groups: Groups) -> Receipts:
        """Send from blocking code: in this thread where the store's client can block, else through the
        portal.
        """
        process = self._here()
        if serves_any_loop(self._config.url):
            broker = self._open_shared(process)
            blocking = broker.blocking
            if blocking is not None:
                if process.declared.get(broker) != len(self._declarations):
                    process.portal.run(self._declare(process, broker))
                return self._persist(lambda: blocking.enqueue(groups))
        return self.run(self.send(groups))

    async def aenqueue(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]:
        """Send one group from async code, together with those of other callers."""
        process, loop = self._here(), asyncio.get_running_loop()
        coalescer = process.coalescers.get(loop)
        if coalescer is None:
            coalescer = process.coalescers[loop] = Coalescer(self.send)
        return await coalescer.enqueue(jobs)

    async def send(self, groups: Groups) -> Receipts:
        """Send groups from async code, for up to the resend window: an id that is sent again makes no second
        job.
        """
        broker = await self.broker()
        trying = _Trying(self._config.resend_window / SECOND)
        while True:
            try:
                return await broker.enqueue(groups)
            except StoreUnavailable:
                await asyncio.sleep(trying.pause_or_raise())

    def _persist(self, send: Callable[[], Receipts]) -> Receipts:
        trying = _Trying(self._config.resend_window / SECOND)
        while True:
            try:
                return send()
            except StoreUnavailable:
                time.sleep(trying.pause_or_raise())

    # --- opening --------------------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run async code for a blocking caller."""
        return self._here().portal.run(work)

    async def broker(self) -> Broker:
        """The broker for the running loop, with everything declared."""
        process = self._here()
        if serves_any_loop(self._config.url):
            broker = process.shared or await asyncio.to_thread(self._open_shared, process)
        else:
            loop = asyncio.get_running_loop()
            if loop not in process.by_loop:
                process.by_loop[loop] = asyncio.create_task(self._open())
            broker = await asyncio.shield(process.by_loop[loop])
        if process.declared.get(broker) != len(self._declarations):
            await self._declare(process, broker)
        return broker

    async def close(self) -> None:
        """Close what this process has opened on this loop, and what it shares."""
        process, self._process = self._here(), _Process()
        opened = process.by_loop.pop(asyncio.get_running_loop(), None)
        for broker in (process.shared, None if opened is None else await opened):
            if broker is not None:
                await broker.close()
        await asyncio.to_thread(process.portal.close)

    def shut(self) -> None:
        """Close, from blocking code, what this process shares; brokers of other loops are theirs to close."""
        process, self._process = self._here(), _Process()
        if process.shared is not None:
            process.portal.run(process.shared.close())
        process.portal.close()

    def _here(self) -> _Process:
        if self._process.pid != os.getpid():
            self._process = _Process()
        return self._process

    def _open_shared(self, process: _Process) -> Broker:
        if process.shared is None:
            with process.lock:
                if process.shared is None:
                    process.shared = process.portal.run(self._open())
        return process.shared

    async def _open(self) -> Broker:
        return await open_broker(self._config.url, options=self._config.broker_options(), clock=self._clock)

    async def _declare(self, process: _Process, broker: Broker) -> None:
        """Declare what this broker has not been told yet."""
        wanted = list(self._declarations)
        told = process.declared.get(broker, 0)
        answers = await broker.declare(wanted[told:])
        for declaration, changed in zip(wanted[told:], answers, strict=True):
            _check(declaration, changed)
        process.declared[broker] = len(wanted)


def _check(declaration: Declaration, changed: Changed) -> None:
    """Say so if what the code declares is not in force. A newer revision's settings are its own business."""
    subject = declaration.subject
    what = f'{subject.kind} "{subject.name}"'
    if changed.change is Change.OTHER_APP and declaration.body != type(declaration.body)():
        raise InvalidOption(
            f"{what} belongs to another app; give this one a queue of its own, or declare it without settings"
        )
    if changed.change is Change.IN_USE:
        raise InvalidOption(
            f"{what}: order, age_step and sequence cannot change while the queue has unfinished jobs; "
            "drain it, or use a new queue"
        )
    if changed.change is Change.UNKNOWN_QUEUE:
        raise InvalidOption(f"{what}: the queue is not declared; declare it with app.queue()")


class _Trying:
    """How long, and how patiently, an enqueue is sent again."""

    def __init__(self, seconds: float) -> None:
        # The store remembers an id for the window; half of it leaves room for a slow reply.
        self._end = time.monotonic() + seconds / 2
        self._pause = 0.05

    def pause_or_raise(self) -> float:
        """Seconds to wait before the next try; called in an except block, raises what was caught when it is
        over.
        """
        self._pause = min(1.0, self._pause * 2)
        pause = self._pause * random.uniform(0.5, 1)  # noqa: S311 - jitter, not a secret
        if time.monotonic() + pause > self._end:
            raise  # noqa: PLE0704 - called while the error is handled
        return pause

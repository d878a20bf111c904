"""The heart: one beat for all sessions of a process tree, in a process that runs no tasks.

It opens sessions, keeps them alive, hears what is to be cancelled, and which of them the store has given up.
Beats never overlap: a slow store is asked again only when it has answered or failed.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from windlass.broker.contract import Broker
from windlass.config import Config
from windlass.core.session import Beat, Pulse, SessionInfo
from windlass.core.units import SECOND, Fence, JobId, SessionId
from windlass.errors import StoreError, StoreReplaced
from windlass.worker.pace import Pace
from windlass.worker.patience import Backoff, until

_log = logging.getLogger("windlass.worker")


class Beating(Protocol):
    """Somebody with a session."""

    @property
    def session(self) -> SessionId: ...
    @property
    def info(self) -> SessionInfo: ...
    @property
    def opened(self) -> bool:
        """Whether a beat of its session was answered."""
        ...

    def is_stopped(self) -> bool:
        """Whether it stands still: then it is not beaten for, and its session ends when its TTL is over."""
        ...

    def memory(self) -> int:
        """Resident bytes."""
        ...

    def beaten(self, sent: float) -> None:
        """A beat that was sent then (by the pace's clock) has been answered: the session is alive."""
        ...

    def cancel(self, leases: Sequence[tuple[JobId, Fence]]) -> None:
        """These are to be cancelled; said with every beat for as long as they run."""
        ...

    def settings(self, version: int) -> None:
        """The version of the namespace's settings; said with every beat."""
        ...

    def lost(self) -> None:
        """The store knows its session no longer."""
        ...


class Heart:
    """Beats for all members, at once when there is a new one."""

    def __init__(
        self, broker: Broker, pace: Pace, config: Config, members: Callable[[], Sequence[Beating]]
    ) -> None:
        self._broker = broker
        self._pace = pace
        self._every = config.beat / SECOND
        self._members = members
        self._new = asyncio.Event()
        self._resting = asyncio.Event()
        self._resting.set()
        self._backoff = Backoff(pace)
        self._next = pace.now()

    def wake(self) -> None:
        """There is a session to open: do not wait for the next beat."""
        self._new.set()

    async def settled(self) -> None:
        """Wait until no beat is under way: what was asked has been answered, or has failed."""
        await self._resting.wait()

    async def run(self) -> None:
        """Beat for ever."""
        while True:
            await until(self._pace, self._new, self._next - self._pace.now())
            await self.beat()

    async def beat(self) -> bool:
        """One beat of everybody who does not stand still; whether it was answered. `StoreReplaced`: it never
        will be.
        """
        self._new.clear()
        members = [member for member in self._members() if not member.is_stopped()]
        sent = self._pace.now()
        self._next = sent + self._every
        if not members:
            return True
        self._resting.clear()
        try:
            pulses = await self._broker.beat([_beat(member) for member in members])
        except StoreReplaced:
            raise
        except StoreError as error:
            self._failed(error)
            return False
        finally:
            self._resting.set()
        self._worked()
        for member, pulse in zip(members, pulses, strict=True):
            _tell(member, pulse, sent)
        return True

    def _failed(self, error: StoreError) -> None:
        self._backoff.tell("the store does not answer the heartbeat: %s; trying until it does", error)
        self._next = self._pace.now() + self._backoff.failed()

    def _worked(self) -> None:
        if self._backoff.tries:
            _log.info("the store answers the heartbeat again")
        self._backoff.worked()


def _beat(member: Beating) -> Beat:
    opening = None if member.opened else member.info
    return Beat(session=member.session, open=opening, memory=member.memory())


def _tell(member: Beating, pulse: Pulse, sent: float) -> None:
    if not pulse.alive:
        member.lost()
        return
    member.settings(pulse.settings)
    member.beaten(sent)
    if pulse.cancel:
        member.cancel(pulse.cancel)

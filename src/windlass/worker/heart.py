"""The heart: one heartbeat for all sessions of a process tree, from a process that runs no tasks.

A heartbeat opens sessions and keeps them alive. The answer says which jobs to cancel and which sessions the
store has given up. Heartbeats never overlap: a slow store is asked again only when it has answered or failed.
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
from windlass.pace import Pace
from windlass.patience import Backoff, until

_log = logging.getLogger("windlass.worker")


class Beating(Protocol):
    """A child, or a worker inside an application: it has a session."""

    @property
    def session(self) -> SessionId: ...
    @property
    def info(self) -> SessionInfo: ...
    @property
    def opened(self) -> bool:
        """Whether a beat of its session was answered."""
        ...

    def is_stopped(self) -> bool:
        """Whether its process is stopped: then it gets no heartbeat, and its session ends after its TTL."""
        ...

    def memory(self) -> int:
        """Resident bytes."""
        ...

    def heartbeat_answered(self, sent: float) -> None:
        """Note that the store answered a heartbeat that was sent at this time (of the pace's clock)."""
        ...

    def cancel(self, leases: Sequence[tuple[JobId, Fence]]) -> None:
        """Cancel these jobs. Called after every beat for as long as they run."""
        ...

    def settings(self, version: int) -> None:
        """Take the version of the namespace's settings. Called after every beat."""
        ...

    def lost(self) -> None:
        """Note that the store knows the session no longer."""
        ...


class Heart:
    """Sends heartbeats for all members, and one at once for a new member."""

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
        """Send a heartbeat now: there is a session to open."""
        self._new.set()

    async def settled(self) -> None:
        """Wait until no heartbeat is under way."""
        await self._resting.wait()

    async def run(self) -> None:
        """Send heartbeats for ever."""
        while True:
            await until(self._pace, self._new, self._next - self._pace.now())
            await self.beat()

    async def beat(self) -> bool:
        """Send one heartbeat for all members that are not stopped; returns whether it was answered.
        `StoreReplaced`: none will ever be answered.
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
    member.heartbeat_answered(sent)
    if pulse.cancel:
        member.cancel(pulse.cancel)

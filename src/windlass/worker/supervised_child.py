"""One child under supervision, with its session and its table of leases."""

import asyncio
from collections.abc import Callable, Sequence

from windlass.core.session import SessionInfo
from windlass.core.units import Fence, JobId, SessionId
from windlass.worker.children import Child
from windlass.worker.host import Host
from windlass.worker.messages import Begin, Cancel, Drain, Go, Reread
from windlass.worker.table import Table

LeaseKey = tuple[JobId, Fence]

KILL_AFTER = 5.0
"""Seconds past its grace that a child is given to end by itself: to settle, and to close what it has open."""


class SupervisedChild:
    """What a supervisor knows of one child."""

    def __init__(
        self,
        child: Child,
        table: Table,
        begin: Begin,
        info: SessionInfo,
        *,
        host: Host,
        born: float,
        counts_for: float,
        on_lost: Callable[["SupervisedChild"], None],
        on_going: Callable[[], None] = lambda: None,
    ) -> None:
        self.child = child
        self.table = table
        self.begin = begin
        self.info = info
        self.born = born
        self.opened = False
        self._settings: int | None = None
        self.ready = False
        self.going = False
        """Told to claim: from here on it may hold jobs."""
        self.is_lost = False
        self.failed: str | None = None
        """What it said when it could not work."""
        self.fails_for_now = False
        """The next child may be able to, such as when a database is back."""
        self.draining = False
        self.kill_at: float | None = None
        """When it is killed if it has not ended, on the pace's clock."""
        self.spared = False
        """Not killed while its process is stopped: it may be in a debugger."""
        self.killed_for: str | None = None
        self.fault: str | None = None
        """Why it had to be killed, though it was not told to end: that is charged."""
        self.late: set[LeaseKey] = set()
        """Leases whose runs were seen past their hard deadline: its end is charged to them."""
        self.charged = 0
        """How many jobs its death was charged to."""
        self.died: float | None = None
        self.ended = asyncio.Event()
        """Its process has ended."""
        self.left = asyncio.Event()
        """It is dead or on its way out: another may take its place."""
        self._host = host
        self._counts_for = counts_for
        self._on_lost = on_lost
        self._on_going = on_going
        child.send(begin)

    @property
    def session(self) -> SessionId:
        """The id of its session."""
        return self.begin.session

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self.child.pid

    @property
    def dead(self) -> bool:
        """Whether its process has ended; its table may be gone, too."""
        return self.died is not None

    def may_start_jobs(self, now: float) -> bool:
        """Whether its child claims, and may start what it gets."""
        at_work = self.going and not (self.draining or self.dead or self.is_lost)
        return at_work and self.table.alive_until() > now

    # --- what the heart tells -------------------------------------------------------------------------------

    def is_stopped(self) -> bool:
        """Whether its process was stopped by a signal or a debugger."""
        return self._host.is_stopped(self.pid)

    def memory(self) -> int:
        """Resident bytes."""
        return self._host.memory(self.pid)

    def heartbeat_answered(self, sent: float) -> None:
        """Its session is alive: it may start jobs for as long as that counts."""
        if self.dead:
            return
        self.opened = True
        self.table.heartbeat_answered(sent, self._counts_for)
        self.may_go()

    def cancel(self, leases: Sequence[LeaseKey]) -> None:
        """Tell the child, with every beat: a job may have been on its way between two lists."""
        self.child.send(Cancel(tuple(leases)))

    def cannot_work(self, why: str, *, passes: bool) -> None:
        """It has said so."""
        self.failed, self.fails_for_now = why, passes

    def settings(self, version: int) -> None:
        """Tell the child when they have changed. It reads them by itself before its first claim."""
        if self.going and version != self._settings:
            self.child.send(Reread())
        self._settings = version

    def lost(self) -> None:
        """Note that its session is over, though its process is not."""
        if not self.dead and not self.is_lost:
            self.is_lost = True
            self._on_lost(self)

    # --- what the supervisor does ---------------------------------------------------------------------------

    def has_died(self, now: float, charged: int) -> None:
        """Its process has ended, and this many jobs are charged."""
        self.died = now
        self.charged = charged
        self.child.close()
        self.ended.set()

    def may_go(self) -> None:
        """Let it claim when its app is imported and its session is open."""
        if self.ready and self.opened and not (self.going or self.draining):
            self.going = True
            self.child.send(Go())
            self._on_going()

    def drain(self, grace: float, why: str, now: float, *, margin: float = KILL_AFTER) -> None:
        """Tell it to end. A child that holds nothing is not waited for."""
        self.draining = True
        self.spared = False
        self.left.set()
        self.kill_at = now + grace + margin
        if self.going:
            self.child.send(Drain(grace=grace, why=why))
        else:
            self.kill(why)

    def kill(self, why: str) -> None:
        """Kill its process."""
        if self.killed_for is None:
            self.killed_for = why
        self.child.kill()

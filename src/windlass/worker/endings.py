"""How children end: what they died of, which jobs are charged, and telling the store until it answers."""

import logging
import signal
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec

from windlass.broker.contract import Broker
from windlass.core.outcome import Cause, CauseKind
from windlass.core.session import SessionState, SessionView
from windlass.core.units import SessionId
from windlass.errors import StoreError
from windlass.pace import Pace
from windlass.patience import insist
from windlass.worker.charged import report_charged
from windlass.worker.host import Host, process_named
from windlass.worker.leaving import WORDS
from windlass.worker.supervised_child import LeaseKey, SupervisedChild
from windlass.worker.table import Table, remove_stale, table_path

_log = logging.getLogger("windlass.worker")

HARD_TIMEOUT = "hard timeout"
PAGE = 1_000
STALE = 3_600.0
"""Seconds after its last heartbeat when a table is of no use: every session of that time is over."""


class Verdict(msgspec.Struct, frozen=True):
    """What a child died of, and the leases that are charged."""

    cause: Cause
    started: frozenset[LeaseKey] = frozenset()


def judge(supervised: SupervisedChild, code: int, *, out_of_memory: bool) -> Verdict:
    """Read the table of a child that is dead, and say what its death means."""
    started = frozenset((entry.job, entry.fence) for entry in supervised.table.started())
    late = started & supervised.late
    if late and (supervised.table.clean or supervised.killed_for is not None):
        return Verdict(Cause(CauseKind.CRASH, HARD_TIMEOUT), late)
    if supervised.table.clean:
        return Verdict(Cause(CauseKind.STOP, "ended as told"))
    if supervised.fault is not None:
        return Verdict(Cause(CauseKind.CRASH, supervised.fault), started)
    if code == -signal.SIGKILL and supervised.killed_for is not None:
        return Verdict(Cause(CauseKind.STOP, supervised.killed_for))
    return Verdict(Cause(CauseKind.CRASH, describe(code, out_of_memory=out_of_memory)), started)


def describe(code: int, *, out_of_memory: bool = False) -> str:
    """What a process died of, in words."""
    if code >= 0:
        return f"exit code {code} ({WORDS[code]})" if code in WORDS else f"exit code {code}"
    if out_of_memory and code == -signal.SIGKILL:
        return "out of memory"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"


class MemoryKills:
    """Tells an out-of-memory kill from another, by a counter of the kernel's."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._before = self._last = host.oom_kills()

    def sample(self) -> None:
        """Remember the counter, every few seconds. The sample before is kept, too: a process may be counted
        some time before its end is seen.
        """
        self._before, self._last = self._last, self._host.oom_kills()

    def out_of_memory(self, code: int) -> bool:
        """Whether a process that has just ended was killed for want of memory."""
        if code != -signal.SIGKILL:
            return False
        if self._host.oom_kills() <= self._before:
            return False
        self._before += 1  # one kill is one process: another may be counted already
        self._last = max(self._last, self._before)
        return True


async def end(
    broker: Broker, pace: Pace, session: SessionId, cause: Cause, started: Collection[LeaseKey] = ()
) -> int:
    """End a session, however long that takes; how many jobs went back. The failures of those that are charged
    are reported.
    """
    moved = 0
    while True:
        ended = await insist(
            pace, f"ending session {session}", lambda: broker.end_session(session, cause, started)
        )
        moved += len(ended.moved)
        await report_charged(broker, ended.moved, cause=cause.detail)
        if not ended.more:
            return moved


# --- sessions whose end no supervisor saw -------------------------------------------------------------------


class Orphans:
    """Sessions of this machine whose processes and supervisors are gone. Without this they would end only
    when their TTL is over.
    """

    def __init__(
        self,
        broker: Broker,
        pace: Pace,
        host: Host,
        *,
        place: Callable[[SessionId], Path] = table_path,
    ) -> None:
        self._broker = broker
        self._pace = pace
        self._host = host
        self._place = place

    async def end(self) -> int:
        """End them all, however long that takes; how many there were."""
        remove_stale(self._place("").parent, STALE)
        if not self._host.boot:
            return 0  # without it a pid of before the last boot would pass for one of this
        found = 0
        after: SessionId = ""
        while page := await self._page(after):
            for view in page:
                if self._is_gone(view):
                    found += await self._bury(view)
            after = page[-1].id
        return found

    async def _page(self, after: SessionId) -> Sequence[SessionView]:
        return await insist(self._pace, "reading sessions", lambda: self._broker.sessions(after, PAGE))

    def _is_gone(self, view: SessionView) -> bool:
        info = view.info
        here = (info.boot, info.pid_namespace) == (self._host.boot, self._host.pid_namespace)
        if not here or info.pid <= 0 or self._host.process_started(info.pid) == info.process_started:
            return False
        supervisor = process_named(info.supervisor)
        return supervisor is None or self._host.process_started(supervisor[0]) != supervisor[1]

    async def _bury(self, view: SessionView) -> bool:
        """End one, charged by its table if that is left. One that ended may have left its table."""
        table = _opened(self._place(view.id))
        alive = view.state is SessionState.ALIVE
        if alive:
            cause, started = Cause(CauseKind.LOST, "its process is gone"), frozenset[LeaseKey]()
            if table is not None and table.clean:
                cause = Cause(CauseKind.STOP, "it had stopped")
            elif table is not None:
                cause = Cause(CauseKind.CRASH, "its process is gone")
                started = frozenset((entry.job, entry.fence) for entry in table.started())
            moved = await end(self._broker, self._pace, view.id, cause, started)
            _log.warning(
                "session %s (pid %d) was left behind by a worker that is gone: ended, %d jobs given back",
                view.id,
                view.info.pid,
                moved,
            )
        if table is not None:
            table.remove()
        return alive


def _opened(path: Path) -> Table | None:
    try:
        return Table.open(path)
    except (OSError, StoreError):
        return None

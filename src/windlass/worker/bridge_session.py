"""The session of a process that runs intakes: it has no slots, and says which intakes the process runs."""

import os
import uuid
from collections.abc import Collection, Sequence

from windlass.broker.management import Read
from windlass.core.intake import runs_intake
from windlass.core.session import SessionInfo, SessionState, SessionView
from windlass.core.units import Fence, JobId, Micros, SessionId
from windlass.version import __version__
from windlass.worker.host import Host, process_name

_PAGE = 1_000


class BridgeSession:
    """A member of the heart's."""

    def __init__(self, app: str, intakes: Collection[str], host: Host, *, ttl: Micros) -> None:
        pid = os.getpid()
        self._host = host
        self.session: SessionId = uuid.uuid4().hex
        self.opened = False
        self.info = SessionInfo(
            host=host.name,
            boot=host.boot,
            pid_namespace=host.pid_namespace,
            pid=pid,
            process_started=host.process_started(pid) or 0,
            supervisor=process_name(host, pid),
            app=app,
            version=__version__,
            queues=tuple(runs_intake(name) for name in intakes),
            ttl=ttl,
        )

    def is_stopped(self) -> bool:
        """It sends its own heartbeat, so it runs."""
        return False

    def memory(self) -> int:
        """Resident bytes."""
        return self._host.memory(self.info.pid)

    def heartbeat_answered(self, sent: float) -> None:  # noqa: ARG002 - it has no leases to extend
        """Note that the session is open."""
        self.opened = True

    def cancel(self, leases: Sequence[tuple[JobId, Fence]]) -> None:
        """It never holds a lease."""

    def settings(self, version: int) -> None:
        """Intakes look for their documents themselves."""

    def lost(self) -> None:
        """Take a new id: an id is never used again."""
        self.session, self.opened = uuid.uuid4().hex, False


async def who_runs(broker: Read, intake: str, *, silent: Micros) -> set[SessionId]:
    """The sessions of the processes that run an intake, except those that have been silent for so long."""
    mark, found = runs_intake(intake), set[SessionId]()
    after: SessionId = ""
    while page := await broker.sessions(after, _PAGE):
        found.update(view.id for view in page if _runs(view, mark, silent))
        after = page[-1].id
        if len(page) < _PAGE:
            break
    return found


def _runs(view: SessionView, mark: str, silent: Micros) -> bool:
    return view.state is SessionState.ALIVE and view.silent_for < silent and mark in view.info.queues

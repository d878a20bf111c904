"""First the trace, then the removal: how a dead letter is discarded, or pruned because its time is over."""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from windlass.broker.management import Operate, Plan, Read
from windlass.config import Config
from windlass.core.job import JobDetail
from windlass.core.operate import Operated, Target
from windlass.core.showing import Shower
from windlass.core.signature import Signature
from windlass.core.state import State
from windlass.core.units import JobId
from windlass.observe.archive.archive import Archive, open_archive
from windlass.observe.archive.entry import Entry, entry_of

_log = logging.getLogger("windlass.dead")

READ_AT_ONCE = 20
"""Dead letters that are read whole at once: each may carry a payload and a result of 1 MiB."""
OVER = "its retention is over"


class Store(Operate, Plan, Read, Protocol):
    """What removing needs of a broker."""


class Remover:
    """Removes dead letters of one namespace. Where the app has an archive, their traces are written there;
    where it has none, the log has a line for each, without their arguments.
    """

    def __init__(
        self, broker: Store, config: Config, signature_of: Callable[[str], Signature | None]
    ) -> None:
        self._broker = broker
        self._config = config
        self._signature_of = signature_of
        self._archive: Archive | None = None

    async def discard(
        self, targets: Sequence[Target], *, by: str, reason: str, overdue: bool = False
    ) -> Sequence[Operated]:
        """Discard dead letters, as `Operate.discard` does. `StoreUnavailable`: the archive does not take
        their traces, and none of them is removed.
        """
        targets = [Target(target.job, State.DEAD) for target in targets]
        at = (await self._broker.schedules(limit=1)).now
        ids = list(dict.fromkeys(target.job for target in targets))
        for start in range(0, len(ids), READ_AT_ONCE):
            found = await self._broker.get(ids[start : start + READ_AT_ONCE])
            dead = [job for job in found if job is not None and job.state is State.DEAD and not job.pruned]
            what = "pruned" if overdue else "discarded"
            await self._keep([self._entry(job, what=what, at=at, by=by, reason=reason) for job in dead])
        return await (self._broker.prune if overdue else self._broker.discard)(targets)

    async def prune(self, jobs: Sequence[JobId], *, by: str) -> Sequence[Operated]:
        """Remove dead letters whose time is over."""
        targets = [Target(job, State.DEAD) for job in jobs]
        return await self.discard(targets, by=by, reason=OVER, overdue=True)

    async def close(self) -> None:
        """Let go of the archive."""
        archive, self._archive = self._archive, None
        if archive is not None:
            await archive.close()

    def _entry(self, job: JobDetail, *, what: str, at: int, by: str, reason: str) -> Entry:
        shower = Shower(self._signature_of(job.task), self._config.private_patterns)
        namespace = self._config.namespace
        return entry_of(job, shower, namespace=namespace, what=what, at=at, by=by, reason=reason)

    async def _keep(self, entries: Sequence[Entry]) -> None:
        url = self._config.archive
        if url is None:
            for entry in entries:
                _tell(entry)
        elif entries:
            if self._archive is None:
                self._archive = await open_archive(url, self._config.history)
            await self._archive.write(entries)


def _tell(entry: Entry) -> None:
    _log.info(
        "dead letter %s: task %s (queue %s) is %s by %s: %s; it died of %s",
        entry.id,
        entry.task,
        entry.queue,
        entry.what,
        entry.by,
        entry.reason or "no reason was given",
        entry.died or "no error",
        extra={
            "job": entry.id,
            "task": entry.task,
            "queue": entry.queue,
            "lane": entry.lane,
            "what": entry.what,
            "by": entry.by,
            "reason": entry.reason,
            "error": "" if entry.error is None else entry.error.type,
            "error_message": "" if entry.error is None else entry.error.message,
        },
    )

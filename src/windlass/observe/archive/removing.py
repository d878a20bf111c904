"""First the trace, then the removal: how a dead letter is discarded, or pruned because its time is over."""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from windlass.broker.management import Operate, Plan, Read
from windlass.config import Config
from windlass.core.job import JobDetail
from windlass.core.operate import Effect, Operated, Target
from windlass.core.showing import Shower
from windlass.core.signature import Signature
from windlass.core.state import State
from windlass.core.units import JobId
from windlass.errors import UnreadablePayload, ValueMissing
from windlass.observe.archive.archive import Archive, open_archive
from windlass.observe.archive.entry import Entry, entry_of

if TYPE_CHECKING:
    from windlass.values.values import Values

_log = logging.getLogger("windlass.dead")

READ_AT_ONCE = 20
"""Dead letters that are read whole at once: each may carry a payload and a result of 1 MiB."""
WRITTEN_AT_ONCE = 16 * 2**20
"""Bytes of payloads after which the entries so far are written, before more is read from object storage."""
OVER = "its retention is over"


class Store(Operate, Plan, Read, Protocol):
    """What removing needs of a broker."""


class Remover:
    """Removes dead letters of one namespace. Where the app has an archive, their traces are written there;
    where it has none, the log has a line for each, without their arguments.
    """

    def __init__(
        self,
        broker: Store,
        config: Config,
        signature_of: Callable[[str], Signature | None],
        values: "Values | None",
    ) -> None:
        """`values` has the payloads that are too large for the store."""
        self._broker = broker
        self._config = config
        self._signature_of = signature_of
        self._values = values
        self._archive: Archive | None = None

    async def discard(
        self, targets: Sequence[Target], *, by: str, reason: str, overdue: bool = False
    ) -> Sequence[Operated]:
        """Discard dead letters, as `Operate.discard` does. `StoreUnavailable`, `ValuesUnavailable`: a trace
        cannot be written, and none of them is removed.
        """
        targets = [Target(target.job, State.DEAD) for target in targets]
        at = (await self._broker.schedules(limit=1)).now
        ids = list(dict.fromkeys(target.job for target in targets))
        others: dict[JobId, Operated] = {}
        for start in range(0, len(ids), READ_AT_ONCE):
            few = ids[start : start + READ_AT_ONCE]
            dead: list[JobDetail] = []
            for asked, job in zip(few, await self._broker.get(few), strict=True):
                if job is None or job.pruned:
                    others[asked] = Operated(asked, Effect.NOT_FOUND)
                elif job.state is not State.DEAD:
                    others[asked] = Operated(asked, Effect.WRONG_STATE, job.state)
                else:
                    dead.append(job)
            await self._trace(dead, what="pruned" if overdue else "discarded", at=at, by=by, reason=reason)
        # One that dies after it was looked at has no trace, so it is not sent.
        traced = [target for target in targets if target.job not in others]
        remove = self._broker.prune if overdue else self._broker.discard
        answers = iter(await remove(traced) if traced else ())
        return [others[target.job] if target.job in others else next(answers) for target in targets]

    async def prune(self, jobs: Sequence[JobId], *, by: str) -> Sequence[Operated]:
        """Remove dead letters whose time is over."""
        targets = [Target(job, State.DEAD) for job in jobs]
        return await self.discard(targets, by=by, reason=OVER, overdue=True)

    async def close(self) -> None:
        """Let go of the archive."""
        archive, self._archive = self._archive, None
        if archive is not None:
            await archive.close()

    async def _trace(self, dead: Sequence[JobDetail], *, what: str, at: int, by: str, reason: str) -> None:
        entries: list[Entry] = []
        size = 0
        for job in dead:
            whole, missing = await self._whole(job)
            shower = Shower(self._signature_of(job.task), self._config.private_patterns)
            namespace = self._config.namespace
            entry = entry_of(whole, shower, namespace=namespace, what=what, at=at, by=by, reason=reason)
            entries.append(msgspec.structs.replace(entry, payload=missing) if missing else entry)
            size += len(whole.payload)
            if size >= WRITTEN_AT_ONCE:
                await self._keep(entries)
                entries, size = [], 0
        await self._keep(entries)

    async def _whole(self, job: JobDetail) -> tuple[JobDetail, str]:
        """A dead letter with its payload, and why that cannot be read. No wait would bring back what is
        missing, so such a letter goes; `ValuesUnavailable` passes by itself, and the letter stays.
        """
        if self._values is None or self._config.archive is None:
            return job, ""
        try:
            return await self._values.whole(job, most=self._config.max_payload), ""
        except (ValueMissing, UnreadablePayload) as error:
            return job, str(error)

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

"""Operations: many dead letters replayed or discarded, or a tag forgotten, in the background, with progress
to ask for.

An operation runs in the process that was asked for it and keeps its progress in the store, so every server
can show it and stop it. If its process is gone, it stands still: it is shown as lost, and an operator may
start it again. It does nothing twice, because it touches only jobs that were dead when it began, or that have
the tag.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

from windlass.admin.audit import Audit
from windlass.admin.dead import DeadLetters, Selection
from windlass.admin.forgetting import Forgetting, Forgotten
from windlass.admin.reading import documents, store_time
from windlass.admin.views import moment, rate_shown
from windlass.broker.contract import Broker
from windlass.client.app import Windlass
from windlass.core.limits import Rate
from windlass.core.operate import Effect, Operated
from windlass.core.settings import Change, Document, Kind, Subject
from windlass.core.units import SECOND, Micros
from windlass.errors import InvalidOption, StoreError, WindlassError

_log = logging.getLogger("windlass.admin")

Verb: TypeAlias = Literal["replay", "discard", "forget"]
Stage: TypeAlias = Literal["running", "stopping", "done", "stopped", "failed"]

KEPT = 100
TOLD_EVERY = 1.0
"""Seconds between two reports of progress."""
ALIVE: Micros = 30 * SECOND
"""An operation that has not reported for so long has lost its process."""
_PAST: Mapping[Verb, str] = {"replay": "replayed", "discard": "discarded", "forget": "forgotten"}


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """An operation as the store keeps it."""

    verb: Verb
    by: str
    chosen: dict[str, str]
    reason: str = ""
    rate: str | None = None
    stage: Stage = "running"
    wanted: int = 0
    applied: int = 0
    passed: int = 0
    started: Micros
    told: Micros
    error: str = ""


class OperationShown(msgspec.Struct, frozen=True, kw_only=True):
    """An operation, and how far it is."""

    id: str
    verb: Verb
    state: Literal["running", "stopping", "done", "stopped", "failed", "lost"]
    by: str
    chosen: Mapping[str, str]
    """The filter, in words."""
    reason: str
    """Why, in the operator's words."""
    rate: str | None
    wanted: int
    """What was counted before it began (`most`). Else the dead letters of its queue and task, or of all, when
    it began: to count those of a filter would be to look at each of them. It is done to so many at the most.
    Of a tag that is forgotten: the jobs that had it.
    """
    applied: int
    """To how many it was done."""
    passed: int
    """Those that were not dead any more, or whose key another job holds; of a tag: those that are left."""
    progress: float
    """From 0 to 1."""
    started_at: datetime
    updated_at: datetime
    error: str


class Operations:
    """The operations of one namespace; those that were started here run here."""

    def __init__(self, app: Windlass, broker: Broker) -> None:
        self._app = app
        self._broker = broker
        self._running: set[asyncio.Task[None]] = set()

    async def start(
        self,
        verb: Literal["replay", "discard"],
        selection: Selection,
        *,
        chosen: Mapping[str, str],
        rate: Rate | None = None,
        most: int | None = None,
        by: str,
        reason: str = "",
    ) -> OperationShown:
        """Begin to replay or discard the chosen dead letters, of those that are dead now, and no more than
        `most`. `chosen`: the same in words, for the record, and `reason` why.
        """
        now = await store_time(self._broker)
        before = now if selection.died_before is None else min(now, selection.died_before)
        wanted = most
        if wanted is None:
            wanted = await DeadLetters(self._app, self._broker).count(
                Selection(queue=selection.queue, task=selection.task)
            )
        dated = msgspec.structs.replace(selection, died_before=before)
        kept = Kept(
            verb=verb,
            by=by,
            chosen=dict(chosen),
            reason=reason.strip(),
            rate=None if rate is None else rate_shown(rate),
            wanted=wanted,
            started=now,
            told=now,
        )
        letters = DeadLetters(self._app, self._broker)
        if verb == "replay":
            batches = letters.replay_chosen(dated, rate, most=most)
        else:
            batches = letters.discard_chosen(dated, rate, most=most, reason=kept.reason, by=by)
        return await self._begin(kept, batches)

    async def forget(self, tag: str, *, by: str, reason: str = "") -> OperationShown:
        """Begin to forget a tag."""
        forgetting = Forgetting(self._app, self._broker, tag)
        now = await store_time(self._broker)
        kept = Kept(
            verb="forget",
            by=by,
            chosen={"tag": tag},
            reason=reason.strip(),
            started=now,
            told=now,
        )
        return await self._begin(kept, forgetting.steps(), forgetting)

    async def _begin(
        self,
        kept: Kept,
        batches: AsyncIterator[Sequence[Operated]],
        forgetting: Forgetting | None = None,
    ) -> OperationShown:
        subject = Subject(Kind.OPERATION, f"{kept.started:016x}{os.urandom(4).hex()}")
        changed = await self._broker.override(subject, msgspec.json.encode(kept), 0)
        if changed.change is not Change.APPLIED:
            raise StoreError(f"the operation could not be kept: {changed.change}; try again")
        await self._trim()
        run = _Run(self._broker, subject, kept, changed.version, forgetting)
        task = asyncio.create_task(run.carry_out(batches))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await run.begun.wait()  # what has not begun could not say that it was stopped
        return _shown(subject.name, kept, kept.started)

    async def one(self, operation: str) -> OperationShown:
        """How far one is; `InvalidOption` if it is not known."""
        now = await store_time(self._broker)
        document = await self._document(operation)
        return _shown(operation, _kept(document), now)

    async def all(self) -> list[OperationShown]:
        """The latest, newest first."""
        now = await store_time(self._broker)
        found = [document async for document in documents(self._broker, Kind.OPERATION)]
        return [_shown(document.subject.name, _kept(document), now) for document in reversed(found)]

    async def stop(self, operation: str) -> OperationShown:
        """Ask it to stop, wherever it runs. What is done is done."""
        for _ in range(5):
            document = await self._document(operation)
            kept = _kept(document)
            if kept.stage != "running":
                break
            asked = msgspec.structs.replace(kept, stage="stopping")
            changed = await self._broker.override(
                document.subject, msgspec.json.encode(asked), document.version
            )
            if changed.change is Change.APPLIED:
                break
        return await self.one(operation)

    async def close(self) -> None:
        """Stop those that run here."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _document(self, operation: str) -> Document:
        async for document in documents(self._broker, Kind.OPERATION):
            if document.subject.name == operation:
                return document
        raise InvalidOption(f'there is no operation "{operation}"; only the last {KEPT} are kept')

    async def _trim(self) -> None:
        found = [document async for document in documents(self._broker, Kind.OPERATION)]
        for document in found[: max(0, len(found) - KEPT)]:
            await self._broker.override(document.subject, None, document.version)


class _Run:
    """One operation at work."""

    def __init__(
        self, broker: Broker, subject: Subject, kept: Kept, version: int, forgetting: Forgetting | None
    ) -> None:
        self._forgetting = forgetting
        self._broker = broker
        self._subject = subject
        self._kept = kept
        self._version = version
        self.begun = asyncio.Event()

    async def carry_out(self, batches: AsyncIterator[Sequence[Operated]]) -> None:
        """Do it to the end, or until somebody stops it; what became of it is kept."""
        work = asyncio.create_task(self._go_through(batches))
        stage: Stage = "done"
        error = ""
        self.begun.set()
        try:
            if not await self._watched(work):
                stage = "stopped"
            elif left := self._forgotten.left:
                stage, error = "failed", f"{left}: forget it again when they have ended"
        except asyncio.CancelledError:
            stage, error = "stopped", "its server was stopped"
            raise
        except WindlassError as problem:
            stage, error = "failed", str(problem)
        except Exception as problem:  # noqa: BLE001 - an operator who asks is told of it
            _log.error("an operation has failed", exc_info=problem)
            stage, error = "failed", f"{type(problem).__name__}; the log of its server says more"
        finally:
            await _ended(work)
            self._kept = msgspec.structs.replace(self._kept, stage=stage, error=error)
            await self._conclude()

    @property
    def _forgotten(self) -> Forgotten:
        return Forgotten() if self._forgetting is None else self._forgetting.done

    async def _go_through(self, batches: AsyncIterator[Sequence[Operated]]) -> None:
        if self._forgetting is not None:
            wanted = (await self._forgetting.count()).jobs
            self._kept = msgspec.structs.replace(self._kept, wanted=wanted)
        async for answers in batches:
            applied = sum(answer.effect is Effect.APPLIED for answer in answers)
            self._kept = msgspec.structs.replace(
                self._kept,
                applied=self._kept.applied + applied,
                passed=self._kept.passed + len(answers) - applied,
            )

    async def _watched(self, work: asyncio.Task[None]) -> bool:
        """Tell of it while it goes on; whether it came to its end. At a low rate there is little to tell, but
        silence would be taken for its death.
        """
        while not (await asyncio.wait({work}, timeout=TOLD_EVERY))[0]:
            if not await self._tell():
                return False
        work.result()
        return True

    async def _tell(self) -> bool:
        """Keep the progress; False: the document was changed, and only a wish to stop does that."""
        kept = msgspec.structs.replace(self._kept, told=await store_time(self._broker))
        changed = await self._broker.override(self._subject, msgspec.json.encode(kept), self._version)
        if changed.change is not Change.CONFLICT:
            self._version = changed.version
        return changed.change is not Change.CONFLICT

    async def _conclude(self) -> None:
        """Keep how it ended, even if somebody asked it to stop in between; and put it on record."""
        kept = self._kept
        try:
            kept = msgspec.structs.replace(kept, told=await store_time(self._broker))
            body = msgspec.json.encode(kept)
            changed = await self._broker.override(self._subject, body, self._version)
            if changed.change is Change.CONFLICT and changed.version:
                await self._broker.override(self._subject, body, changed.version)
            await Audit(self._broker).record(
                _PAST[kept.verb],
                {**kept.chosen, **self._forgotten.words()},
                jobs=kept.applied,
                wanted=kept.wanted,
                by=kept.by,
                reason=kept.reason,
            )
        except WindlassError as error:
            _log.warning("the end of an operation could not be kept: %s", error)


async def _ended(work: asyncio.Task[None]) -> None:
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await work


def _kept(document: Document) -> Kept:
    body = document.override
    try:
        return msgspec.json.decode(body if isinstance(body, bytes) else b"", type=Kept)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise InvalidOption(f'operation "{document.subject.name}" is of another version') from None


def _shown(name: str, kept: Kept, now: Micros) -> OperationShown:
    at_work = kept.stage in ("running", "stopping")
    lost = at_work and now - kept.told > ALIVE
    done = kept.applied + kept.passed
    return OperationShown(
        id=name,
        verb=kept.verb,
        state="lost" if lost else kept.stage,
        by=kept.by,
        chosen=kept.chosen,
        reason=kept.reason,
        rate=kept.rate,
        wanted=kept.wanted,
        applied=kept.applied,
        passed=kept.passed,
        progress=1.0 if kept.stage == "done" else round(min(1.0, done / max(1, kept.wanted)), 4),
        started_at=moment(kept.started),
        updated_at=moment(kept.told),
        error=kept.error,
    )

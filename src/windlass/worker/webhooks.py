"""Webhooks for the ends of jobs: a reader of the event log that makes a job of each message.

One worker of a namespace reads (`turn.py`). The messages of a page are enqueued before the place is moved on,
under ids that follow from the events; so a reader that dies in between is repeated by the next, which leaves
nothing out and makes no message twice while the first is under way. What was dropped from the log before it
was read is lost, and said so in the worker's log.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from windlass.broker.contract import Produce
from windlass.broker.management import Configure, Plan, Read
from windlass.core.event import FROM_START, Event, Events
from windlass.core.ids import derived_id, namespace_tag
from windlass.core.job import JobDetail, NewJob, Refusal, Status
from windlass.core.private import without_private
from windlass.core.reading import Reading
from windlass.core.settings import Kind, Subject
from windlass.core.units import Cursor, JobId
from windlass.core.webhook import (
    CALLBACK,
    CALLBACKS,
    READER,
    End,
    Hook,
    decode_hook,
    end_of,
    message,
)
from windlass.errors import InvalidOption, StoreError
from windlass.pace import Pace
from windlass.patience import Backoff
from windlass.worker.delivering import delivery
from windlass.worker.turn import LATER, SOON, Turn

_log = logging.getLogger("windlass.worker")

PAGE = 200
"""Events that are read at once."""
DETAILS = 20
"""Jobs that are read whole at once: each may carry a payload and a result of 1 MiB."""
LONGEST_ERROR = 2_000
_FIRST = Reading(cursor=FROM_START)
_ROWS = 1_000


class Source(Configure, Plan, Produce, Read, Protocol):
    """What the reader needs of a broker."""

    async def events(self, after: Cursor, limit: int, timeout: float) -> Events: ...


class Webhooks:
    """Reads the log for as long as the worker runs."""

    def __init__(self, broker: Source, pace: Pace, namespace: str, patterns: Sequence[str] = ()) -> None:
        self._broker = broker
        self._pace = pace
        self._namespace = namespace
        self._patterns = patterns
        self._tag = namespace_tag(namespace)
        self._turn = Turn(broker, pace, Subject(Kind.READER, READER), _FIRST)

    async def run(self) -> None:
        """Read, and wait."""
        backoff = Backoff(self._pace, most=30.0)
        try:
            while True:
                try:
                    pause = await self.step()
                    backoff.worked()
                except StoreError as error:
                    backoff.tell("webhooks: %s; trying until it works", error)
                    pause = backoff.failed()
                except Exception:  # noqa: BLE001 - whatever it is, the worker goes on
                    _log.exception("webhooks: reading the log of events has failed; it is tried again")
                    pause = max(1.0, backoff.failed())
                await self._pace.sleep(pause * (0.75 + self._pace.jitter() / 2))
        finally:
            await self._turn.leave_at_end()

    async def step(self) -> float:
        """Read a page, if it is this worker's turn; how long to wait for the next."""
        reading = self._turn.reading or (await self._turn.take() if await self._hooks() else None)
        if reading is None:
            return LATER
        page = await self._broker.events(Cursor(reading.cursor), PAGE, 0.0)
        if page.gap:
            _log.warning(
                "webhooks: events were dropped from the log before they were read; some will never be sent"
            )
        if page.items:
            # The hooks are read after the events: one that was added before they happened is among them.
            await self._enqueue(await self._deliveries(page.items, await self._hooks()))
        if page.cursor != reading.cursor:
            await self._turn.keep(Reading(cursor=page.cursor))
        return 0.0 if len(page.items) == PAGE else SOON

    # --- whom to tell ---------------------------------------------------------------------------------------

    async def _hooks(self) -> Mapping[str, Sequence[tuple[str, Hook]]]:
        """By queue: the hooks with their names."""
        found: dict[str, list[tuple[str, Hook]]] = {}
        after: Subject | None = None
        while True:
            page = await self._broker.documents(Kind.WEBHOOK, after, _ROWS)
            for document in page:
                hook = decode_hook(document.override) or decode_hook(document.declared)
                if hook is not None:
                    found.setdefault(hook.queue, []).append((document.subject.name, hook))
            if len(page) < _ROWS:
                return found
            after = page[-1].subject

    async def _deliveries(
        self, events: Iterable[Event], hooks: Mapping[str, Sequence[tuple[str, Hook]]]
    ) -> list[NewJob]:
        ends: list[tuple[Event, End]] = []
        for event in events:
            end = end_of(event)
            if end is not None and event.queue in hooks:
                ends.append((event, end))
        details = await self._details(
            event.job for event, end in ends if _has_to_be_read(end, hooks[event.queue])
        )
        jobs: list[NewJob] = []
        for event, end in ends:
            for name, hook in hooks[event.queue]:
                job = details.get(event.job)
                url = _url(name, hook, event, end, job)
                if url:
                    jobs += self._delivery(name, url, event, end, job)
        return jobs

    def _delivery(
        self, name: str, url: str, event: Event, end: End, job: JobDetail | None
    ) -> Iterable[NewJob]:
        error = None if job is None or job.error is None or end != "dead" else job.error
        told = (
            None
            if error is None
            else (
                error.type,
                without_private(error.message, self._patterns)[:LONGEST_ERROR],
            )
        )
        body = message(event, end, namespace=self._namespace, error=told)
        about = (self._namespace, event.job, event.fence, end, name)
        try:
            tags = () if job is None else job.tags
            yield delivery(derived_id(event.at, self._tag, *about), url, body, tags)
        except InvalidOption as refused:
            _log.warning("webhooks: job %s: its callback is not told: %s", event.job, refused)

    async def _details(self, ids: Iterable[JobId]) -> dict[JobId, JobDetail]:
        wanted = list(dict.fromkeys(ids))
        found: dict[JobId, JobDetail] = {}
        for start in range(0, len(wanted), DETAILS):
            for job in await self._broker.get(wanted[start : start + DETAILS]):
                if job is not None and not job.pruned:
                    # Only what is needed of it: payloads and results are large.
                    found[job.id] = msgspec.structs.replace(job, payload=b"", result=None, deliveries=())
        return found

    async def _enqueue(self, jobs: Sequence[NewJob]) -> None:
        if not jobs:
            return
        receipts = await self._broker.enqueue([[job] for job in jobs])
        for receipt in (receipt for group in receipts for receipt in group):
            if receipt.status is Status.REFUSED:
                why = receipt.why or str(receipt.refusal)
                if receipt.refusal in (Refusal.STORE_FULL, Refusal.UNKNOWN_QUEUE):
                    raise StoreError(f"a message could not be enqueued: {why}")
                _log.error("webhooks: a message could not be enqueued: %s", why)


def _has_to_be_read(end: End, hooks: Iterable[tuple[str, Hook]]) -> bool:
    """Whether the job has to be read: it may carry a URL, or its error is told."""
    return any(name.startswith(CALLBACKS) or (end == "dead" and end in hook.on) for name, hook in hooks)


def _url(name: str, hook: Hook, event: Event, end: End, job: JobDetail | None) -> str:
    """The URL for a message; empty: none."""
    if name.startswith(CALLBACKS):
        return "" if job is None else job.headers.get(CALLBACK, "")
    return hook.url if end in hook.on and event.at >= hook.at else ""

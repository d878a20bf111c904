"""Writes: what operators do to jobs, queues and lanes, and enqueueing by a task's name."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, cast

import msgspec

from windlass.admin.calling import task_named
from windlass.admin.insight import Insight
from windlass.admin.listing import Selection, dead_ids
from windlass.admin.pacing import at_rate
from windlass.broker.contract import Broker
from windlass.client.app import Windlass
from windlass.client.handle import Job
from windlass.client.options import CallOptions
from windlass.client.task import Call
from windlass.core.bounds import CALL_ITEMS
from windlass.core.ids import check_job_id
from windlass.core.job import HIGHEST_PRIORITY, LOWEST_PRIORITY, MAX_ATTEMPTS, NewJob
from windlass.core.limits import Rate
from windlass.core.names import check_lane, check_queue, check_tags, refuse_reserved
from windlass.core.operate import Edit, Operated, Target
from windlass.core.option import whole
from windlass.core.query import NO_RECORD
from windlass.core.settings import (
    Change,
    Changed,
    Document,
    Kind,
    LaneSettings,
    QueueSettings,
    Subject,
    overlay,
)
from windlass.core.state import State
from windlass.core.units import JobId
from windlass.errors import InvalidOption, JobNotFound, StoreError

_TRIES = 5
"""Attempts at a change that others change at the same time."""

_Verb = Callable[[Sequence[Target]], Awaitable[Sequence[Operated]]]


class JobChange(msgspec.Struct, frozen=True, kw_only=True):
    """New values for a job; what is None stays."""

    arguments: bytes | None = None
    """A JSON object."""
    priority: int | None = None
    max_attempts: int | None = None
    tags: Sequence[str] | None = None


class Operator:
    """What can be done through a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._insight = Insight(broker)

    # --- jobs -----------------------------------------------------------------------------------------------

    def cancel(self, jobs: Sequence[str]) -> AsyncIterator[Sequence[Operated]]:
        """Cancel jobs by their ids; what became of each, batch by batch."""
        return _each(self._broker.cancel, jobs, expect=None)

    def replay(self, jobs: Sequence[str], rate: Rate | None = None) -> AsyncIterator[Sequence[Operated]]:
        """Send dead letters back by their ids."""
        return _each(self._broker.replay, jobs, expect=State.DEAD, rate=rate)

    def discard(self, jobs: Sequence[str], rate: Rate | None = None) -> AsyncIterator[Sequence[Operated]]:
        """Remove dead letters by their ids."""
        return _each(self._broker.discard, jobs, expect=State.DEAD, rate=rate)

    def replay_chosen(
        self, selection: Selection, rate: Rate | None = None, *, most: int | None = None
    ) -> AsyncIterator[Sequence[Operated]]:
        """Send the chosen dead letters back, each once: choose by `died_before`, else one that dies again
        meanwhile may be chosen again. With a rate, so many at a time. `most`: the number that was counted,
        so that no more are touched than somebody agreed to.
        """
        return self._chosen(self._broker.replay, selection, rate, most)

    def discard_chosen(
        self, selection: Selection, rate: Rate | None = None, *, most: int | None = None
    ) -> AsyncIterator[Sequence[Operated]]:
        """Remove the chosen dead letters."""
        return self._chosen(self._broker.discard, selection, rate, most)

    async def _chosen(
        self, verb: _Verb, selection: Selection, rate: Rate | None, most: int | None
    ) -> AsyncIterator[Sequence[Operated]]:
        await self._insight.check_selection(selection)

        async def act(ids: Sequence[JobId]) -> Sequence[Operated]:
            return await verb([Target(job, State.DEAD) for job in ids])

        async for answers in at_rate(_first(dead_ids(self._broker, selection), most), rate, act):
            yield answers

    async def edit(self, app: Windlass, job_id: str, change: JobChange) -> Operated:
        """Change a waiting or dead job; its new arguments are checked as those of a call."""
        found = (await self._broker.get([check_job_id(job_id)]))[0]
        if found is None:
            raise JobNotFound(f"job {job_id} is not known: {NO_RECORD}")
        refuse_reserved(found.task, "a job of task")  # what it says is said in Windlass's name
        payload = None
        if change.arguments is not None:
            signature = app.signature_of(found.task)
            if signature is None:
                raise InvalidOption(
                    f'task "{found.task}" is not one of this app: its arguments cannot be checked here'
                )
            payload = signature.encode_json(change.arguments)
        priority, attempts = change.priority, change.max_attempts
        if priority is not None:
            whole(priority, name="priority", least=LOWEST_PRIORITY, most=HIGHEST_PRIORITY)
        if attempts is not None:
            whole(attempts, name="max_attempts", least=1, most=MAX_ATTEMPTS)
        edit = Edit(
            job=found.id,
            # A waiting job may become ready meanwhile, and a dead one be replayed: only the second matters.
            expect=State.DEAD if found.state is State.DEAD else None,
            payload=payload,
            tags=None if change.tags is None else check_tags(change.tags),
            priority=priority,
            max_attempts=attempts,
        )
        return (await self._broker.edit([edit]))[0]

    # --- queues and lanes -----------------------------------------------------------------------------------

    async def pause(self, queue: str, lane: str | None = None) -> None:
        """Stop handing out a queue's, or one lane's, jobs; what runs goes on."""
        await self._known(await self._broker.pause(*_place(queue, lane)), queue)

    async def resume(self, queue: str, lane: str | None = None) -> None:
        """Let them go on."""
        await self._known(await self._broker.resume(*_place(queue, lane)), queue)

    async def _known(self, found: bool, queue: str) -> None:  # noqa: FBT001 - the store's answer
        if not found:
            await self._insight.queue_document(queue)  # says which queues are declared

    async def set_queue(self, queue: str, settings: QueueSettings) -> None:
        """Override what these settings say, until it is reset; other overrides stay."""
        await self._insight.queue_document(check_queue(queue))
        await self._override(Subject(Kind.QUEUE, queue), settings)

    async def set_lane(self, queue: str, lane: str, settings: LaneSettings) -> None:
        """Override settings of one lane."""
        await self._insight.queue_document(check_queue(queue))
        await self._override(Subject(Kind.LANE, queue, check_lane(lane)), settings)

    async def reset_queue(self, queue: str) -> bool:
        """Let the declared settings of a queue count again; whether anything was overridden."""
        await self._insight.queue_document(check_queue(queue))
        return await self._override(Subject(Kind.QUEUE, queue), None)

    async def reset_lane(self, queue: str, lane: str) -> bool:
        """Let the declared settings of a lane count again."""
        await self._insight.queue_document(check_queue(queue))
        return await self._override(Subject(Kind.LANE, queue, check_lane(lane)), None)

    async def _override(self, subject: Subject, said: QueueSettings | LaneSettings | None) -> bool:
        for _ in range(_TRIES):
            document = await self._document(subject)
            if said is None and (document is None or document.override is None):
                return False
            body = said if said is None or document is None else _merged(document, said)
            changed = await self._broker.override(subject, body, 0 if document is None else document.version)
            if changed.change is not Change.CONFLICT:
                _check(subject, changed)
                return True
        raise StoreError(f'the settings of {subject.kind} "{subject.name}" keep changing; try again')

    async def _document(self, subject: Subject) -> Document | None:
        async for document in self._insight.documents(subject.kind):
            if document.subject == subject:
                return document
        return None


def _merged(document: Document, said: QueueSettings | LaneSettings) -> QueueSettings | LaneSettings:
    if isinstance(said, QueueSettings):
        return cast("QueueSettings", overlay(cast("QueueSettings | None", document.override), said))
    return cast("LaneSettings", overlay(cast("LaneSettings | None", document.override), said))


def _check(subject: Subject, changed: Changed) -> None:
    if changed.change is Change.IN_USE:
        raise InvalidOption(
            f'queue "{subject.name}": order, age_step and sequence cannot change while it has '
            "unfinished jobs; drain it first"
        )
    if changed.change not in (Change.APPLIED, Change.UNCHANGED):
        raise InvalidOption(f'{subject.kind} "{subject.name}" was not changed: {changed.change}')


def _place(queue: str, lane: str | None) -> tuple[str, str | None]:
    return check_queue(queue), None if lane is None else check_lane(lane)


async def _first(batches: AsyncIterator[list[JobId]], most: int | None) -> AsyncIterator[list[JobId]]:
    """No more than so many of them."""
    left = most
    async for batch in batches:
        yield batch[:left]
        if left is not None:
            left -= min(left, len(batch))
            if not left:
                return


async def _each(
    verb: _Verb, jobs: Sequence[str], *, expect: State | None, rate: Rate | None = None
) -> AsyncIterator[Sequence[Operated]]:
    # All ids are checked before anything is done to the first.
    targets = [Target(job, expect) for job in dict.fromkeys(check_job_id(job) for job in jobs)]

    async def batches() -> AsyncIterator[Sequence[Target]]:
        for start in range(0, len(targets), CALL_ITEMS):
            yield targets[start : start + CALL_ITEMS]

    async for answers in at_rate(batches(), rate, verb):
        yield answers


async def enqueue(app: Windlass, task: str, arguments: bytes, options: CallOptions) -> Job[Any]:
    """Enqueue a task by its name, with its arguments as a JSON object.

    `InvalidOption` names the tasks there are, or the option that is wrong; `InvalidPayload` the argument.
    """
    sender = task_named(app, task).using(**options)
    payload = sender.signature.encode_json(arguments)
    queue = options.get("queue")
    if queue is not None:
        await Insight(await sender.app.connection.broker()).queue_document(queue)
    nameless = NewJob(id=JobId(), task=task, payload=payload)  # a call takes its id when it is built
    return await sender.app.asend_one(sender.rebuilt(Call(sender, nameless)))

"""What an application declares: queues, lanes and schedules; told to each broker before it is used."""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec
from msgspec import UNSET

from windlass.broker.contract import Broker
from windlass.core.event import Emit
from windlass.core.option import whole
from windlass.core.order import MAX_WEIGHT
from windlass.core.schedule import next_tick
from windlass.core.settings import Body, Change, Changed, Declaration, Kind, QueueSettings, Subject
from windlass.core.specification import Specification, encode_specification
from windlass.core.timetable import NewSchedule
from windlass.core.webhook import QUEUE as WEBHOOKS
from windlass.errors import InvalidOption

_Name: TypeAlias = Subject | str
"""Of a document, or of a schedule."""


class Declared:
    """The declarations of one application. They grow while it is being imported, and may be replaced."""

    def __init__(self, app: str, revision: int, *, emit: Emit | None = None) -> None:
        """`emit` is what queues write to the event log that do not say so: somebody reads it."""
        self._app = app
        self._revision = revision
        self._emit = emit
        self._documents: dict[Subject, Body] = {}
        self._schedules: dict[str, Specification] = {}
        self._order: list[_Name] = []
        """What was declared, oldest first; what is declared anew is there again."""
        self.version = 0
        """How many declarations there were: the length of `_order`."""
        self._weights: dict[str, int] = {}

    def has_queue(self, name: str) -> bool:
        """Whether anything was said of a queue, be it that it exists."""
        return Subject(Kind.QUEUE, name) in self._documents

    def emits(self, queue: str) -> bool:
        """Whether this application declares a queue so that it writes to the event log."""
        said = self._documents.get(Subject(Kind.QUEUE, queue))
        if not isinstance(said, QueueSettings):
            return False
        emit = self._emit if said.emit is UNSET else said.emit
        return emit not in (None, Emit.NONE)

    @property
    def weights(self) -> dict[str, int]:
        """The queues, in the order of their first declaration, with their shares of a worker."""
        names = (subject.name for subject in self._documents if subject.kind is Kind.QUEUE)
        return {name: self._weights.get(name, 1) for name in names}

    def weigh(self, queue: str, weight: int) -> None:
        """Give a queue its share of a worker. Stores do not learn it: it only orders the asks of a worker."""
        self._weights[queue] = whole(weight, name="weight", least=1, most=MAX_WEIGHT)

    def emit_by_default(self, emit: Emit) -> None:
        """Change which events a queue writes if its declaration does not say. Declares known queues again."""
        if self._emit is not emit:
            self._emit = emit
            for subject in self._documents:
                if subject.kind is Kind.QUEUE:
                    self._declare(subject)

    def put(self, subject: Subject, body: Body) -> None:
        """Declare a document; it replaces an earlier one."""
        if self._documents.get(subject) != body:
            self._documents[subject] = body
            self._declare(subject)

    def put_schedule(self, name: str, specification: Specification) -> None:
        """Declare a schedule."""
        if name in self._schedules:
            raise InvalidOption(f'there are two schedules called "{name}"; give one of them another name')
        self._schedules[name] = specification
        self._declare(name)

    def _declare(self, name: _Name) -> None:
        self._order.append(name)
        self.version = len(self._order)

    async def tell(self, broker: Broker, *, since: int) -> None:
        """Declare what has changed since a version. `InvalidOption`: something is not in force."""
        # Each subject once, as it stands: on the way to `sequence=True` the empty document of a task's queue
        # would ask a queue with jobs for another layout, and be refused.
        changed = list(dict.fromkeys(self._order[since:]))
        await self._tell_documents(broker, [name for name in changed if isinstance(name, Subject)])
        await self._tell_schedules(broker, [name for name in changed if isinstance(name, str)])

    async def _tell_documents(self, broker: Broker, subjects: Sequence[Subject]) -> None:
        if not subjects:
            return
        wanted = [
            Declaration(subject=subject, body=self._body(subject), app=self._app, revision=self._revision)
            for subject in subjects
        ]
        answers = await broker.declare(wanted)
        for declaration, changed in zip(wanted, answers, strict=True):
            _check(declaration, changed, said=self._documents[declaration.subject])

    def _body(self, subject: Subject) -> Body:
        body = self._documents[subject]
        if self._emit is None or not isinstance(body, QueueSettings) or body.emit is not UNSET:
            return body
        return msgspec.structs.replace(body, emit=self._emit)

    async def _tell_schedules(self, broker: Broker, names: Sequence[str]) -> None:
        if not names:
            return
        now = (await broker.schedules(limit=1)).now  # ticks are counted by the store's clock
        for name in names:
            specification = self._schedules[name]
            answer = await broker.declare_schedule(
                NewSchedule(
                    name=name,
                    spec=encode_specification(specification),
                    next_at=next_tick(
                        specification.rule, now, start=specification.start, end=specification.end
                    ),
                    app=self._app,
                    revision=self._revision,
                )
            )
            if answer.change is Change.OTHER_APP:
                raise InvalidOption(f'schedule "{name}" belongs to another app; give this one another name')


def _check(declaration: Declaration, changed: Changed, *, said: Body) -> None:
    """Say so if what the code declares is not in force. A newer revision's settings are its own business."""
    subject = declaration.subject
    what = f'{subject.kind} "{subject.name}"'
    if subject.kind is Kind.LANE:
        what = f'lane "{subject.lane}" of queue "{subject.name}"'
    if subject.kind is Kind.WEBHOOK or subject == Subject(Kind.QUEUE, WEBHOOKS):
        return  # every app declares the same
    if changed.change is Change.OTHER_APP and said != type(said)():
        raise InvalidOption(
            f"{what} belongs to another app; give this one a queue of its own, or declare it without settings"
        )
    if changed.change is Change.IN_USE:
        raise InvalidOption(
            f"{what}: order, age_step and sequence cannot change while the queue has unfinished jobs; "
            "drain it, or use a new queue"
        )
    if changed.change is Change.UNKNOWN_QUEUE:
        raise InvalidOption(f"{what}: the queue is not declared; declare it with app.queue()")

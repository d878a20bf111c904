"""Enqueueing by a task's name, with its arguments as a JSON object: for HTTP and the command line.

Jobs are made first, which checks everything about them, and sent after that. So a request that may come twice
can keep the ids of its jobs before any of them exists.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from windlass.admin.idempotency import Request, Requests
from windlass.admin.queues import Queues
from windlass.broker.contract import Broker
from windlass.client.app import Windlass
from windlass.client.options import CallOptions
from windlass.client.task import Sender
from windlass.core.enqueuer import enqueuer_in, header_of, with_header
from windlass.core.job import NewJob, Receipt, Refusal, Status
from windlass.core.names import refuse_reserved
from windlass.core.spelling import hint
from windlass.errors import EnqueueRefused, InvalidOption, ValueConflict
from windlass.observe.traces import sending


class UnknownTask(InvalidOption):
    """A task that the app does not have."""


class OptionRefused(InvalidOption):
    """An option that cannot be honoured; `option` is its name, if one alone is to blame."""

    def __init__(self, text: str, option: str | None) -> None:
        super().__init__(text)
        self.option = option


class JobRefused(EnqueueRefused):
    """The store refused a job, and so the whole group. `number` is its place in the group."""

    def __init__(self, number: int, receipt: Receipt) -> None:
        super().__init__(receipt.why or str(receipt.refusal))
        self.number = number
        self.refusal = receipt.refusal


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A job that can be sent, and the app in the namespace where it goes."""

    app: Windlass
    job: NewJob


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """A job that stands for a call."""

    id: str
    task: str
    queue: str
    lane: str
    created: bool
    """False: a job that was there before stands for it, under its unique key."""


# --- making a job -------------------------------------------------------------------------------------------


def task_named(app: Windlass, name: str) -> Sender[..., Any]:
    """The task of this name. `UnknownTask` names those of the app; `InvalidOption`: it is Windlass's own."""
    known = app.tasks.get(refuse_reserved(name, "task"))
    if known is None:
        those = hint(name, sorted(app.tasks), "tasks of this app")
        none = "" if app.tasks else '; register one with "@app.task"'
        raise UnknownTask(f'there is no task "{name[:100]}"; {those}{none}')
    return known


def make(
    task: Sender[..., Any],
    arguments: bytes,
    options: Mapping[str, Any],
    *,
    check: Callable[[NewJob], None] = lambda _: None,
    key: str = "",
) -> Made:
    """A job of a task. `OptionRefused` or `InvalidPayload` say what is wrong.

    `check` may refuse the job, for its queue or lane, before its arguments are looked at. `key` names the API
    key of the caller, for history.
    """
    sender = _sender(task, options)
    check(sender.pattern)
    payload = sender.signature.encode_json(arguments)
    job = sender.job(sender.app.new_id(), payload)
    if sender.app.enqueuer:
        enqueuer = msgspec.structs.replace(enqueuer_in(sender.app.enqueuer), key=key)
        job = msgspec.structs.replace(job, headers=with_header(job.headers, header_of(enqueuer)))
    return Made(app=sender.app, job=job)


def _sender(task: Sender[..., Any], options: Mapping[str, Any]) -> Sender[..., Any]:
    if not options:
        return task
    try:
        sender = task.using(**cast("CallOptions", options))
    except InvalidOption as error:
        raise OptionRefused(str(error), _guilty(task, options)) from None
    if sender.needs_parents and "after" not in options:
        raise OptionRefused("on_failure needs parents: give after as well", "on_failure")
    return sender


def _guilty(task: Sender[..., Any], options: Mapping[str, Any]) -> str | None:
    """The option that is refused even without the others."""
    for name, value in options.items():
        with_it = {"key": "any"} if name in ("mode", "window") else {}  # which need a key
        try:
            task.using(**cast("CallOptions", {**with_it, name: value}))
        except InvalidOption:
            return name
    return None


# --- sending ------------------------------------------------------------------------------------------------


class Enqueueing:
    """Sends jobs for callers that name tasks."""

    def __init__(self, app: Windlass, broker: Broker) -> None:
        self._app = app
        self._broker = broker

    async def call(self, task: str, arguments: bytes, options: CallOptions) -> Accepted:
        """Enqueue a task by its name. `InvalidOption` names the tasks or the queues that there are, or the
        option that is wrong; `InvalidPayload` the argument.
        """
        made = make(task_named(self._app, task), arguments, options)
        try:
            return (await self.accept([made]))[0]
        except JobRefused as error:
            if error.refusal is Refusal.UNKNOWN_QUEUE:
                await Queues(await made.app.broker()).check(made.job.queue)
            raise

    async def accept(self, made: Sequence[Made]) -> list[Accepted]:
        """Send jobs as one group, accepted whole or not at all. `JobRefused` names the job to blame."""
        receipts = await _sent(made)
        refused = [number for number, receipt in enumerate(receipts) if receipt.status is Status.REFUSED]
        if refused:
            to_blame = (number for number in refused if receipts[number].refusal is not Refusal.NEIGHBOUR)
            number = next(to_blame, refused[0])
            raise JobRefused(number, receipts[number])
        return [_accepted(each, receipt) for each, receipt in zip(made, receipts, strict=True)]

    async def accept_once(
        self, made: Sequence[Made], *, key: str, caller: str, body: bytes
    ) -> list[Accepted]:
        """The same under an idempotency key: the jobs of the first request are the answer to all that have
        this key and body. `OtherBody`: the key was used for another request.
        """
        requests = Requests(self._broker, caller)
        begun = await requests.begin(key, body, [each.job.id for each in made])
        if begun.request.sent:
            return _known(made, begun.request)
        same = [
            msgspec.structs.replace(each, job=msgspec.structs.replace(each.job, id=job))
            for each, job in zip(made, begun.request.jobs, strict=True)
        ]
        try:
            answers = await self.accept(same)
        except (JobRefused, InvalidOption, ValueConflict):
            await requests.give_up(begun)
            raise
        await requests.accepted(begun, [each.id for each in answers], [each.created for each in answers])
        return answers


async def _sent(made: Sequence[Made]) -> Sequence[Receipt]:
    """Send jobs as one group; a single one together with those of other callers."""
    if len({each.app for each in made}) > 1:
        raise InvalidOption(
            "these jobs are for queues in several namespaces, which no store accepts in one step: "
            "send them apart"
        )
    connection = made[0].app.connection
    with sending([each.job for each in made]) as jobs:
        if len(jobs) == 1:
            return await connection.aenqueue(jobs)
        return (await connection.send([jobs]))[0]


def _accepted(made: Made, receipt: Receipt) -> Accepted:
    # Sent again under its own id (two requests under one idempotency key): it is still new.
    created = receipt.status in (Status.CREATED, Status.ACCEPTED) or receipt.of == made.job.id
    return _answer(made, receipt.of or receipt.job, created=created)


def _known(made: Sequence[Made], request: Request) -> list[Accepted]:
    return [
        _answer(each, job, created=created)
        for each, job, created in zip(made, request.stands, request.created, strict=True)
    ]


def _answer(made: Made, job: str, *, created: bool) -> Accepted:
    return Accepted(id=job, task=made.job.task, queue=made.job.queue, lane=made.job.lane, created=created)

"""Enqueueing by a task's name, with its arguments as a JSON object: what comes over HTTP.

Jobs are made first (everything about them is checked), and sent after that, so that whoever sends can keep
their ids before anything exists.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from windlass.client.app import Windlass
from windlass.client.options import CallOptions
from windlass.client.task import Sender
from windlass.core.job import NewJob, Receipt
from windlass.errors import InvalidOption
from windlass.observe.traces import sending


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A job that can be sent, and where to."""

    app: Windlass
    job: NewJob


class OptionRefused(InvalidOption):
    """An option that cannot be honoured; `option` is its name, if one alone is to blame."""

    def __init__(self, text: str, option: str | None) -> None:
        super().__init__(text)
        self.option = option


def make(
    known: Sender[..., Any],
    arguments: bytes,
    options: Mapping[str, Any],
    *,
    check: Callable[[NewJob], None] = lambda _: None,
) -> Made:
    """A job of a task. `OptionRefused` or `InvalidPayload` say what is wrong.

    `check` may refuse the job (its queue and lane, say) before its arguments are looked at.
    """
    sender = _sender(known, options)
    check(sender.job("", b""))
    payload = sender.signature.encode_json(arguments)
    return Made(app=sender.app, job=sender.job(sender.app.new_id(), payload))


def _sender(known: Sender[..., Any], options: Mapping[str, Any]) -> Sender[..., Any]:
    if not options:
        return known
    try:
        sender = known.using(**cast("CallOptions", options))
    except InvalidOption as error:
        raise OptionRefused(str(error), _guilty(known, options)) from None
    if sender.needs_parents and "after" not in options:
        raise OptionRefused("on_failure needs parents: give after as well", "on_failure")
    return sender


def _guilty(known: Sender[..., Any], options: Mapping[str, Any]) -> str | None:
    """The option that cannot be honoured by itself."""
    for name, value in options.items():
        beside = (
            {"key": "any"} if name in ("mode", "window") else {}
        )  # which mean something beside a key only
        try:
            known.using(**cast("CallOptions", {**beside, name: value}))
        except InvalidOption:
            return name
    return None


async def send(made: Sequence[Made]) -> list[Receipt]:
    """Send jobs as one group, accepted whole or not at all; one alone together with those of other callers.

    All of them have to be of one namespace.
    """
    if len({each.app for each in made}) > 1:
        raise InvalidOption(
            "these jobs are for queues in several namespaces, which no store accepts in one step: "
            "send them apart"
        )
    connection = made[0].app.connection
    with sending([each.job for each in made]) as jobs:
        if len(jobs) == 1:
            return list(await connection.aenqueue(jobs))
        return list((await connection.send([jobs]))[0])

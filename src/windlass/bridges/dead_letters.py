"""The dead letter of a message that nobody can read, or whose jobs the store has refused."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from windlass.bridges.mapped import Mapped
from windlass.bridges.message import Message
from windlass.core.intake import INTAKE_HEADER, PLACE_HEADER, UNREAD
from windlass.core.job import GROUP_BYTES, NewJob
from windlass.core.names import LONGEST_HEADER, MAX_HEADERS, MAX_HEADERS_BYTES, check_headers
from windlass.core.outcome import Error
from windlass.core.units import JobId
from windlass.errors import InvalidOption

NewId: TypeAlias = Callable[[Message], JobId]
"""The id of the job of a message: the same for a repeat of the message, where that has an id."""
LARGEST = GROUP_BYTES
"""Bytes of a message that are kept: what a store takes in one step."""


def origin(intake: str, message: Message) -> dict[str, str]:
    """The headers that say where a job has come from."""
    place = message.place or message.id or ""
    return {INTAKE_HEADER: intake, **({PLACE_HEADER: _printable(place)} if place else {})}


def dead_letter(
    intake: str, message: Message, why: str, *, job: JobId, pattern: NewJob | None, kind: str
) -> Mapped:
    """A job that is born dead with the bytes of a message, so that an operator can correct and replay it.

    `pattern` is a job of the task that the intake was set to; None: the message itself was to name it.
    """
    body = message.body or b""
    if len(body) > LARGEST:
        why = f"{why}; of its {len(body):,} bytes the first {LARGEST:,} are kept"
    letter = NewJob(
        job,
        UNREAD if pattern is None else pattern.task,
        queue="default" if pattern is None else pattern.queue,
        payload=body[:LARGEST],
        headers={**those_that_fit(message.headers), **origin(intake, message)},
        max_attempts=1 if pattern is None else pattern.max_attempts,
        revision=0 if pattern is None else pattern.revision,
    )
    return Mapped((letter,), Error(type=kind, message=why, retryable=False))


def those_that_fit(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a message that a job can have; two places are left for where it came from."""
    kept: dict[str, str] = {}
    size = LONGEST_HEADER
    for name, value in headers.items():
        size += len(name.encode(errors="replace")) + len(value.encode(errors="replace"))
        if size > MAX_HEADERS_BYTES or len(kept) == MAX_HEADERS - 2:
            break
        if _fits(name, value):
            kept[name] = value
    return kept


def _fits(name: str, value: str) -> bool:
    try:
        check_headers({name: value})
    except InvalidOption:
        return False
    return not name.startswith("windlass-")


def _printable(text: str) -> str:
    shown = text[:200]
    if shown.isprintable():
        return shown
    return "".join(letter if letter.isprintable() else "?" for letter in shown)

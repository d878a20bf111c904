"""An exception as text: what is kept of a run that failed. Nothing of it is ever executed or imported.

A traceback holds file names, lines and code, never the values of variables: those may be secrets. What an
exception says of itself may quote one, so every text goes through `clean` before it is cut to its length:
half of a secret is one, too.
"""

import hashlib
import traceback
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import cast

from windlass.core.outcome import Error, type_name

MESSAGE_CHARS = 2_000
TRACEBACK_CHARS = 16_000
FRAMES = 50
"""Innermost frames that are kept of each exception of a chain."""
CHAIN = 10


class RunInterrupted(Exception):
    """A run ended by something that is no `Exception`: `sys.exit()`, a stray cancellation.

    Under the task's retry policy it counts as any other error.
    """


class RunTimedOut(TimeoutError):
    """A run took longer than its task's timeout."""


def as_error(error: BaseException, *, retryable: bool, clean: Callable[[str], str] = str) -> Error:
    """The error to keep of an exception; `clean` removes secrets."""
    return Error(
        type=clean(type_name(error)),
        message=clipped(clean(_message(error)), MESSAGE_CHARS),
        traceback=shortened(clean(formatted(error))),
        fingerprint=fingerprint(error),
        cause=clean(_causes(error)),
        retryable=retryable,
    )


def said(kind: str, message: str, *, cause: str = "", retryable: bool = True) -> Error:
    """An error without an exception."""
    mark = hashlib.blake2b(kind.encode(), digest_size=8).hexdigest()
    return Error(type=kind, message=message, fingerprint=mark, cause=cause, retryable=retryable)


def fingerprint(error: BaseException) -> str:
    """The same for errors of one kind from one place: class and functions, not lines, values or messages.

    So dead letters of one bug stand together, also after an edit elsewhere in the file.
    """
    places = [
        f"{code.co_filename.rpartition('/')[2]}:{code.co_qualname}" for code in _codes(error.__traceback__)
    ]
    text = "\n".join([type_name(error), *places[-FRAMES:]])
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def clipped(text: str, most: int) -> str:
    """Text that any store can keep: without surrogates or NUL, and not longer than `most`."""
    clean = text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\N{SYMBOL FOR NULL}")
    return clean if len(clean) <= most else clean[: most - 1] + "…"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - a __str__ may raise anything
        return "<its text cannot be read>"


def formatted(error: BaseException) -> str:
    """The frames of the user's code and what it calls; those of the worker say nothing."""
    try:
        found = traceback.TracebackException(
            type(error),
            error,
            users_frames(error.__traceback__),
            limit=-FRAMES,
            capture_locals=False,
            compact=True,
        )
        return "".join(found.format())
    except BaseException:  # noqa: BLE001 - a __str__ in the chain may raise anything
        return ""


def shortened(text: str) -> str:
    """A traceback that any store can keep: its beginning and its end, if it is long."""
    text = clipped(text, len(text) + 1)
    if len(text) <= TRACEBACK_CHARS:
        return text
    half = TRACEBACK_CHARS // 2
    return f"{text[:half]}\n…\n{text[-half:]}"


def leaves(error: BaseException) -> list[BaseException]:
    """The errors of a group and of the groups in it; else the error itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    group = cast("BaseExceptionGroup[BaseException]", error)
    return [leaf for each in group.exceptions for leaf in leaves(each)]


def users_frames(found: TracebackType | None) -> TracebackType | None:
    """A traceback from where it leaves the worker, without the frames of the worker that lie between
    middleware, dependencies and the task. What the worker did last stays: it raised the exception.
    """
    frames: list[TracebackType] = []
    while found is not None:
        frames.append(found)
        found = found.tb_next
    theirs = [at for at, frame in enumerate(frames) if not _is_before_theirs(frame)]
    if not theirs:
        return frames[0] if frames else None
    first, last = theirs[0], theirs[-1]
    kept = [frame for frame in frames[first:last] if not _is_workers(frame)]
    if len(kept) == last - first:
        return frames[first]
    rest: TracebackType | None = frames[last]
    for frame in reversed(kept):
        rest = TracebackType(rest, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return rest


def _is_before_theirs(found: TracebackType) -> bool:
    return _is_workers(found) or _module(found).startswith(("concurrent.", "asyncio.", "contextvars"))


def _is_workers(found: TracebackType) -> bool:
    return _module(found).startswith(("windlass.worker.", "windlass.testing."))


def _module(found: TracebackType) -> str:
    names = found.tb_frame.f_globals
    name = names.get("__name__", "")
    if name == "__main__":  # `python -m` calls a module so; its real name is in its spec
        name = getattr(names.get("__spec__"), "name", name)
    return str(name)


def _codes(found: TracebackType | None) -> list[CodeType]:
    codes: list[CodeType] = []
    found = users_frames(found)
    while found is not None:
        codes.append(found.tb_frame.f_code)
        found = found.tb_next
    return codes


def _causes(error: BaseException) -> str:
    names: list[str] = []
    cause = error.__cause__
    while cause is not None and len(names) < CHAIN:
        names.append(type_name(cause))
        cause = cause.__cause__
    return " ← ".join(names)

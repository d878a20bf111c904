"""Warns of calls that wait for the store on the thread of an event loop: all of that loop waits with them."""

import asyncio
import sys
import warnings
from types import FrameType

from windlass.errors import BlockingCall

_running_loop = asyncio._get_running_loop  # noqa: SLF001  # pyright: ignore[reportPrivateUsage, reportUnknownVariableType, reportUnknownMemberType, reportAttributeAccessIssue] - asks in 30 ns; the public one raises where there is none, in 300
_OURS = "windlass."
_NAMES = {"Windlass": "app", "Job": "job", "Flow": "flow", "Chain": "chain(...)", "Group": "group(...)"}


def warn_on_a_loop() -> None:
    """Warn the program, if an event loop runs on this thread. Python shows it once for each line of code; where
    warnings are errors it is raised, and nothing was sent.
    """
    if _running_loop() is not None:
        _warn()


def _warn() -> None:
    caller: FrameType | None = sys._getframe(1)  # noqa: SLF001 - as `warnings` itself does
    ours, level = caller, 1
    while caller is not None and _is_ours(caller):
        ours, caller, level = caller, caller.f_back, level + 1
    # Top level in a notebook or an asyncio shell: there is nobody whom the call would hold up.
    if ours is None or caller is None or caller.f_code.co_name.startswith(("<module>", "<cell line")):
        return
    verb, twin = _called(ours), "a" + _called(ours)
    subject = _subject(ours)
    instead = f"await {subject}.{twin}(...)" if verb != "run" else "await the coroutine itself"
    warnings.warn(
        f"{subject}.{verb}() waits for the store, and with it all that runs on this event loop; write {instead}",
        BlockingCall,
        stacklevel=level,
    )


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(_OURS)


def _called(frame: FrameType) -> str:
    return frame.f_code.co_name


def _subject(frame: FrameType) -> str:
    """What the verb was called on, as a program would write it."""
    own: object = frame.f_locals.get("self")
    kind = type(own).__name__
    if kind in ("Task", "Sender"):
        return str(getattr(own, "name", "task"))
    return next((_NAMES[each.__name__] for each in type(own).__mro__ if each.__name__ in _NAMES), "app")

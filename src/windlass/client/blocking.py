"""Warns of calls that wait for the store on the thread of an event loop: all of that loop waits with them."""

import inspect
import warnings
from asyncio import _get_running_loop as loop_here  # pyright: ignore[reportPrivateUsage] - takes a tenth of
from types import FrameType  # the time of the public one, which raises where there is no loop

from windlass.errors import BlockingCall

_OURS = "windlass."
_NAMES = {"Windlass": "app", "Job": "job", "Flow": "flow", "Chain": "chain(...)", "Group": "group(...)"}


def warn_on_a_loop() -> None:
    """Warn the program, if an event loop runs on this thread. Python shows it once for each line of code;
    where warnings are errors it is raised, and nothing was sent.
    """
    if loop_here() is not None:
        _warn()


def _warn() -> None:
    ours, level = inspect.currentframe(), 1
    caller = None if ours is None else ours.f_back
    while ours is not None and caller is not None and _is_ours(caller):
        ours, caller, level = caller, caller.f_back, level + 1
    # Top level in a notebook or an asyncio shell: there is nobody whom the call would hold up.
    if ours is None or caller is None or caller.f_code.co_name.startswith(("<module>", "<cell line")):
        return
    verb, subject = ours.f_code.co_name, _subject(ours)
    instead = f"await {subject}.a{verb}(...)" if verb != "run" else "await the coroutine itself"
    warnings.warn(
        f"{subject}.{verb}() waits for the store, and with it all of this event loop; write {instead}",
        BlockingCall,
        stacklevel=level + 1,
    )


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(_OURS)


def _subject(frame: FrameType) -> str:
    """What the verb was called on, as a program would write it."""
    own: object = frame.f_locals.get("self")
    kind = type(own).__name__
    if kind in ("Task", "Sender"):
        return str(getattr(own, "name", "task"))
    return next((_NAMES[each.__name__] for each in type(own).__mro__ if each.__name__ in _NAMES), "app")

"""What threads are in this process: those of an event loop, which look up names and open files; and whether
gevent has put greenlets in their place.
"""

import contextlib
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from windlass.errors import StoreError

_T = TypeVar("_T")


class LoopThreads(ThreadPoolExecutor):
    """The default executor of our loops. Python's threads take no more work once it is ending: then the loop
    does it, so that a handler of `atexit` can use an app.
    """

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Have something done."""
        with contextlib.suppress(RuntimeError):
            return super().submit(fn, *args, **kwargs)
        done: Future[_T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - it belongs to the one who waits
            done.set_exception(error)
        return done


def are_greenlets() -> bool:
    """Whether gevent runs all threads in one (`monkey.patch_all()`): then there can be but one event loop."""
    return _replaced("threading")


def check_gevent() -> None:
    """Refuse what gevent left half: an event loop on a real thread would never hear of its sockets."""
    if _replaced("select") and not are_greenlets():
        raise StoreError(
            "gevent has replaced the module select, but not threading, so that no event loop can run; call "
            "gevent.monkey.patch_all() without thread=False, before anything else is imported"
        )


def _replaced(module: str) -> bool:
    monkey: Any = sys.modules.get("gevent.monkey")
    return monkey is not None and monkey.is_module_patched(module)

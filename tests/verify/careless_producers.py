"""Producers that lack what protects a blocking call. `$CARELESS_PRODUCER` says what they lack."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from windlass.client.connection import Connection
from windlass.client.uninterrupted import Uninterrupted
from windlass.verify import producer

FOUND_BY = ("enqueues_are_answered",)


HOLD = 0.01
"""Seconds: a call of SQLite is so short that interruptions may miss it."""
_one_at_a_time = threading.Lock()


def _in_the_main_thread(_calls: Uninterrupted, work: Callable[..., Any], *args: Any) -> Any:
    """A handler that raises leaves a lock behind."""
    if threading.current_thread() is not threading.main_thread():
        return work(*args)
    _one_at_a_time.acquire()
    answer = _nested(work, *args)
    time.sleep(HOLD)
    _one_at_a_time.release()
    return answer


def _nested(work: Callable[..., Any], *args: Any) -> Any:
    before, Uninterrupted.call = Uninterrupted.call, lambda _calls, work, *args: work(*args)
    try:
        return work(*args)
    finally:
        Uninterrupted.call = before


def _with_what_the_parent_opened(_connection: Connection) -> None:
    """The child of a fork goes on with threads and connections that it does not have."""


if __name__ == "__main__":
    if os.environ["CARELESS_PRODUCER"] == "interrupted":
        Uninterrupted.call = _in_the_main_thread
    else:
        Connection.renew = _with_what_the_parent_opened
    producer.main()

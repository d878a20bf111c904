"""An app with one intake, for processes that tests start and kill: `windlass intake` and `windlass worker`.
Its store, its message broker and the format of its messages are in the environment.
"""

import os
from typing import Any

from windlass import Windlass

STORE, URL, FORMAT = "TAKING_STORE", "TAKING_URL", "TAKING_FORMAT"


def build(store: str, url: str, form: str = "messages") -> Windlass:
    """The app; its task takes a number. "to celery": its task is one that Celery's workers run."""
    made = Windlass(store)
    if form == "to celery":
        made.celery_task("proj.note", url)
        return made

    @made.task(name="proj.count")
    def count(n: int) -> int:
        return n

    said: dict[str, Any] = {"format": "celery", "tasks": [count]} if form == "celery" else {"task": count}
    made.intake(url, name="counted", backlog=1_000_000, **said)
    return made


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(name)
    return build(os.environ[STORE], os.environ[URL], os.environ.get(FORMAT, "messages"))

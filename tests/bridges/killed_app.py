"""An app with one intake, for processes that tests start and kill: `windlass intake` and `windlass worker`.
Its store, its message broker and the format of its messages are in the environment.
"""

import os
from typing import Any

from windlass import Windlass

STORE, URL, FORMAT, NOTES = "TAKING_STORE", "TAKING_URL", "TAKING_FORMAT", "TAKING_NOTES"


def build(store: str, url: str, form: str = "messages") -> Windlass:
    """The app; its task takes a number. "to celery": its task is one that Celery's workers run. "front": the
    message broker is its front door.
    """
    made = Windlass(store, front=url if form == "front" else None)
    if form == "to celery":
        made.celery_task("proj.note", url)
        return made

    @made.task(name="proj.count")
    def count(n: int) -> int:
        return n

    @made.task(name="proj.note")
    def note(n: int) -> None:
        noted(n)

    if form == "front":
        return made
    by_celery = {"format": "celery", "tasks": [count, note]}
    said: dict[str, Any] = by_celery if form == "celery" else {"task": count}
    made.intake(url, name="counted", backlog=1_000_000, **said)
    return made


def noted(n: int, by: str = "windlass") -> None:
    """Write down that a number was run, and by whom."""
    with open(os.environ[NOTES], "a") as file:  # noqa: PTH123 - one write, in one piece
        file.write(f"{n} {by}\n")


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(name)
    return build(os.environ[STORE], os.environ[URL], os.environ.get(FORMAT, "messages"))

"""A Celery app, for its producers in tests and its workers in processes of their own. Its message broker and
the file that its task writes to are in the environment.
"""

import os
from typing import Any

from celery import Celery

BROKER, FILE = "CELERY_PEER_BROKER", "CELERY_PEER_FILE"


def build(broker: str, *, quorum: bool = False) -> Any:
    """The app. Its task `proj.note` writes a number and the id of the task into a file."""
    made = Celery("proj", broker=broker, set_as_current=False)
    made.conf.update(
        task_default_queue="peer",
        task_acks_late=True,
        worker_prefetch_multiplier=8,
        broker_connection_retry_on_startup=True,
        task_default_queue_type="quorum" if quorum else "classic",
    )

    @made.task(name="proj.note", bind=True)
    def note(self: Any, n: int) -> None:
        with open(os.environ[FILE], "a") as file:  # noqa: PTH123 - one write, in one piece
            file.write(f"{n} {self.request.id}\n")

    return made


def __getattr__(name: str) -> Any:
    if name not in ("app", "celery"):
        raise AttributeError(name)
    return build(os.environ[BROKER])

"""A Celery app, for its producers in tests and its workers in processes of their own. Its message broker is
in the environment.
"""

import os
from typing import Any

from celery import Celery
from tests.bridges.killed_app import noted

BROKER = "CELERY_PEER_BROKER"


def sender(broker: str) -> Any:
    """The app as its producers have it."""
    made = Celery("proj", broker=broker, set_as_current=False)
    made.conf.update(
        task_default_queue="peer",
        task_acks_late=True,
        worker_prefetch_multiplier=8,
        broker_connection_retry_on_startup=True,
        task_default_queue_type="classic",
    )
    return made


def __getattr__(name: str) -> Any:
    """As its workers have it: the task `proj.note` notes a number and the id of the task."""
    if name not in ("app", "celery"):
        raise AttributeError(name)
    made = sender(os.environ[BROKER])

    @made.task(name="proj.note", bind=True)
    def note(self: Any, n: int) -> None:
        noted(n, by=self.request.id)

    globals().update(app=made, celery=made)  # once for a process
    return made

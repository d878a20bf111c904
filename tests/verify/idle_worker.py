"""The app of a run in a worker that now and then calls a job done that it has not run."""

from windlass import current
from windlass.verify.tasks import app, plain

_honest = plain.function


def idle() -> int:
    return current.fence if current.fence % 20 == 0 else _honest()


plain.function = idle

__all__ = ["app"]

"""A producer: `python -m tests.worker.blackbox.producer TASK COUNT GROUP [ARGUMENT ...]`."""

import json
import sys

from tests.worker.blackbox.bb_app import app
from tests.worker.blackbox.ledger import write


def main(task: str, count: str, size: str, *arguments: str) -> None:
    """Enqueue `count` jobs in groups, and write down what was accepted, after it was."""
    args = [json.loads(argument) for argument in arguments]
    for at in range(0, int(count), int(size)):
        some = min(int(size), int(count) - at)
        jobs = app.enqueue_many(app.tasks[task].call(*args) for _ in range(some))
        write("accepted", jobs=[job.id for job in jobs])
    app.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

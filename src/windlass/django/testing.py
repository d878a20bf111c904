"""For tests of a Django project: `with jobs() as t:` in any TestCase.

It is `windlass.testing.testing` with the project's app. Meanwhile a job is enqueued at once: a TestCase never
commits, so what waits for the commit would never be sent. `jobs(at_once=False)` is for a TransactionTestCase.
"""
# pyright: basic, reportMissingTypeStubs=false

import contextlib
from collections.abc import Generator
from typing import Any

from windlass.django.project import project_app
from windlass.testing import Bench, inline, testing


@contextlib.contextmanager
def jobs(*, run_at_once: bool = False, at_once: bool = True, **options: Any) -> Generator[Bench]:
    """A block of a test. Jobs wait until the test runs them (`t.drain()`). With `run_at_once` each job runs
    inside `enqueue`. With `at_once=False` jobs are sent when the transaction commits.
    """
    app = project_app()
    before = app.enqueues
    if at_once:
        app.enqueues = "at_once"
    elif before == "in_transaction":  # the store of the block is in memory, where no database commits
        app.enqueues = "on_commit"
    try:
        with (inline if run_at_once else testing)(app, **options) as bench:
            yield bench
    finally:
        app.enqueues = before

"""A real worker: what operators strike is held, and no secret is found where it should not be."""

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from tests.worker.blackbox.fleet import Fleet, eventually
from tests.worker.canary_tasks import WAYS, WORD, arguments, build

from windlass import Windlass
from windlass.admin.strikes import Strikes
from windlass.core.state import State
from windlass.errors import JobFailed

pytestmark = pytest.mark.slow
APP = "tests.worker.canary_tasks:app"
PAYLOADS = ("payload",)
"""Columns that keep the arguments of a job, which the task needs whole."""


@pytest.fixture
def canary(fleet: Fleet) -> Iterator[Windlass]:
    """The app of the workers, on their store."""
    app = build(fleet.url)
    yield app
    app.close()


def test_no_secret_is_found_where_it_should_not_be(fleet: Fleet, canary: Windlass) -> None:
    """Attack 14, with every place where tasks run."""
    worker = fleet.start("processes=1, concurrency=8", app=APP)
    kinds = ("loop", "inline", "thread", "process")
    jobs = [canary.tasks[f"says_{kind}"].enqueue(**arguments(how)) for kind in kinds for how in WAYS]
    careless = Windlass(fleet.url)
    refused = careless.external("refuses").enqueue(picky={"hidden": f"{WORD}-{'z' * 90}"})
    for job in jobs:
        with contextlib.suppress(JobFailed):
            job.result(timeout=120)
    eventually("refused", lambda: fleet.detail(refused.id).held, hint=fleet.trouble)
    assert worker.stop() == 0
    for app in (canary, careless, fleet.app):
        app.close()  # the second SQLite of this process drops the locks of the first when it closes the file
    found = dict(_cells(fleet))
    assert any(WORD in text for (_, column), text in found.items() if column in PAYLOADS), "of payloads it is"
    for (table, column), text in found.items():
        at = text.find(WORD)
        assert column in PAYLOADS or at < 0, f"{table}.{column}: …{text[max(0, at - 300) : at + 100]}…"
    log = worker.log.read_text()
    assert "failed (attempt 2 of 2) and is dead: ValueError" in log
    assert WORD not in log


def _cells(fleet: Fleet) -> Iterator[tuple[tuple[str, str], str]]:
    """Everything in the file: all texts and bytes of each column."""
    store = sqlite3.connect(fleet.folder / "windlass.db")
    try:
        tables = [name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            rows = store.execute(f'SELECT * FROM "{table}"')  # noqa: S608 - a name from the file's own list
            columns = [each[0] for each in rows.description]
            whole = list(rows)
            for at, column in enumerate(columns):
                cells = (row[at] for row in whole)
                yield (
                    (table, column),
                    "\n".join(
                        cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell)
                        for cell in cells
                    ),
                )
    finally:
        store.close()


def test_a_strike_is_obeyed_by_workers_that_run(fleet: Fleet, canary: Windlass) -> None:
    worker = fleet.start("processes=2, concurrency=2", app=APP)
    task = canary.tasks["says_thread"]
    assert task.enqueue(**arguments("fine")).result(timeout=60) == 1

    def operate(verb: str, *args: Any) -> Any:
        async def work() -> Any:
            strikes = Strikes(canary, await canary.connection.broker())
            return await getattr(strikes, verb)(*args)

        return canary.connection.run(work())

    struck = operate("strike", "says_thread", {"card.holder": "Ada"})
    eventually("obeyed by both", lambda: worker.log.read_text().count("is obeyed from here on") == 2)
    job = task.enqueue(**arguments("fine"))
    neighbour = canary.tasks["says_loop"].enqueue(**arguments("fine"))
    eventually("held", lambda: fleet.detail(job.id).held, hint=fleet.trouble)
    detail = fleet.detail(job.id)
    assert (detail.state, detail.attempt) == (State.SCHEDULED, 0)
    assert neighbour.result(timeout=60) == 1
    operate("lift", struck.strike.id)
    assert job.result(timeout=60) == 1
    assert fleet.detail(job.id).attempt == 1

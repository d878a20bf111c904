"""No statement of a claim or a sweep goes through a table that grows with the backlog."""

import re
from pathlib import Path

import pytest
from tests.broker.sqlite.files import new_file

from windlass.broker import sqlite
from windlass.broker.sqlite.files import connect
from windlass.broker.sqlite.statements import statements

_CONCERNS = (
    "claim",
    "filing",
    "jobs",
    "offsets",
    "operate",
    "queries",
    "sessions",
    "settings",
    "store",
    "sweep",
)
_LARGE = re.compile(
    r"SCAN (job|body|result|delivery|said|log|memo|edge|unique_key|lane|place|event|absorbed)\b(?!.*COVERING)"
)


@pytest.mark.parametrize("concern", _CONCERNS)
def test_no_statement_scans_or_sorts_what_grows(concern: str, tmp_path: Path) -> None:
    handle = connect(new_file(tmp_path), writes=True)
    connection = handle.connection
    for name, sql in statements(concern).items():
        inputs = max((int(number) for number in re.findall(r"\?(\d+)", sql)), default=0)
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", (None,) * inputs)]
        assert not [step for step in plan if _LARGE.search(step)], (name, plan)
        if "lane_names" not in name:
            assert not [step for step in plan if "TEMP B-TREE" in step], (name, plan)
    connection.close()


@pytest.mark.parametrize("concern", _CONCERNS)
def test_every_statement_says_what_it_costs(concern: str) -> None:
    text = (Path(sqlite.__file__).parent / "sql" / f"{concern}.sql").read_text("utf-8")
    for block in text.split("-- name:")[1:]:
        assert "-- cost:" in block, block
        assert "-- in:" in block, block


@pytest.mark.parametrize(("name", "index"), [("next_edge", "edge_open"), ("next_run_edge", "edge_run")])
def test_edges_that_are_resolved_are_not_passed_over(name: str, index: str, tmp_path: Path) -> None:
    """By the primary key, the last of 10,000 children would cost a look at all others."""
    handle = connect(new_file(tmp_path), writes=True)
    connection = handle.connection
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statements('jobs')[name]}", (None,))]
    assert len(plan) == 1
    assert index in plan[0]
    connection.close()

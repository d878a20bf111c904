"""The dashboard and the alert rules name metrics and labels that exist; that of history, columns."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from windlass.broker.memory import MemoryBroker
from windlass.observe.history.attempt import Batch, Slots
from windlass.observe.history.conformance import NOW, enqueued, mixed, worker, write
from windlass.observe.history.sink import open_sink
from windlass.observe.measures import MEASURES
from windlass.verify.brokers.clickhouse import OwnClickHouse

CONTRIB = Path(__file__).parents[2] / "contrib"
LABELS = {measure.name: {*measure.labels, "namespace"} for measure in MEASURES}
OF_PROMETHEUS = {"instance", "le", "job"}


def known_series() -> set[str]:
    histograms = [measure.name for measure in MEASURES if measure.bounds]
    parts = {f"{name}{part}" for name in histograms for part in ("_bucket", "_sum", "_count")}
    return {measure.name for measure in MEASURES if not measure.bounds} | parts


def family(series: str) -> str:
    return series if series in LABELS else re.sub(r"_(bucket|sum|count)$", "", series)


def expressions() -> list[str]:
    rules = (CONTRIB / "prometheus" / "alerts.yml").read_text()
    found = re.findall(r"^ +expr: (?!\|)(.+)$", rules, re.MULTILINE)
    found += [
        " ".join(block.split())
        for block in re.findall(r"^ +expr: \|\n((?: {10,}.+\n)+)", rules, re.MULTILINE)
    ]
    assert len(found) == rules.count("expr:")
    board: dict[str, Any] = json.loads((CONTRIB / "grafana" / "windlass.json").read_text())
    for panel in board["panels"]:
        found += [target["expr"] for target in panel["targets"]]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            found.append(variable["query"]["query"])
    return found


@pytest.mark.parametrize("expression", expressions())
def test_every_metric_and_label_exists(expression: str) -> None:
    named = re.findall(r"\b(windlass_\w+)", expression)
    assert named, "an expression without a metric"
    assert set(named) <= known_series()
    allowed = set.intersection(*(LABELS[family(series)] for series in named)) | OF_PROMETHEUS
    every = set.union(*(LABELS[family(series)] for series in named)) | OF_PROMETHEUS
    for series, chosen in re.findall(r"\b(windlass_\w+)\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)(?==~?\")", chosen)) <= LABELS[family(series)] | OF_PROMETHEUS
    for by in re.findall(r"by \(([^)]*)\)", expression):
        labels = {label.strip() for label in by.split(",")}
        assert labels <= every
        assert labels <= allowed or "windlass_" in expression.partition(by)[2]


def test_the_dashboard_shows_every_metric_that_is_not_a_detail() -> None:
    shown = {
        family(series) for expression in expressions() for series in re.findall(r"windlass_\w+", expression)
    }
    details = {"windlass_info", "windlass_jobs_finished_total", "windlass_worker_processes"}
    assert set(LABELS) - shown == details


def test_panels_do_not_overlap() -> None:
    board = json.loads((CONTRIB / "grafana" / "windlass.json").read_text())
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


# --- the dashboard of history -------------------------------------------------------------------------------

HISTORY = CONTRIB / "grafana" / "windlass-history-clickhouse.json"


def statements() -> list[str]:
    board: dict[str, Any] = json.loads(HISTORY.read_text())
    found = [target["rawSql"] for panel in board["panels"] for target in panel["targets"]]
    variables = [each for each in board["templating"]["list"] if each["type"] == "query"]
    return found + [each["query"] for each in variables]


def as_grafana_sends(statement: str) -> str:
    """With the macros of the ClickHouse data source, and the variables, filled in."""
    since, until = "toDateTime(1, 'UTC')", "toDateTime(4000000000, 'UTC')"
    filled = re.sub(r"\$__timeFilter\(([\w.]+)\)", rf"(\1 >= {since} AND \1 <= {until})", statement)
    filled = filled.replace("$__fromTime", since).replace("$__toTime", until)
    filled = filled.replace("$namespace", "s").replace("$task", "'a', 'b', 'c'")
    assert "$" not in filled, filled
    return filled


def test_the_statements_of_the_history_dashboard_are_answered(
    clickhouse: OwnClickHouse, clickhouse_url: str
) -> None:
    async def fill() -> None:
        sink = await open_sink(clickhouse_url, MemoryBroker())
        slots = [Slots(at=NOW, host="box", processes=1, slots=4, leases=1)]
        workers = [worker("w1"), worker("w2")]
        attempts = mixed(200)
        origins = [enqueued(number, task="a") for number in range(3)]
        await write(sink, Batch(attempts=attempts, enqueued=origins, slots=slots, workers=workers))
        await sink.close()

    asyncio.run(fill())
    for statement in statements():
        assert clickhouse.ask(as_grafana_sends(statement)).strip(), statement

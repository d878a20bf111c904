"""The data pipeline: whole, under a killed worker, and with a file that cannot be read."""

import re
from pathlib import Path

import pytest
from tests.examples.programs import Programs, eventually

pytestmark = pytest.mark.slow
WORKER = ("windlass", "worker", "pipeline:app", "--processes", "1")


def test_a_table_is_made_of_all_files_though_a_worker_is_killed(tmp_path: Path) -> None:
    with Programs("pipeline", tmp_path) as programs:
        programs.run("pipeline.py", "make", "data", "6")
        first = programs.start(*WORKER)
        programs.start(*WORKER)
        eventually(lambda: programs.log().count("worker started") == 2, hint=programs.log)
        running = programs.start("pipeline", "run", "data", "table.csv")
        first.kill()
        assert running.wait(60) == 0, programs.log()
        rows = dict(line.split(",") for line in (programs.folder / "table.csv").read_text().split()[1:])
        counted = dict.fromkeys(rows, 0)
        for file in (programs.folder / "data").glob("*.csv"):
            for line in file.read_text().split()[1:]:
                product, count = line.split(",")
                counted[product] += int(count)
        assert {product: int(count) for product, count in rows.items()} == counted
        assert set(rows) == {"tea", "rice", "salt"}
        assert list(programs.folder.glob("*.part")) == []


def test_a_file_that_cannot_be_read_is_mended_and_the_rest_is_not_done_again(tmp_path: Path) -> None:
    with Programs("pipeline", tmp_path) as programs:
        programs.run("pipeline.py", "make", "data", "3")
        broken = programs.folder / "data" / "001.csv"
        whole = broken.read_text()
        broken.write_text("product,count\ntea,many\n")
        programs.start(*WORKER)
        said = programs.run("pipeline.py", "run", "data", "table.csv", code=1)
        (flow,) = re.findall(r"the flow is stuck: windlass flows pipeline:app show (\S+)", said)
        broken.write_text(whole)
        programs.run("-m", "windlass", "flows", "pipeline:app", "replay", flow)
        eventually((programs.folder / "table.csv").exists, hint=programs.log)
        shown = programs.run("-m", "windlass", "jobs", "pipeline:app", "list", "--flow", flow, "--json")
        assert shown.count('"state":"done"') == 5
        assert len(re.findall(r'"attempt":1\b', shown)) >= 4

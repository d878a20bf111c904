"""The bench's own promises, without a server: its peers are whole, and its table judges what it should."""

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

BENCH = Path(__file__).parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from sidebyside import program  # noqa: E402 - the path is set above
from sidebyside.gates import Verdict, table, verdicts  # noqa: E402
from sidebyside.measures import Figures  # noqa: E402
from sidebyside.peers import all_peers  # noqa: E402
from sidebyside.report import write  # noqa: E402
from sidebyside.results import Results  # noqa: E402

ISSUE = {
    "redis": "celery dramatiq rq huey arq taskiq saq streaq repid docket bullmq sidekiq",
    "postgres": "procrastinate pgqueuer chancy saq graphile-worker pg-boss",
    "sqlite": "huey bare",
}
GATE = {"redis": {"bullmq", "dramatiq"}, "postgres": {"graphile-worker", "pgqueuer"}, "sqlite": {"huey"}}


def _drained(rate: float, cpu: float) -> Figures:
    return {"rate": rate, "cpu_us": cpu, "worker_us": cpu, "server_us": 0.0}


def _redis_run() -> Results:
    figures = {
        ("redis", "drain", 200, "windlass"): _drained(41_000, 29),
        ("redis", "drain", 200, "bullmq"): _drained(10_000, 150),
        ("redis", "drain", 200, "sidekiq"): _drained(90_000, 10),
        ("redis", "drain", 1024, "windlass"): _drained(33_000, 31),
        ("redis", "drain", 1024, "bullmq"): _drained(10_000, 150),
        ("redis", "backlog", 200, "windlass"): {"p99_ms_1000": 1.0, "p99_ms_1000000": 1.5},
    }
    return Results({key: {(0, 0): some} for key, some in figures.items()})


@pytest.mark.parametrize("store", ISSUE)
def test_every_peer_has_a_folder(store: str) -> None:
    there = {name for name, peer in all_peers().items() if store in peer.stores}
    assert there == {"windlass", *ISSUE[store].split()}
    assert {name for name, peer in all_peers().items() if store in peer.gate} == GATE[store]


@pytest.mark.parametrize("name", [name for name, peer in all_peers().items() if peer.runtime != "windlass"])
def test_peers_have_their_files_and_exact_pins(name: str) -> None:
    peer = all_peers()[name]
    files = {path.name for path in peer.folder.iterdir() if path.is_file()}
    if peer.runtime == "python":
        assert {"peer.py", "requirements.txt"} <= files
        pins = (peer.folder / "requirements.txt").read_text().split()
        assert pins
        assert all("==" in pin for pin in pins)
    else:
        assert {"node": {"peer.mjs", "package.json"}, "ruby": {"peer.rb"}}[peer.runtime] <= files
    assert peer.settings
    assert peer.after_kill


def test_gates_are_judged_for_each_payload_against_gate_peers_only() -> None:
    found = {verdict.row: verdict for verdict in verdicts(_redis_run(), all_peers())}
    assert found["drain, no-op async def"].passed is True  # though sidekiq, which is none of them, is faster
    assert "4.10 × bullmq" in found["drain, no-op async def"].reached
    assert found["drain, no-op async def, 1024 bytes"].passed is False
    assert found["CPU per job, workers + server"].passed is True
    assert found["CPU per job, workers + server, 1024 bytes"].passed is False
    assert found["claim p99, 1,000,000 waiting against 1,000"].passed is True


def test_a_ratio_is_that_of_turns_not_of_medians() -> None:
    run = Results()
    for turn, (own, bare) in enumerate([(3_910, 5_110), (3_970, 5_980), (4_640, 6_170)]):
        run.add(("sqlite", "single", 200, "windlass"), (turn, 0), {"rate": own})
        run.add(("sqlite", "single", 200, "bare"), (turn, 0), {"rate": bare})
    run.add(("sqlite", "single", 200, "windlass"), (2, 1), {"rate": 1})  # of the other that turn has nothing
    (found,) = verdicts(run, all_peers())
    assert found.reached == "3,940/s = 0.75 × 5,980/s"
    assert found.passed is True


def test_the_gate_is_the_peer_with_the_least_ratio_in_the_turns_it_has() -> None:
    run = Results()
    rates = {"windlass": (200, 100, 200), "pgqueuer": (100, 100, 100), "graphile-worker": (150, 40, 160)}
    for name, turns in rates.items():
        for turn, rate in enumerate(turns):
            run.add(("postgres", "bulk", 200, name), (0, turn), {"rate": rate})
    (found,) = verdicts(run, all_peers())
    assert found.reached == "200/s = 1.33 × graphile-worker (150/s)"
    assert found.passed is False


def test_lanes_are_compared_with_the_plain_drain_beside_them() -> None:
    run = Results()
    for turn, (plain, laned) in enumerate([(100, 90), (30, 15), (100, 10)]):
        run.add(("redis", "drain_lanes", 200, "windlass"), (0, turn), {"rate": laned, "plain_rate": plain})
    (found,) = verdicts(run, all_peers())
    assert found.reached == "15/s = 0.50 × 100/s"
    assert found.passed is True


def test_two_measures_are_compared_by_rounds() -> None:
    run = Results()
    for number, (peer, own) in enumerate([((100, 200), 300), ((20, 40), 30), ((100, 100), 500)]):
        run.add(("redis", "drain_def", 200, "windlass"), (number, 0), {"rate": own})
        for turn, rate in enumerate(peer):
            run.add(("redis", "drain", 200, "bullmq"), (number, turn), {"rate": rate})
    (found,) = verdicts(run, all_peers())
    assert found.reached == "300/s = 2.00 × bullmq (100/s)"
    assert found.passed is True


def test_misses_are_bold() -> None:
    text = table(
        [Verdict("a", "redis", "≥ 1", "0.5", passed=False), Verdict("b", "redis", "≥ 1", "2", passed=True)]
    )
    assert "| a | redis | ≥ 1 | **0.5** | **FAIL** |" in text
    assert "| b | redis | ≥ 1 | 2 | pass |" in text


def test_a_run_leaves_tables_and_plots_that_say_who_is_not_crash_safe(tmp_path: Path) -> None:
    text = write(tmp_path, _redis_run(), all_peers(), "Medians of 3 rounds.", ["SKIPPED saq: no"])
    assert (tmp_path / "table.md").read_text() == text
    assert "| sidekiq (not crash safe) | 90,000 |" in text
    assert "- SKIPPED saq: no" in text
    plots = {path.name for path in tmp_path.glob("*.svg")}
    assert plots == {
        f"redis-{name}.svg"
        for name in ("drain-200", "drain-200-cpu", "drain-1024", "drain-1024-cpu", "backlog-200")
    }
    for plot in plots:
        ET.fromstring((tmp_path / plot).read_text())  # noqa: S314 - written a line above
    assert "sidekiq (not crash safe)" in (tmp_path / "redis-drain-200.svg").read_text()


def test_a_wrong_name_is_refused_with_those_there_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["run.py", "--peers", "bulmq"])
    with pytest.raises(SystemExit):
        program.main()
    assert "--peers: there is no 'bulmq'; there are gate, all, none, arq" in capsys.readouterr().err

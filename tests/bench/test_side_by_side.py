"""The bench's own promises, without a server: its peers are whole, and its table judges what it should."""

import argparse
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

BENCH = Path(__file__).parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from sidebyside import program  # noqa: E402 - the path is set above
from sidebyside.gates import Verdict, table, verdicts  # noqa: E402
from sidebyside.measures import MEASURES, Figures  # noqa: E402
from sidebyside.peers import all_peers  # noqa: E402
from sidebyside.report import write  # noqa: E402
from sidebyside.results import Results  # noqa: E402

ISSUE = {
    "redis": "celery dramatiq rq huey arq taskiq saq streaq repid docket bullmq sidekiq asynq",
    "postgres": "procrastinate pgqueuer chancy saq graphile-worker pg-boss river",
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
        needed = {
            "node": {"peer.mjs", "package.json"},
            "ruby": {"peer.rb"},
            "go": {"peer.go", "go.mod", "go.sum"},
        }
        assert needed[peer.runtime] <= files
    assert peer.settings
    assert peer.after_kill


def test_gates_are_judged_for_each_payload_against_gate_peers_only() -> None:
    found = {verdict.row: verdict for verdict in verdicts(_redis_run(), all_peers())}
    assert found["drain, no-op async def"].passed is True  # though sidekiq, which is none of them, is faster
    assert "4.10 × bullmq" in found["drain, no-op async def"].reached
    larger = found["drain, no-op async def, 1024 bytes"]  # 3.3 times BullMQ: reported, and not judged
    assert (larger.passed, larger.is_aim, larger.needed[:3]) == (False, True, "aim")
    assert found["CPU per job, workers + server"].passed is True
    assert found["CPU per job, workers + server, 1024 bytes"].passed is False
    waiting = found["claim p99, 1,000,000 waiting against 1,000"]
    assert (waiting.passed, waiting.is_aim) == (True, True)


FLOORS = [
    ("drain, no-op async def", "redis", "drain", "drain", "bullmq", 3.5),
    ("drain, no-op async def", "postgres", "drain", "drain", "graphile-worker", 1.0),
    ("drain, no-op async def", "sqlite", "drain", "drain", "huey", 10.0),
    ("drain, no-op def in threads", "redis", "drain_def", "drain", "dramatiq", 2.0),
    ("drain, no-op def in threads", "postgres", "drain_def", "drain", "graphile-worker", 0.8),
    ("drain, no-op def in threads", "sqlite", "drain_def", "drain", "huey", 5.0),
    ("bulk enqueue", "redis", "bulk", "bulk", "bullmq", 3.0),
    ("bulk enqueue", "postgres", "bulk", "bulk", "pgqueuer", 1.5),
    ("one blocking enqueue at a time", "redis", "single", "single", "dramatiq", 0.9),
    ("one blocking enqueue at a time", "postgres", "single", "single", "pgqueuer", 0.9),
    ("one blocking enqueue at a time", "sqlite", "single", "single", "bare", 0.5),
]


@pytest.mark.parametrize(("row", "store", "measure", "against", "peer", "floor"), FLOORS)
def test_a_row_passes_at_its_floor_and_fails_below_it(
    row: str, store: str, measure: str, against: str, peer: str, floor: float
) -> None:
    for ratio, passes in ((floor, True), (floor * 0.99, False)):
        run = Results()
        run.add((store, measure, 200, "windlass"), (0, 0), {"rate": 1000 * ratio})
        run.add((store, against, 200, peer), (0, 0), {"rate": 1000})
        (found,) = [one for one in verdicts(run, all_peers()) if one.row == row]
        assert (found.passed, found.is_aim) == (passes, False)


@pytest.mark.parametrize(("store", "floor"), [("redis", 0.45), ("postgres", 0.3), ("sqlite", 0.35)])
def test_lanes_pass_at_their_floor_and_fail_below_it(store: str, floor: float) -> None:
    for ratio, passes in ((floor, True), (floor * 0.99, False)):
        run = Results()
        figures = {"rate": 1000 * ratio, "plain_rate": 1000.0}
        run.add((store, "drain_lanes", 200, "windlass"), (0, 0), figures)
        (found,) = verdicts(run, all_peers())
        assert (found.passed, found.is_aim) == (passes, False)


@pytest.mark.parametrize(
    ("ratios", "word"),
    [
        ((2.0, 3.6, 3.0), "pass (1 of 3 rounds)"),
        ((3.4, 3.4, 3.4), "**FAIL** (0 of 3 rounds)"),
        ((3.4,), "**FAIL**"),
    ],
)
def test_one_round_that_passes_is_enough(ratios: tuple[float, ...], word: str) -> None:
    run = Results()
    for number, ratio in enumerate(ratios):
        run.add(("redis", "drain", 200, "windlass"), (number, 0), {"rate": 1000 * ratio})
        run.add(("redis", "drain", 200, "bullmq"), (number, 0), {"rate": 1000})
    assert table(verdicts(run, all_peers())).splitlines()[-1].endswith(f"| {word} |")


def test_a_round_passes_against_the_best_peer_of_that_round() -> None:
    run = Results()
    for number, (bullmq, dramatiq) in enumerate([(1000, 4000), (4000, 1000)]):
        run.add(("redis", "drain", 200, "windlass"), (number, 0), {"rate": 4000})
        run.add(("redis", "drain", 200, "bullmq"), (number, 0), {"rate": bullmq})
        run.add(("redis", "drain", 200, "dramatiq"), (number, 0), {"rate": dramatiq})
    (found,) = verdicts(run, all_peers())
    assert (found.passed, found.rounds) == (False, (0, 2))


def test_a_drain_of_jobs_enqueued_one_at_a_time_is_reported_and_not_judged() -> None:
    run = Results()
    run.add(("postgres", "drain_singles", 200, "windlass"), (0, 0), {"rate": 200})
    found = verdicts(run, all_peers())
    assert [(one.reached, one.passed) for one in found] == [("200/s", None)]
    run.add(("postgres", "drain_singles", 200, "graphile-worker"), (0, 0), {"rate": 100})
    run.add(("postgres", "drain_singles", 200, "river"), (0, 0), {"rate": 1000})
    run.add(("postgres", "drain", 200, "windlass"), (0, 0), {"rate": 400})
    by_row = {one.row: one for one in verdicts(run, all_peers())}
    beside = by_row["drain of jobs enqueued one at a time"]
    assert beside.reached == "200/s = 2.00 × graphile-worker (100/s) = 0.50 × filled in bulk (400/s)"
    assert beside.passed is None


def test_a_row_says_which_measure_of_its_peers_is_missing() -> None:
    run = Results()
    run.add(("redis", "drain_def", 200, "windlass"), (0, 0), {"rate": 200})
    (found,) = verdicts(run, all_peers())
    assert found.reached == "200/s; `drain` of a peer that counts was not measured"
    assert found.passed is None


@pytest.mark.parametrize("name", ["asynq", "river"])
def test_without_go_its_peers_are_skipped_with_a_line_that_says_so(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    run = program.Run(argparse.Namespace(store=[], peers=[name]))
    assert run.is_installed(all_peers()[name]) is False
    assert run.notes == [f"SKIPPED {name}: it does not install: there is no Go here: `go` is not on the path"]


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


def test_help_names_every_peer_and_explains_every_measure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setattr(sys, "argv", ["run.py", "--help"])
    with pytest.raises(SystemExit):
        program.main()
    words = " ".join(capsys.readouterr().out.split())
    assert f"or names of {', '.join(name for name in all_peers() if name != 'windlass')}; one" in words
    for name, measure in MEASURES.items():
        assert f"{name} {' '.join((measure.__doc__ or '?').split())}" in words

"""Whole runs, short ones: real processes on a SQLite file. `make verify` has longer ones."""

import json
from pathlib import Path

import pytest
from tests.bridges.servers import without

from windlass.errors import InvalidOption
from windlass.verify import fleet, run
from windlass.verify.brokers.places import Missing
from windlass.verify.report import Report, as_text
from windlass.verify.verify import verify
from windlass.verify.wanted import Wanted

ROOT = Path(__file__).parents[2]
SHORT = 0.1
"""Minutes."""


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run's processes find what this folder puts in the place of their own."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def violated(report: Report) -> set[str]:
    return {invariant.name for invariant in report.invariants if invariant.violations}


def test_a_short_run_is_clean(tmp_path: Path) -> None:
    wanted = Wanted(
        own="sqlite",
        minutes=SHORT,
        jobs=400,
        report=tmp_path / "proof",
        faults=("kill child", "kill tree", "kill producer", "file locked past the TTL"),
    )
    report = verify(wanted, quiet=True)
    assert report.verdict == "clean", as_text(report)
    assert report.accepted >= 400
    assert report.injected.get("file locked past the TTL")
    assert {"kill child", "kill tree", "kill producer"} & report.injected.keys()
    assert sum(report.states.get(state, 0) for state in ("done", "dead", "cancelled")) >= 400
    checked = {invariant.name: invariant.checked for invariant in report.invariants}
    assert checked["accepted is kept"] >= 350, "keyed calls are absorbed"
    written = json.loads((tmp_path / "proof" / "report.json").read_text())
    assert written["verdict"] == "clean"
    assert written["timeline"]["bars"]
    assert list((tmp_path / "proof" / "history").glob("worker-*.jsonl"))


def test_planted_bugs_are_caught_and_a_scratch_file_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A producer that reports what it never sent, and a worker that calls done what it has not run."""
    monkeypatch.setattr(fleet, "PRODUCER", "tests.verify.lying_producer")
    monkeypatch.setattr(fleet, "APP", "tests.verify.idle_worker:app")
    url = f"sqlite:///{tmp_path}/windlass.db"
    report = verify(Wanted(url=url, minutes=SHORT, jobs=300, faults=("kill child",)), quiet=True)
    assert report.code == 1
    assert {"accepted is kept", "done has run"} <= violated(report), as_text(report)
    assert not report.own
    assert report.troubles == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("bug", "fault"), [("interrupted", "interrupt producer"), ("forked", "fork producer")]
)
def test_producers_that_a_signal_or_a_fork_harms_are_caught(
    monkeypatch: pytest.MonkeyPatch, bug: str, fault: str
) -> None:
    monkeypatch.setattr(fleet, "PRODUCER", "tests.verify.careless_producers")
    monkeypatch.setenv("CARELESS_PRODUCER", bug)
    monkeypatch.setattr(run, "PRODUCERS_STOP", 4.0)
    report = verify(Wanted(own="sqlite", minutes=SHORT, faults=(fault,)), quiet=True)
    assert "enqueues are answered" in violated(report), as_text(report)


@pytest.mark.slow
def test_signals_and_forks_harm_no_producer() -> None:
    faults = ("interrupt producer", "fork producer")
    report = verify(Wanted(own="sqlite", minutes=SHORT, faults=faults), quiet=True)
    assert report.verdict == "clean", as_text(report)
    assert report.injected


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_is_accepted_into_a_file_that_was_replaced(seed: int) -> None:
    wanted = Wanted(own="sqlite", minutes=3 * SHORT, jobs=300, seed=seed, faults=("file replaced",))
    report = verify(wanted, quiet=True)
    assert report.verdict == "clean", as_text(report)
    assert report.injected["file replaced"]
    assert report.troubles == []


def test_producers_that_do_not_notice_it_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "PRODUCER", "tests.verify.blind_producer")
    wanted = Wanted(own="sqlite", minutes=SHORT, jobs=300, faults=("file replaced",))
    report = verify(wanted, quiet=True)
    assert report.injected["file replaced"]
    assert report.troubles == []
    assert "accepted is kept" in violated(report), as_text(report)


def test_what_has_no_meaning_is_refused_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="--own"):
        verify(Wanted())
    with pytest.raises(InvalidOption, match="--own"):
        verify(Wanted(url="memory://"))
    with pytest.raises(InvalidOption, match="kill child"):
        verify(Wanted(own="sqlite", faults=("rain",)))
    with pytest.raises(InvalidOption, match="--minutes"):
        verify(Wanted(own="sqlite", minutes=0))
    with pytest.raises(InvalidOption, match="--power-cuts"):
        verify(Wanted(url=f"sqlite:///{tmp_path}/windlass.db"), power_cuts=1)


@pytest.mark.slow
@pytest.mark.parametrize("front", ["kafka", "nats"])
@pytest.mark.parametrize(
    ("own", "fault"),
    [("sqlite", "file locked past the TTL"), ("redis", "store killed"), ("postgres", "store killed")],
)
def test_a_run_behind_a_front_door_is_clean(front: str, own: str, fault: str) -> None:
    faults = (fault, "front killed", "kill tree", "kill producer")
    wanted = Wanted(own=own, front=front, minutes=4 * SHORT, jobs=600, faults=faults)
    try:
        report = verify(wanted, quiet=True)
    except Missing as missing:
        without(missing)
    assert report.verdict == "clean", as_text(report)
    assert report.store == f"{own} behind {front}"
    assert report.injected["front killed"] > 0
    assert report.injected[fault] > 0

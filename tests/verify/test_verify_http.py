"""Whole runs with workers that speak HTTP, short ones: they and their server are hurt."""

from pathlib import Path

import pytest
from tests.verify import faulty_server

from windlass.verify import history, http_part
from windlass.verify.report import Report, as_text
from windlass.verify.verify import verify
from windlass.verify.wanted import Wanted

ROOT = Path(__file__).parents[2]
SHORT = 0.1
"""Minutes."""


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def checked(report: Report) -> dict[str, int]:
    return {invariant.name: invariant.checked for invariant in report.invariants}


def test_workers_that_speak_http_lose_nothing_when_they_and_their_server_are_killed(tmp_path: Path) -> None:
    faults = ("kill http worker", "kill http server", "lose http replies")
    wanted = Wanted(own="sqlite", minutes=SHORT, jobs=600, faults=faults, report=tmp_path / "proof")
    report = verify(wanted, quiet=True)
    assert report.verdict == "clean", as_text(report)
    assert report.injected.keys() & set(faults), as_text(report)
    ran = _ran_by_http(tmp_path / "proof" / "history")
    assert ran["starts"] >= 10
    assert ran["applied"] >= 10


def _ran_by_http(folder: Path) -> dict[str, int]:
    """What workers that speak HTTP did, by their own word."""
    starts = applied = 0
    for line in history.read(folder):
        if line.source.name.startswith("worker-http-"):
            starts += isinstance(line.event, history.Start)
            if isinstance(line.event, history.Settled):
                applied += sum(answer.verdict == "applied" for answer in line.event.answers)
    return {"starts": starts, "applied": applied}


@pytest.mark.slow
def test_a_server_that_lies_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_part, "SERVED", "tests.verify.faulty_server:app")
    report = verify(Wanted(own="sqlite", minutes=SHORT, jobs=700, faults=("kill http worker",)), quiet=True)
    violated = {invariant.name.replace(" ", "_") for invariant in report.invariants if invariant.violations}
    assert set(faulty_server.FOUND_BY) <= violated, as_text(report)


def test_without_the_server_the_run_goes_on_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_part, "NEEDED", ("no_such_package",))
    why = http_part.why_not()
    assert why is not None
    assert "windlass-queue[serve]" in why

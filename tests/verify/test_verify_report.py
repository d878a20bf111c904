import re
from pathlib import Path

import msgspec
import pytest

from windlass.verify import history
from windlass.verify.history import Journal
from windlass.verify.page import page
from windlass.verify.report import Invariant, Report, as_json, as_text, write
from windlass.verify.timeline import draw_up
from windlass.verify.waits import longest_wait


def made(**more: object) -> Report:
    facts: dict[str, object] = {
        "store": "sqlite",
        "durability": "in the file",
        "own": True,
        "seed": 7,
        "date": "2026-11-15 12:00Z",
        "version": "0",
        "settings": {"session_ttl": "3s"},
        "seconds": 61.0,
        "accepted": 1_234,
        "runs": 1_300,
        "injected": {"kill child": 3, "slow": 1},
        "skipped": {"shift clock": "needs faketime"},
        "invariants": [Invariant(name="nothing is lost", checked=1_234)],
        **more,
    }
    return Report(**facts)  # pyright: ignore[reportArgumentType]


VIOLATED = Invariant(name="nothing is lost", checked=1_234, violations=2, examples=["job <b>x</b> is gone"])


def test_clean_is_zero_violated_is_one_and_nothing_checked_is_two() -> None:
    assert (made().verdict, made().code) == ("clean", 0)
    violated = made(invariants=[VIOLATED])
    assert (violated.verdict, violated.code) == ("violated", 1)
    assert made(invariants=[]).code == 2
    assert made(complete=False).code == 2
    assert made(complete=False, invariants=[VIOLATED]).code == 1, "what was seen counts"


def test_text_tells_everything() -> None:
    text = as_text(
        made(invariants=[VIOLATED], duplicates={"its worker was killed": 4}, slowest_redelivery=3.5)
    )
    for said in ("seed 7", "1,234 jobs accepted", "kill child", "needs faketime", "session_ttl 3s"):
        assert said in text
    assert re.search(r"VIOLATED\s+nothing is lost \(2 of 1,234\)", text)
    assert "job <b>x</b> is gone" in text
    assert re.search(r"4\s+its worker was killed", text)
    assert text.endswith("Verdict: VIOLATED\n")


def test_json_has_the_verdict() -> None:
    document = msgspec.json.decode(as_json(made()))
    assert document["verdict"] == "clean"
    assert document["injected"] == {"kill child": 3, "slow": 1}


@pytest.fixture
def past(tmp_path: Path) -> Path:
    """A history of 20 s on a clock of its own."""
    now = [0]
    lines: list[bytes] = []
    journal = Journal(lines.append, role="harness", name="harness", clock=lambda: now[0])
    journal.write(history.Phase(name="load"))
    for second in range(20):
        now[0] = second * 1_000_000 + 500_000
        journal.write(history.Enqueued(call=second, receipts=(history.Receipt("j", "created"),) * 3))
        journal.write(history.Start(job="j", fence=second, attempt=1))
        journal.write(history.End(job="j", fence=second, how="ok"))
        journal.write(history.Counts(states={"ready": second, "done": 5}))
        if second == 5:
            journal.write(history.Nemesis(number=1, kind="slow", target="<a>"))
        if second == 8:
            journal.write(history.Nemesis(number=1, kind="slow", action="end", target="<a>"))
    (tmp_path / "harness.jsonl").write_bytes(b"".join(lines))
    return tmp_path


def test_timeline_counts_by_the_second(past: Path) -> None:
    drawn, runs = draw_up(past)
    assert runs == 20
    assert drawn.accepted[:3] == [3.0, 3.0, 3.0]
    assert drawn.completed[:3] == [1.0, 1.0, 1.0]
    assert drawn.backlog[5] == (5.5, 5)
    assert [(bar.kind, bar.begin, bar.end) for bar in drawn.bars] == [("slow", 5.5, 8.5)]


def test_the_longest_wait_counts_from_when_a_job_was_due() -> None:
    lines: list[bytes] = []
    now = [0]
    journal = Journal(lines.append, role="producer", name="producer", clock=lambda: now[0])
    for job, at, delay in (("a", 1_000, 0), ("b", 2_000, 5_000)):
        now[0] = at
        journal.write(history.Enqueue(call=journal.call(), jobs=(history.Asked(job=job, delay=delay),)))
    for job, at in (("a", 4_500), ("b", 8_000), ("a", 90_000)):
        now[0] = at
        journal.write(history.Start(job=job, fence=at, attempt=1))
    assert longest_wait(history.read_file(lines, "producer")) == 3_500, "a second run does not count"


def test_page_is_one_file_without_scripts_and_escapes_what_it_shows(past: Path, tmp_path: Path) -> None:
    report = made(timeline=draw_up(past)[0], invariants=[VIOLATED])
    shown = page(report)
    assert "<script" not in shown
    assert not re.search(r"(src|href)=|url\(|@import", shown)
    assert "prefers-color-scheme: dark" in shown
    assert "job &lt;b&gt;x&lt;/b&gt; is gone" in shown
    assert "slow: &lt;a&gt;, 3.0 s" in shown
    assert shown.count("<rect") == 1
    write(report, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "report.txt",
        "report.json",
        "report.html",
    }

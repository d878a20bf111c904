"""The checker on deadline leases, by histories written by hand."""

import pytest
from tests.verify.test_checker import Story

from windlass.verify import history as h
from windlass.verify.checker import Verdict

SECOND = 1_000_000
VISIBILITY = 3 * SECOND
SHIFT = 40 * SECOND
"""What the machine's clock is ahead of the store's."""


def story(*, ended: int, extended: str | None = None, crashes: int = 0) -> Verdict:
    """A lease of the first second, perhaps extended in the third, that was taken away; then it ends well."""
    told = Story()
    told("h", h.Nemesis(number=1, kind="kill http worker"), at=0, role="harness")
    told("p", h.Enqueue(call=1, jobs=(h.Asked(job="j"),)), at=SECOND // 2)
    told("p", h.Enqueued(call=1, receipts=(h.Receipt("j", "created"),)), at=SECOND // 2)
    _claim(told, "w", 1, fence=10, at=SECOND)
    told("w", h.Start(job="j", fence=10, attempt=1), at=SECOND)
    if extended is not None:
        told("w", h.Annotate(call=2, notes=(("j", 10),), extend=VISIBILITY), at=3 * SECOND)
        if extended:
            told("w", h.Annotated(call=2, answers=(h.Judged("j", 10, extended),)), at=3 * SECOND)
    again = max(ended, 9 * SECOND)
    _claim(told, "v", 2, fence=20, at=again)
    told("v", h.Start(job="j", fence=20, attempt=2), at=again)
    told("v", h.End(job="j", fence=20, how="ok"), at=again)
    told("v", h.Settle(call=2, words=(h.Word(job="j", fence=20, outcome="done"),)), at=again)
    told("v", h.Settled(call=2, answers=(h.Judged("j", 20, "applied", "done", "done"),)), at=again)
    ran_out = h.Delivery(
        fence=10,
        attempt=1,
        outcome="retry",
        settled=False,
        cause="deadline",
        ran=False,
        claimed_at=SECOND - SHIFT,
        ended_at=ended - SHIFT,
    )
    done = h.Delivery(fence=20, attempt=2, outcome="done", claimed_at=again - SHIFT, ended_at=again - SHIFT)
    told(
        "h",
        h.Final(job="j", state="done", attempt=2, fence=20, crashes=crashes, deliveries=(ran_out, done)),
        at=again + SECOND,
    )
    return told.verdict()


def _claim(told: Story, worker: str, attempt: int, *, fence: int, at: int) -> None:
    told(worker, h.Claim(call=1, session="", number=0, visibility=VISIBILITY), at=at)
    told(worker, h.Claimed(call=1, session="", leases=(h.Leased("j", fence, attempt),)), at=at)


@pytest.mark.parametrize(
    ("ended", "extended"),
    [(4, None), (6, "applied"), (5, "stale"), (5, "")],
    ids=["in its time", "extended", "extended too late", "extended, perhaps"],
)
def test_a_lease_that_ran_out_in_its_time_is_explained(ended: int, extended: str | None) -> None:
    verdict = story(ended=ended * SECOND, extended=extended)
    assert verdict.ok, verdict.lines()
    assert verdict.findings["deadlines_are_kept"].holds_for == 2
    assert verdict.duplicates == {"holder ended (deadline)": 1}


@pytest.mark.parametrize(("ended", "extended"), [(3, None), (5, "applied")], ids=["claim", "extension"])
def test_a_lease_that_is_taken_away_too_early_is_found(ended: int, extended: str | None) -> None:
    assert "deadlines_are_kept" in story(ended=ended * SECOND, extended=extended).violated


def test_a_lease_that_nobody_ends_is_found() -> None:
    assert "deadlines_are_kept" in story(ended=140 * SECOND).violated


def test_a_missed_deadline_that_counts_as_a_crash_is_found() -> None:
    assert "deadlines_are_kept" in story(ended=4 * SECOND, crashes=1).violated


@pytest.mark.parametrize(("remembered", "again"), [(10, 4), (9, 4), (10, 3)])
def test_a_deadline_explains_what_the_store_no_longer_tells(remembered: int, again: int) -> None:
    """Of two leases nothing was said, and the store keeps the last ten: the first had run out, or had not."""
    told = Story()
    told("p", h.Enqueue(call=1, jobs=(h.Asked(job="j"),)), at=SECOND // 2)
    told("p", h.Enqueued(call=1, receipts=(h.Receipt("j", "created"),)), at=SECOND // 2)
    for worker, fence, at in (("w", 10, 1), ("v", 20, again)):
        _claim(told, worker, 1, fence=fence, at=at * SECOND)
        told(worker, h.Start(job="j", fence=fence, attempt=1), at=at * SECOND)
    kept = tuple(h.Delivery(fence=20 + n, attempt=1, outcome="snooze") for n in range(remembered))
    told("h", h.Final(job="j", state="scheduled", deliveries=kept), at=60 * SECOND)
    unexplained = "duplicates_are_explained" in told.verdict().violated
    assert unexplained is not (remembered == 10 and again == 4)

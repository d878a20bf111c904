"""The checker on histories in which the store was set back: what that excuses, and what it does not."""

import pytest
from tests.verify.test_checker import Story, done, healthy, settle

from windlass.verify import history as h
from windlass.verify.checker import Rules

SECOND = 1_000_000


def set_back(story: Story, at: int, lost: float = 1.0) -> None:
    """At this time the store loses the writes of the last second."""
    details = {"lost_seconds": str(lost)}
    story("x", h.Nemesis(number=at, kind="failover", target="store", details=details), at=at)


def accept(story: Story, job: str, at: int) -> None:
    story("p", h.Enqueue(call=at, jobs=(h.Asked(job=job),)), at=at)
    story("p", h.Enqueued(call=at, receipts=(h.Receipt(job, "created"),)))


@pytest.mark.parametrize(("accepted", "kept"), [(5, True), (9.5, False), (12, True)])
def test_only_what_was_accepted_in_the_lost_time_may_be_gone(accepted: float, kept: bool) -> None:
    story = Story()
    accept(story, "j", round(accepted * SECOND))
    set_back(story, 10 * SECOND)
    story("x", h.Final(job="j", state="absent"), at=20 * SECOND)
    assert ("accepted_is_kept" in story.verdict().violated) is kept


def test_a_restore_that_takes_time_loses_what_was_answered_until_its_end() -> None:
    story = Story()
    set_back(story, 10 * SECOND)
    accept(story, "j", 11 * SECOND)
    story("x", h.Nemesis(number=10 * SECOND, kind="failover", action="end"), at=12 * SECOND)
    story("x", h.Final(job="j", state="absent"))
    assert story.verdict().ok


def test_a_run_again_is_excused_where_its_lease_was_forgotten() -> None:
    story = Story()
    story.now = 9_200_000
    healthy(story)
    set_back(story, 10 * SECOND)
    story("v", h.Start(job="j", fence=20, attempt=1, session="t"))
    verdict = story.verdict()
    assert verdict.duplicates == {"the store was set back": 1}
    assert verdict.ok, verdict.lines()


def test_a_run_again_is_not_excused_where_the_store_remembered() -> None:
    story = Story()
    healthy(story)
    set_back(story, 10 * SECOND)
    story("v", h.Start(job="j", fence=20, attempt=1, session="t"))
    assert "duplicates_are_explained" in story.verdict().violated


def test_an_end_that_was_forgotten_may_come_again() -> None:
    story = Story()
    story.now = 9_200_000
    healthy(story)
    set_back(story, 10 * SECOND)
    story("v", h.Claimed(call=1, session="t", leases=(h.Leased("j", 20, 1),)))
    story("v", h.Start(job="j", fence=20, attempt=1, session="t"))
    story("v", h.End(job="j", fence=20, how="ok"))
    settle(story, "j", 20, worker="v")
    story("x", done("j", 20, result=20))
    verdict = story.verdict()
    assert verdict.ok, verdict.lines()


def test_limits_hold_in_what_the_store_remembers() -> None:
    story = Story()
    set_back(story, 10 * SECOND)
    story("x", h.Limits(queue="default", concurrency=1))
    story("x", done("a", 10))
    story("x", done("b", 12))
    assert "limits_hold" in story.verdict().violated


@pytest.mark.parametrize(("fired", "once"), [(5, True), (9.5, False)])
def test_a_tick_may_fire_again_if_that_was_forgotten(fired: float, once: bool) -> None:
    story = Story()
    at = round(fired * SECOND)
    story("m", h.Fired(schedule="nightly", tick=1, jobs=("a",), asked=at), at=at + 1_000)
    set_back(story, 10 * SECOND)
    story("n", h.Fired(schedule="nightly", tick=1, jobs=("b",), asked=11 * SECOND), at=11_001_000)
    assert ("ticks_fire_once" in story.verdict().violated) is once


@pytest.mark.parametrize(("beaten", "reaped_in_vain"), [(10_500_000, True), (9_500_000, False)])
def test_a_beat_that_was_forgotten_keeps_nobody_alive(beaten: int, reaped_in_vain: bool) -> None:
    story = Story()
    story("u", h.Beat(call=1, sessions=("s",), opens=("s",), ttl=5 * SECOND))
    story("u", h.Beaten(call=1))
    story("u", h.Beat(call=2, sessions=("s",)), at=beaten)
    story("u", h.Beaten(call=2))
    set_back(story, 10 * SECOND)
    for number in range(3, 8):
        story("u", h.Sweep(call=number), at=(8 + number) * SECOND)
        story("u", h.Swept(call=number, reaped=("s",) if number == 7 else ()))
    assert ("the_living_are_not_reaped" in story.verdict().violated) is reaped_in_vain


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_resume_that_was_forgotten_leaves_the_queue_paused(forgotten: bool) -> None:
    story = Story()
    accept(story, "j", SECOND)
    story("o", h.Operate(call=1, verb="pause", queue="default"), at=2 * SECOND)
    story("o", h.Operated(call=1))
    story("o", h.Operate(call=2, verb="resume", queue="default"), at=9_500_000 if forgotten else 5 * SECOND)
    story("o", h.Operated(call=2))
    set_back(story, 10 * SECOND)
    story("x", h.Phase(name="drained"), at=90 * SECOND)
    story("x", h.Final(job="j", state="ready"))
    story("x", h.Finished(jobs=1))
    assert story.verdict().ok is forgotten


@pytest.mark.parametrize(("heard", "word"), [(False, ""), (True, "done")])
def test_a_living_session_knows_what_it_holds(heard: bool, word: str) -> None:
    """Else a reply was forgotten, or a settlement."""
    story = Story()
    story("u", h.Beat(call=1, sessions=("s",), opens=("s",), ttl=5 * SECOND))
    healthy(story, "other", 2_000)
    if heard:
        healthy(story, "j", 2_001)
        set_back(story, 10 * SECOND, lost=10.0)
    held = h.Delivery(
        fence=2_001,
        attempt=1,
        outcome="release",
        settled=False,
        session="s",
        cause="stop",
        claimed_at=2_001,
        ended_at=80 * SECOND,
    )
    story("x", h.Final(job="j", state="ready", deliveries=(held,)), at=90 * SECOND)
    story("x", done("other", 2_000))
    story("x", h.Finished(jobs=2))
    found = story.verdict(Rules(unknown=60 * SECOND)).findings["leases_have_holders"]
    assert found.violated == 1
    assert ("last word" if word else "never heard") in found.examples[0]

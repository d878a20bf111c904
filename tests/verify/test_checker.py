"""The checker on histories written by hand: what it accepts, what it refuses, how it reads."""

from collections.abc import Callable
from pathlib import Path

import pytest

from windlass.verify import history as h
from windlass.verify.checker import INVARIANTS, Rules, Verdict, check, check_folder
from windlass.verify.history import Journal, Role


class Story:
    """Histories of several processes, on a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0
        self.files: dict[str, list[bytes]] = {}
        self._journals: dict[str, Journal] = {}

    def __call__(self, name: str, event: h.Event, *, at: int | None = None, role: Role = "worker") -> None:
        self.now = self.now + 1_000 if at is None else at
        if name not in self._journals:
            file = self.files[name] = []
            self._journals[name] = Journal(file.append, role=role, name=name, clock=lambda: self.now)
        self._journals[name].write(event)

    def verdict(self, rules: Rules | None = None) -> Verdict:
        merged = h.merge(
            h.read_file(b"".join(lines).splitlines(keepends=True), name) for name, lines in self.files.items()
        )
        return check(merged, rules)


def done(job: str = "j", fence: int = 10, **more: object) -> h.Final:
    delivery = h.Delivery(fence=fence, attempt=1, outcome="done", claimed_at=fence, ended_at=fence + 5)
    given: dict[str, object] = {"attempt": 1, "fence": fence, "deliveries": (delivery,), **more}
    return h.Final(job=job, state="done", **given)  # type: ignore[arg-type]


def healthy(story: Story, job: str = "j", fence: int = 10, *, worker: str = "w") -> None:
    """One job that is enqueued, runs and is done."""
    story("p", h.Enqueue(call=1, jobs=(h.Asked(job=job),)))
    story("p", h.Enqueued(call=1, receipts=(h.Receipt(job, "created"),)))
    story(worker, h.Claim(call=1, session="s", number=1))
    story(worker, h.Claimed(call=1, session="s", number=1, leases=(h.Leased(job, fence, 1),)))
    story(worker, h.Start(job=job, fence=fence, attempt=1, session="s"))
    story(worker, h.End(job=job, fence=fence, how="ok"))
    settle(story, job, fence, worker=worker)


def settle(
    story: Story, job: str, fence: int, *, worker: str = "w", call: int = 2, verdict: str = "applied"
) -> None:
    story(worker, h.Settle(call=call, words=(h.Word(job=job, fence=fence, outcome="done"),)))
    state = "done" if verdict == "applied" else None
    judged = h.Judged(job, fence, verdict, state, state)
    story(worker, h.Settled(call=call, answers=(judged,)))


def test_a_healthy_history_holds() -> None:
    story = Story()
    healthy(story)
    story("x", done(result=10))
    story("x", h.Finished(jobs=1))
    verdict = story.verdict()
    assert verdict.ok, verdict.lines()
    assert (verdict.jobs, verdict.runs) == (1, 1)
    assert verdict.findings["accepted_is_kept"].holds_for == 1
    assert verdict.findings.keys() == INVARIANTS.keys()


def lost(story: Story) -> None:
    story("p", h.Enqueue(call=1, jobs=(h.Asked(job="j"),)))
    story("p", h.Enqueued(call=1, receipts=(h.Receipt("j", "created"),)))
    story("x", h.Final(job="j", state="absent"))


def never_enqueued(story: Story) -> None:
    story("w", h.Start(job="j", fence=10, attempt=1))


def stale_applied(story: Story) -> None:
    healthy(story)
    story("v", h.Claimed(call=1, session="t", leases=(h.Leased("j", 20, 2),)))
    settle(story, "j", 10, call=3)


def fence_twice(story: Story) -> None:
    healthy(story)
    story("v", h.Start(job="j", fence=10, attempt=1, session="t"))


def ended_twice(story: Story) -> None:
    healthy(story)
    settle(story, "j", 12, call=7)


def again_after_done(story: Story) -> None:
    healthy(story)
    story("v", h.Start(job="j", fence=20, attempt=1, session="t"))


def overlapping(story: Story) -> None:
    story("p", h.Enqueue(call=1, jobs=(h.Asked(job="j"),)))
    story("w", h.Start(job="j", fence=10, attempt=1, session="s"))
    story("v", h.Start(job="j", fence=20, attempt=1, session="t"))
    settle(story, "j", 10)


def too_early(story: Story) -> None:
    story("p", h.Enqueue(call=1, jobs=(h.Asked(job="j", delay=5_000_000),)))
    story("w", h.Start(job="j", fence=10, attempt=1, session="s"))


def held_by_nobody(story: Story) -> None:
    healthy(story)
    story("x", h.Final(job="j", state="running", fence=10, session="s"))
    story("x", h.Finished(jobs=1))


def unfinished(story: Story) -> None:
    healthy(story)
    story("x", h.Phase(name="drained"))
    story("x", h.Final(job="j", state="ready"))


def wrong_result(story: Story) -> None:
    healthy(story)
    story("x", done(result=9))


def too_many_attempts(story: Story) -> None:
    healthy(story)
    story("x", done(attempt=6))


def dead_without_a_start(story: Story) -> None:
    story("x", h.Final(job="j", state="dead", reason="attempts exhausted", attempt=5))


def twice_a_tick(story: Story) -> None:
    story("m", h.Fired(schedule="nightly", tick=1, jobs=("a",)))
    story("n", h.Fired(schedule="nightly", tick=1, jobs=("b",)))


def a_tick_skipped(story: Story) -> None:
    for call, tick, then in ((1, 10, 20), (2, 30, 40)):
        story("m", h.Fire(call=call, schedule="often", tick=tick, then=then, jobs=(f"j{tick}",)))
        story("m", h.Fired(call=call, schedule="often", tick=tick, jobs=(f"j{tick}",), asked=story.now))


def a_tick_without_a_job(story: Story) -> None:
    story("x", h.Rule(schedule="often", every=10, catch_up="all"))
    story("m", h.Fire(call=1, schedule="often", tick=10, then=30, jobs=("j",)))
    story("m", h.Fired(call=1, schedule="often", tick=10, jobs=("j",), asked=story.now))


def raced_and_ran(story: Story) -> None:
    story("m", h.Fire(call=1, schedule="often", tick=10, then=20, jobs=("j",)))
    story("m", h.Fail(call=1, why="raced"))
    story("w", h.Start(job="j", fence=10, attempt=1))


def fired_and_lost(story: Story) -> None:
    story("m", h.Fire(call=1, schedule="often", tick=10, then=20, jobs=("j",)))
    story("m", h.Fired(call=1, schedule="often", tick=10, jobs=("j",), asked=story.now))
    story("x", h.Final(job="j", state="absent"))


def _join(story: Story, *read: tuple[str, int | None]) -> None:
    healthy(story, "p1")
    story("q", h.Enqueue(call=1, jobs=(h.Asked(job="c", after=("p1",)),)))
    story("w", h.Start(job="c", fence=30, attempt=1, session="s"))
    story("w", h.Gathered(job="c", fence=30, parents=read))
    story("x", done("p1", result=10))


def another_result(story: Story) -> None:
    _join(story, ("p1", 11))


def no_result(story: Story) -> None:
    _join(story, ("p1", None))


def another_parent(story: Story) -> None:
    _join(story, ("p2", 10))


def over_the_limit(story: Story) -> None:
    story("x", h.Limits(queue="default", concurrency=1))
    story("x", done("a", 10))
    story("x", done("b", 12))


def over_the_rate(story: Story) -> None:
    story("x", h.Limits(queue="default", rate=1.0, burst=2))
    for number in range(4):
        story("x", done(f"j{number}", 10 + number))


def living_reaped(story: Story) -> None:
    story("u", h.Beat(call=1, sessions=("s",), opens=("s",), ttl=5_000_000))
    story("u", h.Beaten(call=1))
    story("u", h.Sweep(call=2))
    story("u", h.Swept(call=2, reaped=("s",)), at=60_000_000)


def _reaped_after_passes_that_waited(story: Story, *, waited_until: int | None) -> None:
    """Two passes are asked for at once and answered late, or never; the next one gives up the session."""
    story("u", h.Beat(call=1, sessions=("s",), opens=("s",), ttl=3_000_000), at=1_000_000)
    story("u", h.Beaten(call=1))
    story("v", h.Sweep(call=1), at=1_100_000)
    story("w", h.Sweep(call=1))
    if waited_until is not None:
        story("v", h.Swept(call=1), at=waited_until)
        story("w", h.Swept(call=1))
    story("v", h.Sweep(call=2), at=9_000_000)
    story("v", h.Swept(call=2, reaped=("s",)))


@pytest.mark.parametrize(("waited_until", "in_vain"), [(1_200_000, True), (5_000_000, False), (None, False)])
def test_a_pass_that_waited_counts_from_when_it_can_have_happened(
    waited_until: int | None, in_vain: bool
) -> None:
    story = Story()
    _reaped_after_passes_that_waited(story, waited_until=waited_until)
    assert ("the_living_are_not_reaped" in story.verdict().violated) is in_vain


def silent_starts(story: Story) -> None:
    story("u", h.Beat(call=1, sessions=("s",), opens=("s",), ttl=30_000_000))
    story("u", h.Beaten(call=1))
    story("p", h.Enqueue(call=1, jobs=(h.Asked(job="j"),)))
    story("w", h.Start(job="j", fence=10, attempt=1, session="s"), at=29_000_000)


def slow_redelivery(story: Story) -> None:
    story("p", h.Enqueue(call=1, jobs=(h.Asked(job="j"),)))
    story("w", h.Start(job="j", fence=10, attempt=1, session="s"))
    story("x", h.Process(name="w", action="ended", session="s"))
    story("v", h.Start(job="j", fence=20, attempt=2, session="t"), at=600_000_000)


def _given_back_behind_a_crowd(story: Story, *, crowded_until: int) -> None:
    """A job whose holder died runs again after 200 s; so many of them there is more than room for it."""
    story("p", h.Enqueue(call=1, jobs=(h.Asked(job="j"),)))
    story("w", h.Start(job="j", fence=10, attempt=1, session="s"))
    story("x", h.Process(name="w", action="ended", session="s"))
    for second in range(0, crowded_until, 10):
        story("v", h.Claimed(call=second, session="t", more=True), at=second * 1_000_000 + 10_000)
    for second in range(crowded_until, 200, 10):
        story("v", h.Claimed(call=second, session="t"), at=second * 1_000_000 + 10_000)
    story("v", h.Start(job="j", fence=20, attempt=2, session="t"), at=200_000_000)


def forgotten_behind_a_crowd(story: Story) -> None:
    _given_back_behind_a_crowd(story, crowded_until=50)


def unfair(story: Story) -> None:
    for lane in ("a", "b"):
        story("x", h.Limits(queue="q", lane=lane, weight=1))
    story(
        "p",
        h.Enqueue(
            call=1, jobs=(h.Asked(job="b1", queue="q", lane="b"), h.Asked(job="b2", queue="q", lane="b"))
        ),
    )
    story("p", h.Enqueued(call=1, receipts=(h.Receipt("b1", "created"), h.Receipt("b2", "created"))))
    start = story.now
    story("x", done("b1", start, queue="q", lane="b"))
    story("x", done("b2", start + 900, queue="q", lane="b"))
    for number in range(8):
        story("x", done(f"a{number}", start + 10 + number * 10, queue="q", lane="a"))


def unhealthy_duplicate(story: Story) -> None:
    story("p", h.Enqueue(call=1, jobs=(h.Asked(job="j"),)))
    story("w", h.Start(job="j", fence=10, attempt=1, session="s"))
    story("x", h.Process(name="w", action="ended", session="s"))
    story("v", h.Start(job="j", fence=20, attempt=2, session="t"))


def untold_death(story: Story) -> None:
    story("u", h.Beat(call=1, sessions=("s",), opens=("s",), ttl=30_000_000))
    story("x", h.Process(name="w", action="ended", session="s"))
    story("x", h.Phase(name="healed"), at=60_000_000)


@pytest.mark.parametrize(
    ("tell", "invariant"),
    [
        (lost, "accepted_is_kept"),
        (never_enqueued, "runs_were_enqueued"),
        (stale_applied, "stale_fences_change_nothing"),
        (fence_twice, "fences_grow"),
        (ended_twice, "one_terminal_state"),
        (again_after_done, "duplicates_are_explained"),
        (overlapping, "live_runs_never_overlap"),
        (too_early, "nothing_starts_before_it_is_due"),
        (held_by_nobody, "leases_have_holders"),
        (unfinished, "work_resumes_and_drains"),
        (wrong_result, "done_has_run"),
        (too_many_attempts, "attempts_add_up"),
        (dead_without_a_start, "dead_letters_are_explained"),
        (twice_a_tick, "ticks_fire_once"),
        (a_tick_skipped, "ticks_are_not_missed"),
        (a_tick_without_a_job, "ticks_are_not_missed"),
        (raced_and_ran, "runs_were_enqueued"),
        (fired_and_lost, "accepted_is_kept"),
        (another_result, "joins_read_their_parents"),
        (no_result, "joins_read_their_parents"),
        (another_parent, "joins_read_their_parents"),
        (over_the_limit, "limits_hold"),
        (over_the_rate, "limits_hold"),
        (living_reaped, "the_living_are_not_reaped"),
        (silent_starts, "the_silent_start_nothing"),
        (slow_redelivery, "redelivery_is_bounded"),
        (forgotten_behind_a_crowd, "redelivery_is_bounded"),
        (unfair, "lanes_share"),
        (unhealthy_duplicate, "a_healthy_run_has_no_duplicates"),
        (untold_death, "deaths_are_told"),
    ],
)
def test_a_broken_history_is_refused(tell: Callable[[Story], None], invariant: str) -> None:
    story = Story()
    tell(story)
    verdict = story.verdict()
    assert invariant in verdict.violated, verdict.lines()
    assert verdict.findings[invariant].examples


def test_a_join_that_reads_its_parents_holds() -> None:
    story = Story()
    _join(story, ("p1", 10))
    verdict = story.verdict()
    assert verdict.findings["joins_read_their_parents"].holds_for == 1
    assert "joins_read_their_parents" not in verdict.violated


def test_a_fire_whose_answer_was_lost_leads_on() -> None:
    story = Story()
    for call, tick in ((1, 10), (2, 20), (3, 30)):
        story("m", h.Fire(call=call, schedule="often", tick=tick, then=tick + 10, jobs=(f"j{tick}",)))
        if call == 2:
            story("m", h.Info(call=2))
        else:
            story("m", h.Fired(call=call, schedule="often", tick=tick, jobs=(f"j{tick}",), asked=story.now))
    assert "ticks_are_not_missed" not in story.verdict().violated
    assert story.verdict().findings["ticks_are_not_missed"].holds_for == 1


def test_a_zombie_that_is_refused_is_no_problem() -> None:
    story = Story()
    story("p", h.Enqueue(call=9, jobs=(h.Asked(job="j"),)))
    story("p", h.Fail(call=9))
    story("z", h.Start(job="j", fence=5, attempt=1, session="old"))
    story("x", h.Nemesis(number=1, kind="freeze", target="z"))
    story("u", h.Swept(call=1, reaped=("old",)))
    healthy(story)
    settle(story, "j", 5, worker="z", verdict="stale")
    past = h.Delivery(fence=5, attempt=1, outcome="retry", settled=False, session="old", cause="lost")
    final = done()
    final.deliveries = (past, *(h.Delivery(fence=10, attempt=2, outcome="done"),))
    story("x", final)
    verdict = story.verdict()
    assert verdict.violated == ["attempts_add_up"]  # it ran as attempt 1, and was the second
    assert verdict.duplicates == {"holder lost": 1}


@pytest.mark.parametrize("remembered", [9, 10])
def test_a_stale_word_explains_what_the_store_no_longer_tells(remembered: int) -> None:
    story = Story()
    healthy(story)
    story.files.pop("w")
    story("z", h.Start(job="j", fence=5, attempt=1))
    settle(story, "j", 5, worker="z", verdict="stale")
    story("v", h.Start(job="j", fence=10, attempt=1))
    kept = tuple(h.Delivery(fence=10 + n, attempt=1, outcome="snooze") for n in range(remembered))
    story("x", h.Final(job="j", state="scheduled", deliveries=kept))
    unexplained = "duplicates_are_explained" in story.verdict().violated
    assert unexplained is (remembered < 10)


def test_what_waits_behind_others_is_not_forgotten() -> None:
    """Until there is room the queues before it go first; the bound is for the time after that."""
    story = Story()
    _given_back_behind_a_crowd(story, crowded_until=100)
    finding = story.verdict().findings["redelivery_is_bounded"]
    assert (finding.holds_for, finding.violated) == (1, 0)


@pytest.mark.parametrize(
    ("asked", "answered", "may_be_left"),
    [
        (1_000_000, 1_001_000, False),
        (1_999_000, 2_001_000, True),  # under way when the last look at the store found nothing
        (1_999_000, None, False),
        (3_000_000, 3_001_000, True),
    ],
)
def test_what_a_schedule_brings_after_the_end_need_not_end(
    asked: int, answered: int | None, may_be_left: bool
) -> None:
    story = Story()
    story("m", h.Fire(call=1, schedule="nightly", tick=1, then=2, jobs=("j",)), at=asked)
    if answered is None:
        story("m", h.Info(call=1), at=asked + 1_500_000)
    else:
        story("m", h.Fired(call=1, schedule="nightly", tick=1, jobs=("j",), asked=asked), at=answered)
    story("x", h.Phase(name="drained"), at=2_000_000)
    story("x", h.Final(job="j", state="ready"), at=4_000_000)
    assert story.verdict().ok is may_be_left


def test_a_torn_last_line_is_passed_over(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, role="worker", name="w")
    journal.write(h.Start(job="j", fence=1, attempt=1))
    file = tmp_path / "w.jsonl"
    file.write_bytes(file.read_bytes() + b'{"event":"sta')
    assert [type(line.event) for line in h.read(tmp_path)] == [h.Start]
    assert "runs_were_enqueued" in check_folder(tmp_path).violated


def test_notes_wait_for_the_next_write(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, role="producer", name="p")
    journal.note(h.Phase(name="one"))
    assert not list(h.read(tmp_path))
    journal.write(h.Phase(name="two"))
    journal.note(h.Phase(name="three"))
    journal.flush()
    assert [line.event.seq for line in h.read(tmp_path)] == [2, 3, 4]


def test_files_are_merged_by_time(tmp_path: Path) -> None:
    first = Journal.open(tmp_path, role="worker", name="a")
    second = Journal.open(tmp_path, role="worker", name="b")
    for journal in (first, second, first, second):
        journal.write(h.Phase(name=journal.name))
    assert [line.source.name for line in h.read(tmp_path)] == ["a", "b", "a", "b"]


@pytest.mark.parametrize("text", [b"", b"nonsense\n{}\n", b'{"event":"phase","name":"x"}\n'])
def test_what_is_no_history_is_refused(tmp_path: Path, text: bytes) -> None:
    if text:
        (tmp_path / "w.jsonl").write_bytes(text)
    with pytest.raises(h.HistoryError, match=r"jsonl|header"):
        list(h.read(tmp_path))

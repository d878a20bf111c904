"""The rest of the contract: schedules, operators' verbs, settings and reads.

What `windlass.broker.contract` says of every verb holds here too.
"""

from collections.abc import Sequence
from typing import Protocol

from windlass.core.job import JobDetail
from windlass.core.operate import Edit, Operated, Purged, Target
from windlass.core.query import FIRST_PAGE, Counts, Explanation, JobQuery, Lanes, Page, UnfinishedFlows
from windlass.core.session import SessionView
from windlass.core.settings import Body, Changed, Declaration, Document, Kind, Subject
from windlass.core.state import State
from windlass.core.timetable import Fire, Fired, NewSchedule, Schedules
from windlass.core.units import Cursor, JobId, Micros, SessionId


class Plan(Protocol):
    """Schedules: documents with a next time, fired by compare-and-set."""

    async def declare_schedule(self, schedule: NewSchedule) -> Changed:
        """Declare a schedule in code.

        - redeclared_schedule_keeps_its_tick: the same specification is UNCHANGED and does not move `next_at`.
        - changed_schedule_takes_the_new_tick: unless an override is in force; fires and pause stay.
        - schedule_belongs_to_its_app: another app's or an older revision's declaration is refused.
        """
        ...

    async def override_schedule(
        self, name: str, spec: bytes | None, next_at: Micros | None, expect: int
    ) -> Changed:
        """Set (or with None reset) the operators' specification, if the version is the expected one (0: no
        such schedule).

        - schedule_override_wins_until_reset: and is compare-and-set by version.
        - schedule_without_a_layer_is_gone: resetting one that was never declared removes it.
        """
        ...

    async def delete_schedule(self, name: str) -> bool:
        """Remove a schedule and its history. Returns whether there was one.

        - deleted_schedule_is_gone: it neither lists nor fires.
        """
        ...

    async def pause_schedule(self, name: str, *, paused: bool) -> bool:
        """Pause or resume a schedule. Returns whether there is such a schedule.

        - paused_schedule_does_not_fire: until it is resumed.
        """
        ...

    async def fire(self, fire: Fire) -> Fired:
        """Move `next_at` and enqueue the jobs of the tick, in one step.

        - tick_fires_once: of any number of equal calls, one is FIRED and the others RACED.
        - fire_waits_for_the_store_clock: NOT_DUE before `next_at`.
        - fire_needs_the_version: a changed specification makes it RACED.
        - refused_fire_keeps_its_tick: what enqueue refuses does not use up the tick.
        - fires_are_kept: the last 20, with tick, time, jobs and the number of ticks that made no job. A run
          of fires without a job is one record.
        - tick_is_missed_while_a_job_waits: with `unless_waiting`, while a job of a kept fire is due, or held,
          and has never started, the answer is MISSED: `next_at` moves, no job is made, and the ticks of the
          call are recorded as missed.
        """
        ...

    async def schedules(self, after: Cursor = FIRST_PAGE, limit: int = 100) -> Schedules:
        """Schedules by name.

        - schedules_page_by_name: with the store's time. `Swept.schedules_due` says when it is worth looking.
        """
        ...


class Operate(Protocol):
    """What operators do. At most 1,000 jobs a call, each judged by itself; answers in their order.

    However many jobs there are, a call examines a bounded number of them (about 2,000), and one that answers
    `more` has made progress: who repeats the call comes to the end.
    """

    async def cancel(self, targets: Sequence[Target]) -> Sequence[Operated]:
        """Cancel jobs.

        - cancel_of_a_waiting_job_is_immediate: and acts on its dependents.
        - cancel_of_a_running_job_sets_a_flag: FLAGGED; the worker's next pulse names it.
        - operation_respects_the_expected_state: otherwise WRONG_STATE and nothing changes; unknown ids are
          NOT_FOUND.
        """
        ...

    async def replay(self, targets: Sequence[Target]) -> Sequence[Operated]:
        """Send dead letters back: ready, with all attempts, no crashes and no expiry.

        - replay_sends_dead_letters_back: and nothing but dead ones; twice at once, each once.
        - replay_takes_its_key_again: or answers CONFLICT with the job that holds it.
        """
        ...

    async def discard(self, targets: Sequence[Target]) -> Sequence[Operated]:
        """Remove dead letters; their edges' policies act.

        - discard_removes_dead_letters: and nothing but dead ones.
        """
        ...

    async def prune(self, targets: Sequence[Target]) -> Sequence[Operated]:
        """Remove finished jobs as sweep does, whether or not their time is over: payload, headers, tags,
        result, errors, progress, log lines. How they ended is remembered for the resend window; unique keys
        go with their window; edges' policies act.

        - prune_removes_finished_jobs: done, cancelled and dead ones, and no others; events tell it as the
          move `prune`.
        - prune_refuses_what_is_needed: CONFLICT, and nothing changes, while a job that has not ended needs a
          done or cancelled one.
        - prune_keeps_what_sweep_keeps: the same id sent again makes no second job, and a unique key absorbs
          calls to the end of its window.
        """
        ...

    async def edit(self, edits: Sequence[Edit]) -> Sequence[Operated]:
        """Change waiting or dead jobs.

        - edit_changes_a_waiting_or_dead_job: a new priority files a ready job in its new band, with its old
          sequence.
        """
        ...

    async def purge(self, queue: str, state: State, limit: int) -> Purged:
        """Cancel (waiting) or remove (terminal) up to `limit` jobs of a queue.

        - purge_cancels_waiting_and_removes_finished: nothing accepted vanishes while unfinished; running jobs
          are not purged. Oldest first, where there are not thousands to choose from.
        - purge_comes_to_its_end: of any number of jobs, in any number of lanes, behind any number of others;
          a call takes 1,000 at the most, whatever `limit` says.
        """
        ...

    async def unhold(self, key: str, limit: int) -> Purged:
        """Make up to `limit` held jobs with this hold key ready: a worker knows the task now, or a strike was
        lifted.

        - unhold_frees_held_jobs: of this key and no other.
        - unhold_comes_to_its_end: of any number of jobs; a call takes 1,000 at the most, whatever `limit`
          says.
        """
        ...

    async def pause(self, queue: str, lane: str | None = None) -> bool:
        """Stop handing out a queue's, or one lane's, jobs; whether the queue exists. What runs goes on."""
        ...

    async def resume(self, queue: str, lane: str | None = None) -> bool:
        """Let them go on.

        - pause_and_resume_answer_for_unknown_queues: False, and nothing is created.
        """
        ...


class Configure(Protocol):
    """Settings: small documents with compare-and-set, in two layers."""

    async def declare(self, declarations: Sequence[Declaration]) -> Sequence[Changed]:
        """Declare documents in code: queues, lanes, tasks.

        - declaration_replaces_its_document: what it does not say is not set.
        - declaration_belongs_to_its_app: the first app keeps it; another's is refused.
        - older_revision_changes_nothing: never a newer revision's document.
        - layout_is_fixed_in_use: order, age_step and sequence of a queue with unfinished jobs do not change.
        - lane_needs_its_queue: settings of a lane of an unknown queue are refused.
        """
        ...

    async def override(self, subject: Subject, body: Body | None, expect: int) -> Changed:
        """Set (or with None reset) the operators' layer, if the version is the expected one (0: no such
        document).

        - override_wins_until_reset: field by field, and both layers are shown.
        - override_is_compare_and_set: on the version.
        - document_without_a_layer_is_gone: resetting one that was never declared removes it.
        - override_does_not_create_a_queue: only a declaration does.
        """
        ...

    async def documents(
        self, kind: Kind, after: Subject | None = None, limit: int = 100
    ) -> Sequence[Document]:
        """Documents of a kind, in the order of their subjects.

        - documents_page_by_subject: other kinds than queue and lane are bytes, kept as they are.
        """
        ...


class Read(Protocol):
    """Reads are bounded by rows examined."""

    async def get(self, jobs: Sequence[JobId]) -> Sequence[JobDetail | None]:
        """Jobs by id, at most 1,000, in their order; None for what is unknown.

        - get_answers_in_order: with None for unknown ids.
        - get_remembers_how_it_ended: for the resend window: id, state, reason, fence and time, although
          nothing else was kept (`pruned`).
        """
        ...

    async def list(self, query: JobQuery, after: Cursor = FIRST_PAGE, limit: int = 100) -> Page:
        """Jobs that match; page by page every job that matched throughout is returned at least once.

        - list_pages_cover_everything: also when pages are short.
        - list_filters: by queue, states, task, lane and flow.
        - list_of_a_flow_examines_no_others: its jobs are on the first pages, whatever came after them.
        - list_is_newest_first: by acceptance, over all pages; no job is on two of them.
        - cursors_are_checked: what no page of this listing came with is `InvalidOption`, as it is in `flows`,
          `lanes`, `schedules` and `events`; where it could be one of its own, a page is answered.
        """
        ...

    async def flows(self, after: Cursor = FIRST_PAGE, limit: int = 100) -> UnfinishedFlows:
        """The flows that have an unfinished job, by name. A page may be short, and still have a cursor.

        - flows_are_listed_until_they_finish: every flow with a blocked, scheduled, ready or running job, and
          no other; whatever came after it, and however many flows have finished.
        - flows_tell_what_stops_them: whether a job of the flow goes on by itself, is held, is dead.
        """
        ...

    async def counts(self) -> Counts:
        """How many jobs there are by queue, task and state.

        - counts_are_exact_for_unfinished_and_dead: at every moment.
        - counts_of_done_and_cancelled_never_fall: they count transitions, whatever is kept.
        - counts_tell_the_oldest: the age of the longest-waiting ready job of each queue.
        - counts_tell_what_is_paused: the queues, in the order of their names; also those without jobs.
        """
        ...

    async def lanes(self, queue: str, after: Cursor = FIRST_PAGE, limit: int = 100) -> Lanes:
        """The lanes of a queue that have ready or running jobs, settings, or are paused, by name. A page may
        be short, and still have a cursor.

        - lanes_show_fairness_and_limits: backlog, running, lag, weight, limit, tokens, why parked.
        """
        ...

    async def sessions(self, after: SessionId = "", limit: int = 1_000) -> Sequence[SessionView]:
        """Sessions, those alive and those that ended within the last hour, by id, from behind the one given.

        - sessions_show_who_is_alive: with leases, silence, and for ended ones the cause.
        """
        ...

    async def explain(self, job: JobId) -> Explanation:
        """Why a job is not running: the first reason of `Why` that applies.

        - explain_names_the_reason: each of them; and stops counting at 1,000 ahead.
        """
        ...

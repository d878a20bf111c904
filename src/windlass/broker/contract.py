"""The contract of a broker: the adapter that keeps jobs, queues, sessions and schedules in one store.

Batched, fenced, atomic. Each verb is one atomic procedure inside the store: all of it happens, or nothing.
Each does a bounded amount of work and says when there is more. The single form of a verb is the many form
with one item.

How to read this: a method's text says what it does, and the list under it names its obligations. Each
obligation has a test of the same name in `windlass.conformance`, and every broker passes all of them. What a
store cannot do is declared in its `Capabilities` and refused with `Unsupported`; it is never silently
different.

Times and durations are integers in microseconds on the store's clock (`windlass.core.units`); the `timeout`
of `wait`, `watch` and `events` alone is in seconds and spent by the caller. Names, sizes and options were
checked at the door (client or API); text is data to a store, whatever it contains.

The clock: every verb sees `now = max(clock, mark)`. Only sweep writes the mark. A clock more than a session
TTL behind the mark is followed.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from windlass.broker.intake import Intake
from windlass.broker.management import Configure, Operate, Plan, Read
from windlass.core.event import Events
from windlass.core.job import Finished, NewJob, Receipt
from windlass.core.lease import Ask, Claimed
from windlass.core.outcome import Answer, Cause, Verdict
from windlass.core.session import SESSION_TTL, Beat, Ended, Note, Pulse, Swept
from windlass.core.settings import Retention
from windlass.core.settlement import Settlement
from windlass.core.units import SECOND, Cursor, Fence, JobId, Micros, SessionId


class Pacing(msgspec.Struct, frozen=True, kw_only=True):
    """How workers should ask a store."""

    soon: int = 250
    """Jobs under a limit to ask for beyond a worker's slots at the most (`Ask.soon`). The more of them, the
    less an exchange costs a job, and the longer others wait for it.
    """
    ahead: int = 1_000
    """The same for jobs without a limit."""
    serial: bool = False
    """The store serves one claim after the other, and is idle between them. So workers send the next claim
    before they look at the jobs of the last one.
    """


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a store can do, where stores differ."""

    store: str
    durability: str
    """What has happened to a job when `enqueue` returns, in words for a receipt and for `windlass doctor`."""
    durable: bool
    """Accepted jobs outlive the processes that use the store."""
    shared: bool
    """Several processes can use it at once."""
    transactional_enqueue: bool
    transactional_completion: bool
    pacing: Pacing = Pacing()


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a namespace is opened with; the same for every process that opens it."""

    namespace: str = "windlass"
    session_ttl: Micros = SESSION_TTL
    """How far the clock may step back before it is followed. Each session brings its own TTL."""
    resend_window: Micros = 10 * SECOND
    retention: Retention | None = None
    """None: the store's own defaults."""
    events_kept: int = 100_000
    max_size: int | None = None
    """Bytes of payloads and results; beyond it enqueue is refused while everything else works."""


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """The answers to settlements, in their order, and to the ask that came with them."""

    answers: tuple[Answer, ...]
    claimed: Claimed | None = None


class Produce(Protocol):
    """What producers call."""

    async def enqueue(self, groups: Sequence[Sequence[NewJob]]) -> Sequence[Sequence[Receipt]]:
        """Accept jobs, past the store's durability point, and answer each in its place.

        A group is at most 1,000 jobs and 8 MiB of payload; it comes into being whole or not at all. A job
        with parents is `blocked`, one that is not due `scheduled`, any other `ready`. Making a job claimable
        arms its queue's wake.

        - accepted_is_readable: a created job can be read at once, with everything that was asked for.
        - receipts_come_in_order: receipts have the shape and the order of the groups.
        - group_is_all_or_nothing: one refused job refuses its group, and nothing of the group exists.
        - groups_are_independent: a refused group does not touch the others of its call.
        - group_over_its_bound_is_refused: too many jobs or bytes refuse the group, nothing of it exists.
        - unknown_queue_is_refused: a queue is declared before its first use.
        - resend_is_a_no_op: an id that is known answers DUPLICATE of itself and changes nothing.
        - resend_window_outlasts_retention: an id is known for the resend window after it finished, whatever
          is kept.
        - resend_of_an_absorbed_call_is_a_no_op: an id that a key absorbed answers the same within the resend
          window.
        - delayed_job_waits_until_due: with `delay` or a later `run_at` it is not handed out before.
        - payload_is_opaque: any bytes come back as they were.
        - text_is_data: quotes, braces, separators and foreign scripts in lane, key, headers and tags come
          back as they were.
        - full_store_refuses_enqueue_but_drains: at `max_size` enqueue is refused; claim, settle and sweep
          work.

        Dedup: a key is unique in (queue, lane, task) and held until its job is terminal (dead counts), plus
        the window.

        - key_is_unique_in_queue_lane_and_task: the same key elsewhere is another key.
        - ignore_answers_duplicate: while the first waits, runs, or finished within its window.
        - key_is_free_after_its_window: then the next call creates.
        - key_outlives_its_job: the window holds although the job's record was pruned.
        - key_works_inside_a_group: the second job of a group under one key meets the first.
        - replace_takes_the_newest: while the first waits it keeps its id and takes the newest payload, tags,
          headers, priority, time, expiry and attempts.
        - replace_while_running_follows: while the first runs a new job is created, blocked on it.
        - replace_replaces_the_follower: later calls replace the follower, so the newest is never dropped.
        - follower_runs_after_done: the runner done, the follower is ready.
        - superseded_runner_is_cancelled: the runner ending in any other way is cancelled, `superseded`; the
          follower is ready.
        - replace_creates_after_the_end: a finished first does not absorb a replacing call.
        - throttle_is_one_per_window: the window counts from the acceptance of the first.

        Flows: `after` edges.

        - child_waits_for_its_parents: it is blocked until the last of them is done.
        - child_is_unblocked_once: whatever its parents do later.
        - finished_parent_does_not_block: an edge to a done parent is resolved at once.
        - parents_may_come_in_the_same_group: before or after the child.
        - unknown_parent_is_refused: an edge to nothing.
        - cycle_is_refused: inside a group.
        - unblocked_child_waits_for_its_own_delay: counted from acceptance.
        - dependents_of_a_dead_parent_wait: they stay blocked, reason `parent dead`.
        - replayed_parent_frees_its_dependents: once it is done.
        - cancel_edge_cancels_dependents: when the parent was cancelled, discarded, purged or pruned dead; and
          their dependents.
        - ignore_edge_runs_dependents: then, instead.
        - run_edge_does_not_wait_for_a_replay: a dead parent resolves it at once.
        - fan_out_is_bounded_per_step: one call of a verb resolves at most 100 dependents, sweep the rest
          within its limit.
        - parent_is_kept_while_a_dependent_is_unfinished: record and result, past retention and result TTL.
        """
        ...


class Consume(Protocol):
    """What workers call."""

    async def claim(self, ask: Ask) -> Claimed:
        """Hand out jobs: the session gets leases, each with a new fence, each counted as an attempt.

        First a bounded number of due jobs and parked lanes is brought back. Queues are emptied in the order
        of the ask; inside a queue the order is band, then lane, then first in first out
        (`windlass.core.order`). A job that is on its last attempt, or of a task that was never timed (no
        settlement with a runtime yet), is handed out only among the first `slots` jobs; one under a limit
        (queue or lane) only among the first `soon`, or `slots` if that is more. Where the next one in order
        may not be, the claim stops.

        - lease_carries_the_job: payload, headers, tags, attempt, parents and everything else that its run
          needs.
        - attempt_is_counted_at_claim: not when it ends.
        - fence_grows_with_every_claim: `max(last fence + 1, now)`.
        - fence_is_never_reused_after_prune: a new job under an old id starts above all the old one's fences.
        - claim_from_unknown_session_is_lost: nothing is handed out before the session was opened.
        - repeated_ask_returns_the_same_leases: the same `seq` hands out nothing new and returns what it
          returned, if still held.
        - repeated_ask_omits_what_ended: leases of that reply that were settled or taken away are not
          returned.
        - higher_seq_hands_out_new_jobs: the next one confirms the reply before it.
        - skipped_seq_is_lost: one beyond the next tells that the store has forgotten an answer (a failover
          that lost writes): LOST, and nothing is handed out. The session is alive for as long as it beats.
        - lower_seq_is_outdated: nothing is handed out.
        - ask_without_meaning_is_an_error: `ContractError`, before anything happens.
        - claim_promotes_due_jobs: without a sweep.
        - claim_empties_queues_in_order: the ask's order.
        - slots_bound_untimed_jobs: a task that was never timed is not prefetched.
        - slots_bound_last_attempts: nor a last attempt.
        - slots_bound_limited_jobs: nor a job under a limit or in sequence, unless the ask says `soon`.
        - soon_bounds_limited_jobs: what starts within a moment counts as free for them, and for them only.
        - limit_bounds_the_rest: all others are handed out up to `limit`.
        - max_bytes_bounds_a_claim: but never its first job.
        - suspects_run_alone: they are handed out one at a time, to asks with `alone`, which get nothing else.
        - suspects_are_reported: `Claimed.suspects` tells every asker of the queue.
        - next_in_tells_the_next_chance: the due time of a job or the token of a lane or queue, never later
          than it really is.
        - more_says_the_claim_was_cut_short: when a bound of the ask stopped it with jobs left.
        - deadline_lease_needs_no_session: an ask with `visibility`.
        - expired_job_is_not_handed_out: it is dead, `expired`, with or without a sweep; given that it never
          started.
        - paused_queue_hands_out_nothing: until it is resumed.

        Order.

        - first_in_first_out: by the store's sequence, whatever the ids say.
        - higher_priority_goes_first: strict bands.
        - weighted_bands_share_by_draw: in the proportion of their weights; an unlisted priority goes with the
          nearest lower one.
        - weighted_low_band_never_starves: within the bound of `order.draws`.
        - aging_lifts_old_jobs: band `due // age_step - priority`.
        - order_lane_puts_lanes_before_bands: no tenant jumps others by priority.
        - given_back_job_keeps_its_place: release, session ended, first crash.
        - retried_job_takes_a_new_place: retry and snooze; so does a job when it becomes due.
        - lanes_share_by_weight: weights 2 and 1, both backlogged: A A B A A B.
        - idle_lane_returns_without_credit: at the ring's time.
        - idle_lane_returns_with_its_debt: at its own clock, if that is later.
        - parked_lane_returns_with_its_debt: likewise.
        - turn_grows_with_what_starts_soon: a lane hands out up to four jobs in a row to an ask for many that
          start in a moment (`order.turn_of`).
        - turn_is_paid_for: each of them advances the lane's clock.
        - turn_begins_anew_with_every_ask: nothing of it is kept.
        - turn_ends_where_a_lane_may_no_more: at a limit of its lane or queue, or with its last job.
        - turn_ends_with_an_expired_job: the next in the ring goes on.
        - turn_moves_the_time_of_its_ring: with each of its jobs; lanes that come and go starve nobody.
        - turn_is_of_one_band: of all bands of its lane where lanes come first.
        - weight_can_change_under_a_backlog: it counts from the lane's next claim but one.
        - plain_queue_leaves_no_debt: what a queue handed out before it ever had a lane counts for nobody.
        - sequence_is_order_of_enqueue: in a queue with `sequence`, each lane runs one job at a time in that
          order, whatever the priority.
        - sequence_head_blocks_its_lane: while it is running, delayed, retrying, held or suspect.
        - sequence_skips_finished_heads: a dead or cancelled one does not block.

        Limits.

        - queue_concurrency_holds: live leases of a queue never exceed it.
        - lane_concurrency_holds: nor those of a lane; its own limit wins over the queue's for lanes.
        - slot_is_freed_once: by whichever ends the lease: settlement, session end, deadline; and by no later
          word.
        - queue_rate_holds: in any window w at most `rate * w + burst` claims.
        - lane_rate_holds: likewise.
        - given_back_work_returns_its_token: release and hold without runtime, and unstarted jobs of an ended
          session; less what the bucket has gained since the claim, so that windows hold for what started.
        - parked_lane_does_not_block_others: blocked work never stands in front of runnable work.
        - changed_limit_takes_effect: at the next claim.
        - paused_lane_is_parked: and comes back when resumed.
        """
        ...

    async def settle(self, items: Sequence[Settlement], ask: Ask | None = None) -> Settled:
        """End leases, then answer the ask, all in one step. At most 1,000 items, each judged by itself.

        A settlement counts only if `(job, fence)` is the live lease. What it leads to is in
        `windlass.core.settlement`. A hold key goes with the outcome hold and no other, else `ContractError`.

        - settle_is_fenced: a lease that was taken away, given out again or never given is STALE and changes
          nothing.
        - settle_again_answers_already: the same fence once more names the outcome that stands, also after
          later runs (the last ten).
        - settle_after_prune_answers_already: within the resend window, whatever the retention.
        - settle_of_an_unknown_job_is_gone: and changes nothing.
        - settlements_are_independent: a stale one does not touch its neighbours.
        - too_many_settlements_are_an_error: `ContractError`, before anything happens.
        - done_keeps_its_result: readable until the result TTL, and by dependents.
        - retry_waits_for_its_delay: scheduled, the attempt spent.
        - retry_of_the_last_attempt_is_dead: `attempts exhausted`.
        - snooze_spends_no_attempt: scheduled.
        - release_spends_no_attempt: ready, in its old place.
        - hold_backs_off: scheduled, no attempt spent, from 1 s doubling to 5 min.
        - hold_ends_after_seven_days: dead, `held too long`, counted from its first hold; a run that was not a
          hold starts the count anew.
        - dead_is_kept_whole: payload, error and history, for replay.
        - history_is_kept: each end of a lease, newest last, the last ten.
        - children_exist_exactly_when_applied: `spawn` creates them with `parent` set; stale and repeated
          settlements create none.
        - refused_child_changes_nothing: REFUSED, the lease is still live.
        - children_come_only_with_done: anything else is a `ContractError`; so are more than 1,000 children a
          call.
        - fused_ask_sees_freed_leases: a settle frees a lease under a limit, and its own ask takes it.
        - repeated_fused_call_answers_the_same: ALREADY, and the same leases.
        - done_stands_over_cancel: with the cancel flag set.
        - cancelled_run_ends_cancelled: with the flag set any end but done, a crash included, is `cancelled`.
        """
        ...

    async def beat(self, beats: Sequence[Beat]) -> Sequence[Pulse]:
        """Take signs of life, of many sessions at once. Cost per session, not per lease.

        - only_open_creates_a_session: a plain beat of an unknown session answers lost.
        - open_is_repeatable: a second open of a live session changes nothing.
        - ended_session_never_returns: neither by a beat nor by an open, be it stopped, crashed or reaped.
        - beat_counts_from_now: it stamps its session with the liveness clock as a pass would move it now.
        - pulse_names_what_to_cancel: the session's leases whose cancel flag is set.
        - pulse_tells_the_settings_version: it grows with every change of settings.
        """
        ...

    async def end_session(
        self, session: SessionId, cause: Cause, started: Collection[tuple[JobId, Fence]] = ()
    ) -> Ended:
        """End a session: its leases go back, at once, charged by what is known of them.

        - crash_charges_what_had_started: and gives the others back uncharged, in their old place.
        - stop_charges_nobody: whatever had started.
        - lost_charges_everybody: nobody can tell.
        - first_crash_reruns_at_once: later ones wait min(60 s, 2^(n-2) s).
        - crash_of_the_last_attempt_is_dead: with the cause in its history.
        - second_crash_makes_a_suspect: a crash or a lost session, counted per job until replay.
        - ending_an_unknown_session_is_a_no_op: and so is ending it again.
        - end_session_is_bounded: at most 1,000 leases a call; `more` until none is left, and sweep does the
          rest.
        """
        ...

    async def annotate(self, notes: Sequence[Note]) -> Sequence[Verdict]:
        """Keep what running jobs say of themselves: more time, progress, log lines, step memos.

        - annotate_is_fenced: verdicts as in settle; only the live lease changes anything.
        - extend_moves_the_deadline: of a deadline lease, counted from now; a session lease has none.
        - progress_and_logs_are_readable: the last 100 lines, each cut at 2,000 characters.
        - memos_reach_the_next_run: by name, the last value; until the job is terminal.
        - too_many_memos_are_refused: beyond 100 names or 1 MiB a job; nothing of that note is kept.
        """
        ...

    async def sweep(self, *, limit: int, every: Micros = 0, keep_dead: bool = False) -> Swept:
        """Do what only time brings about, at most `limit` items. A pass within `every` of the last one does
        nothing, unless that left work: it is `early`, and neither waits for others nor lets them wait.

        Moves the liveness clock by the time since the last pass, or by 1 s if that is longer than a fifth of
        the TTL (`windlass.core.session.liveness_move`); reaps sessions that have been
        silent for longer than their TTL on that clock (as `lost`); ends deadline leases that ran out;
        promotes due jobs; unparks lanes; expires; resolves what is left of fan-outs; prunes jobs, results,
        keys, ids and ended sessions.

        - silent_session_is_reaped: and all its leases charged; a beating one is not.
        - liveness_stands_still_without_sweeps: an outage of any length reaps nobody.
        - stuttering_sweeper_still_reaps: passes up to a fifth of the TTL apart move the clock by the time
          between them, and those further apart by 1 s each.
        - sweep_promotes_due_jobs: ready, in order of their due times, ties in the order in which they were
          scheduled.
        - sweep_ends_deadline_leases: charged, not a crash; dead at the last attempt.
        - sweep_expires_waiting_jobs: dead, `expired`; blocked and scheduled ones too; only before their first
          start.
        - sweep_prunes_by_retention: done and cancelled by `retention` and `retention_count`, dead by
          `dead_retention`.
        - sweep_leaves_dead_letters_to_their_archive: with `keep_dead` none is pruned; `overdue` names those
          whose time is over, the oldest first, 100 of a queue at the most.
        - sweep_drops_results_by_ttl: the job stays.
        - nothing_kept_means_nothing_left: with retention 0 and no result a finished job is gone at once, and
          its id after the resend window.
        - prune_keeps_what_is_needed: never an unfinished job, nor a done or cancelled parent of one; a dead
          parent goes, and the edges of those who wait for it act. One that was gone when it was named is not
          needed, nor is another job that comes under its id; a replayed job needs those that are there.
        - empty_ring_is_forgotten: a resend window after its last lane left; so idle lanes leave nothing
          behind.
        - sweep_is_bounded: by `limit`, with `more`.
        - sweep_paces_the_fleet: by `every`; `since` says how long ago the last pass was.
        - clock_does_not_go_back: a step back within a TTL is not seen.
        - long_step_back_is_followed: beyond a TTL it is, and `stepped_back` says so; what is
          forgotten stays so.
        """
        ...

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        """Return when a job may have become claimable, or after `timeout` seconds. A hint: correctness never
        rests on it.

        - enqueue_wakes_a_waiter: of that queue; without one waiting, the next wait returns at once.
        - wait_times_out: when nothing happens.
        - claim_that_leaves_work_wakes_another: one wake chains to the next worker.
        - settlement_wakes_a_waiter: when it makes a job claimable.
        """
        ...

    async def watch(self, jobs: Sequence[JobId], timeout: float) -> Sequence[Finished]:
        """Return those of the jobs that are finished as soon as there is one, or none after `timeout`
        seconds. At most 1,000 ids.

        - watch_returns_what_finished: with state, result and error.
        - watch_is_pushed: it returns when the job ends, not at the timeout.
        - watch_times_out_empty: unknown jobs never finish.
        - watch_sees_what_was_not_kept: a job finished within the resend window, whatever the retention.
        """
        ...

    async def events(self, after: Cursor, limit: int, timeout: float) -> Events:
        """Read the event log after a cursor; waits up to `timeout` seconds for the first event.

        A transition is written in the step that makes it, as far as the queue's `emit` asks for it.

        - events_are_off_by_default: and then cost nothing.
        - final_emits_every_end: of a lease, and every terminal state.
        - all_emits_every_transition: those of a job in the order in which they happened.
        - events_page_by_cursor: nothing is skipped or repeated; FROM_NOW starts after the newest.
        - dropped_events_are_a_gap: the log is capped; a reader that fell behind is told and goes on at the
          oldest.
        """
        ...


class BlockingProduce(Protocol):
    """The part of a broker that blocking code calls in its own thread, without a hop to an event loop."""

    def enqueue(self, groups: Sequence[Sequence[NewJob]]) -> Sequence[Sequence[Receipt]]:
        """As `Produce.enqueue`, with the same obligations."""
        ...


class Transact(Protocol):
    """Enqueue and completion in a transaction of the caller's own, where the capabilities say so.

    Rolled back means that it never happened; before the commit nobody sees it.
    """

    async def enqueue_on(
        self, connection: Any, groups: Sequence[Sequence[NewJob]]
    ) -> Sequence[Sequence[Receipt]]:
        """As `Produce.enqueue`, in the transaction that is open on the caller's connection.

        The receipts count ids and keys of earlier calls in the same transaction, and of all that has been
        committed, whether the store has taken it in or not. They cannot count what others have yet to
        commit: of two open transactions that use one key, both may be answered CREATED. Then one job comes
        into being, and the other id is known as its duplicate.
        """
        ...

    def enqueue_on_blocking(
        self, connection: Any, groups: Sequence[Sequence[NewJob]]
    ) -> Sequence[Sequence[Receipt]]:
        """The same on a connection that blocks, in the caller's thread."""
        ...

    def transaction(self, ttl: Micros) -> AbstractAsyncContextManager[Any]:
        """A connection with an open transaction, for the writes of a job and its settlement. It is rolled
        back when it stands idle for longer than a session lives.
        """
        ...

    async def settle_on(self, connection: Any, settlement: Settlement) -> Answer:
        """End a lease as done, fenced, in the transaction that is open on a connection of `transaction`; last
        before its commit. Unless it is APPLIED, roll back. Afterwards an ordinary settle answers ALREADY, and
        does what the end of the lease brings about.
        """
        ...


class Broker(Produce, Consume, Intake, Plan, Operate, Configure, Read, Protocol):
    """Everything a store does. Each part of the program asks for the part it needs."""

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do.

        - capabilities_are_declared: and the durability point is said in words.
        """
        ...

    @property
    def blocking(self) -> BlockingProduce | None:
        """The same store for blocking code; None where the store's client cannot block.

        - blocking_enqueue_is_the_same: what it accepts, the verbs see at once; from any thread.
        """
        ...

    @property
    def transact(self) -> Transact | None:
        """Transactions of the caller's own; None where the store has none."""
        ...

    async def warnings(self) -> Sequence[str]:
        """What an operator should know of the store itself, each with what to do; empty if all is well.

        - warnings_are_for_people: a line each, or none.
        """
        ...

    async def close(self) -> None:
        """Let go of connections; waiting calls return."""
        ...


def obligations() -> Mapping[str, str]:
    """Every named obligation of the contract, with the verb that it stands under."""
    found: dict[str, str] = {}
    for part in (Produce, Consume, Intake, Plan, Operate, Configure, Read, Broker):
        for verb, member in vars(part).items():
            for line in (getattr(member, "__doc__", None) or "").splitlines():
                name, colon, _ = line.strip().removeprefix("- ").partition(":")
                if line.strip().startswith("- ") and colon and name.isidentifier():
                    if name in found:
                        raise ValueError(f"the contract names the obligation {name} twice")
                    found[name] = verb
    return found

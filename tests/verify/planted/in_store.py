"""Planted bugs of the store: fences, leases, attempts, sessions, the liveness clock."""

from collections.abc import Callable, Generator
from typing import Any

import msgspec
from tests.verify.planted.bugs import bug, swapped

from windlass.broker.memory import broker, claim, enqueue, filing, lifecycle, sessions, settle, sweep
from windlass.broker.memory.namespace import Namespace
from windlass.core.job import Receipt, Status
from windlass.core.outcome import Answer, Outcome, Verdict
from windlass.core.session import OUTAGE_STEP, SessionState
from windlass.core.state import Move, State
from windlass.verify.simulator.nemesis import Nemesis

Planted = Generator[None]


# --- fences -------------------------------------------------------------------------------------------------


@bug(
    "settle and annotate look at the job alone: the fence check is dropped",
    by=("stale_fences_change_nothing",),
    seed=18,
)
def drop_the_fence_check() -> Planted:
    def is_live(self: Namespace, job: Any, fence: int) -> bool:
        return job.state is State.RUNNING

    with swapped(Namespace, "is_live", is_live):
        yield


@bug("progress and logs of a stale run are taken", by=("stale_fences_change_nothing",), seed=18)
def drop_the_fence_check_of_notes() -> Planted:
    def annotate_one(ns: Namespace, note: Any) -> Verdict:
        return Verdict.APPLIED if note.job in ns.jobs else Verdict.GONE

    with swapped(settle, "_annotate_one", annotate_one):
        yield


def _starting(fence_of: Callable[[Namespace, Any], int], *, attempt: int = 1) -> Callable[..., Any]:
    def start(ns: Namespace, job: Any, ask: Any, turns: Any) -> Any:
        now = ns.now()
        filing.occupy(ns, job, turns)
        job.fence = fence_of(ns, job)
        job.attempt += attempt
        job.claimed_at = now
        job.session = ask.session
        ns.sessions[ask.session].leases[job.id] = job.fence
        lifecycle.transition(ns, job, Move.CLAIM, State.RUNNING)
        return claim._lease(ns, job)

    return start


@bug(
    "fences count from one for each job, so an id that is used again has the old ones",
    by=("fences_grow",),
    seed=1,
)
def reuse_a_fence_after_prune() -> Planted:
    with swapped(claim, "_start", _starting(lambda _ns, job: job.fence + 1)):
        yield


@bug("fences come from a counter of the store, which a failover sets back", by=("fences_grow",), seed=1)
def reuse_a_fence_after_failover() -> Planted:
    def next_fence(ns: Any, _job: Any) -> int:
        ns.fences = getattr(ns, "fences", 0) + 1
        return ns.fences

    with swapped(claim, "_start", _starting(next_fence)):
        yield


@bug("a late settlement is told that it was applied", by=("stale_fences_change_nothing",), seed=6)
def say_applied_to_the_stale() -> Planted:
    def late(ns: Namespace, job: str, fence: int) -> Answer:
        return Answer(Verdict.APPLIED, Outcome.DONE, State.DONE)

    with swapped(settle, "_late", late):
        yield


@bug("a late result replaces the one that counts", by=("done_has_run",), seed=18)
def keep_the_result_of_the_stale() -> Planted:
    with swapped(settle, "_settle_one", None) as real:

        def settle_one(ns: Namespace, item: Any) -> Answer:
            job = ns.jobs.get(item.job)
            if job is not None and not ns.is_live(job, item.fence) and item.result is not None:
                job.result = item.result
            return real(ns, item)

        settle._settle_one = settle_one
        yield


@bug("children of a stale run come into being", by=("runs_were_enqueued",), seed=18)
def create_children_of_the_stale() -> Planted:
    with swapped(settle, "_settle_one", None) as real:

        def settle_one(ns: Namespace, item: Any) -> Answer:
            answer = real(ns, item)
            if answer.verdict is Verdict.STALE:
                enqueue.accept(ns, item.spawn, parent=item.job)
            return answer

        settle._settle_one = settle_one
        yield


# --- accepting ----------------------------------------------------------------------------------------------


@bug(
    "enqueue answers before it has written; what a crash of the store finds unwritten is gone",
    by=("accepted_is_kept",),
    seed=1,
)
def acknowledge_before_commit() -> Planted:
    pending: list[Any] = []

    with (
        swapped(broker.MemoryBroker, "_enqueue", None) as real_enqueue,
        swapped(broker.MemoryBroker, "sweep", None) as real_sweep,
        swapped(Nemesis, "_act", None) as real_act,
    ):

        def enqueue_later(self: Any, groups: Any) -> Any:
            if any(job.key or job.after for group in groups for job in group):
                return real_enqueue(self, groups)
            pending.append(groups)
            return [[Receipt(Status.CREATED, job.id) for job in group] for group in groups]

        async def sweep_first(self: Any, **more: Any) -> Any:
            while pending:
                real_enqueue(self, pending.pop(0))
            return await real_sweep(self, **more)

        def crash(self: Any, fault: Any) -> Any:
            if fault.kind in ("store down", "store hangs"):
                pending.clear()
            return real_act(self, fault)

        broker.MemoryBroker._enqueue = enqueue_later
        broker.MemoryBroker.sweep = sweep_first
        Nemesis._act = crash
        yield
    pending.clear()


@bug("an id that is sent again makes its job anew", by=("one_terminal_state",), seed=15)
def forget_ids_that_were_sent() -> Planted:
    with swapped(enqueue, "_known", lambda _ns, _job: None):
        yield


@bug("children do not wait for their parents", by=("nothing_starts_before_it_is_due",), seed=1)
def run_children_before_their_parents() -> Planted:
    with swapped(broker.MemoryBroker, "_enqueue", None) as real:

        def without_edges(self: Any, groups: Any) -> Any:
            return real(self, [[msgspec.structs.replace(job, after=()) for job in group] for group in groups])

        broker.MemoryBroker._enqueue = without_edges
        yield


# --- handing out --------------------------------------------------------------------------------------------


@bug(
    "a repeated ask gets nothing: what the lost reply handed out is held by nobody",
    by=("leases_have_holders",),
    seed=5,
)
def forget_the_lost_claim_reply() -> Planted:
    with swapped(claim, "_again", lambda _ns, _session: []):
        yield


@bug(
    "an ask that skips a number is answered like any other, so what a failover lost goes unnoticed",
    by=("leases_have_holders",),
    seed=54,
)
def overlook_a_skipped_seq() -> Planted:
    with swapped(claim, "claim", None) as real, swapped(settle, "claim", None):

        def overlook(ns: Namespace, ask: Any) -> Any:
            session = ns.sessions.get(ask.session)
            if session is not None and session.state is SessionState.ALIVE:
                session.seq = max(session.seq, ask.seq - 1)
            return real(ns, ask)

        claim.claim = settle.claim = overlook
        yield


@bug("due jobs are promoted a second early", by=("nothing_starts_before_it_is_due",), seed=2)
def promote_early() -> Planted:
    with swapped(lifecycle, "promote_due", None) as real:

        def promote_due(ns: Namespace, limit: int, queues: Any = None) -> int:
            soon = [
                job
                for job in ns.jobs.values()
                if job.state is State.SCHEDULED and 0 < job.due_at - ns.now() < 1_000_000
            ]
            for job in soon:
                job.due_at = ns.now()
            return real(ns, limit, queues)

        lifecycle.promote_due = promote_due
        yield


@bug(
    "a job that is given back keeps its state and loses its place in the queue",
    by=("redelivery_is_bounded",),
    seed=1,
)
def lose_what_is_given_back() -> Planted:
    with swapped(filing, "file", None) as real:

        def file(ns: Namespace, job: Any, *, keeps_place: bool = False) -> None:
            if not keeps_place:
                real(ns, job)

        filing.file = file
        yield


# --- attempts -----------------------------------------------------------------------------------------------


@bug(
    "attempts are counted when a run fails, not when a job is handed out",
    by=("attempts_add_up", "dead_letters_are_explained"),
    seed=1,
)
def count_attempts_on_failure_only() -> Planted:
    with (
        swapped(claim, "_start", _starting(lambda ns, job: max(job.fence + 1, ns.now()), attempt=0)),
        swapped(lifecycle, "end_lease", None) as real,
    ):

        def end_lease(ns: Namespace, job: Any, ruling: Any, **more: Any) -> None:
            job.attempt += more.get("error") is not None or not ruling.charged
            real(ns, job, ruling, **more)

        lifecycle.end_lease = end_lease
        yield


@bug("a crash is charged to every lease of its session, started or not", by=("attempts_add_up",), seed=60)
def charge_bystanders_of_a_crash() -> Planted:
    with swapped(sessions, "rule_session_end", None) as real:
        sessions.rule_session_end = lambda facts, cause, *, started: real(facts, cause, started=True)
        yield


@bug("a crash is charged to nobody", by=("attempts_add_up",), seed=1)
def charge_nobody_for_a_crash() -> Planted:
    with swapped(sessions, "rule_session_end", None) as real:
        sessions.rule_session_end = lambda facts, cause, *, started: real(facts, cause, started=False)
        yield


@bug("a crash of the last attempt is followed by another", by=("attempts_add_up",), seed=1)
def never_die_of_crashes() -> Planted:
    with swapped(sessions, "rule_session_end", None) as real:

        def rule(facts: Any, cause: Any, *, started: bool) -> Any:
            return real(msgspec.structs.replace(facts, max_attempts=99), cause, started=started)

        sessions.rule_session_end = rule
        yield


def _ruling(change: Callable[[Any, Any], Any]) -> Generator[None]:
    with swapped(settle, "rule_settlement", None) as real:
        settle.rule_settlement = lambda facts, item: change(item, real(facts, item))
        yield


@bug("a snooze spends an attempt", by=("attempts_add_up",), seed=2)
def charge_a_snooze() -> Planted:
    def change(item: Any, ruling: Any) -> Any:
        snoozed = item.outcome is Outcome.SNOOZE
        return msgspec.structs.replace(ruling, charged=True) if snoozed else ruling

    yield from _ruling(change)


@bug("a retry does not wait for its delay", by=("nothing_starts_before_it_is_due",), seed=2)
def retry_at_once() -> Planted:
    def change(item: Any, ruling: Any) -> Any:
        if item.outcome is Outcome.RETRY and ruling.state is State.SCHEDULED:
            return msgspec.structs.replace(ruling, state=State.READY, delay=0)
        return ruling

    yield from _ruling(change)


@bug("the last attempt that fails is given another", by=("attempts_add_up",), seed=1)
def exceed_the_attempts() -> Planted:
    def change(item: Any, ruling: Any) -> Any:
        if item.outcome is Outcome.RETRY and ruling.state is State.DEAD:
            return msgspec.structs.replace(
                ruling, state=State.SCHEDULED, outcome=Outcome.RETRY, reason=None, delay=item.delay + 1
            )
        return ruling

    yield from _ruling(change)


@bug("dead letters are dropped instead of kept", by=("accepted_is_kept",), seed=1)
def drop_dead_letters() -> Planted:
    with swapped(lifecycle, "finish", None) as real:

        def finish(ns: Namespace, job: Any, move: Any, state: Any, reason: Any, **more: Any) -> None:
            real(ns, job, move, state, reason, **more)
            if state is State.DEAD:
                ns.jobs.pop(job.id, None)

        lifecycle.finish = finish
        yield


# --- sessions and the liveness clock ------------------------------------------------------------------------


def _clock(moved: Callable[[int], int]) -> Callable[[Namespace], int]:
    def move_clocks(ns: Namespace) -> int:
        now = ns.now()
        ns.live += moved(0 if ns.swept_at is None else now - ns.swept_at)
        ns.mark = ns.swept_at = now
        return 0

    return move_clocks


@bug(
    "the liveness clock follows the wall clock, so an outage of the store reaps the fleet",
    by=("the_living_are_not_reaped",),
    seed=1,
)
def reap_after_an_outage() -> Planted:
    with swapped(sweep, "_move_clocks", _clock(lambda elapsed: elapsed)):
        yield


@bug(
    "passes that come late do not move the liveness clock, so a stuttering sweeper reaps nobody",
    by=("leases_have_holders",),
    seed=148,
)
def stutter_and_reap_nobody() -> Planted:
    with swapped(sweep, "_move_clocks", _clock(lambda elapsed: elapsed * (elapsed <= OUTAGE_STEP))):
        yield


@bug(
    "a beat does not stamp its session, so the living are given up",
    by=("the_living_are_not_reaped", "a_healthy_run_has_no_duplicates"),
    seed=16,
)
def forget_beats() -> Planted:
    with swapped(sessions, "_beat_one", None) as real:

        def beat_one(ns: Namespace, one: Any) -> Any:
            before = ns.sessions.get(one.session)
            seen = None if before is None else before.seen
            pulse = real(ns, one)
            if before is not None and seen is not None:
                before.seen = seen
            return pulse

        sessions._beat_one = beat_one
        yield


@bug("a beat brings an ended session back", by=("stale_fences_change_nothing",), seed=25)
def revive_ended_sessions() -> Planted:
    with swapped(sessions, "_beat_one", None) as real:

        def beat_one(ns: Namespace, one: Any) -> Any:
            session = ns.sessions.get(one.session)
            if session is not None:
                session.state = SessionState.ALIVE
            return real(ns, one)

        sessions._beat_one = beat_one
        yield


@bug("the leases of a session that was given up are not returned", by=("leases_have_holders",), seed=5)
def keep_the_leases_of_the_lost() -> Planted:
    with swapped(sweep, "return_leases", lambda _ns, _session, _limit: 0):
        yield

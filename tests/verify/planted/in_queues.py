"""Planted bugs of queues: limits, lanes, schedules, operators."""

from collections.abc import Generator
from typing import Any

import msgspec
from tests.verify.planted.bugs import bug, swapped

from windlass.broker.memory import filing, lifecycle, operate, schedules
from windlass.broker.memory.namespace import Namespace
from windlass.core.job import Status
from windlass.core.operate import Effect, Operated
from windlass.core.order import LaneClock, Ring, stride
from windlass.core.state import State
from windlass.core.timetable import Fire, Fired, FireRecord, FireStatus
from windlass.core.units import SECOND
from windlass.worker import parents

Planted = Generator[None]


@bug("a lane that comes back does so at the ring's time, without its debt", by=("lanes_share",), seed=7)
def let_a_lane_reenter_without_its_debt() -> Planted:
    def enter(self: Any, lane: str, weight: int) -> None:
        place = self._places.setdefault(lane, LaneClock(self.time))
        place.clock = self.time
        place.due = place.clock + stride(weight)

    with swapped(Ring, "enter", enter):
        yield


@bug("weights of lanes are ignored", by=("lanes_share",), seed=3)
def ignore_weights() -> Planted:
    with swapped(Ring, "take", None) as real_take, swapped(Ring, "enter", None) as real_enter:
        Ring.take = lambda self, lane, weight: real_take(self, lane, 1)
        Ring.enter = lambda self, lane, weight: real_enter(self, lane, 1)
        yield


@bug("limits of concurrency are not looked at", by=("limits_hold",), seed=1)
def ignore_concurrency() -> Planted:
    with swapped(filing, "has_slot", lambda _running, _limit: True):
        yield


@bug("limits of lanes are not looked at", by=("limits_hold",), seed=1)
def ignore_lane_concurrency() -> Planted:
    with swapped(filing, "parked", lambda _lane, _now: None):
        yield


@bug("an end frees its slot twice", by=("limits_hold",), seed=4)
def free_a_slot_twice() -> Planted:
    with swapped(filing, "vacate", None) as real:

        def vacate(ns: Namespace, job: Any, *, unstarted: bool) -> None:
            queue = ns.queues[job.asked.queue]
            for place in (queue, queue.lanes[job.asked.lane]):
                place.running -= place.running > 1
            real(ns, job, unstarted=unstarted)

        filing.vacate = vacate
        yield


@bug("a lease that the store ends does not free its slot", by=("redelivery_is_bounded",), seed=1)
def leak_the_slots_of_the_lost() -> Planted:
    with swapped(lifecycle, "end_lease", None) as real:

        def end_lease(ns: Namespace, job: Any, ruling: Any, **more: Any) -> None:
            if more.get("cause") is not None:
                queue = ns.queues[job.asked.queue]
                for place in (queue, queue.lanes[job.asked.lane]):
                    place.running += 1
            real(ns, job, ruling, **more)

        lifecycle.end_lease = end_lease
        yield


@bug("limits of rate are not looked at", by=("limits_hold",), seed=2)
def ignore_rates() -> Planted:
    with swapped(filing, "token_in", lambda _bucket, _rate, _now: 0):
        yield


@bug("a schedule fires without comparing its tick", by=("ticks_fire_once",), seed=867)
def fire_a_tick_twice() -> Planted:
    def fire(ns: Namespace, wish: Fire) -> Fired:
        schedule = ns.schedules[wish.name]
        receipts = schedules.enqueue_group(ns, wish.jobs)
        if any(receipt.status is Status.REFUSED for receipt in receipts):
            return Fired(FireStatus.REFUSED, receipts)
        schedule.next_at = wish.then
        record = FireRecord(wish.expect, ns.now(), tuple(receipt.job for receipt in receipts))
        schedule.fires = [*schedule.fires, record][-20:]
        return Fired(FireStatus.FIRED, receipts)

    with swapped(schedules, "fire", fire):
        yield


@bug("a fire takes a tick more than it has made jobs for", by=("ticks_are_not_missed",), seed=7)
def skip_a_tick() -> Planted:
    with swapped(schedules, "fire", None) as real:

        def fire(ns: Namespace, wish: Fire) -> Fired:
            fired = real(ns, wish)
            schedule = ns.schedules[wish.name]
            if fired.status is FireStatus.FIRED and schedule.next_at is not None:
                schedule.next_at += 2 * SECOND
            return fired

        schedules.fire = fire
        yield


@bug("a join is told the results of its parents in another order", by=("joins_read_their_parents",), seed=3)
def mix_up_the_results() -> Planted:
    with swapped(parents, "_read", None) as real:

        async def read(program: Any, jobs: Any) -> list[Any]:
            found = await real(program, jobs)
            results = [each.result for each in found]
            return [
                msgspec.structs.replace(each, result=result)
                for each, result in zip(found, results[1:] + results[:1], strict=True)
            ]

        parents._read = read
        yield


@bug("a join reads nothing of what its parents returned", by=("joins_read_their_parents",), seed=3)
def drop_results_early() -> Planted:
    with swapped(parents, "_parent", None) as real:

        def parent(program: Any, job: Any) -> Any:
            return real(program, msgspec.structs.replace(job, result=None))

        parents._parent = parent
        yield


@bug("a cancel that comes after the end changes it", by=("one_terminal_state",), seed=11)
def cancel_what_is_done() -> Planted:
    with swapped(operate, "_cancel", None) as real:

        def cancel(ns: Namespace, job: Any, target: Any) -> Operated:
            if job.state is State.DONE:
                job.state = State.CANCELLED
                return Operated(job.id, Effect.APPLIED, job.state)
            return real(ns, job, target)

        operate._cancel = cancel
        yield


@bug("a replay takes jobs that are done, too", by=("one_terminal_state", "duplicates_are_explained"), seed=4)
def replay_what_is_done() -> Planted:
    with swapped(operate, "_replay", None) as real:

        def replay(ns: Namespace, job: Any, target: Any) -> Operated:
            if job.state is State.DONE:
                job.state = State.DEAD
            return real(ns, job, target)

        operate._replay = replay
        yield

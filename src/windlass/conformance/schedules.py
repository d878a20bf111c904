"""Schedules: documents in two layers with a next time, fired by compare-and-set."""

import asyncio
import random
from typing import Any

import pytest

from windlass.conformance.harness import Harness
from windlass.core.job import NewJob, Refusal, Status
from windlass.core.query import FIRST_PAGE
from windlass.core.settings import Change, Changed
from windlass.core.state import State
from windlass.core.timetable import Fire, Fired, FireRecord, FireStatus, NewSchedule, ScheduleView
from windlass.core.units import HOUR, MINUTE, SECOND, Micros


async def _declare(
    store: Harness,
    spec: bytes = b"hourly",
    next_at: Micros | None = None,
    *,
    name: str = "s",
    app: str = "app",
    revision: int = 1,
) -> Changed:
    """Declare a schedule, by default due now."""
    next_at = store.clock.now() if next_at is None else next_at
    return await store.broker.declare_schedule(
        NewSchedule(name=name, spec=spec, next_at=next_at, app=app, revision=revision)
    )


async def _listed(store: Harness) -> dict[str, ScheduleView]:
    return {view.name: view for view in (await store.broker.schedules()).schedules}


async def _view(store: Harness, name: str = "s") -> ScheduleView:
    return (await _listed(store))[name]


async def _fire(
    store: Harness, *jobs: NewJob, then: Micros | None = None, name: str = "s", **more: Any
) -> Fired:
    """Fire the next tick, as a worker does that has just read the schedule; by default its last."""
    view = await _view(store, name)
    assert view.next_at is not None
    return await store.broker.fire(
        Fire(name=name, version=view.version, expect=view.next_at, then=then, jobs=jobs, **more)
    )


async def test_redeclared_schedule_keeps_its_tick(store: Harness) -> None:
    due = store.clock.now() + MINUTE
    first = await _declare(store, next_at=due)
    assert first.change is Change.APPLIED
    assert first.version > 0
    declared = await _view(store)
    assert declared == ScheduleView(
        name="s",
        declared=b"hourly",
        override=None,
        version=first.version,
        next_at=due,
        paused=False,
        app="app",
        revision=1,
    )
    assert await _declare(store, next_at=due + HOUR) == Changed(Change.UNCHANGED, first.version)
    assert await _view(store) == declared


async def test_redeclared_schedule_keeps_its_tick__once_it_has_fired(store: Harness) -> None:
    """A worker that restarts does not fire again what was fired."""
    due = store.clock.now()
    first = await _declare(store, next_at=due)
    await _fire(store, store.job(), then=due + HOUR)
    fired = await _view(store)
    assert await _declare(store, next_at=due) == Changed(Change.UNCHANGED, first.version)
    assert await _view(store) == fired
    assert fired.next_at == due + HOUR


async def test_redeclared_schedule_keeps_its_tick__by_a_newer_revision(store: Harness) -> None:
    """Which owns it from then on."""
    due = store.clock.now()
    first = await _declare(store, next_at=due, revision=1)
    again = await _declare(store, next_at=due + HOUR, revision=2)
    assert again == Changed(Change.UNCHANGED, first.version)
    assert (await _view(store)).next_at == due
    assert (await _declare(store, b"daily", revision=1)).change is Change.NEWER_REVISION
    assert (await _view(store)).spec == b"hourly"


async def test_changed_schedule_takes_the_new_tick(store: Harness) -> None:
    due = store.clock.now()
    first = await _declare(store, b"hourly", due)
    job = store.job()
    await _fire(store, job, then=due + HOUR)
    await store.broker.pause_schedule("s", paused=True)
    changed = await _declare(store, b"daily", due + MINUTE, revision=2)
    assert changed.change is Change.APPLIED
    assert changed.version > first.version
    view = await _view(store)
    assert (view.declared, view.spec, view.next_at, view.revision) == (b"daily", b"daily", due + MINUTE, 2)
    assert view.version == changed.version
    assert (view.paused, view.fires) == (True, (FireRecord(due, due, (job.id,)),))


async def test_changed_schedule_takes_the_new_tick__or_none(store: Harness) -> None:
    await _declare(store, b"hourly")
    await store.broker.declare_schedule(
        NewSchedule(name="s", spec=b"never", next_at=None, app="app", revision=1)
    )
    assert (await _view(store)).next_at is None
    assert not (await store.sweep())[-1].schedules_due


async def test_changed_schedule_takes_the_new_tick__unless_an_override_is_in_force(store: Harness) -> None:
    due = store.clock.now()
    declared = await _declare(store, b"hourly", due)
    await store.broker.override_schedule("s", b"minutely", due + MINUTE, declared.version)
    overridden = await _view(store)
    changed = await _declare(store, b"daily", due + HOUR, revision=2)
    assert changed.change is Change.APPLIED
    view = await _view(store)
    assert (view.declared, view.override, view.spec) == (b"daily", b"minutely", b"minutely")
    assert view.next_at == due + MINUTE
    store.advance(MINUTE)
    wish = Fire(name="s", version=overridden.version, expect=due + MINUTE, then=due + 2 * MINUTE)
    assert (await store.broker.fire(wish)).status is FireStatus.FIRED, (
        "the specification in force is the same"
    )


async def test_schedule_belongs_to_its_app(store: Harness) -> None:
    first = await _declare(store, b"hourly", app="shop", revision=7)
    before = await _view(store)
    for spec in (b"hourly", b"daily"):
        for revision in (1, 7, 9):
            changed = await _declare(store, spec, app="blog", revision=revision)
            assert changed == Changed(Change.OTHER_APP, first.version)
    for spec in (b"hourly", b"daily"):
        older = await _declare(store, spec, app="shop", revision=6)
        assert older == Changed(Change.NEWER_REVISION, first.version)
    assert await _view(store) == before
    assert (await _declare(store, b"daily", app="shop", revision=7)).change is Change.APPLIED
    assert (await _declare(store, b"weekly", app="shop", revision=8)).change is Change.APPLIED


async def test_schedule_override_wins_until_reset(store: Harness) -> None:
    due = store.clock.now()
    first = await _declare(store, b"hourly", due)
    overridden = await store.broker.override_schedule("s", b"daily", due + HOUR, first.version)
    assert overridden.change is Change.APPLIED
    assert overridden.version > first.version
    view = await _view(store)
    assert (view.declared, view.override, view.spec) == (b"hourly", b"daily", b"daily")
    assert (view.next_at, view.version) == (due + HOUR, overridden.version)
    await _declare(store, b"hourly", due)
    again = await store.broker.override_schedule("s", b"daily", due, overridden.version)
    assert again == Changed(Change.UNCHANGED, overridden.version)
    assert await _view(store) == view

    reset = await store.broker.override_schedule("s", None, due + MINUTE, overridden.version)
    assert reset.change is Change.APPLIED
    assert reset.version > overridden.version
    view = await _view(store)
    assert (view.declared, view.override, view.spec) == (b"hourly", None, b"hourly")
    assert (view.next_at, view.version, view.app) == (due + MINUTE, reset.version, "app")


async def test_schedule_override_wins_until_reset__by_compare_and_set(store: Harness) -> None:
    due = store.clock.now()
    assert await store.broker.override_schedule("s", b"x", due, 1) == Changed(Change.CONFLICT, 0)
    assert await _listed(store) == {}
    first = await _declare(store, b"hourly", due)
    before = await _view(store)
    for expect in (0, first.version - 1, first.version + 1):
        for spec in (b"daily", None):
            changed = await store.broker.override_schedule("s", spec, due + HOUR, expect)
            assert changed == Changed(Change.CONFLICT, first.version)
    assert await _view(store) == before
    racing = await asyncio.gather(
        *(store.broker.override_schedule("s", b"by %d" % n, due + n, first.version) for n in range(5))
    )
    assert sorted(changed.change for changed in racing) == [Change.APPLIED, *[Change.CONFLICT] * 4]
    (winner,) = (n for n, changed in enumerate(racing) if changed.change is Change.APPLIED)
    assert (await _view(store)).spec == b"by %d" % winner


async def test_schedule_override_wins_until_reset__and_a_fire_is_no_change(store: Harness) -> None:
    """The version does not grow when it fires or pauses, so an operator's edit is not undone by a tick."""
    due = store.clock.now()
    first = await _declare(store, b"hourly", due)
    await _fire(store, store.job(), then=due + HOUR)
    await store.broker.pause_schedule("s", paused=True)
    assert (await _view(store)).version == first.version
    changed = await store.broker.override_schedule("s", b"daily", due + MINUTE, first.version)
    assert changed.change is Change.APPLIED
    view = await _view(store)
    assert (view.paused, len(view.fires)) == (True, 1)


async def test_schedule_without_a_layer_is_gone(store: Harness) -> None:
    due = store.clock.now()
    created = await store.broker.override_schedule("s", b"by hand", due, 0)
    assert created.change is Change.APPLIED
    view = await _view(store)
    assert (view.declared, view.override, view.next_at, view.app) == (None, b"by hand", due, "")
    reset = await store.broker.override_schedule("s", None, due, created.version)
    assert reset.change is Change.APPLIED
    assert await _listed(store) == {}
    wish = Fire(name="s", version=created.version, expect=due, then=None, jobs=(store.job(),))
    assert await store.broker.fire(wish) == Fired(FireStatus.UNKNOWN)
    assert (await store.broker.override_schedule("s", b"again", due, 0)).change is Change.APPLIED


async def test_schedule_without_a_layer_is_gone__but_not_a_declared_one(store: Harness) -> None:
    """An app may declare what an operator wrote first; it stays when the operator's layer goes."""
    due = store.clock.now()
    created = await store.broker.override_schedule("s", b"by hand", due, 0)
    assert (await _declare(store, b"hourly", due + HOUR)).change is Change.APPLIED
    view = await _view(store)
    assert (view.spec, view.next_at, view.app) == (b"by hand", due, "app")
    reset = await store.broker.override_schedule("s", None, due + HOUR, view.version)
    assert reset.change is Change.APPLIED
    view = await _view(store)
    assert (view.declared, view.override, view.next_at) == (b"hourly", None, due + HOUR)
    assert view.version > created.version


async def test_deleted_schedule_is_gone(store: Harness) -> None:
    due = store.clock.now()
    declared = await _declare(store, next_at=due)
    await _declare(store, name="other")
    await _fire(store, store.job(), then=due)
    await store.broker.pause_schedule("s", paused=True)
    assert await store.broker.delete_schedule("s") is True
    assert list(await _listed(store)) == ["other"]
    wish = Fire(name="s", version=declared.version, expect=due, then=None, jobs=(store.job(),))
    assert await store.broker.fire(wish) == Fired(FireStatus.UNKNOWN)
    assert await store.count(State.READY) == 1
    assert await store.broker.delete_schedule("s") is False
    assert await store.broker.pause_schedule("s", paused=True) is False

    assert (await _declare(store, app="another", revision=0)).change is Change.APPLIED
    view = await _view(store)
    assert (view.app, view.paused, view.fires) == ("another", False, ())


async def test_paused_schedule_does_not_fire(store: Harness) -> None:
    due = store.clock.now()
    await _declare(store, next_at=due)
    assert (await store.sweep())[-1].schedules_due
    assert await store.broker.pause_schedule("s", paused=True) is True
    before = await _view(store)
    assert before.paused
    assert await _fire(store, store.job(), then=due + HOUR) == Fired(FireStatus.PAUSED)
    assert await _view(store) == before
    assert await store.count(State.READY) == 0
    assert not (await store.sweep())[-1].schedules_due, "a paused schedule is not worth looking at"

    assert await store.broker.pause_schedule("s", paused=True) is True
    assert await store.broker.pause_schedule("s", paused=False) is True
    assert not (await _view(store)).paused
    fired = await _fire(store, store.job(), then=due + HOUR)
    assert fired.status is FireStatus.FIRED
    assert await store.count(State.READY) == 1
    assert await store.broker.pause_schedule("unknown", paused=True) is False
    assert list(await _listed(store)) == ["s"]


async def test_tick_fires_once(store: Harness) -> None:
    due = store.clock.now()
    declared = await _declare(store, next_at=due)
    wishes = [
        Fire(name="s", version=declared.version, expect=due, then=due + HOUR, jobs=(store.job(), store.job()))
        for _ in range(10)
    ]
    answers = await asyncio.gather(*(store.broker.fire(wish) for wish in wishes))
    assert sorted(answer.status for answer in answers) == [FireStatus.FIRED, *[FireStatus.RACED] * 9]
    (winner,) = (n for n, answer in enumerate(answers) if answer.status is FireStatus.FIRED)
    assert [receipt.status for receipt in answers[winner].receipts] == [Status.CREATED] * 2
    assert all(answer.receipts == () for answer in answers if answer.status is FireStatus.RACED)
    jobs = [job.id for job in wishes[winner].jobs]
    assert sorted(view.id for view in await store.listed()) == jobs
    view = await _view(store)
    assert (view.next_at, view.fires) == (due + HOUR, (FireRecord(due, due, tuple(jobs)),))


async def test_tick_fires_once__also_when_asked_much_later(store: Harness) -> None:
    """A worker that slept over a tick does not fire it after others went on."""
    due = store.clock.now()
    declared = await _declare(store, next_at=due)
    late = Fire(name="s", version=declared.version, expect=due, then=due + HOUR, jobs=(store.job(),))
    for tick in range(3):
        store.clock.advance(HOUR)
        await _fire(store, store.job(), then=due + (tick + 1) * HOUR)
    before = await _view(store)
    assert await store.broker.fire(late) == Fired(FireStatus.RACED)
    assert await _view(store) == before
    assert await store.count(State.READY) == 3


async def test_tick_fires_once__and_the_last_one_is_the_end(store: Harness) -> None:
    due = store.clock.now()
    declared = await _declare(store, next_at=due)
    assert (await _fire(store, then=None)).status is FireStatus.FIRED
    assert (await _view(store)).next_at is None
    store.advance(HOUR)
    assert not (await store.sweep())[-1].schedules_due
    wish = Fire(name="s", version=declared.version, expect=due, then=None, jobs=(store.job(),))
    assert await store.broker.fire(wish) == Fired(FireStatus.RACED)
    assert await store.listed() == []


async def test_fire_waits_for_the_store_clock(store: Harness) -> None:
    due = store.clock.now() + MINUTE
    await _declare(store, next_at=due)
    before = await _view(store)
    for wait in (MINUTE - 1, 1):
        assert not (await store.sweep())[-1].schedules_due
        assert await _fire(store, store.job(), then=due + HOUR) == Fired(FireStatus.NOT_DUE)
        assert await _view(store) == before
        store.advance(wait)
    assert await store.listed() == []
    assert (await store.sweep())[-1].schedules_due
    assert (await _fire(store, store.job(), then=due + HOUR)).status is FireStatus.FIRED
    assert not (await store.sweep())[-1].schedules_due


async def test_fire_waits_for_the_store_clock__which_does_not_go_back(store: Harness) -> None:
    await _declare(store, next_at=store.clock.now())
    await store.sweep()
    store.advance(-SECOND)
    assert (await _fire(store, store.job())).status is FireStatus.FIRED


async def test_fire_needs_the_version(store: Harness) -> None:
    """Also when the tick happens to be the same under both specifications."""
    due = store.clock.now()
    first = await _declare(store, b"hourly", due)
    second = await _declare(store, b"daily", due)
    third = await store.broker.override_schedule("s", b"weekly", due, second.version)
    before = await _view(store)
    for version in (0, first.version, second.version, third.version + 1):
        wish = Fire(name="s", version=version, expect=due, then=due + HOUR, jobs=(store.job(),))
        assert await store.broker.fire(wish) == Fired(FireStatus.RACED)
    assert await _view(store) == before
    assert await store.listed() == []
    wish = Fire(name="s", version=third.version, expect=due, then=due + HOUR, jobs=(store.job(),))
    assert (await store.broker.fire(wish)).status is FireStatus.FIRED


async def test_refused_fire_keeps_its_tick(store: Harness) -> None:
    due = store.clock.now()
    await _declare(store, next_at=due)
    before = await _view(store)
    fine, refused = store.job(), store.job(queue="undeclared")
    fired = await _fire(store, fine, refused, then=due + HOUR)
    assert fired.status is FireStatus.REFUSED
    assert [receipt.status for receipt in fired.receipts] == [Status.REFUSED] * 2
    assert [receipt.refusal for receipt in fired.receipts] == [Refusal.NEIGHBOUR, Refusal.UNKNOWN_QUEUE]
    assert await _view(store) == before
    assert await store.missing(fine.id)
    assert await store.missing(refused.id)

    await store.queue("undeclared")
    fired = await _fire(store, fine, refused, then=due + HOUR)
    assert fired.status is FireStatus.FIRED
    assert await store.states([fine.id, refused.id]) == [State.READY] * 2


async def test_refused_fire_keeps_its_tick__but_an_absorbed_one_uses_it_up(store: Harness) -> None:
    """A key that answers DUPLICATE has the job that was asked for: nothing was refused."""
    due = store.clock.now()
    await _declare(store, next_at=due)
    first = await store.add(key="k")
    fired = await _fire(store, store.job(key="k"), then=due + HOUR)
    assert fired.status is FireStatus.FIRED
    assert [(receipt.status, receipt.of) for receipt in fired.receipts] == [(Status.DUPLICATE, first)]
    view = await _view(store)
    assert (view.next_at, view.fires) == (due + HOUR, (FireRecord(due, due, (first,)),))


async def test_fires_are_kept(store: Harness) -> None:
    start = store.clock.now()
    await _declare(store, next_at=start)
    assert (await _view(store)).fires == ()
    expected: list[FireRecord] = []
    for tick in range(22):
        store.advance(MINUTE if tick else 5 * SECOND)
        jobs = [store.job() for _ in range(tick % 3)]
        await _fire(store, *jobs, then=start + (tick + 1) * MINUTE)
        expected.append(FireRecord(start + tick * MINUTE, store.clock.now(), tuple(job.id for job in jobs)))
        assert (await _view(store)).fires == tuple(expected[-20:])
    assert expected[-1].at - expected[-1].tick == 5 * SECOND


async def test_fires_are_kept__and_a_run_without_a_job_is_one(store: Harness) -> None:
    """Otherwise ticks that a long run is to keep out would push out what tells of it."""
    start = store.clock.now()
    await _declare(store, next_at=start)
    job = store.job()
    await _fire(store, job, then=start + SECOND)
    for tick in range(1, 31):
        store.advance(SECOND)
        await _fire(store, then=start + (tick + 1) * SECOND, missed=2)
    run = FireRecord(start + SECOND, start + 30 * SECOND, (), missed=60)
    assert (await _view(store)).fires == (FireRecord(start, start, (job.id,)), run)
    last = store.job()
    store.advance(SECOND)
    await _fire(store, last, missed=3)
    fired = FireRecord(start + 31 * SECOND, store.clock.now(), (last.id,), missed=3)
    assert (await _view(store)).fires[1:] == (run, fired)


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_schedules_page_by_name(store: Harness, limit: int) -> None:
    """In the order of code points."""
    names = sorted(["b", "a", "B", "a2", "é", "a-1"])
    shuffled = random.Random(7).sample(names, len(names))
    for name in shuffled:
        await _declare(store, name=name)
    store.advance(SECOND)
    page = await store.broker.schedules(FIRST_PAGE, limit)
    seen = [view.name for view in page.schedules]
    while page.cursor is not None:
        assert page.now == store.clock.now()
        assert len(page.schedules) <= limit
        page = await store.broker.schedules(page.cursor, limit)
        seen += [view.name for view in page.schedules]
    assert seen == names


async def test_schedules_page_by_name__while_they_change(store: Harness) -> None:
    """A cursor is a place between names: neither a deleted nor a new schedule shifts what follows."""
    for name in ("b", "c", "d", "e"):
        await _declare(store, name=name)
    page = await store.broker.schedules(limit=2)
    assert [view.name for view in page.schedules] == ["b", "c"]
    assert page.cursor is not None
    await store.broker.delete_schedule("c")
    await _declare(store, name="a")
    page = await store.broker.schedules(page.cursor, 10)
    assert [view.name for view in page.schedules] == ["d", "e"]


async def test_schedules_page_by_name__in_the_store_time(store: Harness) -> None:
    await store.sweep()
    mark = store.clock.now()
    store.advance(-SECOND)
    assert (await store.broker.schedules()).now == mark

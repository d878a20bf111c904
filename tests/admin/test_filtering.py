"""Jobs chosen by tag, text, times and parent: found, paged in bounded steps, and counted honestly."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.admin.admin_bench import Bench, gathered

from windlass.admin import jobs, listing
from windlass.admin.dead import DeadLetters, Selection
from windlass.admin.filtering import JobFilter, wanted
from windlass.admin.jobs import Counted, Jobs
from windlass.admin.lanes import Lanes
from windlass.broker.contract import Broker
from windlass.core.job import JobView, NewJob
from windlass.core.outcome import Outcome
from windlass.core.query import FIRST_PAGE, JobQuery, Page
from windlass.core.state import State
from windlass.core.units import MINUTE, Cursor
from windlass.errors import InvalidOption

READY = JobQuery(states=frozenset({State.READY}))


class Counting:
    """A broker that tells how large the pages were that it was asked for."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.sizes: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    async def list(self, query: JobQuery, after: Cursor = FIRST_PAGE, limit: int = 100) -> Page:
        self.sizes.append(limit)
        return await self._broker.list(query, after, limit)


def within(bench: Bench, work: Callable[[Jobs], Any]) -> Any:
    return bench.run(lambda _, broker: work(Jobs(bench.app, broker)))


def ids(bench: Bench, chosen: JobFilter) -> list[str]:
    """Those that match, by all three ways, which have to agree."""
    whole = [job.id for job in within(bench, lambda found: gathered(found.all(chosen)))]
    paged: list[str] = []
    place: Cursor | None = FIRST_PAGE
    while place is not None:
        page, place = within(bench, lambda found, at=place: found.page(chosen, at, 2))
        assert len(page) <= 2
        paged += [job.id for job in page]
    assert paged == whole
    assert within(bench, lambda found: found.count(chosen)) == Counted(count=len(whole), more=False)
    return whole


def test_jobs_are_found_by_tag_text_and_times(bench: Bench) -> None:
    one = bench.add.using(tags=["eu", "bill"], key="order-42").enqueue(1).id
    bench.clock.advance(10 * MINUTE)
    two = bench.send.using(tags=["eu"], lane="Acme", delay=60).enqueue("a@example.com").id
    bench.clock.advance(10 * MINUTE)
    three = bench.add.using(flow="orders").enqueue(3).id
    now = bench.clock.now()

    def found(**said: Any) -> list[str]:
        return ids(bench, wanted(JobQuery(), now, **said))

    assert found() == [three, two, one]
    assert found(tag="eu") == [two, one]
    assert found(tag="e") == []
    assert found(text="ACME") == [two]
    assert found(text="order") == [three, one], "a flow, and a unique key"
    assert found(text="bill") == [one]
    assert found(text="a@example.com") == [], "payloads are not looked into"
    assert found(text=one[:32]) == [one]
    assert found(since="15m") == [three, two]
    assert found(until="15m") == [one]
    assert found(since="15m", until="5m") == [two]
    assert found(tag="eu", since="15m", text="send") == [two]
    assert ids(bench, wanted(READY, now, tag="eu")) == [one]


def test_what_has_no_meaning_is_refused(bench: Bench) -> None:
    for said in ({"since": "soon"}, {"until": "2026-01-01T00:00:00"}, {"parent": "x"}, {"tag": ""}):
        with pytest.raises(InvalidOption):
            wanted(JobQuery(), 0, **said)  # type: ignore[arg-type]


def test_children_are_found_by_their_parent(bench: Bench) -> None:
    older = bench.add.enqueue(0).id
    parent = bench.add.enqueue(1).id
    bench.add.enqueue(2)
    spawned: list[NewJob] = [bench.add.call(number).job for number in range(3)]
    (_, lease) = bench.take(2, "default")
    assert lease.job == parent
    bench.settle([lease], Outcome.DONE, spawn=tuple(spawned))
    assert set(ids(bench, JobFilter(parent=parent))) == {job.id for job in spawned}
    assert ids(bench, JobFilter(parent=older)) == []


def test_a_whole_id_is_found_without_looking_through_the_others(bench: Bench) -> None:
    job = bench.add.enqueue(1).id
    bench.app.enqueue_many(bench.add.call(number) for number in range(10))

    async def look(_: Bench, broker: Broker) -> tuple[list[JobView], Cursor | None, list[int]]:
        counting = Counting(broker)
        page, place = await Jobs(bench.app, counting).page(JobFilter(text=job), FIRST_PAGE, 5)  # type: ignore[arg-type]
        return page, place, counting.sizes

    page, place, sizes = bench.run(look)
    assert ([each.id for each in page], place, sizes) == ([job], None, [])
    assert ids(bench, JobFilter(query=JobQuery(queue="mail"), text=job)) == []
    assert within(
        bench, lambda found: found.page(JobFilter(text=job), FIRST_PAGE, 5, sees=lambda _: False)
    ) == ([], None)


def test_a_page_looks_at_a_bounded_number_of_jobs_and_goes_on(bench: Bench) -> None:
    rare = bench.add.using(tags=["rare"]).enqueue(0).id
    bench.app.enqueue_many(bench.add.call(number) for number in range(2_100))
    chosen = JobFilter(tag="rare")

    async def look(_: Bench, broker: Broker) -> list[tuple[list[str], list[int]]]:
        told: list[tuple[list[str], list[int]]] = []
        place: Cursor | None = FIRST_PAGE
        while place is not None:
            counting = Counting(broker)
            found, place = await listing.job_page(
                counting,  # type: ignore[arg-type]
                chosen.query, place, 10, admits=chosen.admits, looks=2,
            )  # fmt: skip
            told.append(([job.id for job in found], counting.sizes))
        return told

    *before, (last, _) = bench.run(look)
    assert last == [rare]
    assert before
    assert all(not found and len(sizes) == 2 for found, sizes in before)


def test_a_time_ends_the_looking_where_jobs_are_in_order(bench: Bench) -> None:
    bench.app.enqueue_many(bench.add.call(number) for number in range(2_500))
    bench.clock.advance(10 * MINUTE)
    late = bench.add.enqueue(1).id

    async def look(_: Bench, broker: Broker) -> tuple[list[str], Cursor | None, list[int]]:
        counting = Counting(broker)
        chosen = wanted(JobQuery(), bench.clock.now(), since="5m")
        page, place = await Jobs(bench.app, counting).page(chosen, FIRST_PAGE, 100)  # type: ignore[arg-type]
        return [job.id for job in page], place, counting.sizes

    found, place, sizes = bench.run(look)
    assert (found, place) == ([late], None)
    assert len(sizes) == 2, "a page that has some, and one that has none"


def test_a_page_goes_on_although_the_job_it_ended_with_has_gone(bench: Bench) -> None:
    bench.app.enqueue_many(bench.add.using(tags=["x"] if n % 2 else []).call(n) for n in range(40))
    chosen = JobFilter(query=READY, tag="x")
    first, place = within(bench, lambda found: found.page(chosen, FIRST_PAGE, 5))
    bench.service(lambda service: gathered(service.jobs.cancel([first[-1].id])))
    seen = {job.id for job in first}
    while place is not None:
        page, place = within(bench, lambda found, at=place: found.page(chosen, at, 5))
        seen |= {job.id for job in page}
    assert len(seen) == 20


def test_counts_are_exact_where_the_store_counts_and_say_so_where_not(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "LOOKS_FOR_COUNT", 1)
    bench.app.enqueue_many(bench.add.call(number) for number in range(1_200))
    bench.send.using(lane="acme").enqueue("x")

    def count(chosen: JobFilter, **options: Any) -> Counted:
        return within(bench, lambda found: found.count(chosen, **options))

    assert count(JobFilter(query=READY)) == Counted(count=1_201, more=False)
    in_mail = JobFilter(query=JobQuery(queue="mail", states=frozenset({State.READY, State.DEAD})))
    assert count(in_mail) == Counted(count=1, more=False)
    assert count(JobFilter(query=READY), sees_queue=lambda queue: queue == "mail").count == 1
    assert count(JobFilter(query=READY), sees_queue=None) == Counted(count=1_000, more=True)
    assert count(JobFilter()) == Counted(count=1_000, more=True), "finished jobs are counted as they come"
    assert count(JobFilter(query=READY, text="add")).more


@pytest.mark.parametrize("cursor", ["x", ">lane", "a@b", "@", "@-1", "@" + "9" * 40, "\x00", "é"])
def test_a_cursor_of_another_listing_is_refused_in_words(bench: Bench, cursor: str) -> None:
    bench.add.enqueue(1)

    async def look(_: Bench, broker: Broker) -> None:
        pages: tuple[Callable[[], Awaitable[object]], ...] = (
            lambda: Jobs(bench.app, broker).page(JobFilter(), Cursor(cursor), 4),
            lambda: DeadLetters(bench.app, broker).page(Selection(), Cursor(cursor), 4),
        )
        for page in pages:
            if cursor == "@":  # the first page
                await page()
            else:
                with pytest.raises(InvalidOption, match="cursor"):
                    await page()
        if not cursor.startswith(">"):
            with pytest.raises(InvalidOption, match="cursor"):
                await Lanes(broker).page("default", Cursor(cursor), 4)

    bench.run(look)

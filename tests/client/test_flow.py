"""Flows: shapes of calls, what they amount to, and the handle of a flow."""

import asyncio
from collections.abc import Callable

import pytest

from windlass import Chain, FlowState, RetryPolicy, Windlass, chain, current, group
from windlass.core.job import OnFailure
from windlass.core.state import State
from windlass.errors import EnqueueRefused, InvalidOption, JobNotFound, ResultTimeout


class Tasks:
    """Some tasks of an app."""

    def __init__(self, app: Windlass) -> None:
        @app.task
        async def one(number: int) -> int:
            return number

        @app.task
        async def total() -> int:
            return sum(await current.aresults())

        @app.task
        def total_blocking() -> int:
            return sum(current.results())

        @app.task(retry=RetryPolicy(max_attempts=1))
        async def fail() -> int:
            raise ValueError("no")

        self.one, self.total, self.total_blocking, self.fail = one, total, total_blocking, fail


@pytest.fixture
def tasks(app: Windlass) -> Tasks:
    return Tasks(app)


def parents(shape: Chain) -> dict[str, list[str]]:
    return {job.id: [edge.parent for edge in job.after] for job in shape.jobs()}


# --- shapes -------------------------------------------------------------------------------------------------


def test_a_chain_waits_for_what_is_before_it(tasks: Tasks) -> None:
    first, second, third = (tasks.one.call(number) for number in range(3))
    jobs = chain(first, second, third).jobs("f")
    assert [[edge.parent for edge in job.after] for job in jobs] == [[], [first.job.id], [second.job.id]]
    assert {job.flow for job in jobs} == {"f"}


def test_what_follows_a_group_waits_for_all_of_it(tasks: Tasks) -> None:
    head, left, right, last = (tasks.one.call(number) for number in range(4))
    jobs = {
        job.id: [edge.parent for edge in job.after] for job in chain(head, group(left, right), last).jobs()
    }
    assert jobs[left.job.id] == jobs[right.job.id] == [head.job.id]
    assert jobs[last.job.id] == [left.job.id, right.job.id]


def test_a_group_of_chains_joins_at_their_ends(tasks: Tasks) -> None:
    a, b, c, d = (tasks.one.call(number) for number in range(4))
    jobs = parents(chain(group(chain(a, b), c), d))
    assert jobs[d.job.id] == [b.job.id, c.job.id]


def test_an_empty_group_is_as_if_it_were_not_there(tasks: Tasks) -> None:
    head, last = tasks.one.call(1), tasks.one.call(2)
    jobs = chain(head, group(tasks.one.call(number) for number in range(0)), last).jobs()
    assert [edge.parent for edge in jobs[1].after] == [head.job.id]


def test_a_call_keeps_the_parents_of_its_own(tasks: Tasks) -> None:
    a, b = tasks.one.call(1), tasks.one.call(2)
    c = tasks.one.using(after=a, on_failure="run").call(3)
    jobs = chain(group(a, b), c).jobs()
    assert [(edge.parent, edge.on_failure) for edge in jobs[2].after] == [
        (a.job.id, OnFailure.RUN),
        (b.job.id, OnFailure.RUN),
    ]


def test_the_policy_of_a_call_is_that_of_its_edges(tasks: Tasks) -> None:
    jobs = chain(tasks.one.call(1), tasks.one.using(on_failure="ignore").call(2)).jobs()
    assert jobs[1].after[0].on_failure is OnFailure.IGNORE


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (lambda _: chain(), "no call in it"),
        (lambda _: chain(group(), group()), "no call in it"),
        (lambda tasks: chain(tasks.one), "made of calls"),
        (lambda tasks: group(tasks.one.call(1), "x"), "made of calls"),
        (lambda tasks: group([tasks.one.call(1), 3]), "made of calls"),
        (lambda tasks: chain(*[tasks.one.call(1)] * 2), "twice in a flow"),
        (
            lambda tasks: chain(group(tasks.one.call(1) for _ in range(1_001)), tasks.total.call()),
            "at most 1,000",
        ),
        (
            lambda tasks: chain(tasks.one.call(1), tasks.one.using(key="k", mode="replace").call(2)),
            "cannot have parents",
        ),
    ],
)
def test_a_shape_without_meaning_is_refused(
    tasks: Tasks, shape: Callable[[Tasks], object], message: str
) -> None:
    with pytest.raises(InvalidOption, match=message):
        shape(tasks).enqueue()  # pyright: ignore[reportAttributeAccessIssue]


def test_a_flow_lives_in_one_app(tasks: Tasks, new_app: Callable[..., Windlass]) -> None:
    other = Tasks(new_app(name="other"))
    with pytest.raises(InvalidOption, match="one namespace"):
        chain(tasks.one.call(1), other.one.call(2)).enqueue()


def test_a_circle_is_refused(app: Windlass, tasks: Tasks) -> None:
    a = tasks.one.call(1)
    b = tasks.one.using(after=a).call(2)
    with pytest.raises(EnqueueRefused, match="waits for itself"):
        chain(b, a).enqueue()
    with pytest.raises(JobNotFound):
        app.job(a.job.id).state()


def test_the_name_of_a_flow_is_checked(tasks: Tasks) -> None:
    with pytest.raises(InvalidOption, match="flow"):
        chain(tasks.one.call(1)).enqueue(flow="x" * 1_000)


# --- running ------------------------------------------------------------------------------------------------


async def worked(app: Windlass, waiting: Callable[[], object]) -> object:
    async with app.worker(concurrency=8):
        return await waiting()  # pyright: ignore[reportGeneralTypeIssues]


def test_children_read_what_their_parents_returned(app: Windlass, tasks: Tasks) -> None:
    shape = chain(
        tasks.one.call(1),
        group(tasks.one.call(2), tasks.one.call(3)),
        group(tasks.total.call(), tasks.total_blocking.call()),
    )

    async def main() -> None:
        flow = await shape.aenqueue()
        assert await worked(app, lambda: flow.aresults(30)) == [5, 5]
        view = await flow.afinish(10)
        assert (view.state, view.total, view.progress) == (FlowState.DONE, 5, 1.0)
        assert view.counts == {State.DONE: 5}

    asyncio.run(main())


def test_more_parents_than_a_page_are_all_read_in_order(app: Windlass, tasks: Tasks) -> None:
    seen: list[int] = []

    @app.task
    def keep() -> int:
        seen.extend(current.results())
        return len(seen)

    async def main() -> None:
        flow = await chain(group(tasks.one.call(number) for number in range(250)), keep.call()).aenqueue()
        assert await worked(app, lambda: flow.aresults(60)) == [250]

    asyncio.run(main())
    assert seen == list(range(250))


def test_a_parent_that_failed_is_told_apart(app: Windlass, tasks: Tasks) -> None:
    seen: list[tuple[str, State | None, object]] = []

    @app.task
    async def clean_up() -> None:
        async for parent in current.aparents():
            seen.append((parent.task, parent.state, parent.result))
            assert parent.error is None or parent.error.type == "ValueError"

    shape = chain(group(tasks.one.call(7), tasks.fail.call()), clean_up.using(on_failure="run").call())

    async def main() -> None:
        flow = await shape.aenqueue()
        await worked(app, lambda: flow.aresults(30))
        assert await flow.astate() is FlowState.FAILED

    asyncio.run(main())
    assert [(name.rpartition(".")[2], state, value) for name, state, value in seen] == [
        ("one", State.DONE, 7),
        ("fail", State.DEAD, None),
    ]


def test_a_flow_behind_a_dead_letter_is_stuck_until_it_is_replayed(app: Windlass) -> None:
    broken = True

    @app.task(retry=RetryPolicy(max_attempts=1))
    async def fetch() -> int:
        if broken:
            raise ValueError("down")
        return 20

    @app.task
    async def double() -> int:
        return 2 * (await current.aresults())[0]

    async def main() -> None:
        nonlocal broken
        flow = await chain(fetch.call(), double.call()).aenqueue(flow="order-42")
        async with app.worker():
            view = await app.flow("order-42").afinish(30)
            assert (view.state, view.counts) == (FlowState.STUCK, {State.DEAD: 1, State.BLOCKED: 1})
            assert view.progress == 0.5
            broken = False
            assert await app.flow("order-42").areplay() == 1
            assert await app.flow("order-42").aresults(30) == [40]
            assert await flow.astate() is FlowState.DONE

    asyncio.run(main())


def test_children_of_a_run_belong_to_its_flow_and_know_their_parent(app: Windlass, tasks: Tasks) -> None:
    @app.task
    async def split() -> None:
        current.spawn(chain(group(tasks.one.call(4), tasks.one.call(5)), tasks.total.call()))
        current.spawn(tasks.one.call(6))

    async def main() -> None:
        flow = await chain(split.call()).aenqueue()
        async with app.worker():
            await flow.jobs[0].aresult(30)
            view = await flow.afinish(30)
            assert (view.state, view.total) == (FlowState.DONE, 5)
            assert sorted(await app.flow(flow.id).aresults(10), key=str) == [6, 9, None]

    asyncio.run(main())


# --- the handle ---------------------------------------------------------------------------------------------


def test_a_flow_can_be_cancelled(tasks: Tasks) -> None:
    flow = chain(tasks.one.call(1), group(tasks.one.call(2), tasks.one.call(3))).enqueue()
    assert (flow.state(), flow.progress()) == (FlowState.RUNNING, 0.0)
    assert flow.cancel() == 3
    view = flow.view()
    assert (view.state, view.counts) == (FlowState.CANCELLED, {State.CANCELLED: 3})
    assert (flow.cancel(), flow.replay()) == (0, 0)


def test_what_goes_with_its_parent_and_is_not_kept_counts_as_cancelled(app: Windlass, tasks: Tasks) -> None:
    app.queue("brief", retention=0)
    one = tasks.one.using(queue="brief")
    flow = chain(one.call(1), one.call(2), one.call(3)).enqueue()
    assert flow.cancel() == 3


def test_a_flow_that_does_not_end_in_time(tasks: Tasks) -> None:
    flow = chain(tasks.one.call(1), tasks.one.call(2)).enqueue()
    with pytest.raises(ResultTimeout, match=r"has not finished within 0\.05 s"):
        flow.finish(0.05)
    with pytest.raises(ResultTimeout, match=rf'of flow "{flow.id}" has not finished within 0\.05 s'):
        flow.results(0.05)


def test_an_unknown_flow(app: Windlass) -> None:
    with pytest.raises(JobNotFound, match='flow "nope"'):
        app.flow("nope").view()
    with pytest.raises(JobNotFound):
        app.flow("nope").results(0)


def test_a_shape_sent_twice_is_one_flow(tasks: Tasks) -> None:
    shape = chain(tasks.one.call(1), tasks.one.call(2))
    first = shape.enqueue(flow="same")
    again = shape.enqueue(flow="same")
    assert [job.id for job in first.jobs] == [job.id for job in again.jobs]
    assert first.view().total == 2


def test_a_flow_larger_than_a_group(tasks: Tasks) -> None:
    flow = chain(tasks.one.call(0), group(tasks.one.call(number) for number in range(2_500))).enqueue()
    assert flow.view().total == 2_501

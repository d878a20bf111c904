"""Calls are sent and kept: one, many, from blocking and from async code."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from windlass import Windlass
from windlass.core.job import JobDetail, OnFailure
from windlass.core.state import State
from windlass.errors import EnqueueRefused, InvalidOption, InvalidPayload, PayloadTooLarge, Unsupported


def detail(app: Windlass, job_id: str) -> JobDetail:
    async def read() -> JobDetail:
        found = (await (await app.connection.broker()).get([job_id]))[0]
        assert found is not None
        return found

    return app.connection.run(read())


def test_a_plain_call_is_a_plain_call(app: Windlass) -> None:
    @app.task
    def double(number: int) -> int:
        """Twice as much."""
        return 2 * number

    @app.task
    async def slowly(number: int) -> int:
        return 2 * number

    assert double(4) == 8
    assert double.__doc__ == "Twice as much."
    assert asyncio.run(slowly(4)) == 8


def test_enqueue_keeps_the_call(app: Windlass) -> None:
    @app.task(queue="mail", revision=3)
    def send(to: str, *, subject: str = "hi") -> None: ...

    job = send.enqueue("a@example.com", subject="hello")
    kept = detail(app, job.id)
    assert (kept.task, kept.queue, kept.state, kept.revision) == ("send", "mail", State.READY, 3)
    assert send.signature.decode(kept.payload) == ((), {"to": "a@example.com", "subject": "hello"})
    assert job.created
    assert job.state() is State.READY


def test_async_code_uses_the_twins(app: Windlass) -> None:
    @app.task
    async def send(to: str) -> None: ...

    async def main() -> None:
        job = await send.aenqueue("a")
        assert await job.astate() is State.READY
        assert await job.acancel()
        assert await job.astate() is State.CANCELLED
        assert not await job.acancel()
        jobs = await app.aenqueue_many(send.call(str(number)) for number in range(3))
        assert [await job.astate() for job in jobs] == [State.READY] * 3

    asyncio.run(main())


def test_using_sets_the_options_of_a_call(app: Windlass) -> None:
    @app.task(priority=7)
    def send(to: str) -> None: ...

    parent = send.enqueue("first")
    sender = send.using(
        delay="1m",
        lane="acme",
        key="order-42",
        window=5,
        expires="1h",
        tags=["a"],
        headers={"x": "1"},
        flow="f",
    )
    job = sender.using(after=[parent], on_failure="run", max_attempts=9).enqueue("second")
    kept = detail(app, job.id)
    assert (kept.lane, kept.key, kept.tags, kept.flow) == ("acme", "order-42", ("a",), "f")
    assert (kept.priority, kept.max_attempts, kept.headers) == (7, 9, {"x": "1"})
    assert (kept.due_at - kept.accepted_at, kept.expires_at) == (60_000_000, kept.accepted_at + 3_600_000_000)
    assert [(edge.parent, edge.on_failure) for edge in kept.after] == [(parent.id, OnFailure.RUN)]


def test_run_at_is_a_point_in_time(app: Windlass) -> None:
    @app.task
    def send() -> None: ...

    job = send.using(run_at=datetime(2100, 1, 1, tzinfo=UTC)).enqueue()
    assert detail(app, job.id).due_at == 4_102_444_800_000_000
    assert job.state() is State.SCHEDULED


def test_a_key_gives_the_job_that_stands(app: Windlass) -> None:
    @app.task
    def send() -> None: ...

    first, second = (send.using(key="k").enqueue() for _ in range(2))
    assert (first, first.created, second.created) == (second, True, False)


def test_many_calls_travel_in_groups(app: Windlass) -> None:
    @app.task
    def send(number: int) -> None: ...

    jobs = app.enqueue_many(send.call(number) for number in range(2_500))
    assert len({job.id for job in jobs}) == 2_500
    assert detail(app, jobs[-1].id).state is State.READY


def test_many_calls_take_options(app: Windlass) -> None:
    @app.task
    def send(number: int) -> None: ...

    calls = [send.call(1), send.using(lane="other").call(2)]
    kept = [detail(app, job.id) for job in send.using(lane="acme", priority=5).enqueue_many(calls)]
    assert [(job.lane, job.priority) for job in kept] == [("acme", 5)] * 2
    kept = [detail(app, job.id) for job in app.enqueue_many([calls[1], calls[0].using(priority=3)])]
    assert [(job.lane, job.priority) for job in kept] == [("other", 0), ("", 3)]


def test_a_call_that_is_sent_again_makes_no_second_job(app: Windlass) -> None:
    @app.task
    def send() -> None: ...

    call = send.call()
    assert app.enqueue_many([call, call]) == 2 * app.enqueue_many([call])


def test_a_task_that_lives_elsewhere_can_be_called(app: Windlass) -> None:
    app.queue("images")
    resize = app.external("resize", queue="images", priority=3)
    kept = detail(app, resize.enqueue("cat.png", width=80).id)
    assert (kept.task, kept.queue, kept.priority) == ("resize", "images", 3)


def test_limits_of_a_task_give_it_a_queue_of_its_own(app: Windlass) -> None:
    @app.task(concurrency=2, rate="5/s")
    def fetch() -> None: ...

    assert detail(app, fetch.enqueue().id).queue == "fetch"


def test_tasks_may_be_declared_after_the_first_call(app: Windlass) -> None:
    @app.task
    def first() -> None: ...

    first.enqueue()

    @app.task(queue="late")
    def second() -> None: ...

    assert second.enqueue().state() is State.READY


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delay": -1}, "delay must not be negative, got -1"),
        ({"delay": "soon"}, "delay must be seconds"),
        ({"delay": 1, "run_at": datetime(2100, 1, 1, tzinfo=UTC)}, "delay or run_at, not both"),
        ({"run_at": datetime(2100, 1, 1)}, "run_at"),  # noqa: DTZ001 - that is the point
        ({"run_at": 60}, "run_at must be a datetime with a time zone, not 60; for a duration use delay"),
        ({"priority": 101}, "priority must be a whole number from -100 to 100, not 101"),
        ({"priority": "high"}, "priority must be a whole number"),
        ({"expires": 0}, "expires must be positive"),
        ({"mode": "replace"}, "mode and window need a key"),
        ({"key": "k", "mode": "debounce"}, 'mode must be one of "ignore", "replace", "throttle"'),
        ({"key": ""}, "key"),
        ({"lane": "a\x00b"}, "lane"),
        ({"queue": "a b"}, "queue"),
        ({"after": "nonsense"}, "job id"),
        ({"on_failure": "explode"}, 'on_failure must be one of "cancel", "ignore", "run"'),
        ({"max_attempts": 0}, "max_attempts must be a whole number from 1"),
        ({"headers": {"x": 1}}, "header"),
        ({"tags": "urgent"}, "tags"),
        ({"colour": "red"}, "unknown option 'colour'; options are: after, callback, connection"),
    ],
    ids=str,
)
def test_a_bad_option_is_refused_in_one_line(app: Windlass, options: dict[str, Any], words: str) -> None:
    @app.task
    def send() -> None: ...

    with pytest.raises(InvalidOption) as caught:
        send.using(**options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((1,), {}, 'argument "to": expected str, got int'),
        ((), {}, '"to"'),
        (("a", "b", "c"), {}, "send()"),
        (("a",), {"subjekt": "x"}, '"subjekt"'),
        (("a",), {"size": float("nan")}, 'argument "size"'),
        (("\ud800",), {}, 'argument "to"'),
        (("\x00",), {}, 'argument "to"'),
        (("a",), {"size": object()}, 'argument "size"'),
    ],
    ids=["type", "missing", "too many", "unknown", "NaN", "surrogate", "NUL", "object"],
)
def test_bad_arguments_are_named(app: Windlass, args: Any, kwargs: Any, words: str) -> None:
    @app.task
    def send(to: str, size: float = 0) -> None: ...

    with pytest.raises(InvalidPayload) as caught:
        send.enqueue(*args, **kwargs)
    assert words in str(caught.value)
    assert app.connection.run(_total(app)) == 0


async def _total(app: Windlass) -> int:
    return sum(row.count for row in (await (await app.connection.broker()).counts()).rows)


def test_an_oversized_payload_is_refused(new_app: Callable[..., Windlass]) -> None:
    app = new_app(max_payload=1_000)

    @app.task
    def send(text: str) -> None: ...

    with pytest.raises(PayloadTooLarge, match=r"1,?000"):
        send.enqueue("x" * 1_001)


def test_an_unknown_queue_is_refused_with_those_that_exist(app: Windlass) -> None:
    @app.task
    def send() -> None: ...

    with pytest.raises(EnqueueRefused, match='queue "nowhere" is not declared; declared queues: default'):
        send.using(queue="nowhere").enqueue()


def test_a_refused_call_names_itself_not_its_neighbours(app: Windlass) -> None:
    @app.task
    def send() -> None: ...

    with pytest.raises(EnqueueRefused, match='queue "nowhere" is not declared'):
        app.enqueue_many([send.call(), send.using(queue="nowhere").call()])
    assert app.connection.run(_total(app)) == 0


def test_two_tasks_cannot_share_a_name(app: Windlass) -> None:
    @app.task
    def send() -> None: ...

    with pytest.raises(InvalidOption, match='two tasks called "send"'):
        app.task(name="send")(print)


def test_enqueue_many_takes_calls_only(app: Windlass) -> None:
    @app.task
    def send() -> None: ...

    with pytest.raises(InvalidOption, match="enqueue_many takes calls"):
        app.enqueue_many([send.call(), "send"])  # pyright: ignore[reportArgumentType]


def test_options_around_many_calls_win_over_those_of_a_call(app: Windlass) -> None:
    @app.task
    def send(number: int) -> None: ...

    calls = [send.using(lane="other", priority=3).call(1), send.call(2)]
    kept = [detail(app, job.id) for job in send.using(lane="acme").enqueue_many(calls)]
    assert [(job.lane, job.priority) for job in kept] == [("acme", 3), ("acme", 0)]


def test_many_calls_of_one_task_are_not_those_of_another(app: Windlass) -> None:
    @app.task
    def send() -> None: ...

    @app.task
    def other() -> None: ...

    with pytest.raises(InvalidOption, match=r'send.enqueue_many takes calls of "send", not of "other"'):
        send.using(lane="a").enqueue_many([send.call(), other.call()])
    with pytest.raises(InvalidOption, match=r"enqueue_many takes calls, as in send.call\(...\), not 5"):
        asyncio.run(send.aenqueue_many([5]))  # pyright: ignore[reportArgumentType]
    assert app.connection.run(_total(app)) == 0


def test_an_error_among_many_calls_says_what_was_accepted(app: Windlass) -> None:
    @app.task
    def send(number: int) -> None: ...

    numbers = [*range(1_500), "bad"]
    for enqueue_many in (app.enqueue_many, lambda calls: asyncio.run(app.aenqueue_many(calls))):
        with pytest.raises(InvalidPayload) as caught:
            enqueue_many(send.call(number) for number in numbers)  # pyright: ignore[reportArgumentType]
        assert caught.value.__notes__ == ["the first 1,000 calls were accepted"]
    assert app.connection.run(_total(app)) == 2_000


def test_calls_of_all_kinds_keep_their_order_among_many(app: Windlass) -> None:
    @app.task
    def send(number: int) -> None: ...
    @app.task
    def other(number: int) -> None: ...

    known = send.call(-1)
    assert known.job.task == "send"
    calls = [other.call(n) if n % 97 == 0 else send.call(n) for n in range(2_345)]
    calls[1_234] = known
    jobs = app.enqueue_many(iter(calls))
    assert [job.id for job in jobs] == [call.job.id for call in calls]
    assert len({job.id for job in jobs}) == 2_345
    assert [detail(app, jobs[n].id).task for n in (0, 1, 97, 1_234)] == ["other", "send", "other", "send"]


def test_a_call_becomes_one_job_whoever_asks_for_it(app: Windlass) -> None:
    @app.task
    def send(number: int) -> None: ...

    for _ in range(20):
        call, ready = send.call(1), threading.Barrier(4)

        def ask(_: int, call: Any = call, ready: threading.Barrier = ready) -> str:
            ready.wait()
            return call.job.id

        with ThreadPoolExecutor(4) as threads:
            assert len(set(threads.map(ask, range(4)))) == 1


def test_groups_are_bounded_by_edges(app: Windlass) -> None:
    @app.task
    def send(number: int) -> None: ...

    parents = app.enqueue_many(send.call(number) for number in range(900))
    child = send.using(after=parents)
    assert len(app.enqueue_many(child.call(number) for number in range(23))) == 23


def test_messages_do_not_hold_payloads(app: Windlass) -> None:
    @app.task
    def send(to: str) -> None: ...

    call = send.using(queue="nowhere").call("secret")
    with pytest.raises(EnqueueRefused) as caught:
        app.enqueue_many([call])
    assert "secret" not in f"{caught.value}{call!r}{send!r}"


def test_a_store_without_transactions_refuses_a_connection(app: Windlass) -> None:
    @app.task
    def work() -> None: ...

    mine = work.using(connection=object())
    with pytest.raises(Unsupported, match="cannot enqueue on a connection of yours; PostgreSQL can"):
        mine.enqueue()
    with pytest.raises(Unsupported, match="PostgreSQL can"):
        asyncio.run(mine.aenqueue())
    with pytest.raises(Unsupported, match="PostgreSQL can"):
        mine.enqueue_many([work.call()])


def test_a_policy_without_parents_is_refused(app: Windlass) -> None:
    @app.task
    def send() -> None: ...

    with pytest.raises(InvalidOption, match="on_failure needs parents"):
        send.using(on_failure="run").enqueue()
    with pytest.raises(InvalidOption, match="on_failure needs parents"):
        app.enqueue_many([send.using(on_failure="run").call()])
    with pytest.raises(InvalidOption, match="on_failure needs parents"):
        asyncio.run(send.using(on_failure="run").aenqueue())

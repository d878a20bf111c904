"""`@app.on_enqueue`: what is done to a job before it is sent, through every door of the Python client."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from windlass import OutgoingJob, Windlass, chain, current
from windlass.core.job import JobDetail
from windlass.errors import InvalidOption, Unsupported
from windlass.testing import testing

tenant: ContextVar[str] = ContextVar("tenant", default="acme")


@pytest.fixture
def app() -> Windlass:
    app = Windlass("memory://")

    @app.task
    def send(to: str) -> str:
        return to

    @app.task
    def parent(shape: str) -> None:
        call = send.using(tags=["child"]).call("child")
        current.spawn(call if shape == "call" else chain(call, send.call("next")))

    @app.on_enqueue
    def stamp(job: OutgoingJob) -> None:
        job.lane = tenant.get()
        job.headers["tenant"] = tenant.get()
        job.tags.append("stamped")

    return app


def details(app: Windlass, jobs: list[Any]) -> list[JobDetail]:
    async def ask() -> list[Any]:
        return list(await (await app.connection.broker()).get([job.id for job in jobs]))

    return app.run(ask())


def asked(work: Callable[[], Any]) -> Any:
    return asyncio.run(work())


@pytest.mark.parametrize(
    "door",
    ["enqueue", "aenqueue", "enqueue_many", "app.enqueue_many", "aenqueue_many", "flow", "aflow", "t.run"],
)
def test_every_door_of_the_client_calls_it(app: Windlass, door: str) -> None:
    send: Any = app.tasks["send"]
    with testing(app) as t:
        calls = [send.using(tags=["own"]).call("a"), send.using(tags=["own"]).call("b")]
        tagged = send.using(tags=["own"])
        doors: dict[str, Callable[[], Any]] = {
            "enqueue": lambda: [tagged.enqueue("a"), tagged.enqueue("b")],
            "aenqueue": lambda: [asked(lambda: tagged.aenqueue("a")), asked(lambda: tagged.aenqueue("b"))],
            "enqueue_many": lambda: tagged.enqueue_many([send.call("a"), send.call("b")]),
            "app.enqueue_many": lambda: app.enqueue_many(calls),
            "aenqueue_many": lambda: asked(lambda: app.aenqueue_many(calls)),
            "flow": lambda: chain(*calls).enqueue().jobs,
            "aflow": lambda: asked(lambda: chain(*calls).aenqueue()).jobs,
            "t.run": lambda: (t.run(calls[0]), t.run(calls[1])) and t.enqueued(),
        }
        jobs = doors[door]()
        found = details(app, jobs)
        t.drain()
    assert [detail.lane for detail in found] == ["acme", "acme"]
    assert [detail.tags for detail in found] == [("own", "stamped")] * 2
    assert [detail.headers["tenant"] for detail in found] == ["acme"] * 2


@pytest.mark.parametrize("shape", ["call", "chain"])
def test_a_job_that_spawns_is_a_producer_too(app: Windlass, shape: str) -> None:
    parent: Any = app.tasks["parent"]
    with testing(app) as t:
        parent.enqueue(shape)
        t.drain()
        children = t.enqueued(app.tasks["send"])
        found = details(app, children)
    assert found[0].tags == ("child", "stamped")
    assert {detail.lane for detail in found} == {"acme"}
    assert len(found) == (1 if shape == "call" else 2)


def test_a_schedule_is_no_producer(app: Windlass) -> None:
    """The store makes its jobs, and any worker or server asks it to: nobody there has what hooks look at."""
    app.schedule("nightly", app.tasks["send"].using(lane="ops").call("x"), every=60)
    with testing(app) as t:
        t.advance(60)
        (job,) = details(app, t.enqueued(app.tasks["send"]))[:1]
    assert (job.lane, job.tags) == ("ops", ())


def test_a_call_that_is_sent_twice_is_stamped_once(app: Windlass) -> None:
    with testing(app):
        call = app.tasks["send"].call("a")
        first, second = app.enqueue_many([call])[0], app.enqueue_many([call])[0]
        assert first == second
        assert details(app, [first])[0].tags == ("stamped",)
        assert call.job.tags == ()


def test_what_it_raises_refuses_the_job_and_nothing_is_sent(app: Windlass) -> None:
    send: Any = app.tasks["send"]

    @app.on_enqueue
    def refuse(job: OutgoingJob) -> None:
        if job.tags[0] == "bad":
            raise PermissionError(f"no {job.task} for {job.headers['tenant']}")

    bad = send.using(tags=["bad"])
    with testing(app) as t:
        with pytest.raises(PermissionError, match="no send for acme"):
            bad.enqueue("a")
        with pytest.raises(PermissionError):
            asyncio.run(bad.aenqueue("a"))
        with pytest.raises(PermissionError):
            app.enqueue_many([send.call("a"), bad.call("b")])
        with pytest.raises(PermissionError):
            chain(send.call("a"), bad.call("b")).enqueue()
        assert t.enqueued() == []
        assert send.enqueue("fine").created


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda job: setattr(job, "lane", "x" * 1_000), "lane"),
        (lambda job: job.tags.append(""), "tag"),
        (lambda job: job.headers.update({"n": 3}), "header"),
    ],
)
def test_what_cannot_be_kept_is_refused_and_the_hook_is_named(
    app: Windlass, change: Callable[[OutgoingJob], None], why: str
) -> None:
    app.on_enqueue(change)
    with (
        testing(app),
        pytest.raises(InvalidOption, match=f'job of "send", as on_enqueue has left it: .*{why}'),
    ):
        app.tasks["send"].enqueue("a")


def test_a_job_that_comes_with_a_transaction_is_stamped_before_it_is_sent(app: Windlass) -> None:
    """A store in memory has no transactions, and says so after the hook was asked."""
    seen: list[OutgoingJob] = []
    app.on_enqueue(seen.append)
    mine = app.tasks["send"].using(connection=object())
    with testing(app):
        for send in (lambda: mine.enqueue("a"), lambda: asyncio.run(mine.aenqueue("a"))):
            with pytest.raises(Unsupported):
                send()
    assert [job.lane for job in seen] == ["acme", "acme"]


def test_it_is_called_where_the_app_has_other_namespaces(app: Windlass) -> None:
    @app.task(queue="far", namespace="elsewhere")
    def distant() -> None: ...

    with testing(app):
        assert details(app, [distant.enqueue()])[0].lane == "acme"


def test_hooks_are_plain_functions_of_one_argument(app: Windlass) -> None:
    async def awaited(_job: OutgoingJob) -> None: ...

    def none() -> None: ...

    with pytest.raises(InvalidOption, match=r"awaited\(\) from blocking code, too: write it as def"):
        app.on_enqueue(awaited)  # type: ignore[type-var]
    with pytest.raises(InvalidOption, match=r"calls .*none\(\) with job: write def none\(job\)"):
        app.on_enqueue(none)  # type: ignore[type-var]


def test_many_calls_alike_take_the_quick_way_only_without_hooks(app: Windlass) -> None:
    with testing(app):
        jobs = app.enqueue_many(app.tasks["send"].call(str(number)) for number in range(120))
        assert {detail.lane for detail in details(app, jobs)} == {"acme"}

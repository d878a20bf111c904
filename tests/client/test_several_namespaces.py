"""An app with queues in several namespaces: where jobs go, how they are found, what is refused."""

import asyncio
import uuid
from collections.abc import Callable
from datetime import timedelta

import pytest

from windlass import Windlass, chain, current, group
from windlass.broker.registry import beside
from windlass.core.ids import namespace_tag, new_job_id, tag_of
from windlass.core.query import JobQuery
from windlass.errors import InvalidOption, JobNotFound
from windlass.loading import in_namespace
from windlass.testing import testing
from windlass.worker.embedded import EmbeddedWorker
from windlass.worker.options import WorkerOptions
from windlass.worker.several import SeveralWorkers, shared_out

Make = Callable[..., Windlass]


@pytest.fixture
def shop(app: Windlass) -> Windlass:
    app.queue("mail", namespace="tenants", concurrency=5)

    @app.task(name="send", queue="mail")
    def send(to: str) -> str:
        return f"sent to {to}"

    @app.task(name="count")
    def count(number: int) -> int:
        return number + 1

    return app


def test_a_job_goes_to_the_namespace_of_its_queue(shop: Windlass) -> None:
    sent = shop.tasks["send"].enqueue("a")
    counted = shop.tasks["count"].enqueue(1)
    assert (sent.namespace, counted.namespace) == ("tenants", "windlass")
    assert tag_of(sent.id) == namespace_tag("tenants")
    elsewhere = shop.within("tenants")
    assert shop.run(elsewhere.broker()) is not shop.run(shop.broker())
    for place, job in ((elsewhere, sent), (shop, counted)):
        broker = place.run(place.broker())
        assert [found.id for found in place.run(broker.list(JobQuery())).jobs] == [job.id]


def test_the_queue_of_one_call_decides(shop: Windlass) -> None:
    assert shop.tasks["count"].using(queue="mail").enqueue(1).namespace == "tenants"
    assert shop.tasks["send"].using(queue="default").call("a").namespace == "windlass"


def test_handles_find_jobs_by_their_ids(shop: Windlass) -> None:
    sent, counted = shop.tasks["send"].enqueue("a"), shop.tasks["count"].enqueue(1)
    for place in shop.namespaces.values():
        assert place.job(sent.id).state() == "ready"
        assert place.job(counted.id).state() == "ready"
    assert shop.job(sent.id).cancel()
    assert shop.job(sent.id).state() == "cancelled"


def test_an_id_that_says_nothing_is_looked_for_in_all(shop: Windlass) -> None:
    """As one that was made by another program, or came with an import."""
    call = shop.tasks["send"].call("a")
    bits = int.from_bytes(uuid.uuid4().bytes) >> 54
    call.job = type(call.job)(
        **{
            **{name: getattr(call.job, name) for name in call.job.__struct_fields__},
            "id": new_job_id(1, bits, tag=namespace_tag("quite_another")),
        }
    )
    call.task.app.send([call])
    found = shop.job(call.job.id)
    assert found.state() == "ready"
    assert found.namespace == "tenants"
    assert found.cancel()
    with pytest.raises(JobNotFound, match="is not known"):
        shop.job(new_job_id(1, bits, tag=namespace_tag("tenants"))).state()


def test_calls_of_several_namespaces_are_sent_together(shop: Windlass) -> None:
    calls = [
        shop.tasks[task].call(value)
        for number in range(1_500)
        for task, value in (("send", str(number)), ("count", number))
    ]
    jobs = shop.enqueue_many(calls)
    assert [job.id for job in jobs] == [call.job.id for call in calls]
    for place in shop.namespaces.values():
        counts = place.run(place.run(place.broker()).counts())
        assert sum(row.count for row in counts.rows) == 1_500


def test_schedules_lanes_and_alerts_are_where_their_queue_is(shop: Windlass) -> None:
    shop.schedule("daily", shop.tasks["send"].call("a"), every=timedelta(days=1))
    shop.lane("mail", "acme", weight=2)
    shop.alert("mails", queue="mail", depth=10)
    here, there = (shop.run(place.broker()) for place in shop.namespaces.values())
    assert [each.name for each in shop.run(there.schedules()).schedules] == ["daily"]
    assert not shop.run(here.schedules()).schedules


# --- what is refused ----------------------------------------------------------------------------------------


def test_a_flow_across_namespaces(shop: Windlass) -> None:
    send, count = shop.tasks["send"], shop.tasks["count"]
    shape = chain(count.call(1), group(send.call("a"), count.call(2)))
    line = "a flow lives in one namespace, and the calls of this one are in tenants, windlass"
    with pytest.raises(InvalidOption, match=line):
        shape.enqueue()
    for place in shop.namespaces.values():
        assert not place.run(place.run(place.broker()).list(JobQuery())).jobs


def test_a_parent_in_another_namespace(shop: Windlass) -> None:
    send, count = shop.tasks["send"], shop.tasks["count"]
    for parent in (count.call(1), count.enqueue(1)):
        with pytest.raises(InvalidOption, match='this call of "send" is in "tenants", and a parent of it in'):
            send.using(after=parent)
        with pytest.raises(InvalidOption, match="a job waits for jobs of its own namespace"):
            send.using(after=[send.call("a"), parent])


def test_a_child_in_another_namespace(shop: Windlass) -> None:
    @shop.task(name="makes")
    def makes() -> None:
        current.spawn(shop.tasks["send"].call("a"))

    with testing(shop) as bench:
        shop.tasks["makes"].enqueue()
        with pytest.raises(InvalidOption, match='a job spawns into its own namespace, "windlass", and this'):
            bench.drain()


@pytest.mark.parametrize(
    ("declare", "line"),
    [
        (
            lambda app: app.queue("default", namespace="b"),
            'queue "default" is in namespace "windlass" already',
        ),
        (lambda app: app.queue("mail", namespace="b"), 'queue "mail" is in namespace "tenants" already: say'),
        (lambda app: app.queue("mail", namespace="Über"), "namespace .Über."),
        (lambda app: app.task(namespace="b")(print_it), 'task "print_it": a task in another namespace names'),
        (
            lambda app: app.task(queue="mail", namespace="b")(print_it),
            'queue "mail" is in namespace "tenants"',
        ),
        (
            lambda app: app.within("b"),
            "no queue of this app is in namespace .b.; its namespaces: windlass, te",
        ),
    ],
)
def test_what_has_no_meaning(shop: Windlass, declare: Callable[[Windlass], object], line: str) -> None:
    with pytest.raises(InvalidOption, match=line):
        declare(shop)
    assert list(shop.namespaces) == ["windlass", "tenants"]


def print_it(text: str) -> None:
    del text


def test_a_task_may_name_the_namespace_of_its_queue(shop: Windlass) -> None:
    hot = shop.task(name="hot", queue="hot", namespace="hot")(print_it)
    limited = shop.task(name="limited", concurrency=1, namespace="tenants")(print_it)
    assert hot.call("x").namespace == "hot"
    assert limited.call("x").namespace == "tenants"
    assert shop.within("tenants").queues == ("mail", "limited")
    assert shop.within("hot").queues == ("hot",)
    assert shop.queues == ("default",)


# --- workers ------------------------------------------------------------------------------------------------


def test_options_are_shared_out(shop: Windlass) -> None:
    def shared(**options: object) -> dict[str, WorkerOptions]:
        return shared_out(
            WorkerOptions(**options),  # type: ignore[arg-type]
            shop.namespaces,
            lambda queue: shop.place_of(queue).config.namespace,
        )

    assert list(shared()) == ["windlass", "tenants"]
    assert {name: each.queues for name, each in shared(queues=("mail=2", "default")).items()} == {
        "tenants": ("mail=2",),
        "windlass": ("default",),
    }
    assert list(shared(queues=("mail",))) == ["tenants"]
    assert {name: each.groups for name, each in shared(groups=("7:mail", "1:default")).items()} == {
        "tenants": ("7:mail",),
        "windlass": ("1:default",),
    }
    with pytest.raises(
        InvalidOption, match='the group "7:mail,default" has queues of the namespaces tenants'
    ):
        shared(groups=("7:mail,default",))


def test_one_worker_serves_all(new_app: Make) -> None:
    asyncio.run(_serve_all(new_app()))


async def _serve_all(app: Windlass) -> None:
    app.queue("mail", namespace="tenants")

    @app.task(name="send", queue="mail")
    async def send(to: str) -> str:
        # A job of one namespace may enqueue into another; it only cannot wait for it.
        return f"{to} {await (await app.tasks['count'].aenqueue(1)).aresult(10)}"

    @app.task(name="count")
    async def count(number: int) -> int:
        return number + 1

    worker = app.worker()
    assert isinstance(worker, SeveralWorkers)
    async with worker:
        assert await (await send.aenqueue("a")).aresult(10) == "a 2"
        assert await (await count.aenqueue(1)).aresult(10) == 2
    assert isinstance(app.within("tenants").worker(), EmbeddedWorker)
    await app.aclose()


def test_in_a_test_all_namespaces_are_one_store(shop: Windlass) -> None:
    with testing(shop) as bench:
        sent, counted = shop.tasks["send"].enqueue("a"), shop.tasks["count"].enqueue(1)
        bench.drain()
        assert (sent.result(), counted.result()) == ("sent to a", 2)
    with pytest.raises(JobNotFound):
        sent.state()


def test_names() -> None:
    assert beside("sqlite:///windlass.db", "mail") == "sqlite:///windlass.mail.db"
    assert (
        beside("sqlite:////var/lib/jobs?lock_timeout=3", "mail")
        == "sqlite:////var/lib/jobs.mail?lock_timeout=3"
    )
    assert beside("sqlite:///a.b/.jobs", "mail") == "sqlite:///a.b/.jobs.mail"
    assert beside("redis://host/1", "mail") == "redis://host/1"
    assert in_namespace("shop:app", "mail") == "shop:app@mail"
    assert in_namespace("shop:app@hot", "mail") == "shop:app@mail"

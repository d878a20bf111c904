"""Bad input in Python: each is one clear line, and nothing has changed."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from windlass import Windlass, chain, current, group
from windlass.core.ids import new_job_id
from windlass.core.query import JobQuery
from windlass.core.settings import Kind
from windlass.errors import WindlassError
from windlass.testing import testing

UNKNOWN = new_job_id(1, 1)


class Shop:
    """An app with something in its store."""

    def __init__(self, app: Windlass) -> None:
        self.app = app
        app.queue("far", namespace="elsewhere")

        @app.task(name="add")
        def add(number: int) -> int:
            return number

        @app.task(name="send", queue="far")
        def send(to: str) -> None: ...

        self.add, self.send = app.tasks["add"], app.tasks["send"]
        app.schedule("kept", self.add.call(1), every="1h")
        self.job = self.add.enqueue(1)

    def schedule(self, **options: Any) -> None:
        self.app.schedule("new", self.add.call(1), **options)

    def circle(self) -> None:
        first = self.add.call(1)
        chain(self.add.using(after=first).call(2), first).enqueue()

    def long_circle(self) -> None:
        first = self.add.call(1)
        second = self.add.using(after=first).call(2)
        third = self.add.using(after=second).call(3)
        # Made by hand: whoever writes calls one after another cannot make one.
        first.job = msgspec.structs.replace(first.job, after=third.job.after[:0] + _edge(third.job.id))
        self.app.enqueue_many([first, second, third])

    def snapshot(self) -> bytes:
        """All that can be read of the stores."""

        async def read(place: Windlass) -> list[Any]:
            broker = await place.broker()
            page = await broker.list(JobQuery(), limit=1_000)
            schedules = (await broker.schedules()).schedules
            documents = [await broker.documents(kind) for kind in Kind]
            return [page.jobs, schedules, documents, (await broker.counts()).rows]

        found = [self.app.run(read(place)) for place in self.app.namespaces.values()]
        return msgspec.json.encode(found)


def _edge(parent: str) -> Any:
    from windlass.core.job import Edge  # noqa: PLC0415

    return (Edge(parent),)


BAD: dict[str, tuple[Callable[[Shop], object], str]] = {
    "a day that never comes": (lambda shop: shop.schedule(cron="0 0 30 2 *"), "never fires: no day has"),
    "an hour that clocks skip": (
        lambda shop: shop.schedule(cron="*/5 2 31 3 SUN#5", tz="Mars/Base"),
        "'Mars/Base' is not a known time zone",
    ),
    "a minute that is none": (lambda shop: shop.schedule(cron="61 * * * *"), "minute cannot be '61'"),
    "too few fields": (lambda shop: shop.schedule(cron="0 3 *"), "has five fields"),
    "seconds": (lambda shop: shop.schedule(cron="0 0 3 * * *"), "for seconds use an interval"),
    "no nickname": (lambda shop: shop.schedule(cron="@never"), "is not a cron nickname"),
    "too long": (lambda shop: shop.schedule(cron=f"{'1,' * 150}1 * * * *"), "at most 256 characters"),
    "no zone": (lambda shop: shop.schedule(cron="0 3 * * *", tz="Mars/Base"), "is not a known time zone"),
    "a path for a zone": (
        lambda shop: shop.schedule(cron="0 3 * * *", tz="../etc/passwd"),
        "not a known time",
    ),
    "a zone without a rule": (
        lambda shop: shop.schedule(every="1h", tz="UTC"),
        "tz is the zone of a cron rule",
    ),
    "no rule": (lambda shop: shop.schedule(), "one of cron=, every= and at="),
    "two rules": (lambda shop: shop.schedule(cron="@daily", every="1h"), "got cron and every"),
    "too often": (lambda shop: shop.schedule(every=0.5), "at least 1 second"),
    "a time without a zone": (lambda shop: shop.schedule(at=datetime(2030, 1, 1)), "zone"),  # noqa: DTZ001
    "an end before the start": (
        lambda shop: shop.schedule(
            every="1h", start=datetime(2031, 1, 1, tzinfo=UTC), end=datetime(2030, 1, 1, tzinfo=UTC)
        ),
        "end",
    ),
    "a policy that is none": (lambda shop: shop.schedule(every="1h", catch_up="most"), "catch_up must be"),
    "a schedule twice": (
        lambda shop: shop.app.schedule("kept", shop.add.call(2), every="2h"),
        'two schedules called "kept"',
    ),
    "a circle": (lambda shop: shop.circle(), "waits for itself"),
    "a longer circle": (lambda shop: shop.long_circle(), "waits for itself"),
    "no such parent": (lambda shop: shop.add.using(after=UNKNOWN).enqueue(1), "parent"),
    "no such parent among some": (
        lambda shop: shop.add.using(after=[shop.job, UNKNOWN]).enqueue(1),
        "parent",
    ),
    "a parent that is no id": (lambda shop: shop.add.using(after="that one"), "is not a UUIDv7"),
    "a call twice in a flow": (
        lambda shop: chain(*[shop.add.call(1)] * 2).enqueue(),
        "the same call of .add. is twice in a flow",
    ),
    "no call in a flow": (lambda shop: group().enqueue(), "has no call in it"),
    "no call at all": (lambda shop: chain(shop.add), "a flow is made of calls"),  # type: ignore[arg-type]
    "a flow over namespaces": (
        lambda shop: chain(shop.add.call(1), shop.send.call("a")).enqueue(),
        "a flow lives in one namespace, and the calls of this one are in elsewhere, windlass",
    ),
    "a parent in another namespace": (
        lambda shop: shop.send.using(after=shop.job).enqueue("a"),
        "a job waits for jobs of its own namespace",
    ),
    "a parent in another namespace, by its id": (
        lambda shop: shop.send.using(after=shop.job.id).enqueue("a"),
        "parent",
    ),
    "a flow that is none": (
        lambda shop: shop.app.flow("none").cancel() or shop.app.flow("none").view(),
        "no job",
    ),
    "an alert without a threshold": (lambda shop: shop.app.alert("empty"), "depth"),
    "an argument of another type": (lambda shop: shop.add.enqueue("one"), "number"),
}


@pytest.mark.parametrize("what", BAD)
def test_one_clear_line_and_nothing_changed(app: Windlass, what: str) -> None:
    do, line = BAD[what]
    shop = Shop(app)
    before = shop.snapshot()
    with pytest.raises(WindlassError, match=line) as caught:
        do(shop)
    assert "\n" not in str(caught.value)
    assert shop.snapshot() == before


def test_a_result_that_cannot_be_encoded() -> None:
    app = Windlass("memory://")

    @app.task
    def odd() -> Any:
        return {"when": object()}

    with testing(app, raises=False) as bench:
        job = odd.using(max_attempts=1).enqueue()
        child = odd.using(after=job).enqueue()
        bench.drain()
        detail = app.run(_detail(app, job.id))
        assert (detail.state, detail.result) == ("dead", None)
        assert "\n" not in detail.error.message
        assert "object" in detail.error.message
        assert child.state() == "blocked", "it waits for the replay of its parent, or for its end"


def test_a_step_that_cannot_be_encoded() -> None:
    app = Windlass("memory://")

    @app.task
    def odd() -> None:
        current.step("one", object)

    with testing(app, raises=False) as bench:
        job = odd.using(max_attempts=1).enqueue()
        bench.drain()
        detail = app.run(_detail(app, job.id))
        assert (detail.state, detail.memos) == ("dead", ())


async def _detail(app: Windlass, job: str) -> Any:
    return (await (await app.broker()).get([job]))[0]

"""Messages of Celery's, as it writes them itself, become jobs; what cannot be honoured is a dead letter."""

import uuid
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from celery import Celery, signature
from kombu.serialization import dumps

from windlass import RetryPolicy, Windlass
from windlass.bridges import celery
from windlass.bridges.addresses import address_of
from windlass.bridges.celery_mapping import CeleryMapper
from windlass.bridges.declared import Intake
from windlass.bridges.fields import Unreadable
from windlass.bridges.job_options import message_key
from windlass.bridges.making import NewIds, mapper_of
from windlass.bridges.mapped import Mapped
from windlass.bridges.mapping import MessageMapper
from windlass.bridges.message import Message
from windlass.core.intake import Fields, IntakeSettings
from windlass.core.job import NewJob
from windlass.core.units import DAY, SECOND
from windlass.errors import InvalidOption

URL = "amqp://host/celery"
NOW = int(datetime(2026, 11, 19, 6, 0, tzinfo=UTC).timestamp()) * SECOND
peer = Celery("proj", broker="memory://", set_as_current=False)
app = Windlass("memory://")


class Order(msgspec.Struct):
    id: int
    at: datetime


@app.task(name="proj.add", retry=RetryPolicy(max_attempts=8), queue="sums", priority=3)
def add(a: int, b: int = 0) -> int:
    return a + b


@app.task(name="proj.take")
def take(order: Order, *, when: datetime, day: date, price: Decimal, ref: uuid.UUID, raw: bytes) -> None: ...


@app.task(name="proj.any")
def anything(*args: Any, **kwargs: Any) -> None: ...


def sent(name: str, *args: Any, serializer: str = "json", **options: Any) -> Message:
    """A message as Celery makes it and a message broker hands it over."""
    kwargs, custom = options.pop("kwargs", {}), options.pop("headers", {})
    priority = options.pop("priority", None)
    made = peer.amqp.as_task_v2(options.pop("id", "an-id"), name, args, kwargs, **options)
    kind, coding, body = dumps(made.body, serializer)
    table = {**made.headers, **custom}
    return Message(
        body=body if isinstance(body, bytes) else body.encode(),
        headers={key: value for key, value in table.items() if isinstance(value, str)},
        table=table,
        properties={"content_type": kind, "content_encoding": coding},
        priority=priority,
    )


def mapper(*, keyed: bool = True, fields: Fields = Fields()) -> CeleryMapper:  # noqa: B008 - it is frozen
    settings = IntakeSettings(
        name="celery", url=URL, format="celery", tasks=("proj.add", "proj.take", "proj.any"), fields=fields
    )
    made = mapper_of(
        Intake(settings, address_of(URL)),
        app.tasks,
        NewIds("default", "celery", iter(map(str, range(1000))).__next__),
        namespace="default",
        keyed=keyed,
        now=lambda: NOW,
    )
    assert isinstance(made, CeleryMapper)
    return made


def job_of(message: Message, **options: Any) -> NewJob:
    mapped = mapper(**options).map(message)
    assert mapped.error is None, mapped.error
    (job,) = mapped.jobs
    return job


def arguments(job: NewJob) -> tuple[tuple[object, ...], Mapping[str, object]]:
    return app.tasks[job.task].signature.decode(job.payload)


def test_a_call_is_a_job_of_the_task_of_that_name() -> None:
    job = job_of(sent("proj.add", 1, kwargs={"b": 2}, headers={"tenant": "acme", "number": 7}))
    assert (job.task, job.queue, job.priority, job.max_attempts) == ("proj.add", "sums", 3, 8)
    assert arguments(job) == ((), {"a": 1, "b": 2})
    assert job.headers == {"tenant": "acme", "windlass-intake": "celery", "windlass-message": "an-id"}
    assert (job.run_at, job.delay, job.expires) == (None, 0, None)


def test_repeats_of_an_id_are_one_job() -> None:
    one, again = job_of(sent("proj.add", 1)), job_of(sent("proj.add", 1, retries=2))
    assert one.id == again.id != job_of(sent("proj.add", 1, id="another")).id
    assert (one.key, one.window) == (message_key("celery", "an-id"), DAY)
    assert job_of(sent("proj.add", 1), keyed=False).key is None


def test_times_are_those_of_celery() -> None:
    eta = datetime(2026, 11, 19, 7, 30, 15, 250_000, tzinfo=UTC)
    job = job_of(sent("proj.add", 1, eta=eta, expires=eta + timedelta(hours=1)))
    assert job.run_at == int(eta.timestamp() * 1_000) * 1_000
    assert job.expires == job.run_at + 3_600 * SECOND - NOW
    naive = job_of(sent("proj.add", 1, eta=eta.replace(tzinfo=None)))
    assert naive.run_at == job.run_at
    elsewhere = job_of(sent("proj.add", 1, eta=eta.astimezone(datetime.now().astimezone().tzinfo)))
    assert elsewhere.run_at == job.run_at


def test_countdown_is_a_time() -> None:
    now = datetime.fromtimestamp(NOW / SECOND, UTC)
    job = job_of(sent("proj.add", 1, countdown=90, expires=120, now=now))
    assert (job.run_at, job.expires) == (NOW + 90 * SECOND, 120 * SECOND)


def test_what_has_expired_is_not_run() -> None:
    job = job_of(sent("proj.add", 1, expires=datetime(2020, 1, 1, tzinfo=UTC)))
    assert job.expires == 1


@pytest.mark.parametrize(("retries", "attempts"), [(0, 8), (3, 5), (7, 1), (100, 1)])
def test_tries_of_celery_count(retries: int, attempts: int) -> None:
    assert job_of(sent("proj.add", 1, retries=retries)).max_attempts == attempts


def test_priority_of_a_message_is_that_of_its_job() -> None:
    assert job_of(sent("proj.add", 1, priority=9)).priority == 9
    assert job_of(sent("proj.add", 1, priority=-6)).priority == -6


def test_values_that_celery_marks_are_those_of_the_annotations() -> None:
    when, ref = datetime(2026, 11, 19, 7, 30, tzinfo=UTC), uuid.uuid4()
    job = job_of(
        sent(
            "proj.take",
            {"id": 1, "at": when},
            kwargs={
                "when": when,
                "day": when.date(),
                "price": Decimal("1.50"),
                "ref": ref,
                "raw": b"\xff\x00",
            },
        )
    )
    args, kwargs = arguments(job)
    assert (args, dict(kwargs)) == (
        (),
        {
            "order": Order(1, when),
            "when": when,
            "day": when.date(),
            "price": Decimal("1.50"),
            "ref": ref,
            "raw": b"\xff\x00",
        },
    )
    text = job_of(sent("proj.any", b"text", nested := {"a": [b"x", None, 1.5, True]}))
    assert arguments(text)[0][0] == "dGV4dA=="
    assert nested.keys() == {"a"}


def test_options_of_the_intake_are_read_from_celery_s_headers() -> None:
    fields = Fields(lane="headers.tenant", queue="from-celery", headers={"who": "headers.origin"})
    job = job_of(sent("proj.add", 1, headers={"tenant": "acme"}, origin="web-1"), fields=fields)
    assert (job.lane, job.queue, job.headers["who"]) == ("acme", "from-celery", "web-1")


def dead(message: Message) -> Mapped:
    mapped = mapper().map(message)
    assert mapped.error is not None
    assert len(mapped.jobs) == 1
    return mapped


class Evil:
    """If it were unpickled, it would say so."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("it was unpickled",))


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (sent("proj.add", Evil(), serializer="pickle"), "unpickled"),
        (sent("proj.add", 1, serializer="yaml"), "only JSON"),
        (sent("proj.add", 1, callbacks=[signature("proj.add", (1,))]), "link="),
        (sent("proj.add", 1, errbacks=[signature("proj.add", (1,))]), "link_error="),
        (sent("proj.add", 1, chain=[signature("proj.add", (1,))]), "chain"),
        (sent("proj.add", 1, chord=signature("proj.add", (1,))), "chord"),
        (sent("proj.add", 1, group_id="a-group"), "group"),
        (sent("proj.unknown", 1), "does not list"),
        (sent("proj.add", "text"), "argument 'a'|\"a\""),
        (sent("proj.add"), "argument"),
        (sent("proj.add", 1, headers={"compression": "application/x-gzip"}), "compressed"),
        (sent("proj.add", 1, eta="tomorrow"), "eta"),
        (sent("proj.add", 1, eta="9999-12-31T00:00:00"), "2255"),
        (sent("proj.add", 1, expires="9999-12-31T00:00:00"), "2255"),
        (sent("proj.add", 1, retries=-1), "retries"),
        (sent("proj.add", float("nan")), "JSON"),
        (sent("proj.any", {"__type__": "pickle", "__value__": "x"}), "type"),
        (Message(body=b"{}"), "protocol 2"),
        (Message(body=None, headers={"task": "proj.add", "id": "1"}), "JSON"),
    ],
)
def test_what_cannot_be_honoured_is_a_dead_letter_with_its_bytes(message: Message, why: str) -> None:
    import re  # noqa: PLC0415 - only here

    mapped = dead(message)
    assert re.search(why, mapped.error.message if mapped.error else "")
    assert mapped.jobs[0].payload == (message.body or b"")
    assert mapped.jobs[0].task in ("proj.add", "proj.any", "windlass.unread")


def test_a_dead_letter_is_one_however_often_its_message_comes() -> None:
    message = sent("proj.add", serializer="yaml")
    assert dead(message).jobs[0].id == dead(message).jobs[0].id


def test_bodies_of_an_older_protocol_are_refused() -> None:
    made = peer.amqp.as_task_v1("an-id", "proj.add", (1,), {})
    with pytest.raises(Unreadable, match="protocol 2"):
        celery.read(Message(body=dumps(made.body, "json")[2].encode()))


@pytest.mark.parametrize(
    "fields", [Fields(task="headers.task"), Fields(delay=5), Fields(arguments="body.order")]
)
def test_settings_that_celery_s_messages_say_themselves_are_refused(fields: Fields) -> None:
    with pytest.raises(InvalidOption, match='format="celery"'):
        mapper(fields=fields)


def test_what_is_written_is_read() -> None:
    call = celery.CeleryCall(
        id="an-id",
        task="proj.add",
        args=[1, "x", None],
        kwargs={"b": {"c": [1.5]}},
        eta=NOW + 1,
        expires=NOW + 2,
        retries=3,
        priority=4,
        headers={"tenant": "acme"},
    )
    written = celery.write(call, to="celery", key="acme")
    assert (written.id, written.to, written.key) == ("an-id", "celery", "acme")
    read = celery.read(
        Message(
            body=written.body,
            headers={
                **written.headers,
                **{key: value for key, value in written.table.items() if isinstance(value, str)},
            },
            table={**written.headers, **written.table},
            properties=written.properties,
            priority=written.priority,
        )
    )
    assert read == call


def test_an_app_declares_an_intake_of_celery_s_messages() -> None:
    mine = Windlass("memory://")
    mine.task(lambda: None, name="proj.nothing")
    mine.intake(URL, format="celery", tasks=["proj.nothing"])
    mine.intake("redis://host:6379/0?list=mail", format="celery", tasks=["proj.nothing"])
    assert list(mine.intakes) == ["celery", "mail"]
    with pytest.raises(InvalidOption, match="list them"):
        mine.intake(URL, format="celery", task="headers.task", tasks=["proj.nothing"])


def test_queues_whose_messages_have_the_same_ids_do_not_absorb_each_other() -> None:
    one, other = (
        MessageMapper(
            IntakeSettings(name=name, url=URL, tasks=("proj.add",), fields=Fields(task="proj.add")),
            app.tasks,
            NewIds("default", name, str),
            keyed=True,
        )
        for name in ("eu", "us")
    )
    message = Message(body=b'{"a": 1}', id="1")
    (job,), (again,), (elsewhere,) = (each.map(message).jobs for each in (one, one, other))
    assert (job.id, job.key) == (again.id, again.key)
    assert job.id != elsewhere.id
    assert job.key != elsewhere.key

"""Whatever a message holds, it is a job that every store can hold, or a dead letter: nothing is held up."""

import json

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from windlass import Windlass
from windlass.bridges.declared import Intake
from windlass.bridges.making import NewIds, mapper_of
from windlass.bridges.mapped import Mapped, Mapper
from windlass.bridges.message import Message
from windlass.core.foreign import check_foreign
from windlass.core.intake import UNREAD

TEXTS = st.text(max_size=9) | st.sampled_from(
    ["", "\0", "é" * 101, "x" * 9_000, "5m", "-1", "1e9", "nan", "ship", "windlass.webhook", "9" * 400]
)
NUMBERS = st.integers() | st.sampled_from([10**19, 10**400, -(10**400), 2**63, 1e308, 0.5])
VALUES = st.recursive(
    st.none() | st.booleans() | TEXTS | NUMBERS, lambda inner: st.lists(inner, max_size=2), max_leaves=3
)
TIMES = st.sampled_from([None, 0, -1, 10**15, 2**62]) | st.integers(-(2**63), 2**63)
READ = ["queue", "lane", "priority", "key", "delay"]

app = Windlass("memory://")


@app.task
def ship(n: object = None) -> None: ...


app.intake("amqp://host/celery", format="celery", tasks=[ship], name="celery")
for option in READ:
    app.intake(
        "amqp://host/orders",
        task=ship,
        arguments={"n": "body.n"},
        headers={"seen": "headers.seen"},
        name=option,
        **{option: "body.value"},  # type: ignore[arg-type]
    )


def mapper(intake: Intake, *, keyed: bool) -> Mapper:
    new_ids = NewIds("bridges", intake.settings.name, app.new_id)
    return mapper_of(intake, app.tasks, new_ids, namespace="bridges", keyed=keyed, now=lambda: 10**15)


def holds(mapped: Mapped) -> None:
    """As a job of a store; a dead letter may be of the task that messages have which nobody could name."""
    for job in mapped.jobs:
        task = "unread" if mapped.error is not None and job.task == UNREAD else job.task
        check_foreign(msgspec.structs.replace(job, task=task))
    assert mapped.jobs
    msgspec.msgpack.encode(mapped)


@given(
    st.sampled_from(READ), VALUES, TEXTS, st.none() | TEXTS, st.none() | st.integers(), TIMES, st.booleans()
)
@example("priority", 10**400, "", "1", None, None, True)
@example("lane", "a", "", "1", None, 2**62, True)
def test_a_message_of_any_content(
    option: str,
    value: object,
    text: str,
    message_id: str | None,
    priority: int | None,
    at: int | None,
    keyed: bool,
) -> None:
    message = Message(
        body=body({"n": 1, "value": value}),
        headers={"seen": text},
        key=text,
        id=message_id,
        priority=priority,
        place=text,
        at=at,
    )
    made = mapper(app.intakes[option], keyed=keyed)
    holds(made.map(message))
    holds(made.unfit(message, "no store takes it"))


@given(st.binary(max_size=30), st.dictionaries(TEXTS, TEXTS, max_size=4))
def test_a_message_of_any_bytes(content: bytes, headers: dict[str, str]) -> None:
    for intake in app.intakes.values():
        holds(mapper(intake, keyed=True).map(Message(body=content, headers=headers)))


@given(
    st.lists(VALUES, max_size=2),
    st.dictionaries(st.sampled_from(["eta", "expires", "retries", "group", "id", "task", "own"]), VALUES),
    st.sampled_from(["2026-11-19T00:00:00", "9999-12-31T23:59:59", "0001-01-01T00:00:00+14:00"]),
)
def test_a_message_of_celery_s_with_any_headers(
    args: list[object], table: dict[str, object], time: str
) -> None:
    message = Message(
        body=body([args, {}, {}]),
        table={"task": "ship", "id": "1", "eta": time, "expires": time, **table},
        properties={"content_type": "application/json", "content_encoding": "utf-8"},
    )
    holds(mapper(app.intakes["celery"], keyed=True).map(message))


def body(value: object) -> bytes:
    """JSON with numbers of any size, which msgspec does not write."""
    return json.dumps(value).encode(errors="replace")

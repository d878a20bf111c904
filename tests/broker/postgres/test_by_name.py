"""`SELECT windlass.enqueue(...)`: jobs from any language, in the transaction that is open."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass import RetryPolicy, Windlass
from windlass.core.job import JobDetail
from windlass.core.state import State
from windlass.core.units import HOUR
from windlass.worker.registration import declare_all

__all__ = ["namespaces"]


def _documented() -> list[str]:
    """The calls of the function on the page about PostgreSQL."""
    page = (Path(__file__).parents[3] / "docs" / "postgres.md").read_text()
    found = re.findall(r"SELECT windlass\.enqueue\('.*\)", page)
    assert len(found) == 2
    return [each.replace("\\", "") for each in found]


class Office:
    """An app whose tasks are registered, and a connection that knows nothing of it."""

    def __init__(self, app: Windlass, connection: psycopg.Connection[Any]) -> None:
        self.app = app
        self.connection = connection

    def enqueue(self, call: str, *arguments: object) -> str:
        """Call the function, commit; the id."""
        row = self.connection.execute(f"SELECT by_name.enqueue({call})", arguments).fetchone()
        self.connection.commit()
        assert row is not None
        return str(row[0])

    def detail(self, job: str) -> JobDetail | None:
        async def ask() -> JobDetail | None:
            return (await (await self.app.broker()).get([job]))[0]

        return self.app.connection.run(ask())

    def refused(self, call: str) -> str:
        with pytest.raises(psycopg.DatabaseError) as caught:
            self.enqueue(call)
        self.connection.rollback()
        assert caught.value.sqlstate == "WL003"
        return str(caught.value).partition("\n")[0]


@pytest.fixture(scope="module")
def office(namespaces: Namespaces) -> Iterator[Office]:
    app = Windlass(namespaces.server.dsn, namespace="by_name")

    @app.task(queue="mail", retry=RetryPolicy(max_attempts=7))
    def send(to: str, subject: str = "") -> str:
        return f"{to}: {subject}"

    async def register() -> None:
        await declare_all(await app.broker(), app)

    app.connection.run(register())
    with psycopg.connect(namespaces.server.dsn) as connection:
        yield Office(app, connection)
    app.close()


def test_it_arrives_as_a_call(office: Office) -> None:
    send = office.app.tasks["send"]
    for payload in ('{"to": "ä@example.com", "subject": "hi"}', '["ä@example.com", "hi"]'):
        detail = office.detail(office.enqueue("%s, %s", "send", payload))
        assert detail is not None
        args, kwargs = send.signature.decode(detail.payload)
        assert send(*args, **kwargs) == "ä@example.com: hi"


def test_the_registered_task_says_where_it_goes(office: Office) -> None:
    detail = office.detail(office.enqueue("""'send', '{"to": "x"}'"""))
    assert detail is not None
    assert (detail.queue, detail.max_attempts, detail.state) == ("mail", 7, State.READY)
    other = office.detail(office.enqueue("'of_nobody'"))
    assert other is not None
    assert (other.queue, other.max_attempts) == ("default", 5)


def test_it_takes_options_by_name(office: Office) -> None:
    call = (
        "'send', '{}', queue => 'default', lane => 'acme', priority => 5, delay => '1 hour',"
        " expires => '2 hours', max_attempts => 3, tags => ARRAY['a', 'b']"
    )
    detail = office.detail(office.enqueue(call))
    assert detail is not None
    assert (detail.queue, detail.lane, detail.priority, detail.max_attempts) == ("default", "acme", 5, 3)
    assert (detail.state, detail.tags) == (State.SCHEDULED, ("a", "b"))
    assert detail.expires_at is not None
    assert 0 < detail.due_at - detail.accepted_at <= HOUR < detail.expires_at - detail.accepted_at
    at = office.detail(office.enqueue("'send', run_at => '2100-01-01T00:00:00Z'"))
    assert at is not None
    assert at.due_at == 4_102_444_800_000_000


def test_a_key_and_an_id_make_no_second_job(office: Office) -> None:
    first = office.enqueue("'send', key => 'order-7'")
    assert office.detail(first) is not None  # taken in
    assert office.enqueue("'send', key => 'order-7'") == first
    assert office.enqueue("'send', id => %s", first) == first


def test_it_is_rolled_back_with_its_transaction(office: Office) -> None:
    row = office.connection.execute("SELECT by_name.enqueue('send')").fetchone()
    assert row is not None
    office.connection.rollback()
    assert office.detail(str(row[0])) is None


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("'send', queue => 'nowhere'", 'queue "nowhere" is not declared'),
        ("''", "a task name is 1 to 100 letters"),
        ("'windlass.webhook'", 'whose names begin with "windlass." are reserved'),
        ("'send', queue => 'windlass.webhooks'", 'whose names begin with "windlass." are reserved'),
        ("'send', '7'", "the payload is a JSON object"),
        ("'send', NULL", "the payload is a JSON object"),
        ("'send', json_build_object('x', repeat('y', 1048576))", "at most 1048576 bytes"),
        ("'send', priority => 101", "priority must be from -100 to 100, not 101"),
        ("'send', max_attempts => 0", "max_attempts must be from 1 to 10000, not 0"),
        ("'send', delay => '-1 s'", "delay must not be negative"),
        ("'send', expires => '0 s'", "expires must be positive"),
        ("'send', key => ''", "a key is text of 1 to 200 bytes"),
        ("'send', lane => E'a\\nb'", "a lane is text of at most 200 bytes"),
        ("'send', tags => ARRAY['']", "a job has at most 16 tags"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(office: Office, call: str, why: str) -> None:
    assert why in office.refused(call)


@pytest.mark.parametrize("text", _documented())
def test_what_the_documentation_shows_works(office: Office, text: str) -> None:
    row = office.connection.execute(text.replace("windlass.", "by_name.").encode()).fetchone()
    office.connection.commit()
    assert row is not None
    detail = office.detail(str(row[0]))
    assert detail is not None
    assert detail.queue == "mail"
    assert office.app.tasks["send"].signature.decode(detail.payload) == ((), {"to": "a@example.com"})

"""Who enqueued a job: a header, where history is kept."""

import socket
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from windlass import Job, Windlass
from windlass.core.enqueuer import BY, NOBODY, Enqueuer, enqueuer_in, header_of, with_header
from windlass.core.names import MAX_HEADERS
from windlass.core.specification import decode_specification

HISTORY = "sqlite:///history.db"


def headers_of(app: Windlass, jobs: list[Job[Any]]) -> list[Mapping[str, str]]:
    async def read() -> list[Mapping[str, str]]:
        found = await (await app.connection.broker()).get([job.id for job in jobs])
        return [detail.headers for detail in found if detail is not None]

    return app.connection.run(read())


@pytest.mark.parametrize("many", [False, True])
def test_with_history_jobs_say_who_enqueued_them(new_app: Callable[..., Windlass], many: bool) -> None:
    app = new_app(history=HISTORY)

    @app.task
    def send(to: str) -> None: ...

    call = send.using(headers={"tenant": "acme"})
    jobs = call.enqueue_many(send.call(str(to)) for to in range(20)) if many else [call.enqueue("a")]
    found = headers_of(app, jobs)
    assert len(found) == len(jobs)
    for headers in found:
        assert enqueuer_in(headers) == Enqueuer(app=app.name, host=socket.gethostname())
        assert headers["tenant"] == "acme"


def test_without_history_they_carry_nothing_more(new_app: Callable[..., Windlass]) -> None:
    app = new_app()

    @app.task
    def send(to: str) -> None: ...

    assert headers_of(app, [send.enqueue("a")]) == [{}]


def test_a_schedule_is_the_same_whoever_declares_it(new_app: Callable[..., Windlass]) -> None:
    app = new_app(history=HISTORY)

    @app.task
    def send(to: str) -> None: ...

    app.schedule("nightly", send.using(headers={"tenant": "acme"}).call("ops"), every=timedelta(hours=1))

    async def specification() -> bytes:
        (view,) = (await (await app.connection.broker()).schedules()).schedules
        return view.spec

    assert decode_specification(app.connection.run(specification())).call.headers == {"tenant": "acme"}


def test_a_header_that_cannot_be_read_says_nothing() -> None:
    for text in ("", "{", "[]", '"me"', '{"app": 5}'):
        assert enqueuer_in({BY: text}) == NOBODY
    assert enqueuer_in({}) == NOBODY


def test_there_may_be_no_room_for_it() -> None:
    own = header_of(Enqueuer(app="shop"))
    full = {f"h{number}": "" for number in range(MAX_HEADERS)}
    assert with_header(full, own) == full
    assert with_header({**own, "a": "b"}, header_of(NOBODY))[BY] == "{}"

"""Sentry: events for dead letters, with the SDK's own client and a transport that keeps what it is given."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.transport import Transport

from windlass import Depends, GiveUp, Proceed, Retry, RetryPolicy, RunningJob, Secret, Windlass
from windlass.errors import InvalidOption, JobFailed
from windlass.sentry import WindlassIntegration
from windlass.testing import testing

WORD = "CANARY"
"""Part of each secret, and of no line of code near to a run: events quote those."""
CARD = f"{WORD}-4111"
ONCE = RetryPolicy(max_attempts=1)
TWICE = RetryPolicy(max_attempts=2, base=0)


class Kept(Transport):
    """Keeps envelopes."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.envelopes: list[Envelope] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.envelopes.append(envelope)

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        items = [item for envelope in self.envelopes for item in envelope.items if item.type == kind]
        return [json.loads(item.payload.get_bytes()) for item in items]

    @property
    def events(self) -> list[dict[str, Any]]:
        return self.of_type("event")

    @property
    def text(self) -> str:
        return b"".join(envelope.serialize() for envelope in self.envelopes).decode()


@pytest.fixture
def sentry() -> Iterator[Callable[..., Kept]]:
    """Set Sentry up; gives its transport."""

    def init(integration: WindlassIntegration | None = None, **more: Any) -> Kept:
        sentry_sdk.init(
            dsn="http://public@127.0.0.1:9/1",
            transport=Kept,
            default_integrations=False,
            integrations=[integration or WindlassIntegration(), LoggingIntegration()],
            **more,
        )
        kept = sentry_sdk.get_client().transport
        assert isinstance(kept, Kept)
        return kept

    yield init
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(None)


@pytest.fixture
def app() -> Iterator[Windlass]:
    made = Windlass("memory://", poll_floor=0.05)
    yield made
    made.close()


def ran(app: Windlass, *calls: Any) -> list[str]:
    """Run these jobs, one after the other, to their ends; their ids."""

    async def main() -> list[str]:
        jobs = []
        async with asyncio.timeout(30), app.worker(concurrency=1):
            for call in calls:
                (job,) = await app.aenqueue_many([call])
                jobs.append(job.id)
                with contextlib.suppress(JobFailed):
                    await job.aresult(20)
        await app.aclose()
        return jobs

    return asyncio.run(main())


def declines(card: Annotated[str, Secret]) -> None:
    seen = f"seen {card}"
    logging.getLogger("shop").warning("trying %s", card)
    sentry_sdk.add_breadcrumb(message=f"crumb of {card}", data={"deep": [{"card": card}], "seen": len(seen)})
    sentry_sdk.set_context("order", {"paid with": card, "object": Opaque(card)})
    sentry_sdk.set_tag("mine", "yes")
    try:
        _ = {}[card]
    except KeyError as error:
        error.add_note(f"note of {card}")
        raise ValueError(f"declined {card}") from error


async def adeclines(card: Annotated[str, Secret]) -> None:
    declines(card)


class Opaque:
    """Something that is no JSON."""

    def __init__(self, card: str) -> None:
        self._card = card

    def __repr__(self) -> str:
        return f"<paid with {self._card}>"


@pytest.mark.parametrize("kind", ["loop", "thread", "inline"])
def test_a_dead_letter_is_one_event(sentry: Callable[..., Kept], app: Windlass, kind: str) -> None:
    kept = sentry()
    function: Any = adeclines if kind == "loop" else declines
    run: Any = kind
    task = app.task(name="charge", run=run, retry=TWICE)(function)
    (job,) = ran(app, task.using(lane="acme").call(CARD))
    (event,) = kept.events
    tags = {"job": job, "task": "charge", "queue": "default", "lane": "acme", "attempt": "2"}
    assert event["tags"] == {**tags, "mine": "yes"}
    assert (event["level"], event["transaction"]) == ("error", "charge")
    cause, error = event["exception"]["values"]
    assert (cause["type"], error["type"], error["value"]) == ("KeyError", "ValueError", "declined [secret]")
    assert error["mechanism"]["type"] == "windlass"
    frames = [frame["function"] for frame in error["stacktrace"]["frames"]]
    assert frames == (["adeclines", "declines"] if kind == "loop" else ["declines"]), "none of the worker's"
    assert event["contexts"]["windlass"]["max_attempts"] == 2
    assert event["contexts"]["order"] == {"paid with": "[secret]", "object": "<paid with [secret]>"}
    crumbs = [crumb["message"] for crumb in event["breadcrumbs"]["values"]]
    assert crumbs == ["trying [secret]", "crumb of [secret]"], "of this run alone"


def test_every_failure_is_an_event_if_asked_for(sentry: Callable[..., Kept], app: Windlass) -> None:
    kept = sentry(WindlassIntegration(failures="all"))
    charge = app.task(name="charge", retry=TWICE)(adeclines)

    @app.task(retry=TWICE)
    async def again() -> None:
        raise Retry("not yet", after=0)

    ran(app, charge.call(CARD), again.call())
    assert [(event["level"], event["tags"]["task"], event["tags"]["attempt"]) for event in kept.events] == [
        ("warning", "charge", "1"),
        ("error", "charge", "2"),
        ("info", "again", "1"),
        ("error", "again", "2"),
    ]


def test_what_a_task_says_itself_counts_as_any_failure(sentry: Callable[..., Kept], app: Windlass) -> None:
    kept = sentry()

    @app.task(retry=TWICE)
    async def again() -> None:
        raise Retry("not yet", after=0)

    @app.task
    async def stops() -> None:
        raise GiveUp("no such order")

    @app.task
    async def works() -> int:
        return 1

    ran(app, again.call(), stops.call(), works.call())
    assert [event["tags"]["task"] for event in kept.events] == ["again", "stops"]


def test_what_a_run_sets_stays_with_it(sentry: Callable[..., Kept], app: Windlass) -> None:
    kept = sentry()

    @app.task(retry=ONCE)
    def first() -> None:
        sentry_sdk.set_tag("only", "here")
        sentry_sdk.set_user({"id": "7"})
        raise ValueError

    @app.task(retry=ONCE)
    def second() -> None:
        raise ValueError

    ran(app, first.call(), second.call())
    one, other = kept.events
    assert (one["tags"]["only"], one["user"]) == ("here", {"id": "7"})
    assert "only" not in other["tags"]
    assert "user" not in other


def test_in_a_test_each_run_has_its_own_scope_too(sentry: Callable[..., Kept], app: Windlass) -> None:
    """What one job has left there may hold secrets that the next job does not know."""
    kept = sentry()

    @app.task(retry=ONCE)
    def pays(card: Annotated[str, Secret], fails: bool) -> None:
        sentry_sdk.set_tag(f"paid-{fails}", "yes")
        logging.getLogger("shop").warning("trying %s", card)
        if fails:
            raise ValueError

    with testing(app, raises=False) as t:
        pays.enqueue(f"{CARD}-1", fails=False)
        pays.enqueue(f"{CARD}-2", fails=True)
        t.drain()
    (event,) = kept.events
    assert [crumb["message"] for crumb in event["breadcrumbs"]["values"]] == ["trying [secret]"]
    assert "paid-True" in event["tags"]
    assert "paid-False" not in event["tags"]
    assert WORD not in kept.text


def test_frames_between_middleware_dependencies_and_task_are_not_sent(
    sentry: Callable[..., Kept], app: Windlass
) -> None:
    kept = sentry()

    def get_value() -> Iterator[int]:
        yield 1

    @app.middleware
    async def around(_job: RunningJob, run: Proceed) -> Any:
        return await run()

    @app.task(retry=ONCE)
    def fails(value: int = Depends(get_value)) -> None:
        raise ValueError(value)

    ran(app, fails.call())
    (event,) = kept.events
    frames = event["exception"]["values"][-1]["stacktrace"]["frames"]
    assert [frame["function"] for frame in frames] == ["around", "get_value", "fails"]


def test_no_secret_leaves(sentry: Callable[..., Kept], app: Windlass) -> None:
    """Not by any event that is sent while a job runs: also those of the program, and transactions."""
    kept = sentry(WindlassIntegration(failures="all"), traces_sample_rate=1.0, attach_stacktrace=True,
                  include_local_variables=False)  # fmt: skip

    @app.task(retry=TWICE)
    def charge(card: Annotated[str, Secret], password: str) -> None:
        sentry_sdk.capture_message(f"with {card}")
        logging.getLogger("shop").error("error with %s", password, extra={"also": card})
        with sentry_sdk.start_span(op="pay", name=f"pay with {card}") as span:
            span.set_data("card", {"number": card})
        declines(card)

    ran(app, charge.using(headers={"authorization": f"Bearer {CARD}-header"}).call(CARD, f"{CARD}-too"))
    assert len(kept.events) == 2 * 3
    assert len(kept.of_type("transaction")) == 2
    assert WORD not in kept.text
    assert "[secret]" in kept.text


def test_a_secret_in_a_line_of_code_does_not_leave(sentry: Callable[..., Kept], app: Windlass) -> None:
    """Events quote the lines around each frame."""
    kept = sentry()

    @app.task(retry=ONCE)
    def compares(password: str) -> None:
        if password == "written-in-the-code":
            raise ValueError("after: written-in-the-code")

    word = "written-in-" + "the-code"
    ran(app, compares.call(word))
    assert len(kept.events) == 1
    assert word not in kept.text
    assert 'if password == \\"[secret]\\":' in kept.text


def test_locals_are_not_sent_though_sentry_would(sentry: Callable[..., Kept], app: Windlass) -> None:
    kept = sentry()
    charge = app.task(name="charge", retry=ONCE)(declines)
    ran(app, charge.call(CARD))
    frames = [
        frame for value in kept.events[0]["exception"]["values"] for frame in value["stacktrace"]["frames"]
    ]
    assert [frame.get("vars") for frame in frames] == [None] * len(frames)
    try:
        declines("no job of ours")
    except ValueError:
        sentry_sdk.capture_exception()
    frame = kept.events[1]["exception"]["values"][-1]["stacktrace"]["frames"][-1]
    assert "seen" in frame["vars"], "outside of a run Sentry does as it is told"


def test_a_run_is_a_transaction_where_the_program_traces(sentry: Callable[..., Kept], app: Windlass) -> None:
    kept = sentry(traces_sample_rate=1.0)
    fails = app.task(name="fails", retry=ONCE)(adeclines)

    @app.task
    async def works() -> None: ...

    ran(app, works.call(), fails.call(CARD))
    done, dead = kept.of_type("transaction")
    assert (done["transaction"], done["contexts"]["trace"]["status"]) == ("works", "ok")
    assert (dead["transaction"], dead["contexts"]["trace"]["status"]) == ("fails", "internal_error")
    assert done["contexts"]["trace"]["op"] == "queue.task.windlass"
    (event,) = kept.events
    assert event["contexts"]["trace"]["trace_id"] == dead["contexts"]["trace"]["trace_id"]


def test_a_run_continues_the_trace_of_its_caller(sentry: Callable[..., Kept], app: Windlass) -> None:
    kept = sentry(traces_sample_rate=1.0)

    @app.task
    async def works() -> None: ...

    with sentry_sdk.start_transaction(name="request") as request:
        call = works.using(headers={"sentry-trace": sentry_sdk.get_traceparent() or ""}).call()
    ran(app, call)
    (run,) = [each for each in kept.of_type("transaction") if each["transaction"] == "works"]
    assert run["contexts"]["trace"]["trace_id"] == request.trace_id
    assert run["contexts"]["trace"]["parent_span_id"] == request.span_id


def test_a_transport_that_fails_changes_nothing(
    sentry: Callable[..., Kept], app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = sentry()

    def refuse(envelope: Envelope) -> None:
        raise OSError("no route to Sentry")

    monkeypatch.setattr(kept, "capture_envelope", refuse)
    charge = app.task(name="charge", retry=ONCE)(adeclines)

    async def main() -> str:
        async with asyncio.timeout(30), app.worker(concurrency=1):
            job = await charge.aenqueue(CARD)
            with pytest.raises(JobFailed, match="declined"):
                await job.aresult(20)
            state = await job.astate()
        await app.aclose()
        return state

    assert asyncio.run(main()) == "dead"


def test_without_the_integration_nothing_is_sent(sentry: Callable[..., Kept], app: Windlass) -> None:
    sentry()
    sentry_sdk.init(dsn="http://public@127.0.0.1:9/1", transport=Kept, default_integrations=False)
    kept = sentry_sdk.get_client().transport
    assert isinstance(kept, Kept)
    charge = app.task(name="charge", retry=ONCE)(adeclines)
    ran(app, charge.call(CARD))
    assert kept.events == []


def test_a_wrong_setting_is_refused() -> None:
    with pytest.raises(InvalidOption, match='failures must be "dead" or "all", not \'some\''):
        WindlassIntegration(failures="some")  # type: ignore[arg-type]

"""From the end of a job to its receiver: told once it is done or dead, until it is heard, signed."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from tests.webhooks.receiver import receiving

from windlass import GiveUp, Windlass
from windlass.admin.webhooks import Webhooks
from windlass.core.bridging import decoded
from windlass.core.event import FROM_NOW
from windlass.core.query import JobQuery
from windlass.core.reading import Reading
from windlass.core.settings import Kind
from windlass.core.state import State
from windlass.core.webhook import CALLBACK, QUEUE, TASK
from windlass.errors import InvalidOption


def run(app: Windlass, story: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        try:
            async with asyncio.timeout(60):
                await story()
        finally:
            await app.aclose()

    asyncio.run(whole())


def tasks(app: Windlass) -> Any:
    @app.task(queue="mail")
    async def send(to: str, token: str = "") -> str:
        if to == "nobody":
            raise GiveUp(f"there is no such person; {token}")
        return f"sent to {to}"

    return send


async def deliveries(app: Windlass, state: State) -> list[Any]:
    broker = await app.broker()
    found = (await broker.list(JobQuery(queue=QUEUE, states=frozenset({state})))).jobs
    return [job for job in await broker.get([each.id for each in found]) if job is not None]


async def caught_up(app: Windlass) -> None:
    """Wait until the reader has read all there is."""
    broker = await app.broker()
    for _ in range(1_000):
        (document,) = await broker.documents(Kind.READER)
        reading = decoded(document.override, Reading)
        if reading is not None and reading.cursor == (await broker.events(FROM_NOW, 1, 0.0)).cursor:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the log was never read to its end")


async def settled(app: Windlass, state: State, count: int = 1) -> list[Any]:
    for _ in range(1_000):
        if len(found := await deliveries(app, state)) >= count:
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"no {count} deliveries became {state}")


def test_a_callback_is_told_when_the_job_is_done(app: Windlass) -> None:
    send = tasks(app)

    async def story() -> None:
        async with receiving() as receiver, app.worker(concurrency=2):
            job = await send.using(callback=receiver.url("/done?x=1"), lane="acme").aenqueue("ann")
            (got,) = await receiver.wait_for(1)
            assert got.line == "POST /done?x=1 HTTP/1.1"
            said = got.said
            assert (said["type"], said["namespace"]) == ("job.done", "hooks")
            told = said["job"]
            assert (told["id"], told["task"], told["queue"], told["lane"]) == (job.id, "send", "mail", "acme")
            assert (told["state"], told["attempt"], told["error"]) == ("done", 1, None)
            assert told["runtime"] >= 0
            assert "ann" not in got.body.decode()  # neither arguments nor results
            await settled(app, State.DONE)
            assert len(receiver.got) == 1

    run(app, story)


def test_a_callback_is_told_while_every_slot_is_taken(app: Windlass) -> None:
    """By a worker inside an application: one job ends that is to be told of, the others keep both slots."""
    send = tasks(app)
    heard = asyncio.Event()

    @app.task
    async def long() -> None:
        await heard.wait()

    async def story() -> None:
        async with receiving() as receiver:
            await send.using(callback=receiver.url()).aenqueue("ann")
            for _ in range(20):
                await long.aenqueue()
            async with app.worker(concurrency=2):
                await receiver.wait_for(1)
                heard.set()

    run(app, story)


def test_a_dead_job_is_told_with_its_error_and_without_secrets(app: Windlass) -> None:
    send = tasks(app)

    async def story() -> None:
        async with receiving() as receiver, app.worker(concurrency=2):
            await send.using(callback=receiver.url()).aenqueue("nobody", token="hunter2-hunter2")
            (got,) = await receiver.wait_for(1)
            assert got.said["type"] == "job.dead"
            assert got.said["job"]["reason"] == "gave up"
            assert "no such person" in got.said["job"]["error"]["message"]
            assert b"hunter2" not in got.body

    run(app, story)


def test_a_receiver_that_fails_and_recovers_is_told_once_it_is_well(app: Windlass) -> None:
    send = tasks(app)

    async def story() -> None:
        async with (
            receiving([500, 503, None, b"nonsense\r\n\r\n", 204]) as receiver,
            app.worker(concurrency=2),
        ):
            await send.using(callback=receiver.url()).aenqueue("ann")
            got = await receiver.wait_for(5)
            (done,) = await settled(app, State.DONE)
            assert done.attempt == 5
            assert {each.headers["webhook-id"] for each in got} == {done.id}
            assert len({each.body for each in got}) == 1
            outcomes = [run.error.message for run in done.deliveries[:2] if run.error is not None]
            assert outcomes == [f"{receiver.url('')} answered 500", f"{receiver.url('')} answered 503"]

    monkeypatched_patience(lambda: run(app, story))


def monkeypatched_patience(work: Callable[[], None]) -> None:
    """A receiver that says nothing is left after a moment."""
    from windlass.worker import delivering, posting  # noqa: PLC0415

    real = posting.post

    async def impatient(*args: Any, **options: Any) -> Any:
        return await real(*args, answering=0.2, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delivering, "post", impatient)
        work()


def test_what_is_sent_is_signed_with_the_secret_of_its_receiver(app: Windlass) -> None:
    send = tasks(app)

    async def story() -> None:
        async with receiving() as receiver, receiving() as other, app.worker(concurrency=2):
            hooks = Webhooks(app, await app.broker())
            secret = (await hooks.secret(receiver.url("/any/path"))).secret
            wrong = (await hooks.secret(other.url())).secret
            assert secret != wrong
            await send.using(callback=receiver.url()).aenqueue("ann")
            (got,) = await receiver.wait_for(1)
            assert got.is_signed_with(secret)
            assert not got.is_signed_with(wrong)
            assert abs(int(got.headers["webhook-timestamp"]) - time.time()) < 60
            got.body += b" "
            assert not got.is_signed_with(secret)
            got.body = got.body[:-1]
            got.headers["webhook-timestamp"] = "1"
            assert not got.is_signed_with(secret)

    run(app, story)


def test_while_a_secret_is_replaced_both_count(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    send = tasks(app)
    monkeypatch.setattr("windlass.worker.delivering._FRESH", 0.0)

    async def story() -> None:
        async with receiving() as receiver, app.worker(concurrency=2):
            hooks = Webhooks(app, await app.broker())
            old = (await hooks.secret(receiver.url())).secret
            await hooks.rotate()
            new = (await hooks.secret(receiver.url())).secret
            assert old != new
            await send.using(callback=receiver.url()).aenqueue("ann")
            (got,) = await receiver.wait_for(1)
            assert got.is_signed_with(old)
            assert got.is_signed_with(new)
            await hooks.rotate()
            await send.using(callback=receiver.url()).aenqueue("bob")
            _, got = await receiver.wait_for(2)
            assert not got.is_signed_with(old)

    run(app, story)


def test_what_may_not_be_sent_to_is_a_dead_letter_at_once(app: Windlass) -> None:
    send = tasks(app)

    async def story() -> None:
        async with app.worker(concurrency=2):
            call = send.using(callback="https://example.com/").call("ann")
            # As a name that means another address by now: what is written in digits is refused before.
            headers = {CALLBACK: "http://169.254.169.254/latest/meta-data/secret"}
            await (await app.broker()).enqueue([[msgspec.structs.replace(call.job, headers=headers)]])
            (dead,) = await settled(app, State.DEAD)
            assert dead.attempt == 1
            assert "link-local" in dead.error.message
            assert "meta-data" not in dead.error.message
            assert dead.lane == "http://169.254.169.254"

    run(app, story)


def test_a_receiver_that_wants_no_more_is_not_asked_again(app: Windlass) -> None:
    send = tasks(app)

    async def story() -> None:
        async with receiving([410]) as receiver, app.worker(concurrency=2):
            await send.using(callback=receiver.url()).aenqueue("ann")
            (dead,) = await settled(app, State.DEAD)
            assert dead.attempt == 1

    run(app, story)


def test_a_redirect_into_the_inside_is_not_followed(app: Windlass) -> None:
    send = tasks(app)

    async def story() -> None:
        async with receiving() as inside:
            away = f"HTTP/1.1 307 Away\r\nlocation: {inside.url()}\r\n\r\n".encode()
            async with receiving([away]) as receiver, app.worker(concurrency=2):
                await send.using(callback=receiver.url()).aenqueue("ann")
                (dead,) = await settled(app, State.DEAD)
                assert "redirects are not followed" in dead.error.message
            assert inside.connections == 0

    run(app, story)


def test_a_queue_is_told_of_from_the_moment_somebody_asks(app: Windlass) -> None:
    send = tasks(app)

    async def story() -> None:
        async with receiving() as receiver, app.worker(concurrency=2):
            before = await send.aenqueue("ann")
            await before.aresult(timeout=10)
            hooks = Webhooks(app, await app.broker())
            await hooks.put("crm", queue="mail", url=receiver.url("/all"), on=["dead"], by="me")
            await send.aenqueue("bob")
            dead = await send.aenqueue("nobody")
            (got,) = await receiver.wait_for(1)
            assert (got.said["type"], got.said["job"]["id"]) == ("job.dead", dead.id)
            await hooks.remove("crm")
            last = await send.aenqueue("nobody")
            assert await (await app.broker()).watch([last.id], 10.0)
            await caught_up(app)
            assert len(receiver.got) == 1
            assert not await deliveries(app, State.READY)

    run(app, story)


def test_a_queue_that_writes_no_events_is_made_to(tmp_path: Any) -> None:
    silent = Windlass(f"sqlite:///{tmp_path / 'other.db'}", name="other")
    silent.queue("mail")
    hooked = Windlass(f"sqlite:///{tmp_path / 'other.db'}", webhooks=True, name="hooked")

    async def story() -> None:
        await silent.broker()
        broker = await hooked.broker()
        await Webhooks(hooked, broker).put(
            "x", queue="mail", url="https://example.com/", on=["done"], by="me"
        )
        from windlass.admin.queues import Queues  # noqa: PLC0415

        assert (await Queues(broker).one("mail")).override == {"emit": "final"}
        await silent.aclose()

    run(hooked, story)


def test_callbacks_need_webhooks_and_events() -> None:
    plain = Windlass("memory://")
    with pytest.raises(InvalidOption, match="callback= needs webhooks"):
        tasks(plain).using(callback="https://example.com/")
    with pytest.raises(InvalidOption, match="needs webhooks"):
        plain.alert("x", dead=1, webhook="https://example.com/")
    app = Windlass("memory://", webhooks=True)
    app.queue("mail", emit="none")
    with pytest.raises(InvalidOption, match='queue "mail", which writes none here'):
        tasks(app).using(callback="https://example.com/")
    with pytest.raises(InvalidOption, match="callback must be an http or https URL"):
        app.tasks["send"].using(callback="javascript:alert(1)")
    with pytest.raises(InvalidOption, match='queue "elsewhere", which writes none here'):
        app.tasks["send"].using(queue="elsewhere", callback="https://example.com/")
    assert TASK not in plain.tasks
    assert QUEUE in app.queues
    assert app.queues[0] == "default"


WRONG = {
    "": "must be an http or https URL",
    "javascript:alert(1)": "must be an http or https URL",
    "ftp://example.com/": "must be an http or https URL",
    "https://user:pw@example.com/": "must be an http or https URL",
    "https://example.com/" + "x" * 2_000: "the limit is 2,000",
    "https://127.0.0.1/": "its address is loopback",
    "https://169.254.169.254/latest": "its address is link-local",
    "https://10.0.0.1/": "its address is not public",
    "https://[::ffff:10.0.0.1]/": "its address is not public",
    "http://example.com/": "use https",
}


@pytest.mark.parametrize("url", WRONG)
def test_a_callback_that_could_not_be_told_is_refused_however_it_is_given(url: str) -> None:
    app = Windlass("memory://", webhooks=True)
    send = tasks(app)
    before = app._declared.version
    for options in ({"headers": {CALLBACK: url}}, {"callback": url}):
        with pytest.raises(InvalidOption, match=WRONG[url]):
            send.using(**options)  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match=WRONG[url]):
            send.call("x").using(**options)  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match=WRONG[url]):
            app.external(f"other{len(app.tasks)}", queue="mail", **options)  # type: ignore[arg-type]
    assert app._declared.version == before


def test_a_callback_in_a_header_is_one_like_any_other(app: Windlass) -> None:
    send = tasks(app)
    with pytest.raises(InvalidOption, match="callback= needs webhooks"):
        tasks(Windlass("memory://")).using(headers={CALLBACK: "https://example.com/"})

    async def story() -> None:
        async with receiving() as receiver, app.worker(concurrency=2):
            await send.using(headers={CALLBACK: receiver.url()}).aenqueue("ann")
            (got,) = await receiver.wait_for(1)
            assert got.said["type"] == "job.done"

    run(app, story)


def test_the_url_of_a_callback_is_shown_without_its_path(app: Windlass) -> None:
    from windlass.admin.service import Service  # noqa: PLC0415

    send = tasks(app)

    async def story() -> None:
        job = await send.using(callback="https://example.com/secret?t=1", headers={"a": "b"}).aenqueue("x")
        jobs = (await Service.of(app)).jobs
        shown = jobs.shown(await jobs.one(job.id))
        assert shown.headers == {"a": "b", CALLBACK: "https://example.com/…"}

    run(app, story)


def test_an_alert_tells_its_webhook_once_when_it_is_raised_and_once_when_it_is_over(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.worker.janitor.EVERY", 0.05)
    send = tasks(app)

    async def story() -> None:
        async with receiving() as receiver:
            app.alert("full", queue="mail", dead=0, webhook=receiver.url("/alert"))
            async with app.worker(concurrency=2):
                dead = await send.aenqueue("nobody")
                (raised,) = await receiver.wait_for(1)
                assert raised.said["type"] == "alert.raised"
                assert raised.said["alert"] == {
                    "name": "full", "queue": "mail", "task": None, "raised": True,
                    "why": "1 dead letters (over 0)",
                }  # fmt: skip
                from windlass.admin.dead import DeadLetters  # noqa: PLC0415

                async for _ in DeadLetters(app, await app.broker()).discard([dead.id], reason="a test"):
                    pass
                _, cleared = await receiver.wait_for(2)
                assert cleared.said["type"] == "alert.cleared"
                assert len(receiver.got) == 2

    run(app, story)


def test_of_many_lookers_one_message_is_made(app: Windlass) -> None:
    from windlass.worker.alerting import look  # noqa: PLC0415

    send = tasks(app)

    async def story() -> None:
        app.alert("full", depth=0, webhook="https://example.com/")
        broker = await app.broker()
        await send.aenqueue("x")
        await asyncio.gather(*(look(broker, namespace="hooks") for _ in range(5)))
        assert len(await deliveries(app, State.READY)) == 1

    run(app, story)


def test_a_callback_that_makes_no_sense_stops_nobody(app: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    """One may get past every door: producers of other versions and in SQL have the store itself."""
    send = tasks(app)

    async def story() -> None:
        async with receiving() as receiver, app.worker(concurrency=2):
            send.using(callback=receiver.url())  # the queue may have callbacks now
            job = msgspec.structs.replace(send.call("ann").job, headers={CALLBACK: "nonsense"})
            await (await app.broker()).enqueue([[job]])
            await send.using(callback=receiver.url()).aenqueue("bob")
            await receiver.wait_for(1)

    with caplog.at_level(logging.WARNING, "windlass.worker"):
        run(app, story)
    assert any("its callback is not told" in record.message for record in caplog.records)

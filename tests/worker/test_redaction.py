"""Attack 14: nothing that a worker keeps or logs of a run has a secret in it that the job was called with."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Annotated

import msgspec
import pytest
from tests.worker.canary_tasks import WAYS, WORD, arguments, build
from tests.worker.virtual import Bench, run

from windlass import RetryPolicy, Secret, Windlass, current
from windlass.core.event import FROM_START
from windlass.core.job import JobDetail
from windlass.core.secret import MASK, WITHHELD
from windlass.core.settings import Kind
from windlass.core.signature import Signature
from windlass.core.state import State
from windlass.errors import JobFailed
from windlass.testing import testing
from windlass.testing.store import at_once


def _texts(detail: JobDetail) -> str:
    """All that is kept of a job but its payload and its result."""
    return repr(msgspec.to_builtins(msgspec.structs.replace(detail, payload=b"", result=None)))


def _clean(detail: JobDetail) -> None:
    found = _texts(detail)
    at = found.find(WORD)
    assert at < 0, found[max(0, at - 200) : at + 200]
    assert MASK in found


@pytest.mark.parametrize("kind", ["loop", "inline"])
def test_no_secret_is_kept_or_logged_of_a_run(
    bench: Callable[[Windlass], Bench], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    app = build("memory://", kinds=(kind,))

    async def work(bench: Bench) -> tuple[list[JobDetail], str]:
        task = app.tasks[f"says_{kind}"]
        jobs = await bench.enqueue(*(task.call(**arguments(how)) for how in WAYS))
        async with bench.worker():
            details = await bench.ended(*jobs)
        events = await bench.broker.events(FROM_START, 1_000, 0)
        documents = [await bench.broker.documents(each) for each in Kind]
        return details, repr((events, documents, await bench.broker.sessions()))

    details, rest = run(work(bench(app)))
    _check(details)
    assert WORD not in rest
    assert WORD not in caplog.text


def test_no_secret_is_kept_or_logged_by_an_embedded_worker(caplog: pytest.LogCaptureFixture) -> None:
    """With threads, and so on the time of the machine."""
    caplog.set_level(logging.DEBUG)
    app = build("memory://", kinds=("thread",))

    async def work() -> list[JobDetail]:
        broker = await app.connection.broker()
        async with app.worker(concurrency=4), asyncio.timeout(60):
            jobs = [await app.tasks["says_thread"].aenqueue(**arguments(how)) for how in WAYS]
            for job in jobs:
                with contextlib.suppress(JobFailed):
                    await job.aresult(timeout=60)
        details = await broker.get([job.id for job in jobs])
        await app.aclose()
        return [detail for detail in details if detail is not None]

    _check(asyncio.run(work()))
    assert WORD not in caplog.text


def _check(details: list[JobDetail]) -> None:
    for how, detail in zip(WAYS, details, strict=True):
        assert detail.state is (State.DONE if how == "fine" else State.DEAD), how
        assert WORD.encode() in detail.payload, "the payload is kept whole"
        assert len(detail.logs) >= 3, how
        _clean(detail)
        if how not in ("fine", "mute"):
            assert detail.error is not None
            assert detail.error.traceback or how == "result"


def test_no_secret_is_in_the_reason_for_which_a_payload_was_refused(
    bench: Callable[[Windlass], Bench], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    app = build("memory://", kinds=())
    secret = f"{WORD}-{'z' * 90}"  # so long that whoever quotes it cuts it short
    call = Windlass("memory://").external("refuses").call(picky={"hidden": secret})

    async def work(bench: Bench) -> JobDetail:
        (job,) = await bench.enqueue(call)
        async with bench.worker():
            end = bench.pace.now() + 60
            while not (detail := await bench.job(job)).held and bench.pace.now() < end:
                await bench.pace.sleep(0.01)
        return detail

    detail = run(work(bench(app)))
    assert detail.held is not None
    assert "cannot read its payload" in detail.held.reason
    assert f"{MASK} is wrong, says '{MASK}" in detail.held.reason
    assert "zzzz" not in detail.held.reason
    assert WORD not in _texts(detail).upper()
    assert WORD not in caplog.text


def test_headers_are_taken_out_as_well(bench: Callable[[Windlass], Bench]) -> None:
    app = Windlass("memory://")

    @app.task(retry=RetryPolicy(max_attempts=1))
    async def calls() -> None:
        raise ValueError(f"refused: {current.job.headers}")

    async def work(bench: Bench) -> JobDetail:
        headers = {"authorization": f"Bearer {WORD}", "trace": "visible"}
        (job,) = await bench.enqueue(calls.using(headers=headers).call())
        async with bench.worker():
            return (await bench.ended(job))[0]

    detail = run(work(bench(app)))
    assert detail.error is not None
    assert detail.error.message == f"refused: {{'authorization': '{MASK}', 'trace': 'visible'}}"


def test_a_run_with_too_many_secrets_keeps_no_text(bench: Callable[[Windlass], Bench]) -> None:
    app = Windlass("memory://")

    @app.task(retry=RetryPolicy(max_attempts=1))
    async def leaks(tokens: Annotated[list[str], Secret]) -> None:
        raise ValueError(tokens[0])

    async def work(bench: Bench) -> JobDetail:
        (job,) = await bench.enqueue(leaks.call([f"{WORD}-{number}" for number in range(2_000)]))
        async with bench.worker():
            return (await bench.ended(job))[0]

    detail = run(work(bench(app)))
    assert detail.error is not None
    assert (detail.error.message, detail.error.traceback) == (WITHHELD, WITHHELD)


def test_a_run_that_says_nothing_is_not_searched_for_secrets(
    bench: Callable[[Windlass], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Windlass("memory://")
    searched: list[bytes] = []
    found = Signature.secrets_in
    monkeypatch.setattr(
        Signature, "secrets_in", lambda self, payload: searched.append(payload) or found(self, payload)
    )

    @app.task(retry=RetryPolicy(max_attempts=1))
    async def quiet(password: str) -> None:
        current.progress(0.5)

    @app.task(retry=RetryPolicy(max_attempts=1))
    async def loud(password: str) -> None:
        for line in range(10):
            current.log(f"{line} {password}")
        raise ValueError(password)

    async def work(bench: Bench) -> list[int]:
        counts: list[int] = []
        async with bench.worker():
            for task in (quiet, loud):
                await bench.ended(*(await bench.enqueue(task.call("hunter22"))))
                counts.append(len(searched))
        return counts

    assert run(work(bench(app))) == [0, 1]


def test_what_a_test_sees_is_clean_as_well() -> None:
    app = build("memory://", kinds=("inline",))
    with testing(app) as bench:
        bench_job = app.tasks["says_inline"].enqueue(**arguments("error"))
        bench.drain(raises=False)
        _clean(at_once(bench.broker.get([bench_job.id]))[0])  # pyright: ignore[reportArgumentType]

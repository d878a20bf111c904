"""A worker tells the store which tasks it knows, and frees what was held for want of them."""

import asyncio
import json

from tests.worker.simulated import capture

from windlass import RetryPolicy, Windlass
from windlass.broker.memory import MemoryBroker
from windlass.conformance.harness import new_id
from windlass.core.job import NewJob
from windlass.core.lease import Ask
from windlass.core.outcome import Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Kind
from windlass.core.settlement import HoldKey, Settlement
from windlass.core.state import State
from windlass.worker.holds import hold_key
from windlass.worker.registration import register


def app_with_tasks(**options: object) -> Windlass:
    app = Windlass("memory://", **options)  # pyright: ignore[reportArgumentType]

    @app.task(name="mail.send", queue="mail", retry=RetryPolicy(max_attempts=3), timeout=60, revision=4)
    def send(to: str, copies: int = 1) -> None:
        """Send a mail.

        To somebody.
        """

    @app.task(run="inline")
    def tiny() -> None: ...

    app.external("elsewhere")
    return app


def test_each_task_has_a_document_and_those_elsewhere_have_none() -> None:
    async def main() -> None:
        broker, app = MemoryBroker(), app_with_tasks(name="shop", revision=7)
        await register(broker, app)
        documents = {document.subject.name: document for document in await broker.documents(Kind.TASK)}
        assert len(documents) == 2
        sent = documents["mail.send"]
        assert (sent.app, sent.revision) == ("shop", 7)
        assert isinstance(sent.declared, bytes)
        body = json.loads(sent.declared)
        schema = body.pop("schema")
        assert body == {
            "name": "mail.send",
            "queue": "mail",
            "revision": 4,
            "timeout": 60_000_000,
            "run": None,
            "max_attempts": 3,
            "doc": "Send a mail.\n\nTo somebody.",
        }
        assert (list(schema["properties"]), schema["required"]) == (["to", "copies"], ["to"])

    asyncio.run(main())


def test_jobs_that_were_held_for_a_task_can_run() -> None:
    async def main() -> None:
        broker, app = MemoryBroker(), app_with_tasks()
        await app.declare(broker)
        await broker.beat([Beat(session="s", open=SessionInfo())])
        jobs = [NewJob(id=new_id(), task="mail.send", queue="mail", payload=b"{}") for _ in range(1_000)]
        more = [NewJob(id=new_id(), task="mail.send", queue="mail", payload=b"{}") for _ in range(5)]
        other = NewJob(id=new_id(), task="unknown", queue="mail", payload=b"{}")
        await broker.enqueue([jobs, [*more, other]])
        for seq in (1, 2):
            ask = Ask(session="s", seq=seq, queues=("mail",), slots=1_000, limit=1_000)
            await broker.settle([_held(lease) for lease in (await broker.claim(ask)).leases])
        with capture() as lines:
            await register(broker, app)
        details = await broker.get([jobs[0].id, more[-1].id, other.id])
        states = [None if detail is None else detail.state for detail in details]
        assert states == [State.READY, State.READY, State.SCHEDULED]
        assert lines == ["INFO 1005 jobs that were held under task:mail.send can run now"]

    asyncio.run(main())


def _held(lease: object) -> Settlement:
    job, fence, task = lease.job, lease.fence, lease.task  # pyright: ignore[reportAttributeAccessIssue]
    hold = HoldKey(hold_key(task), "unknown task")
    return Settlement(job=job, fence=fence, outcome=Outcome.HOLD, hold=hold)


def test_a_task_of_another_app_is_said_and_left_alone() -> None:
    async def main() -> None:
        broker = MemoryBroker()
        await register(broker, app_with_tasks(name="first"))
        with capture() as lines:
            await register(broker, app_with_tasks(name="second"))
        assert len(lines) == 2
        assert all("belongs to another app of this namespace" in line for line in lines)
        assert {document.app for document in await broker.documents(Kind.TASK)} == {"first"}

    asyncio.run(main())


def test_an_older_revision_changes_nothing_and_says_nothing() -> None:
    async def main() -> None:
        broker = MemoryBroker()
        await register(broker, app_with_tasks(revision=2))
        with capture() as lines:
            await register(broker, app_with_tasks(revision=1))
        assert lines == []
        assert {document.revision for document in await broker.documents(Kind.TASK)} == {2}

    asyncio.run(main())

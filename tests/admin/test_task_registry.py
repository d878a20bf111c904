"""The registry of tasks: schemas show what a task takes, and no value that is secret."""

from typing import Annotated

import msgspec
from tests.admin.admin_bench import Bench

from windlass import Secret
from windlass.admin.tasks import Tasks, discreet
from windlass.core.signature import Signature
from windlass.worker.registration import declare_tasks


class Login(msgspec.Struct):
    user: str = "ann"
    password: str = "hunter2"


def test_a_schema_shows_no_default_of_a_secret_however_deep_it_is() -> None:
    def call(login: Login, hidden: Annotated[str, Secret], plain: int = 3) -> None: ...

    signature = Signature(call)
    schema = discreet(signature.schema(), signature)
    assert "hunter2" not in str(schema)
    assert "ann" in str(schema)
    fields = schema["$defs"]["Login"]["properties"]
    assert fields["password"] == {"type": "string", "writeOnly": True}
    assert schema["properties"]["hidden"]["writeOnly"] is True
    assert "writeOnly" not in schema["properties"]["plain"]


def test_tasks_of_other_apps_are_known_by_what_their_workers_declared(bench: Bench) -> None:
    from windlass import Windlass  # noqa: PLC0415

    async def story(_: Bench, broker: object) -> list[object]:
        other = Windlass("memory://", name="other")

        @other.task(timeout=5)
        def remote(x: int) -> None:
            """Do it there."""

        await declare_tasks(broker, other)  # type: ignore[arg-type]
        return list(await Tasks(bench.app, broker).all())  # type: ignore[arg-type]

    tasks = {task.name: task for task in bench.run(story)}
    assert set(tasks) == {"add", "send", "remote"}
    remote = tasks["remote"]
    assert (remote.app, remote.doc, remote.timeout) == ("other", "Do it there.", 5.0)
    assert remote.arguments["properties"] == {"x": {"type": "integer"}}

"""`windlass export` and `import`: nothing lost, nothing twice, order and edges kept."""

import json
from typing import Any

import pytest
from tests.cli.shell import Shell

from windlass import chain, group
from windlass.core.state import State
from windlass.core.webhook import CALLBACK, QUEUE, TASK
from windlass.worker.delivering import delivery


def _exported(shell: Shell, *options: str) -> list[dict[str, Any]]:
    answer = shell("export", "tasks:app", *options)
    assert answer.code == 0
    (shell.folder / "jobs.jsonl").write_text(answer.out)
    return answer.lines


def _in_another_store(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.write(
        "elsewhere.py",
        (shell.folder / "tasks.py").read_text().replace("Windlass()", 'Windlass("sqlite:///elsewhere.db")'),
    )
    shell("queues", "elsewhere:app")


def _listed(shell: Shell) -> dict[str, dict[str, Any]]:
    return {line["id"]: line for line in shell.json("jobs", "elsewhere:app")}


def test_what_waits_comes_over_as_it_was(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    add, send = shell.task("add"), shell.task("send")
    ready = add.using(priority=7, lane="acme", tags=["x"], headers={"trace": "1"}, key="k").enqueue(1)
    later = send.using(delay="1h", expires="2h", max_attempts=9).enqueue("a")
    flow = chain(add.call(2), group(add.call(3), add.call(4)), add.call(5)).enqueue(flow="order-42")
    assert len(_exported(shell)) == 6
    before = {line["id"]: line for line in shell.json("jobs", "tasks:app")}
    _in_another_store(shell, monkeypatch)
    assert shell("import", "elsewhere:app", "jobs.jsonl").out == "6 imported, 0 already in the store\n"
    after = _listed(shell)
    assert after.keys() == before.keys() == {ready.id, later.id, *(job.id for job in flow.jobs)}
    for name in ("task", "queue", "lane", "state", "priority", "key", "tags", "flow", "max_attempts"):
        assert {job: line[name] for job, line in after.items()} == {
            job: line[name] for job, line in before.items()
        }
    assert after[later.id]["due_at"] == before[later.id]["due_at"]
    assert shell("import", "elsewhere:app", "jobs.jsonl").out == "0 imported, 6 already in the store\n"


def test_the_order_of_acceptance_is_kept(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [shell.task("add").enqueue(number).id for number in range(20)]
    assert len(_exported(shell)) == 20
    _in_another_store(shell, monkeypatch)
    shell("import", "elsewhere:app", "jobs.jsonl")
    assert list(reversed(_listed(shell))) == jobs


def test_dead_letters_stay_dead_are_left_out_or_run_again(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.task("add").enqueue(1)
    (dead,) = shell.die(message="no good")
    shell.task("add").enqueue(2)
    letter = next(line for line in _exported(shell) if line["id"] == dead)
    assert (letter["state"], letter["error"]) == ("dead", "ValueError: no good")
    _in_another_store(shell, monkeypatch)
    answer = shell("import", "elsewhere:app", "jobs.jsonl", "--dead", "skip")
    assert answer.out == "1 imported, 0 already in the store\n"
    assert "1 dead letter left out; --dead keep takes them over" in answer.err
    answer = shell("import", "elsewhere:app", "jobs.jsonl")
    assert answer.out == "1 imported, 1 already in the store\n"
    assert "1 dead letter of them, without runs and attempts" in answer.err
    kept = _listed(shell)[dead]
    assert (kept["state"], kept["reason"]) == (State.DEAD, "expired before its first start")
    assert kept["attempt"] == 0
    (shown,) = shell.json("jobs", "elsewhere:app", "show", dead)
    assert shown["headers"] == {"windlass-died-of": "ValueError: no good"}
    assert shell("import", "elsewhere:app", "jobs.jsonl", "--dead", "replay").out == (
        "0 imported, 2 already in the store\n"
    )
    shell("dead", "elsewhere:app", "replay", dead, "--yes")
    assert _listed(shell)[dead]["state"] == State.READY


def test_dead_letters_that_are_to_run_again(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.task("add").enqueue(1)
    (dead,) = shell.die()
    _exported(shell)
    _in_another_store(shell, monkeypatch)
    assert shell.json("import", "elsewhere:app", "jobs.jsonl", "--dead", "replay") == [
        {"created": 1, "known": 0, "dead": 0, "left": 0}
    ]
    assert _listed(shell)[dead]["state"] == State.READY


def test_what_waits_for_a_dead_letter_waits_for_it_here(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.task("add").enqueue(1)
    (dead,) = shell.die()
    child = shell.task("add").using(after=dead).enqueue(1)
    assert len(_exported(shell)) == 2
    _in_another_store(shell, monkeypatch)
    assert shell("import", "elsewhere:app", "jobs.jsonl").out == "2 imported, 0 already in the store\n"
    assert _listed(shell)[child.id]["state"] == State.BLOCKED


def test_a_chain_as_long_as_the_file(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    add = shell.task("add")
    chain(*(add.call(number) for number in range(1_500))).enqueue(flow="long")
    assert len(_exported(shell)) == 1_500
    _in_another_store(shell, monkeypatch)
    assert shell("import", "elsewhere:app", "jobs.jsonl").out == "1,500 imported, 0 already in the store\n"


def test_filters(shell: Shell) -> None:
    shell.task("add").enqueue(1)
    shell.task("send").enqueue("a")
    assert [line["task"] for line in _exported(shell, "--queue", "mail")] == ["send"]
    assert [line["task"] for line in _exported(shell, "--task", "add", "--state", "ready")] == ["add"]
    assert _exported(shell, "--state", "done") == []


def _broken(line: dict[str, Any], **changes: Any) -> str:
    return json.dumps({**line, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"windlass": 9}, "has format 9"),
        ({"id": "x"}, "line 2: job id 'x' is not a UUIDv7"),
        ({"payload": "%%%"}, "line 2: "),
        ({"queue": "a b"}, "line 2: queue"),
        ({"more": 1}, "line 2 is no exported job"),
        ({"after": [["01a1e01b-7a2b-729e-895f-229ff52b002d", "explode"]]}, "line 2: 'explode'"),
        ({"priority": 1000}, "line 2: priority"),
    ],
)
def test_a_line_that_makes_no_sense_stops_it_before_anything_is_done(
    shell: Shell, changes: dict[str, Any], words: str
) -> None:
    shell.task("add").enqueue(1)
    (line,) = _exported(shell)
    fresh = {**line, "id": "01a1e01b-7a2b-729e-895f-229ff52b002d"}
    (shell.folder / "jobs.jsonl").write_text(f"{json.dumps(fresh)}\n{_broken(line, **changes)}\n")
    assert words in shell("import", "tasks:app", "jobs.jsonl").complaint
    assert len(shell.json("jobs", "tasks:app")) == 1


def test_an_import_that_stops_on_the_way_is_on_record(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.task("add").enqueue(1)
    (line,) = _exported(shell)
    fresh = [
        {**line, "id": f"01a1e01b-7a2b-729e-895f-229ff52b002{number}", "queue": queue}
        for number, queue in enumerate((line["queue"], "nowhere"))
    ]
    (shell.folder / "jobs.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in fresh))
    monkeypatch.setattr("windlass.admin.transfer.GROUP_JOBS", 1)
    assert "nowhere" in shell("import", "tasks:app", "jobs.jsonl").complaint
    assert len(shell.json("jobs", "tasks:app")) == 2
    act = shell.json("dead", "tasks:app", "audit")[0]
    assert (act["what"], act["jobs"], act["wanted"]) == ("imported", 1, 2)


def test_a_circle_is_refused(shell: Shell) -> None:
    add = shell.task("add")
    first, second = (job.id for job in chain(add.call(1), add.call(2)).enqueue().jobs)
    lines = {line["id"]: line for line in _exported(shell)}
    lines[first]["after"] = [[second, "cancel"]]
    (shell.folder / "jobs.jsonl").write_text("\n".join(json.dumps(line) for line in lines.values()))
    assert "waits for itself" in shell("import", "tasks:app", "jobs.jsonl").complaint


def test_no_file(shell: Shell) -> None:
    assert "there is no file nope.jsonl" in shell("import", "tasks:app", "nope.jsonl").complaint


def _with_webhooks(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_WEBHOOKS", "true")
    shell("queues", "tasks:app")


def test_what_windlass_sends_itself_is_neither_exported_nor_imported(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with_webhooks(shell, monkeypatch)
    app = shell.app

    async def enqueue() -> None:
        message = delivery(app.new_id(), "https://example.com/", {"type": "job.done"})
        await (await app.broker()).enqueue([[message]])

    app.run(enqueue())
    shell.task("add").enqueue(1)
    told = shell("export", "tasks:app")
    (line,) = told.lines
    assert line["task"] == "add"
    assert "1 of Windlass itself left out" in told.err
    (shell.folder / "one.jsonl").write_text(told.out)
    assert shell("import", "tasks:app", "one.jsonl").code == 0
    for change in ({"task": TASK}, {"queue": QUEUE}):
        forged = {**line, "id": app.new_id(), **change}
        (shell.folder / "forged.jsonl").write_text(f"{json.dumps(line)}\n{json.dumps(forged)}\n")
        refused = shell("import", "tasks:app", "forged.jsonl")
        assert refused.code != 0
        assert "line 2: " in refused.complaint
        assert 'names that begin with "windlass." are reserved' in refused.complaint
    assert len(shell.json("jobs", "tasks:app")) == 2


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("file:///etc/passwd", "http or https URL"),
        ("https://169.254.169.254/", "link-local"),
        ("http://example.com/", "use https"),
    ],
)
def test_a_callback_in_a_file_is_checked(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, url: str, why: str
) -> None:
    shell.task("add").enqueue(1)
    (line,) = _exported(shell)
    line = {**line, "id": shell.app.new_id(), "headers": {CALLBACK: "https://example.com/"}}
    (shell.folder / "jobs.jsonl").write_text(json.dumps(line))
    assert "needs webhooks" in shell("import", "tasks:app", "jobs.jsonl").complaint
    monkeypatch.setenv("WINDLASS_WEBHOOKS", "true")
    shell.write("hooked.py", (shell.folder / "tasks.py").read_text())
    assert shell("import", "hooked:app", "jobs.jsonl").code == 0
    line = {**line, "id": shell.app.new_id(), "headers": {CALLBACK: url}}
    (shell.folder / "jobs.jsonl").write_text(json.dumps(line))
    refused = shell("import", "hooked:app", "jobs.jsonl")
    assert refused.code != 0
    assert "line 1: " in refused.complaint
    assert why in refused.complaint

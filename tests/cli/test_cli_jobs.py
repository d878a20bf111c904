"""`windlass jobs` and `windlass enqueue`."""

import io
import json
import re
import sys
from datetime import UTC, datetime, timedelta

import pytest
from tests.cli.shell import Shell

from windlass.core.outcome import Outcome
from windlass.core.session import Note
from windlass.core.settlement import HoldKey, Settlement
from windlass.core.state import State


def test_jobs_as_aligned_text_in_a_pipe(shell: Shell) -> None:
    job = shell.task("send").using(lane="acme").enqueue("a@example.com")
    later = shell.task("add").using(delay=3600).enqueue(1)
    answer = shell("jobs", "tasks:app")
    head, first, second = answer.out.splitlines()
    assert head.split() == ["ID", "TASK", "QUEUE", "LANE", "STATE", "ATTEMPT", "AGE", "DETAIL"]
    assert first.startswith(f"{later.id}  add   default        scheduled      0/5")
    assert "due in 59m" in first
    assert second.startswith(f"{job.id}  send  mail     acme  ready          0/5")
    assert (answer.code, answer.err) == (0, "")


def test_one_json_object_per_line_and_each_job_once(shell: Shell) -> None:
    jobs = shell.app.enqueue_many(shell.task("add").call(number) for number in range(1_203))
    lines = shell.json("jobs", "tasks:app")
    assert [line["id"] for line in lines] == [job.id for job in reversed(jobs)]
    assert len(shell.json("jobs", "tasks:app", "--limit", "7")) == 7
    assert lines[0]["state"] == "ready"
    assert datetime.fromisoformat(lines[0]["accepted_at"]).tzinfo is not None


def test_filters(shell: Shell) -> None:
    send, add = shell.task("send"), shell.task("add")
    mail = send.using(lane="acme", flow="f").enqueue("a")
    dead = add.enqueue(1)
    shell.take()  # the job in queue default goes first, then mail
    waiting = add.using(delay=60).enqueue(2)

    def ids(*filters: str) -> set[str]:
        return {line["id"] for line in shell.json("jobs", "tasks:app", *filters)}

    assert ids("--queue", "mail") == {mail.id}
    assert ids("--task", "add") == {dead.id, waiting.id}
    assert ids("--lane", "acme") == ids("--flow", "f") == {mail.id}
    assert ids("--state", "scheduled", "--state", "running") == {dead.id, waiting.id}
    assert ids("--state", "done") == set()
    assert shell("jobs", "tasks:app", "--state", "done") == (0, "", "no jobs match\n")


def test_filters_by_tag_text_time_and_parent(shell: Shell) -> None:
    one = shell.task("add").using(tags=["eu"]).enqueue(1)
    two = shell.task("send").using(key="order-42").enqueue("a")

    def ids(*filters: str) -> set[str]:
        return {line["id"] for line in shell.json("jobs", "tasks:app", *filters)}

    assert ids("--tag", "eu") == {one.id}
    assert ids("--text", "ORDER") == {two.id}
    assert ids("--since", "1h") == {one.id, two.id}
    assert ids("--until", "1h") == ids("--parent", one.id) == set()
    assert "since" in shell("jobs", "tasks:app", "--since", "soon").complaint
    assert "job id" in shell("jobs", "tasks:app", "--parent", "x").complaint


def test_the_verb_may_stand_before_or_behind_the_app(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    job = shell.task("add").enqueue(1)
    answers = [
        shell.json("jobs", "tasks:app", "show", job.id),
        shell.json("jobs", "show", "tasks:app", job.id),
    ]
    monkeypatch.setenv("WINDLASS_APP", "tasks:app")
    answers.append(shell.json("jobs", "show", job.id))
    assert [line["id"] for (line,) in answers] == [job.id] * 3
    assert [line["id"] for line in shell.json("jobs", "--state", "ready")] == [job.id]


def test_show_tells_everything_but_the_payload(shell: Shell) -> None:
    job = (
        shell.task("add")
        .using(key="k", tags=["x"], headers={"trace": "1"}, expires="1h")
        .enqueue(414_141, b=1)
    )
    (lease,) = shell.take()
    note = Note(job=job.id, fence=lease.fence, logs=("began \x1b[31mred",), permille=500, message="half")
    shell.run(lambda broker: broker.annotate([note]))
    settlement = Settlement(
        job=job.id,
        fence=lease.fence,
        outcome=Outcome.DONE,
        runtime=1_500_000,
        result=b'{"v":1,"r":42}',
    )
    shell.run(lambda broker: broker.settle([settlement]))
    answer = shell("jobs", "tasks:app", "show", job.id)
    fields = dict(line.split(maxsplit=1) for line in answer.out.splitlines() if " " in line)
    assert (fields["id"], fields["state"], fields["key"], fields["tags"]) == (job.id, "done", "k", "x")
    assert fields["log"] == "began \\x1b[31mred"
    assert "done after 1s in session s" in fields["run"]
    assert "\x1b" not in answer.out
    assert "414141" not in answer.out.replace(job.id, "").replace("4711", "")
    assert (
        '{"args":[],"kwargs":{"a":414141,"b":1}}'
        in shell("jobs", "tasks:app", "show", job.id, "--payload").out
    )
    assert "result   42" in shell("jobs", "tasks:app", "show", job.id, "--payload").out
    (line,) = shell.json("jobs", "tasks:app", "show", job.id)
    assert (line["payload"], line["payload_bytes"] > 10, line["result_bytes"]) == (None, True, 14)


def test_a_replayed_job_that_is_done_shows_no_error_but_that_of_its_run(shell: Shell) -> None:
    job = shell.task("add").enqueue(1)
    shell.die(kind="TimeoutError", message="slow")
    assert "\nerror      TimeoutError: slow" in shell("jobs", "tasks:app", "show", job.id).out
    shell("dead", "tasks:app", "replay", job.id, "--yes")
    assert "\nlast error  TimeoutError: slow" in shell("jobs", "tasks:app", "show", job.id).out
    (lease,) = shell.take()
    done = Settlement(job=job.id, fence=lease.fence, outcome=Outcome.DONE, runtime=1, result=b"{}")
    shell.run(lambda broker: broker.settle([done]))
    *head, failed, succeeded = shell("jobs", "tasks:app", "show", job.id).out.splitlines()
    assert failed.startswith("run 1")
    assert failed.endswith("TimeoutError: slow")
    assert succeeded.startswith("run 2")
    assert not [line for line in head if "TimeoutError" in line]
    assert shell.json("jobs", "tasks:app", "show", job.id)[0]["error"] is None


def test_a_held_job_and_one_that_was_asked_to_stop(shell: Shell) -> None:
    held, running = shell.task("add").enqueue(1), shell.task("add").enqueue(2)
    (lease, _) = shell.take(2)
    hold = Settlement(
        job=lease.job, fence=lease.fence, outcome=Outcome.HOLD, hold=HoldKey("task:add", "unknown task")
    )
    shell.run(lambda broker: broker.settle([hold]))
    answer = shell("jobs", "tasks:app", "cancel", running.id)
    assert answer.out == "0 cancelled\n1 running: their workers were asked to stop them\n"
    assert answer.code == 0
    out = shell("jobs", "tasks:app").out
    assert "held: unknown task" in out
    assert "asked to stop" in out
    assert "unknown task (1 times)" in shell("jobs", "tasks:app", "show", held.id).out


def test_cancel_says_what_it_could_not_do(shell: Shell) -> None:
    waiting = shell.task("add").enqueue(1)
    unknown = "0192e4a0-5b3c-7abc-8def-0123456789ab"
    answer = shell("jobs", "tasks:app", "cancel", waiting.id, unknown)
    assert answer.code == 1
    assert answer.out == "1 cancelled\n"
    assert answer.err == f"windlass: job {unknown} was not cancelled: there is no such job\n"
    assert waiting.state() is State.CANCELLED
    answer = shell("jobs", "tasks:app", "cancel", waiting.id, "--json")
    assert answer.code == 1
    assert answer.lines == [{"job": waiting.id, "effect": "wrong state", "state": "cancelled", "by": None}]


def test_a_new_file_is_mentioned_to_who_only_reads(shell: Shell) -> None:
    answer = shell("jobs", "tasks:app", "--json")
    note = f"windlass: note: {shell.folder / 'windlass.db'} did not exist; it is created now\n"
    assert answer == (0, "", note)
    assert shell("jobs", "tasks:app", "--json") == (0, "", "")


# --- enqueue ------------------------------------------------------------------------------------------------


def test_enqueue_prints_the_id_and_every_option_counts(shell: Shell) -> None:
    parent = shell("enqueue", "tasks:app", "add", '{"a": 1}').out.strip()
    answer = shell(
        *("enqueue", "tasks:app", "send", '{"to": "a@example.com"}'),
        *("--delay", "5m", "--priority", "-7", "--queue", "default", "--lane", "acme", "--key", "order-42"),
        *(
            "--mode",
            "throttle",
            "--window",
            "1h",
            "--expires",
            "2h",
            "--max-attempts",
            "3",
            "--after",
            parent,
        ),
        *("--on-failure", "run", "--tag", "x", "--tag", "y", "--header", "trace=a=b", "--flow", "f"),
    )
    assert (answer.code, answer.err) == (0, "")
    (job,) = shell.json("jobs", "tasks:app", "show", answer.out.strip(), "--payload")
    assert job["payload"] == {"args": [], "kwargs": {"to": "a@example.com"}}
    assert (job["queue"], job["lane"], job["priority"], job["key"]) == ("default", "acme", -7, "order-42")
    assert (job["max_attempts"], job["tags"], job["flow"]) == (3, ["x", "y"], "f")
    assert job["headers"] == {"trace": "a=b"}
    assert job["after"] == [{"parent": parent, "on_failure": "run"}]
    accepted, expires = (datetime.fromisoformat(job[name]) for name in ("accepted_at", "expires_at"))
    assert expires - accepted == timedelta(hours=2)


def test_enqueue_at_a_time(shell: Shell) -> None:
    at = datetime(2100, 1, 31, 8, tzinfo=UTC)
    (line,) = shell.json("enqueue", "tasks:app", "add", '{"a": 1}', "--run-at", "2100-01-31T08:00:00Z")
    (job,) = shell.json("jobs", "tasks:app", "show", line["id"])
    assert (job["state"], datetime.fromisoformat(job["due_at"])) == ("scheduled", at)


def test_enqueue_reads_a_file_and_standard_input(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.write("arguments.json", '{"a": 5}')
    stdin = io.TextIOWrapper(io.BytesIO(b'{"a": 6}'))
    monkeypatch.setattr(sys, "stdin", stdin)
    ids = [shell("enqueue", "tasks:app", "add", where).out.strip() for where in ("@arguments.json", "-")]
    jobs = [shell.json("jobs", "tasks:app", "show", job, "--payload")[0] for job in ids]
    assert [job["payload"]["kwargs"]["a"] for job in jobs] == [5, 6]


def test_a_second_call_under_a_key_names_the_first(shell: Shell) -> None:
    first, second = (shell("enqueue", "tasks:app", "add", '{"a": 1}', "--key", "k").out for _ in range(2))
    assert second == f"{first.strip()} (a job with this key existed already)\n"
    (line,) = shell.json("enqueue", "tasks:app", "add", '{"a": 1}', "--key", "k")
    assert line == {"id": first.strip(), "task": "add", "created": False}


@pytest.mark.parametrize(
    ("tokens", "complaint"),
    [
        (["ad", "{}"], 'there is no task "ad"; did you mean "add"?'),
        (["nope", "{}"], 'there is no task "nope"; tasks of this app: add, send'),
        (["add"], 'add(): argument "a" is missing; add takes a JSON object of: a, [b]'),
        (
            ["add", '{"a": "x"}'],
            'add(): argument "a": expected int, got str; add takes a JSON object of: a, [b]',
        ),
        (["add", '{"a": 1, "c": 2}'], 'add(): unexpected argument "c"'),
        (
            ["add", '{"a": '],
            (
                "add(): the payload is not JSON: it ends too early: a brace, a bracket or a quote is missing"
                "; add takes a JSON object of: a, [b], such as '{\"a\": 1}'"
            ),
        ),
        (["add", ""], "add(): the payload is not JSON: it is empty; add takes"),
        (
            ["add", "{a: 1}"],
            "add(): the payload is not JSON: names in it must be in double quotes; add takes",
        ),
        (["add", "a=1"], "add(): the payload is not JSON: invalid character (byte 0); add takes"),
        (["add", "[1]"], "add(): the payload must be a JSON object of arguments, not an array; add takes"),
        (["add", "1"], "add(): the payload must be a JSON object of arguments, not a number; add takes"),
        (
            ["send", "[]"],
            (
                "send(): the payload must be a JSON object of arguments, not an array; "
                """send takes a JSON object of: to, [subject], such as '{"to": "text"}'"""
            ),
        ),
        (["add", "@none.json"], "cannot read the arguments from none.json: No such file or directory"),
        (["add", "@."], "cannot read the arguments from .: Is a directory"),
        (["add", '{"a": 1}', "--delay", "soon"], "delay must be seconds, a timedelta or text such as"),
        (["add", '{"a": 1}', "--delay", "-5"], "delay must not be negative"),
        (["add", '{"a": 1}', "--priority", "999"], "priority must be a whole number from -100 to 100"),
        (["add", '{"a": 1}', "--run-at", "now"], '--run-at must be a time such as "2030-01-31T08:00:00Z"'),
        (["add", '{"a": 1}', "--run-at", "2100-01-01T00:00"], "--run-at needs a time zone"),
        (
            ["add", '{"a": 1}', "--run-at", "2100-01-01T00:00Z", "--delay", "5"],
            "give delay or run_at, not both",
        ),
        (["add", '{"a": 1}', "--queue", "nope"], 'queue "nope" is not declared; declared queues:'),
        (["add", '{"a": 1}', "--queue", "mial"], 'queue "mial" is not declared; did you mean "mail"?'),
        (["add", '{"a": 1}', "--mode", "replace"], "mode and window need a key"),
        (["add", '{"a": 1}', "--on-failure", "run"], "on_failure needs parents: give after as well"),
        (["add", '{"a": 1}', "--after", "17"], "job id '17' is not a UUIDv7"),
        (["add", '{"a": 1}', "--header", "x"], '--header must be name=value, not "x"'),
        (["add", '{"a": 1}', "--lane", "a\x1b[0m"], "lane 'a\\x1b[0m' has a control character"),
    ],
)
def test_enqueue_refuses_in_one_line(shell: Shell, tokens: list[str], complaint: str) -> None:
    answer = shell("enqueue", "tasks:app", *tokens)
    assert answer.code == 2
    assert answer.complaint.startswith(complaint)
    assert shell.run(lambda broker: broker.counts()).rows == ()


def test_the_example_of_the_arguments_is_one_that_is_accepted(shell: Shell) -> None:
    shell.write(
        "shapes.py",
        """
import enum
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, Field

from windlass import Windlass

app = Windlass()
T = TypeVar("T")


class Address(BaseModel):
    street: str
    zip_code: int = Field(alias="zipCode")


class Node(BaseModel, Generic[T]):
    value: T
    children: "list[Node[T]]" = []


class Kind(enum.Enum):
    SMALL = "small"


@dataclass
class Parcel:
    kind: Kind
    to: Address


@app.task
def ship(parcel: Parcel, tree: Node[int], by: Literal["air", "sea"], copies: int | None) -> None: ...
""",
    )
    complaint = shell("enqueue", "shapes:app", "ship").complaint
    example = complaint.partition("such as '")[2].rstrip("'")
    assert json.loads(example)["parcel"] == {"kind": "small", "to": {"street": "text", "zipCode": 1}}
    assert shell("enqueue", "shapes:app", "ship", example).code == 0


def test_too_much_for_a_payload(shell: Shell) -> None:
    shell.write("large.json", f'{{"to": "{"x" * 2**20}"}}')
    answer = shell("enqueue", "tasks:app", "send", "@large.json")
    assert answer.code == 2
    assert "the limit is 1,048,576" in answer.complaint
    assert answer.complaint.endswith("or raise max_payload")


def test_a_parent_that_is_not_known_is_refused_by_the_store(shell: Shell) -> None:
    unknown = "0192e4a0-5b3c-7abc-8def-0123456789ab"
    answer = shell("enqueue", "tasks:app", "add", '{"a": 1}', "--after", unknown)
    assert answer.code == 1
    assert unknown in answer.complaint


def test_secrets_are_shown_only_when_asked_for_and_on_record(shell: Shell) -> None:
    shell.write(
        "vault.py",
        """
from typing import Annotated
from windlass import Secret, Windlass

app = Windlass()

@app.task
def login(user: str, password: str, hint: Annotated[str, Secret], more: dict[str, str]) -> None: ...
""",
    )
    arguments = (
        '{"user": "ada", "password": "hunter22", "hint": "sesame", "more": {"api_key": "k-123", "a": "b"}}'
    )
    job = shell("enqueue", "vault:app", "login", arguments).out.strip()
    shown = shell("jobs", "vault:app", "show", job, "--payload").out
    assert "ada" in shown
    assert not [secret for secret in ("hunter22", "sesame", "k-123") if secret in shown]
    # An app that does not know the task still knows what secrets are called.
    elsewhere = shell("jobs", "tasks:app", "show", job, "--payload").out
    assert ("hunter22" in elsewhere, "sesame" in elsewhere) == (False, True)
    (line,) = shell.json("jobs", "vault:app", "show", job, "--secrets")
    assert line["payload"]["kwargs"]["password"] == "hunter22"
    (act,) = shell.json("dead", "vault:app", "audit")
    assert (act["what"], act["chosen"]) == ("secrets shown", {"job": job})


def test_a_job_says_how_its_arguments_are_seen(shell: Shell) -> None:
    job = shell.task("add").enqueue(1)
    assert re.search(
        r"^arguments  \d+ bytes; --payload shows them$",
        shell("jobs", "tasks:app", "show", job.id).out,
        re.MULTILINE,
    )
    shown = shell("jobs", "tasks:app", "show", job.id, "--payload").out
    assert re.search(r"^arguments  \d+ bytes$", shown, re.MULTILINE)
    assert '"a":1' in shown


def test_a_filter_that_names_no_task_of_the_app_says_so(shell: Shell) -> None:
    hint = 'this app has no task "snd"; did you mean "send"?'
    assert f"no jobs match; {hint}" in shell("jobs", "tasks:app", "--task", "snd").err
    assert f"no dead letters match; {hint}" in shell("dead", "tasks:app", "--task", "snd").err
    assert "no task" not in shell("jobs", "tasks:app", "--task", "send").err

"""Whatever a user does wrong is one line on stderr that names a fix, and never a traceback."""

# ruff: noqa: E501 - what a user reads in one line is written in one line

import subprocess
import sys

import pytest
from tests.cli.shell import Shell

UNKNOWN = "0192e4a0-5b3c-7abc-8def-0123456789ab"


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("tasks", "'tasks' does not name an app: write module:app, such as tasks:app"),
        ("tasks.py:app", "'tasks.py:app' does not name an app: write module:app, such as tasks:app"),
        (
            "./pkg/tasks.py:app",
            "'./pkg/tasks.py:app' does not name an app: write module:app, such as pkg.tasks:app",
        ),
        (":app", "':app' does not name an app: write module:app, such as tasks:app"),
        ("tsks:app", "there is no module tsks in FOLDER, nor is it installed; did you mean tasks?"),
        ("zzz:app", "there is no module zzz in FOLDER, nor is it installed; modules here: tasks"),
        ("tasks:ap", "tasks has no ap; its apps: tasks:app"),
        ("tasks:add", "tasks:add is of type Task, not an app; its apps: tasks:app"),
        ("json:app", "json has no app; there is no app in json: make one, app = Windlass()"),
    ],
)
def test_an_app_that_is_misnamed(shell: Shell, name: str, complaint: str) -> None:
    for command in (["jobs"], ["doctor"], ["worker"], ["explain", UNKNOWN], ["enqueue", "add"]):
        answer = shell(command[0], name, *command[1:])
        assert answer.code == 2
        assert answer.complaint == complaint.replace("FOLDER", str(shell.folder))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x = 1\nraise ValueError('boom\\nmore')\n", "ValueError: boom more (broken.py, line 2)"),
        ("import nothere\n", "it needs nothere, which is not installed (broken.py, line 1)"),
        ("def f(:\n", "SyntaxError: invalid syntax (broken.py, line 1)"),
        ("\n\nx = (1,\n", "SyntaxError: '(' was never closed (broken.py, line 3)"),
        (
            "import sys\nsys.exit(3)\n",
            'it ends the program (broken.py, line 2); put what is to run under if __name__ == "__main__":',
        ),
        (
            "from windlass import Windlass\n\napp = Windlass('nosuch://me:secret@host')\n",
            'InvalidOption: url: no store is known for a URL that starts with "nosuch:"; known: STORES (broken.py, line 3)',
        ),
        (
            "from windlass import Windlass\napp = Windlass()\n@app.task\ndef f(x: object(), *): ...\n",
            "SyntaxError: named arguments must follow bare * (broken.py, line 4)",
        ),
    ],
)
def test_a_module_that_cannot_be_imported(shell: Shell, text: str, complaint: str) -> None:
    shell.write("broken.py", text)
    answer = shell("jobs", "broken:app")
    assert answer.code == 2
    before, stores, after = complaint.partition("STORES")
    said = answer.complaint.removeprefix("cannot import broken: ")
    assert said == complaint if not stores else said.startswith(before) and said.endswith(after)
    assert "secret" not in answer.err


def test_what_a_module_prints_stays_out_of_the_answer(shell: Shell) -> None:
    shell.write("loud.py", "print('hello')\nfrom tasks import app\n")
    answer = shell("jobs", "loud:app", "--json")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err.startswith("hello\n")


@pytest.mark.parametrize(
    ("tokens", "complaint"),
    [
        ("jbs", 'Unknown command "jbs". Did you mean "jobs"?; see windlass --help'),
        ("jobs", "name the app: windlass jobs module:app, or set WINDLASS_APP"),
        ("worker", "name the app: windlass worker module:app, or set WINDLASS_APP"),
        ("jobs tasks:app --stat dead", "Unknown option: --stat. Did you mean --state?; see windlass jobs --help"),
        ("jobs tasks:app --limit x", 'Invalid value for --limit: unable to convert "x" into int; see windlass jobs --help'),
        ("jobs tasks:app --limit 0", "--limit must be at least 1, not 0; leave it out for all"),
        ("jobs tasks:app --queue nope", 'queue "nope" is not declared; declared queues: default, mail'),
        ("jobs tasks:app shwo", '"shwo" is not a verb of windlass jobs; did you mean "show"?; see windlass jobs --help'),
        (f"jobs tasks:app shwo {UNKNOWN}", '"shwo" is not a verb of windlass jobs; did you mean "show"?; see windlass jobs --help'),
        (f"jobs shwo {UNKNOWN}", '"shwo" is not a verb of windlass jobs; did you mean "show"?; see windlass jobs --help'),
        ("jobs --json tasks:app shwo", '"shwo" is not a verb of windlass jobs; did you mean "show"?; see windlass jobs --help'),
        ("lanes tasks:app puase mail acme", '"puase" is not a verb of windlass lanes; did you mean "pause"?; see windlass lanes --help'),
        ("webhooks tasks:app create crm", '"create" is not expected here; verbs of windlass webhooks: list, add, remove, secret, rotate; see windlass webhooks --help'),
        (f"jobs tasks:app {UNKNOWN}", f'"{UNKNOWN}" is not expected here; to see that job: windlass jobs APP show {UNKNOWN}; see windlass jobs --help'),
        ("workers tasks:app shwo", '"shwo" is not expected here; see windlass workers --help'),
        (f"explain {UNKNOWN}", "name the app: windlass explain module:app ..., or set WINDLASS_APP"),
        (f"jobs show {UNKNOWN}", "name the app: windlass jobs show module:app ..., or set WINDLASS_APP"),
        ("enqueue add", "name the app: windlass enqueue module:app ..., or set WINDLASS_APP"),
        ("enqueue add {}", "'add' does not name an app: write module:app, such as tasks:app"),
        ("tasks tasks:app", 'Unknown command "tasks". Did you mean "control"?; see windlass --help'),
        ("help", 'Unknown command "help". Did you mean "--help"?; see windlass --help'),
        ("queues tasks:app pause mial", 'queue "mial" is not declared; did you mean "mail"?'),
        ("control tasks:app pause snd", 'there is no task "snd"; did you mean "send"?'),
        ("schedules tasks:app create x ad {} --every 1h", 'there is no task "ad"; did you mean "add"?'),
        ("schedules tasks:app create x add [1] --every 1h", "add(): the payload must be a JSON object of arguments, not an array; add takes a JSON object of: a, [b], such as '{\"a\": 1}'"),
        ("jobs tasks:app show", 'Command "jobs show" parameter JOB requires an argument; see windlass jobs show --help'),
        ("jobs tasks:app cancel", "name the jobs: windlass jobs APP cancel ID..."),
        ("dead tasks:app --queue nope", 'queue "nope" is not declared; declared queues: default, mail'),
        ("dead tasks:app --older-than soon", '--older-than must be seconds, a timedelta or text such as "30s", "5m", "24h", "1d", "500ms", not \'soon\''),
        ("dead tasks:app replay", "choose dead letters: windlass dead APP replay ID..., a filter such as --task, or --all"),
        (f"dead tasks:app discard {UNKNOWN} --task add", "give either ids or a filter, not both"),
        ("queues tasks:app pause nope", 'queue "nope" is not declared; declared queues: default, mail'),
        ("queues tasks:app show nope", 'queue "nope" is not declared; declared queues: default, mail'),
        ("queues tasks:app set mail", "name a setting, such as --concurrency 5; the verb reset drops an override"),
        ("queues tasks:app set mail --concurrency many", "concurrency must be a whole number from 1 to 9,007,199,254,740,991, not 'many'"),
        ("queues tasks:app set mail --rate 5", 'rate \'5\' is not understood; write for example "100/s", "5/m", "10/500ms"'),
        ("lanes tasks:app nope", 'queue "nope" is not declared; declared queues: default, mail'),
        ("lanes tasks:app pause mail", 'Command "lanes pause" parameter LANE requires an argument; see windlass lanes pause --help'),
        ("lanes tasks:app set mail acme", "name a setting, such as --weight 2; the verb reset drops an override"),
        ("worker tasks:app --queues nope", 'queue "nope" is not declared; declared queues: default, mail'),
        ("worker tasks:app --group x", 'a group is "slots:queue,queue", such as "7:high,default", not \'x\''),
        ("worker tasks:app --group 1:nope", 'queue "nope" is not declared; declared queues: default, mail'),
        ("worker tasks:app --processes 0", "processes must be a whole number from 1 to 256, not 0"),
    ],
)  # fmt: skip
def test_what_is_mistyped(shell: Shell, tokens: str, complaint: str) -> None:
    shell("queues", "tasks:app")  # the file is there
    answer = shell(*tokens.split(" "))
    assert answer.code == 2
    assert answer.complaint == complaint


def test_a_state_that_does_not_exist(shell: Shell) -> None:
    complaint = shell("jobs", "tasks:app", "--state", "ded").complaint
    assert 'Choose from: "blocked", "scheduled", "ready", "running", "done", "dead", "cancelled"' in complaint


@pytest.mark.parametrize("command", [("jobs", "show"), ("jobs", "cancel"), ("dead", "show"), ("explain", "")])
def test_an_id_that_is_none(shell: Shell, command: tuple[str, str]) -> None:
    shell("queues", "tasks:app")
    noun, verb = command
    answer = shell(noun, "tasks:app", *([verb] if verb else []), "17")
    assert answer.code == 2
    assert answer.complaint == (f"job id '17' is not a UUIDv7 in lower-case text, such as {UNKNOWN}")


def test_a_job_that_is_not_known(shell: Shell) -> None:
    shell("queues", "tasks:app")
    for tokens in (("jobs", "tasks:app", "show", UNKNOWN), ("explain", "tasks:app", UNKNOWN)):
        answer = shell(*tokens)
        assert answer.code == 1
        assert answer.complaint == (
            f"job {UNKNOWN} is not known: it finished longer ago than jobs are kept (see retention), "
            "somebody discarded it, it never existed, or the store has lost it (restored from a backup, flushed)"
        )


def test_a_file_that_is_no_database(shell: Shell) -> None:
    (shell.folder / "windlass.db").write_bytes(b"not a database, but long enough to be one" * 200)
    for tokens in (("jobs",), ("queues",), ("dead",), ("workers",), ("enqueue", "add", '{"a": 1}')):
        answer = shell(tokens[0], "tasks:app", *tokens[1:])
        assert answer.code == 1
        assert answer.complaint == f'"{shell.folder}/windlass.db" is not a SQLite database; name another file'


def test_a_damaged_database(shell: Shell) -> None:
    shell.task("add").enqueue(1)
    shell.app.close()
    path = shell.folder / "windlass.db"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    for tokens in (("jobs",), ("queues",), ("enqueue", "add", '{"a": 1}')):
        answer = shell(tokens[0], "tasks:app", *tokens[1:])
        assert answer.code == 1
        assert "is damaged" in answer.complaint
        assert answer.complaint.endswith("restore it from a backup")


def test_a_folder_and_a_file_of_somebody_else(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    (shell.folder / "there").mkdir()
    for url, complaint in (
        ("sqlite:///there", f'"{shell.folder}/there" is a folder; name a file inside it'),
        (
            "sqlite:///away/w.db",
            f'the folder "{shell.folder}/away" for the SQLite file does not exist; create it first',
        ),
        ("sqlite://host/w.db", 'a SQLite URL names no host, got "host"'),
    ):
        monkeypatch.setenv("WINDLASS_URL", url)
        sys.modules.pop("tasks", None)
        answer = shell("jobs", "tasks:app")
        assert answer.code == 2
        assert answer.complaint.startswith(complaint)


def test_a_store_that_nobody_else_sees(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_URL", "memory://")
    for tokens in (("jobs", "tasks:app"), ("enqueue", "tasks:app", "add", '{"a": 1}')):
        answer = shell(*tokens)
        assert answer.code == 2
        assert answer.complaint == (
            "a memory store lives inside one process: this command has one of its own; "
            "use one that is shared, such as sqlite:///windlass.db"
        )


def test_a_store_that_does_not_answer(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.write(
        "away.py", "from windlass import Windlass\napp = Windlass('redis://me:secret@127.0.0.1:1/0')\n"
    )
    for command in ("jobs", "queues", "workers"):
        answer = shell(command, "away:app")
        assert answer.code == 1
        assert "nothing listens where" in answer.complaint
        assert "secret" not in answer.err
    answer = shell("doctor", "away:app")
    assert answer.code == 1
    assert "nothing listens where" in answer.out
    assert "redis://me@127.0.0.1:1/0" in answer.out
    assert "secret" not in answer.out


def test_a_folder_that_is_gone(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = shell.folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    answer = shell("jobs", "elsewhere:app")
    assert answer.code == 2
    assert answer.complaint == "the current folder does not exist any more; change to another"


def test_a_bug_is_one_line_too_and_the_traceback_is_a_variable_away(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> object:
        raise RuntimeError("oh\nno")

    monkeypatch.setattr("windlass.admin.service.Jobs", broken)
    answer = shell("jobs", "tasks:app")
    assert answer.code == 1
    assert (
        answer.err.splitlines()[-1]
        == "windlass: unexpected RuntimeError: oh no; set WINDLASS_DEBUG=1 to see where"
    )
    monkeypatch.setenv("WINDLASS_DEBUG", "1")
    answer = shell("jobs", "tasks:app")
    assert "Traceback" in answer.err
    assert answer.err.endswith("windlass: unexpected RuntimeError: oh no\n")


def test_an_interrupt_is_silent(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> object:
        raise KeyboardInterrupt

    shell("queues", "tasks:app")
    monkeypatch.setattr("windlass.admin.service.Jobs", interrupted)
    assert shell("jobs", "tasks:app") == (130, "", "")


def test_slots_said_twice(shell: Shell) -> None:
    complaint = shell("worker", "tasks:app", "--group", "2:default", "--concurrency", "3").complaint
    assert complaint == "--group and --concurrency both set the number of slots: leave --concurrency out"


def test_a_url_that_is_none(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_URL", "a.db")
    assert "a store is named by a URL, such as sqlite:///windlass.db" in shell("jobs", "tasks:app").complaint


@pytest.mark.parametrize(
    ("redirection", "code", "words"),
    [
        (
            ">/dev/full",
            1,
            "the command did its work, but its answer cannot be printed: No space left on device",
        ),
        (">&-", 0, ""),
        (">&- 2>&-", 0, ""),
    ],
)
def test_an_answer_that_nobody_can_read(shell: Shell, redirection: str, code: int, words: str) -> None:
    command = f'"{sys.executable}" -m windlass enqueue tasks:app add \'{{"a": 1}}\' {redirection}'
    done = subprocess.run(  # the shell makes what is tested: a descriptor that is closed or full
        ["/bin/sh", "-c", command], cwd=shell.folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, words in done.stderr) == (code, True)
    assert "Traceback" not in done.stderr
    assert len(shell.json("jobs", "tasks:app")) == 1

"""Text for pipes and terminals, and the help and the reference of every command."""

import asyncio
import io
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cyclopts import App
from tests.cli.shell import Shell

from windlass.cli import main
from windlass.cli.output import Column, each, progress, show
from windlass.cli.program import build
from windlass.cli.reference import reference
from windlass.cli.text import age, mebibytes, one_line, safe, shortened, since

ROOT = Path(__file__).parents[2]


class Terminal(io.StringIO):
    """Somewhere a person looks."""

    def isatty(self) -> bool:
        return True


def test_nothing_in_a_text_can_steer_a_terminal() -> None:
    assert safe("a\x1b[31mb\x07\x9b\u202e") == "a\\x1b[31mb\\x07\\x9b\\x202e"
    assert safe("two\nlines\tand a tab") == "two\nlines\tand a tab"
    assert one_line(" two \r\n  lines\tx ") == "two lines x"
    assert shortened("abcdef", 4) == "abc…"
    assert shortened("abcd", 4) == "abcd"


def test_ages() -> None:
    lengths = [0, 0.85, 1, 59.9, 60, 185, 3600, 4 * 3600 + 1200, 86_400 * 2 + 3600 * 3]
    assert [age(length) for length in lengths] == [
        *("0ms", "850ms", "1s", "59s", "1m00s", "3m05s", "1h00m", "4h20m", "2d03h")
    ]
    now = datetime.now(UTC)
    assert since(now - timedelta(seconds=5), now) == "5s"
    assert since(now + timedelta(seconds=5), now) == "in 5s"
    assert since(None, now) == ""
    assert (mebibytes(0), mebibytes(3 * 2**20)) == ("", "3 MiB")


def test_a_listing_of_any_length_stays_aligned_and_is_printed_as_it_comes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    columns = (Column[int]("n", str, right=True), Column[int]("text", lambda n: "x" * (n % 3)))
    asyncio.run(show(each(range(450)), columns, json=False, nothing=""))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["  N  TEXT", "  0", "  1  x"]
    assert len(lines) == 451
    assert lines[-1] == "449  xx"


def test_a_person_gets_a_table_and_no_more_than_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, aside = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", aside)
    columns = (Column[int]("n", str), Column[int]("state", lambda _: "dead [bold]"))
    asyncio.run(show(each(range(80)), columns, json=False, nothing=""))
    lines = terminal.getvalue().splitlines()
    assert len(lines) == 51
    assert "dead [bold]" in lines[1]  # markup in what users named is text
    assert aside.getvalue() == "only the first 50 are shown; use --limit for more\n"
    terminal.truncate(0)
    asyncio.run(show(each(range(80)), columns, json=False, nothing="", limit=60))
    assert len(terminal.getvalue().splitlines()) == 61


def test_a_person_sees_a_bar_beside_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("replayed", 10, shown=True) as advance:
        advance(10)
    assert "10/10" in terminal.getvalue()
    terminal.truncate(0)
    terminal.seek(0)
    with progress("replayed", 10, shown=False) as advance:
        advance(10)
    assert terminal.getvalue() == ""


def test_a_job_shown_to_a_person(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    job = shell.task("add").enqueue(1)
    monkeypatch.setattr("windlass.cli.output.is_terminal", lambda: True)
    answer = shell("jobs", "tasks:app", "show", job.id)
    assert f"id         {job.id}" in answer.out
    assert "state      ready" in answer.out


def _commands(app: App, *path: str) -> Iterator[tuple[str, ...]]:
    for name, command in app.resolved_commands().items():
        if not name.startswith("-"):
            yield (*path, name)
            yield from _commands(command, *path, name)


@pytest.mark.parametrize("path", list(_commands(build())), ids=" ".join)
def test_every_command_has_help_with_examples(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*path, "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith(f"Usage: windlass {path[0]}")
    examples = out.partition("Examples:\n")[2].splitlines()
    assert examples
    assert f"windlass {path[0]}" in " ".join(examples)


def test_without_a_command_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "Usage: windlass COMMAND" in out


def test_the_reference_is_current() -> None:
    assert (ROOT / "docs" / "cli.md").read_text() == reference(), (
        "make it anew: python -m windlass.cli.reference > docs/cli.md"
    )


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("w", "worker webhooks workers"),
        ("jobs s", "show"),
        ("dead tasks : app replay --o", "--older-than"),  # bash breaks words at a colon
        ("jobs tasks : app --state d", "done dead"),
        ("worker tasks : app --max-", "--max-jobs --max-memory"),
    ],
)
def test_bash_completes_commands_verbs_and_options(tmp_path: Path, typed: str, offered: str) -> None:
    script = build().generate_completion(shell="bash")  # noqa: S604 - the name of one
    words = typed.split()
    test = f"COMP_WORDS=(windlass {typed}); COMP_CWORD={len(words)}; _windlass; echo ${{COMPREPLY[@]}}"
    (tmp_path / "completion").write_text(f"{script}\n{test}\n")
    done = subprocess.run(
        ["bash", "--norc", str(tmp_path / "completion")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == offered.split()


@pytest.mark.parametrize("command", ["serve", "dev"])
def test_what_serves_the_dashboard_says_so(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([command, "--help"])
    assert "dashboard" in capsys.readouterr().out

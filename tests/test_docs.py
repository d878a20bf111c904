"""The documentation tells the truth: snippets run, commands exist, links lead somewhere, tables agree."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.snippets import snippets

from windlass.client.options import CallOptions
from windlass.client.schedule import ScheduleOptions
from windlass.client.settings import QueueOptions
from windlass.client.task import TaskKeywords
from windlass.config import EVENTS_KEPT, EVENTS_KEPT_FOR_RELAYS, PREFIX, Config
from windlass.core.state import PLAIN_NAMES
from windlass.worker.current import Current

ROOT = Path(__file__).parents[1]
PAGES = sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))
WITH_PYTHON = [page for page in PAGES if any(found.language in ("py", "python") for found in snippets(page))]
CLI = ROOT / "docs" / "cli.md"


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", WITH_PYTHON, ids=named)
def test_snippets_run(page: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "tests" / "snippets.py"), str(page)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_the_readme_has_a_snippet() -> None:
    assert ROOT / "README.md" in WITH_PYTHON


# --- links --------------------------------------------------------------------------------------------------

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def prose(page: Path) -> str:
    """A page without its blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """What one can link to within a page."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(prose(page))
    }


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(prose(page)):
        if "://" in link or link.startswith("mailto:"):
            continue
        target, _, anchor = link.partition("#")
        found = page if not target else (page.parent / target).resolve()
        assert found.exists(), link
        if anchor:
            assert anchor in anchors(found), link


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in _LINK.findall(prose(index))}
    pages = {page for page in PAGES if page.parent == index.parent} - {index}
    assert pages <= linked


# --- commands -----------------------------------------------------------------------------------------------

COMMANDS = [
    (page, line)
    for page in PAGES
    if page != CLI
    for found in snippets(page)
    if found.language in ("console", "sh", "ini", "dockerfile", "yaml")
    for line in re.findall(r"\bwindlass ((?:[a-z]+)(?: .*)?)$", found.text, re.MULTILINE)
]


def reference(command: str) -> str:
    """What the reference says of a command, its verbs included."""
    sections = re.split(r"^## ", CLI.read_text(), flags=re.MULTILINE)
    return next((text for text in sections if text.startswith(f"{command}\n")), "")


@pytest.mark.parametrize(
    ("page", "line"), COMMANDS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_commands_exist(page: Path, line: str) -> None:
    command = line.split(maxsplit=1)[0]
    said = reference(command)
    assert said, f"{named(page)}: there is no command {command}"
    for option in re.findall(r"(?<=\s)--[a-z-]+", line.partition(" #")[0]):
        assert f"`{option}`" in said, f"{named(page)}: windlass {command} has no {option}"


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 20


TASKS = """
from windlass import Windlass

app = Windlass()
app.queue("api")
app.queue("images")


@app.task(queue="api")
def resize(image: str, width: int) -> str: ...


@app.task
def count(to: int) -> str: ...


@app.task
def divide(a: float, b: float) -> float: ...


app.intake("kafka://localhost:9092/orders", task=count)
app.relay("amqp://localhost/ends", on="dead")
"""
TYPE_ALL = """
import contextlib, io, json, shlex, sys
from windlass.cli import main
for line in json.load(sys.stdin):
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = main(shlex.split(line))
    print(json.dumps([line, code, said.getvalue()]))
"""


def test_commands_are_understood(tmp_path: Path) -> None:
    """What pages say to type is typed. A job that is not there is no mistake of the page; the rest is."""
    (tmp_path / "shop").mkdir()
    for name in ("tasks.py", "shop/tasks.py", "shop/worker.py"):
        (tmp_path / name).write_text(TASKS)
    (tmp_path / "jobs.jsonl").touch()
    (tmp_path / "arguments.json").write_text('{"image": "cat.png", "width": 640}')
    environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    environment["WINDLASS_HISTORY"] = "sqlite:///history.db"
    typed = sorted(
        {
            re.split(r" \|| #| >", line)[0]
            for page, line in COMMANDS
            if not line.startswith(("worker", "dev", "demo", "serve"))
            and named(page) not in ("docs/testing.md", "docs/django.md")  # there the project names the app
        }
    )
    done = subprocess.run(
        [sys.executable, "-c", TYPE_ALL],
        cwd=tmp_path,
        env=environment,
        input=json.dumps(typed),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    answers = [json.loads(answer) for answer in done.stdout.splitlines()]
    assert len(answers) == len(typed)
    for line, code, complaint in answers:
        wrong_on_purpose = "many" in line
        assert code == 0 or "no such job" in complaint or "not known" in complaint or wrong_on_purpose, (
            line,
            complaint,
        )


# --- tables -------------------------------------------------------------------------------------------------


def rows(page: Path) -> Iterator[list[str]]:
    """The cells of all tables of a page, without the backticks."""
    for line in prose(page).splitlines():
        if line.startswith("| ") and not line.startswith("|---"):
            yield [cell.strip().strip("`") for cell in line.strip().strip("|").split(" | ")]


def test_the_settings_are_those_of_the_code() -> None:
    described = {row[0]: row for row in rows(ROOT / "docs" / "configuration.md")}
    fields = Config.__struct_fields__
    assert [name for name in described if name in fields] == list(fields)
    defaults = Config()
    for name in fields:
        assert described[name][1] == PREFIX + name.upper()
        assert described[name][2].strip("`").startswith(shown(name, getattr(defaults, name))), name


def shown(name: str, value: object) -> str:
    """A default as the page writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if value == ():
        return "nothing"
    if name == "events_kept":
        return f"{EVENTS_KEPT:,}; with a [relay](relays.md) {EVENTS_KEPT_FOR_RELAYS:,}"
    if name == "values_kept":
        return "as long as the store"
    if value is None:
        return "none" if name in ("max_size", "front", "history", "archive", "values") else "the store's"
    if name in ("url", "namespace"):
        return str(value)
    assert isinstance(value, int)
    if name in ("max_payload", "max_value"):
        return f"{value >> 20} MiB"
    if name == "values_over":
        return f"{value >> 10} KiB"
    return f"{value // 1_000_000} s" if value % 1_000_000 == 0 else f"{value // 1_000} ms"


OPTIONS = {
    ("tasks.md", "## `@app.task(...)`"): TaskKeywords,
    ("tasks.md", "## `task.using(...)`"): CallOptions,
    ("tasks.md", "## Queues, lanes, schedules"): QueueOptions,
    ("schedules.md", "# Schedules"): ScheduleOptions,
}


@pytest.mark.parametrize(("page", "heading"), OPTIONS)
def test_the_options_are_those_of_the_code(page: str, heading: str) -> None:
    section = (ROOT / "docs" / page).read_text().partition(f"{heading}\n")[2].partition("\n## ")[0]
    described = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert described == list(OPTIONS[page, heading].__annotations__)


def test_what_current_offers_is_described() -> None:
    section = (ROOT / "docs" / "tasks.md").read_text().partition("## `current`\n")[2].partition("\n## ")[0]
    described = re.findall(r"^\| `current\.(\w+)", section, re.MULTILINE)
    assert sorted(described) == sorted(name for name in vars(Current) if not name.startswith("_"))


def test_the_plain_states_are_those_of_the_code() -> None:
    described = {row[0]: row[1] for row in rows(ROOT / "docs" / "http.md")}
    for plain in set(PLAIN_NAMES.values()):
        states = [str(state) for state, name in PLAIN_NAMES.items() if name == plain]
        assert re.findall(r"\w+", described[plain]) == states


def test_every_room_is_on_the_map() -> None:
    rooms = [path for path in (ROOT / "src" / "windlass").iterdir() if (path / "__init__.py").exists()]
    shown = prose(ROOT / "ARCHITECTURE.md")
    assert len(rooms) > 8
    assert [room.name for room in rooms if f"`{room.name}/" not in shown] == []


_FUNCTION = re.compile(r"`((?:tests|src/windlass)/[\w/]+\.py)(?:::(\w+))?`")


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_functions_that_are_named_exist(page: Path) -> None:
    for file, function in _FUNCTION.findall(page.read_text()):
        assert (ROOT / file).is_file(), file
        if function:
            assert re.search(rf"def {function}\(", (ROOT / file).read_text()), f"{file}::{function}"
